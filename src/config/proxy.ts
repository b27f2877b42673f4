/** Readers of the settings that name the way out through a proxy, which other programs read as well. */
import { isIP } from 'node:net';
import {
  canonicalAddress,
  hostFromUrl,
  matchNetworks,
  type Network,
  type NoProxy,
  type ProxyAddress,
  parseNetwork,
} from '../http/address.ts';
import { ConfigValueError, type Environment, type Reader } from './values.ts';

/** Settings that others know by their lower-case names too; where both are set, the lower-case one counts, as in curl. */
export const caselessSettings = ['HTTPS_PROXY', 'HTTP_PROXY', 'NO_PROXY'] as const;

/** The value of a variable, under either spelling where it has two. Empty counts as not set. */
export function variableIn(environment: Environment, name: string): string | undefined {
  const isCaseless = (caselessSettings as readonly string[]).includes(name);
  return (isCaseless && environment[name.toLowerCase()]?.trim()) || environment[name]?.trim() || undefined;
}

/** `http://[user:password@]host[:port]`, `https://…`, or `host:port`, which is `http:`. */
export const proxyAddress: Reader<ProxyAddress> = (value) => {
  const url = /^[\x21-\x7e]+$/.test(value)
    ? URL.parse(value.includes('://') ? value : `http://${value}`)
    : null;
  if (url === null || url.hostname === '' || (url.protocol !== 'http:' && url.protocol !== 'https:'))
    throw new ConfigValueError(
      'expects the address of a proxy that takes CONNECT, like http://proxy.internal:3128',
    );
  if (url.pathname !== '/' || url.search !== '' || url.hash !== '')
    throw new ConfigValueError('must have neither path, query nor fragment');
  const isTls = url.protocol === 'https:';
  return {
    host: hostFromUrl(url.hostname),
    port: Number(url.port) || (isTls ? 443 : 80),
    isTls,
    credentials: url.username === '' && url.password === '' ? undefined : credentialsIn(url),
  };
};

function credentialsIn({ username, password }: URL): string {
  try {
    return `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  } catch {
    throw new ConfigValueError('has credentials with a % that encodes nothing');
  }
}

interface NamedHost {
  readonly host: string;
  /** Any, where it is left out. */
  readonly port: number | undefined;
}

/**
 * A list, by commas or blanks, of names (`example.com`, `.example.com` and `*.example.com` are that domain and all below
 * it), addresses and networks (`10.0.0.0/8`), each with a port where only that is meant; `*` is every host. A member that
 * names no host is passed over: the list is shared with other programs, and some of them know more.
 */
export const noProxy: Reader<NoProxy> = (value) => {
  const networks: Network[] = [];
  const hosts: NamedHost[] = [];
  let unreadable = 0;
  for (const member of value
    .toLowerCase()
    .split(/[\s,]+/)
    .filter(Boolean)) {
    const network = parseNetwork(member);
    const named = namedHost(member);
    if (network !== undefined) networks.push(network);
    else if (named !== undefined) hosts.push(named);
    else unreadable += 1;
  }
  const isInNetworks = matchNetworks(networks);
  const names = (name: string, port: number): boolean => {
    const host = canonicalAddress(name.toLowerCase().replace(/\.$/, ''));
    if (isIP(host) !== 0 && isInNetworks(host)) return true;
    return hosts.some((one) => (one.port ?? port) === port && isBelow(host, one.host));
  };
  return { names, unreadable };
};

function isBelow(host: string, domain: string): boolean {
  return domain === '*' || host === domain || (isIP(host) === 0 && host.endsWith(`.${domain}`));
}

function namedHost(member: string): NamedHost | undefined {
  const [, bracketed, name = bracketed, digits] =
    /^(?:\[([\da-f:.]+)\]|([^:/[\]]+))(?::(\d{1,5}))?$/.exec(member) ?? [];
  if (name === undefined) return undefined;
  const host = name === '*' ? name : canonicalAddress(name.replace(/^\*?\./, '').replace(/\.$/, ''));
  if (host !== '*' && !/^[\w.:-]+$/.test(host)) return undefined;
  return { host, port: digits === undefined ? undefined : Number(digits) };
}

/** The place of a file, `file:/path`. */
export const filePlace: Reader<string> = (value) => {
  const [, path] = /^file:(\/[^\0]+)$/.exec(value) ?? [];
  if (path === undefined) throw new ConfigValueError('expects file:/path');
  return path;
};
