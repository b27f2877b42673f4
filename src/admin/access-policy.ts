/**
 * Who may ask the admin listener. It knows no credentials: where it listens decides who can reach it, and this keeps
 * out who reaches it through a browser in between. Pure: no `this`, no I/O, no clock.
 */

import { isLoopbackHost } from '../address-policy.ts';
import { isForeignPage } from '../edge/fetch-metadata-policy.ts';
import { hostName, listedHostName } from '../edge/host-policy.ts';

export interface AdminHosts {
  /** ADMIN_HOST. */
  readonly listensOn: string;
  /** It can be reached from this machine only. */
  readonly isLocal: boolean;
  /** ALLOWED_HOSTS. */
  readonly allowed: readonly string[] | undefined;
}

const ipv4 = /^\d{1,3}(?:\.\d{1,3}){3}$/;

/**
 * Whether to answer a request with this `Host`, against DNS rebinding: a page's own name must not come to mean us.
 *
 * On loopback only loopback names and ADMIN_HOST are ours. Elsewhere a scraper comes by whatever the network calls us,
 * so every name passes that nobody can register and point here: addresses, names without a dot, `.internal` (reserved
 * for private use); and those of ALLOWED_HOSTS.
 *
 * @param host the field's value; `undefined` where it is missing or sent twice
 */
export function isAdminHost(host: string | undefined, { listensOn, isLocal, allowed }: AdminHosts): boolean {
  const name = host === undefined ? undefined : hostName(host);
  if (name === undefined) return false;
  if (isLoopbackHost(name) || name === listedHostName(listensOn)) return true;
  if (isLocal) return false;
  if (name.startsWith('[') || ipv4.test(name) || !name.includes('.') || name.endsWith('.internal'))
    return true;
  return allowed?.includes(name) === true;
}

export interface Asked {
  readonly method: string;
  readonly path: string;
  readonly host: string | undefined;
  readonly origin: string | undefined;
  /** `Sec-Fetch-Site`, `-Mode` and `-Dest`: browsers set them, and no page can. */
  readonly site: string | undefined;
  readonly mode: string | undefined;
  readonly dest: string | undefined;
}

/** Whether a page of another site asks (a purge is a plain POST). A link to the console is none: it shows it to whoever follows it. */
export function isOthersPage({ method, path, mode, dest, ...from }: Asked): boolean {
  const isLink = method === 'GET' && path === '/' && mode === 'navigate' && dest === 'document';
  return !(isLink && from.origin === undefined) && isForeignPage(from, () => false);
}
