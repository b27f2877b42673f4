/** The value of `SHARED_STORE`: where the store listens. */
import { hostInUrl, isLoopbackHost, socketPath } from '../http/address.ts';

export type StoreAddress =
  | { readonly kind: 'unix'; readonly path: string }
  | {
      readonly kind: 'tcp';
      readonly host: string;
      readonly port: number;
      readonly tls: boolean;
      /** An ACL user; `undefined` for the default one. */
      readonly username: string | undefined;
      readonly database: number;
    };

/**
 * Reads `redis://[user@]host[:port][/database]`, the same with `rediss://` for TLS, or `unix:/path`.
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
  const url = URL.parse(text);
  if (url === null || (url.protocol !== 'redis:' && url.protocol !== 'rediss:') || url.hostname === '') {
    throw new TypeError('must be redis://host:port, rediss://host:port or unix:/path');
  }
  if (url.password !== '')
    throw new TypeError('holds a password: name its place in SHARED_STORE_PASSWORD_FROM');
  if (url.search !== '' || url.hash !== '') throw new TypeError('must not have a query or a fragment');
  const database = /^\/?(\d{1,4})?$/.exec(url.pathname);
  if (database === null) throw new TypeError('has a path that is not the number of a database');
  return {
    kind: 'tcp',
    host: url.hostname.replace(/^\[|\]$/g, ''),
    port: url.port === '' ? 6379 : Number(url.port),
    tls: url.protocol === 'rediss:',
    username: url.username === '' ? undefined : decodeURIComponent(url.username),
    database: Number(database[1] ?? 0),
  };
}

/** The address as it may be shown: it holds no password. */
export function describeAddress(address: StoreAddress): string {
  if (address.kind === 'unix') return `unix:${address.path}`;
  const { host, port, tls } = address;
  return `${tls ? 'rediss' : 'redis'}://${hostInUrl(host)}:${port}`;
}

/** Why the way to the store is not safe for its password; `undefined` where it is, or there is none. */
export function passwordInClear(address: StoreAddress, passwordFrom: string | undefined): string | undefined {
  if (passwordFrom === undefined || address.kind === 'unix' || address.tls) return undefined;
  if (isLoopbackHost(address.host)) return undefined;
  return 'SHARED_STORE: redis:// sends the password to another machine in clear; use rediss://, or keep that network to the gateways and the store';
}
