/** The value of `SHARED_STORE`: which server or servers hold what gateways share. Pure. */
import { hostFromUrl, hostInUrl, isLoopbackHost, socketPath } from '../http/address.ts';

export interface StoreServer {
  readonly host: string;
  readonly port: number;
}

/** How servers are reached over TCP. */
interface StoreAccess {
  readonly tls: boolean;
  /** An ACL user; `undefined` for the default one. */
  readonly username: string | undefined;
}

export type StoreAddress =
  | { readonly kind: 'unix'; readonly path: string }
  | (StoreAccess & StoreServer & { readonly kind: 'tcp'; readonly database: number })
  /** The sentinels know which server is the master of this name. */
  | (StoreAccess & {
      readonly kind: 'sentinel';
      readonly servers: readonly StoreServer[];
      readonly master: string;
      readonly database: number;
    })
  /** Any of the servers knows all nodes of the cluster. */
  | (StoreAccess & { readonly kind: 'cluster'; readonly servers: readonly StoreServer[] });

const expected =
  'must be redis://host:port, rediss://host:port, unix:/path, redis+sentinel://host:port,…/master or redis+cluster://host:port,…';
const addressShape =
  /^(rediss?)(?:\+(sentinel|cluster))?:\/\/(?:([^/?#]*)@)?([^/?#@]+)(?:\/([^?#]*))?([?#].*)?$/s;

/**
 * Reads `redis://[user@]host[:port][/database]`, `redis+sentinel://[user@]host[:port],…/master[/database]`,
 * `redis+cluster://[user@]host[:port],…`, the same with `rediss` for TLS, or `unix:/path`.
 *
 * @throws TypeError saying what is wrong, without the value: it may hold a password
 */
export function parseStoreAddress(text: string): StoreAddress {
  const path = socketPath(text);
  if (path !== undefined) {
    if (!path.startsWith('/') || path.includes('\0'))
      throw new TypeError('must have an absolute path after "unix:"');
    return { kind: 'unix', path };
  }
  const [, scheme, kind = 'tcp', user, hosts = '', place = '', more] = addressShape.exec(text) ?? [];
  if (scheme === undefined) throw new TypeError(expected);
  if (user?.includes(':'))
    throw new TypeError('holds a password: name its place in SHARED_STORE_PASSWORD_FROM');
  if (more !== undefined) throw new TypeError('must not have a query or a fragment');
  const servers = hosts.split(',').map((host) => parseServer(host, kind === 'sentinel' ? 26_379 : 6_379));
  const access = { tls: scheme === 'rediss', username: user ? decodeUser(user) : undefined };
  if (kind === 'cluster') {
    if (place !== '') throw new TypeError('has a path: a cluster has one database, which has no number');
    return { kind, ...access, servers };
  }
  if (kind === 'sentinel') {
    const [master = '', ...rest] = place.split('/');
    if (!/^[\w.-]{1,128}$/.test(master)) {
      throw new TypeError('must end with the name by which the sentinels know the master, as in …/mymaster');
    }
    return { kind, ...access, servers, master, database: parseDatabase(rest.join('/')) };
  }
  const [server, ...others] = servers as [StoreServer, ...StoreServer[]];
  if (others.length > 0)
    throw new TypeError('names several hosts: write redis+sentinel:// or redis+cluster://');
  return { kind: 'tcp', ...access, ...server, database: parseDatabase(place) };
}

/** @throws TypeError */
function parseServer(text: string, port: number): StoreServer {
  const url = URL.parse(`redis://${text}`);
  if (url === null || url.hostname === '' || url.username !== '' || url.pathname !== '') {
    throw new TypeError(expected);
  }
  return { host: hostFromUrl(url.hostname), port: url.port === '' ? port : Number(url.port) };
}

/** @throws TypeError */
function parseDatabase(text: string): number {
  if (!/^\d{0,4}$/.test(text)) throw new TypeError('has a path that is not the number of a database');
  return Number(text);
}

/** @throws TypeError */
function decodeUser(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new TypeError('has a user that is not percent-encoded');
  }
}

/** The address as it may be shown: it holds no user and no password. */
export function describeAddress(address: StoreAddress): string {
  if (address.kind === 'unix') return `unix:${address.path}`;
  const scheme = address.tls ? 'rediss' : 'redis';
  if (address.kind === 'tcp') return `${scheme}://${describeServer(address)}`;
  const servers = address.servers.map(describeServer).join(',');
  const master = address.kind === 'sentinel' ? `/${address.master}` : '';
  return `${scheme}+${address.kind}://${servers}${master}`;
}

export function describeServer({ host, port }: StoreServer): string {
  return `${hostInUrl(host)}:${port}`;
}

/** Why the way to the store is not safe for its password; `undefined` where it is, or there is none. */
export function passwordInClear(address: StoreAddress, passwordFrom: string | undefined): string | undefined {
  if (passwordFrom === undefined || address.kind === 'unix' || address.tls) return undefined;
  const servers = address.kind === 'tcp' ? [address] : address.servers;
  if (servers.every(({ host }) => isLoopbackHost(host))) return undefined;
  return 'SHARED_STORE: redis:// sends the password to another machine in clear; use rediss://, or keep that network to the gateways and the store';
}
