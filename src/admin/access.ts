/**
 * Which requests the admin listener answers. Reading takes no credentials: the address it listens on decides who can
 * reach it, and these rules refuse web pages that reach it through a browser. Pure: no `this`, no I/O, no clock.
 */

import { isForeignPage } from '../edge/fetch-metadata.ts';
import { isLoopbackHost } from '../http/address.ts';
import { hostName, listedHostName } from '../http/host.ts';

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
 * Whether to answer a request with this `Host`. Against DNS rebinding: a web page must not point its own name at the
 * listener.
 *
 * On loopback only loopback names and ADMIN_HOST are answered. Elsewhere scrapers use the names of their network, so
 * every name is answered that cannot be registered publicly: addresses, names without a dot, `.internal` (reserved
 * for private use); and the names of ALLOWED_HOSTS.
 *
 * @param host the field's value; `undefined` where HTTP/1.0 left it out
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

/** A request, as far as these rules look at it. */
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

/**
 * Whether a page of another site sent the request (a purge is a plain POST). Top-level navigation to the console is
 * allowed: the other site cannot read it.
 */
export function isOthersPage({ method, path, mode, dest, ...from }: Asked): boolean {
  const isLink = method === 'GET' && path === '/' && mode === 'navigate' && dest === 'document';
  return !(isLink && from.origin === undefined) && isForeignPage(from, () => false);
}
