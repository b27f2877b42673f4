/**
 * The admin listener's middleware: what every request passes, and what one that changes something passes besides. It
 * decides on the bytes as they came (`incoming`) and never on the URL that was made of them.
 *
 * Reading takes no credentials: the address that the listener stands on decides who can reach it, and the guard refuses web
 * pages that reach it through a browser.
 */
import { hash, timingSafeEqual } from 'node:crypto';
import type { HttpBindings } from '@hono/node-server';
import type { MiddlewareHandler } from 'hono';
import { isForeignPage } from '../edge/cross-origin.ts';
import { announcesBody } from '../edge/request-head.ts';
import { newRequestId } from '../edge/request-ids.ts';
import { GatewayError } from '../errors.ts';
import { hostName, isLoopbackHost, listedHostName } from '../http/address.ts';

export type AdminEnv = {
  Bindings: HttpBindings;
  Variables: {
    requestId: string;
    /** The route has searched its reply for the key, piece by piece. */
    isSearched?: true;
  };
};

export interface AdminHosts {
  /** ADMIN_HOST. */
  readonly listensOn: string;
  /** It can be reached from this machine only. */
  readonly isLocal: boolean;
  /** ALLOWED_HOSTS. */
  readonly allowed: readonly string[] | undefined;
}

export interface MiddlewareOptions {
  readonly hosts: AdminHosts;
  /** Reads the token of ADMIN_TOKEN_FROM; `undefined` where that is not set. Rejects with an error fit for the log. */
  readonly readToken: (() => Promise<string>) | undefined;
  /** Replaces every form of the upstream key in a text: the last step before a reply leaves. */
  readonly redact: (text: string) => string;
  /** Whether each reply is to end its connection. */
  readonly isClosing: () => boolean;
}

/** The bytes of a text without the key. It is searched byte for byte as Latin-1, as the upstream's answers are. */
export function searched(text: string | ArrayBuffer, redact: MiddlewareOptions['redact']): Buffer {
  const bytes = typeof text === 'string' ? Buffer.from(text) : Buffer.from(text);
  return Buffer.from(redact(bytes.toString('latin1')), 'latin1');
}

/** Searches each reply for the key. */
export function redactReplies({
  redact,
  isClosing,
}: Pick<MiddlewareOptions, 'redact' | 'isClosing'>): MiddlewareHandler<AdminEnv> {
  return async function redactReply(context, next) {
    await next();
    const { status, headers } = context.res;
    if (isClosing()) headers.set('connection', 'close');
    if (context.get('isSearched')) return;
    const body = searched(await context.res.arrayBuffer(), redact);
    headers.set('content-length', String(body.length));
    // Hono copies the fields of the former response to a new one, unless that is unset first.
    context.res = undefined;
    context.res = new Response(body, { status, headers });
  };
}

/** Gives the request an id of ours. A caller's own is not taken over: it might hold a secret, and is never repeated. */
export const numberRequest: MiddlewareHandler<AdminEnv> = async (context, next) => {
  const id = newRequestId();
  context.set('requestId', id);
  context.header('x-request-id', id);
  await next();
};

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

/** @throws GatewayError for another Host, and for a page of another site */
export function guardAccess(hosts: AdminHosts): MiddlewareHandler<AdminEnv> {
  return async function guard({ env: { incoming }, req }, next) {
    const { headers } = incoming;
    const { host } = headers;
    if (!isAdminHost(host, hosts)) {
      throw new GatewayError('host-not-allowed', {
        reason: 'a Host that the admin listener does not answer for',
        detail:
          'The admin listener answers for addresses and private names; docs/operating.md, "Admin listener", has the rule.',
      });
    }
    const field = (name: string): string | undefined => headers[name]?.toString();
    const asked = {
      method: req.method,
      path: req.path,
      host,
      origin: field('origin'),
      site: field('sec-fetch-site'),
      mode: field('sec-fetch-mode'),
      dest: field('sec-fetch-dest'),
    };
    if (isOthersPage(asked)) {
      throw new GatewayError('origin-not-allowed', {
        reason: 'a page of another site asked the admin listener',
        detail: 'Pages of other sites may not use the admin listener.',
      });
    }
    await next();
  };
}

/**
 * What changes something needs the token of ADMIN_TOKEN_FROM, wherever other machines can reach the listener.
 *
 * @throws GatewayError 403 where no token is set, 401 where the request does not have it
 */
export function guardChanges({ hosts, readToken }: MiddlewareOptions): MiddlewareHandler<AdminEnv> {
  return async function guardChange({ env: { incoming } }, next) {
    if (hosts.isLocal) return next();
    if (readToken === undefined) {
      throw new GatewayError('caller-forbidden', {
        reason: 'a change was asked for, and ADMIN_TOKEN_FROM is not set',
        detail:
          'Other machines can reach the admin listener, and ADMIN_TOKEN_FROM is not set: nothing can be changed here.',
      });
    }
    const [, sent] = /^Bearer +(\S+)$/i.exec(incoming.headers.authorization ?? '') ?? [];
    if (sent === undefined || !isSameSecret(sent, await readOrRefuse(readToken))) {
      throw new GatewayError('caller-unauthenticated', {
        reason: `a change was asked for ${sent === undefined ? 'without the token' : 'with a wrong token'}`,
        detail:
          'A change needs the token of ADMIN_TOKEN_FROM: send it as "Authorization: Bearer <token>", once.',
        headers: { 'www-authenticate': 'Bearer realm="admin"' },
      });
    }
    await next();
  };
}

/** @throws GatewayError 500, without a stack for the log: what ADMIN_TOKEN_FROM names is to be repaired */
async function readOrRefuse(readToken: () => Promise<string>): Promise<string> {
  try {
    return await readToken();
  } catch (error) {
    throw new GatewayError('internal-error', {
      reason: `a change was asked for, and the token cannot be read: ${(error as Error).message}`,
      detail:
        'The gateway cannot read the token of ADMIN_TOKEN_FROM, so nothing can be changed here. Its log says why.',
    });
  }
}

/** Takes the same time whatever the two have in common. */
function isSameSecret(one: string, other: string): boolean {
  return timingSafeEqual(hash('sha256', one, 'buffer'), hash('sha256', other, 'buffer'));
}

/** @throws GatewayError for a request with a body */
export const refuseBody: MiddlewareHandler<AdminEnv> = async ({ env }, next) => {
  if (announcesBody(env.incoming.headers)) {
    throw new GatewayError('invalid-request', {
      detail: 'Nothing here takes a body.',
      headers: { connection: 'close' },
    });
  }
  await next();
};
