/**
 * Readers of single settings: text in, value out. Pure. A reader that cannot make sense of the text throws a
 * `ConfigValueError` that says what is expected and never repeats the text: it might be a secret in the wrong
 * place. Last come those of the settings that name the way out through a proxy, which other programs read as well.
 */
import { isIP, isIPv6 } from 'node:net';
import {
  canonicalAddress,
  hostFromUrl,
  listedHostName,
  matchNetworks,
  type Network,
  type NoProxy,
  originProblem,
  type ProxyAddress,
  parseNetwork,
} from '../http/address.ts';
import { maxTimerMs } from '../http/date.ts';
import type { AttemptLimit } from '../http/limit-fields.ts';
import { parseStoreAddress, type StoreAddress } from './store-address.ts';

/** Names and values, as a process has them. */
export type Environment = Readonly<Record<string, string | undefined>>;

export class ConfigValueError extends Error {
  override readonly name = 'ConfigValueError';
}

/** Turns the text of a setting into its value. */
export type Reader<T> = (text: string) => T;

const durationUnits: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 };

/** `250ms`, `15s`, `5m`, `1h` to ms. Timers hold at most 2^31 − 1 ms, so nothing longer is accepted. */
export function duration(minMs = 0, maxMs = maxTimerMs): Reader<number> {
  return (text) => {
    const [, digits, unit] = /^(\d+(?:\.\d+)?)(ms|s|m|h)$/.exec(text) ?? [];
    const ms = Number(digits) * (durationUnits[unit ?? ''] ?? Number.NaN);
    if (!(ms >= minMs && ms <= maxMs)) {
      const least = minMs > 0 ? `, at least ${minMs}ms` : '';
      throw new ConfigValueError(`expects a duration like 250ms, 15s or 5m${least}`);
    }
    return Math.round(ms);
  };
}

const windowUnits: Readonly<Record<string, number>> = { ...durationUnits, d: 86_400_000 };

/** `60/1m,10000/1d`: one limit or several, given back with the shortest window first. */
export const attemptLimits: Reader<readonly AttemptLimit[]> = (value) => {
  const limits = list(attemptLimit)(value).toSorted((a, b) => a.windowMs - b.windowMs);
  if (limits.some(({ windowMs }, at) => windowMs === limits[at + 1]?.windowMs))
    throw new ConfigValueError('has two limits for windows of one length');
  return limits;
};

function attemptLimit(text: string): AttemptLimit {
  const [, count, window = '', length, unit] = /^(\d{1,9})\/((\d{1,7})([smhd]))$/.exec(text) ?? [];
  const windowMs = Number(length) * (windowUnits[unit ?? ''] ?? Number.NaN);
  if (!(Number(count) >= 1 && windowMs > 0 && windowMs <= 31 * 86_400_000))
    throw new ConfigValueError('expects limits like 60/1m,10000/1d, with windows of up to 31 days');
  return { most: Number(count), windowMs, window };
}

/** `10%` to 0.1; below 100 %. */
export const percentage: Reader<number> = (value) => {
  const [, digits] = /^(\d{1,2}(?:\.\d{1,3})?)%$/.exec(value) ?? [];
  if (digits === undefined) throw new ConfigValueError('expects a percentage below 100, like 10%');
  return Number(digits) / 100;
};

const sizeUnits: Readonly<Record<string, number>> = { B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 };

/** `512B`, `64KiB`, `4MiB`, `1GiB` to bytes. */
export function size(minBytes = 0, maxBytes = 2 ** 40): Reader<number> {
  return (text) => {
    const [, digits, unit] = /^(\d+(?:\.\d+)?)(B|KiB|MiB|GiB)$/.exec(text) ?? [];
    const bytes = Number(digits) * (sizeUnits[unit ?? ''] ?? Number.NaN);
    if (!(bytes >= minBytes && bytes <= maxBytes)) {
      const least = minBytes > 0 ? `, at least ${minBytes}B` : '';
      throw new ConfigValueError(`expects a size like 64KiB or 4MiB${least}`);
    }
    return Math.round(bytes);
  };
}

/** A whole number in decimal digits. */
export function integer(min: number, max: number): Reader<number> {
  return (text) => {
    const value = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN;
    if (!(value >= min && value <= max))
      throw new ConfigValueError(`expects a whole number from ${min} to ${max}`);
    return value;
  };
}

export const flag: Reader<boolean> = (text) => {
  if (text !== 'true' && text !== 'false') throw new ConfigValueError('expects true or false');
  return text === 'true';
};

/** One of some words. */
export function oneOf<const T extends string>(...words: readonly T[]): Reader<T> {
  return (text) => {
    const word = words.find((candidate) => candidate === text);
    if (word === undefined) throw new ConfigValueError(`expects one of ${words.join(', ')}`);
    return word;
  };
}

/** Where a secret is kept that is read without a library: `env:NAME` or `file:/path`. */
export const secretPlace: Reader<string> = (value) => {
  if (!/^(?:env:[A-Za-z_][A-Za-z0-9_]*|file:\/[^\0]+)$/.test(value)) {
    throw new ConfigValueError('expects env:NAME or file:/path');
  }
  return value;
};

export const text: Reader<string> = (value) => value;

/** A comma-separated list; blanks around the members do not count, empty members are refused. */
export function list<T>(member: Reader<T>): Reader<readonly T[]> {
  return (value) =>
    value.split(',').map((part) => {
      const trimmed = part.trim();
      if (trimmed === '') throw new ConfigValueError('has an empty member between its commas');
      return member(trimmed);
    });
}

/** A base address without credentials, query or fragment; the trailing slash does not count. */
export const baseUrl: Reader<URL> = (value) => {
  // Printable ASCII only: a NUL or a Unicode dot in a name must never reach the resolver (CVE-2026-48930,
  // CVE-2026-48618).
  const url = /^[\x21-\x7e]+$/.test(value) ? URL.parse(value) : null;
  if (url === null || (url.protocol !== 'https:' && url.protocol !== 'http:')) {
    throw new ConfigValueError('expects an address like https://analytics.example.com/api');
  }
  if (url.username !== '' || url.password !== '') throw new ConfigValueError('must not contain credentials');
  if (value.includes('?') || value.includes('#')) {
    throw new ConfigValueError('must have neither query nor fragment');
  }
  if (/%|\/\/|\\|;/.test(value.slice(url.protocol.length + 2)) || /\/\.{1,2}(?:\/|$)/.test(value)) {
    throw new ConfigValueError('has a path that is not in its plain form');
  }
  url.pathname = url.pathname.replace(/\/$/, '');
  return url;
};

/** The address that callers use, as links begin with it: without the slash at its end. */
export const publicUrl: Reader<string> = (value) => {
  if (!/^https?:\/\/[\w[]/i.test(value)) {
    throw new ConfigValueError('expects an address like https://gateway.internal');
  }
  const { href, pathname } = baseUrl(value);
  if (/(?:^|\/)api$/.test(pathname))
    throw new ConfigValueError('must not end with /api, which links get by themselves');
  return href.replace(/\/$/, '');
};

/** A browser origin exactly as browsers send it: scheme, host, and port where it is not the default. */
export const origin: Reader<string> = (value) => {
  if (originProblem(value) !== undefined) {
    throw new ConfigValueError('expects origins as browsers send them, like https://dashboard.example.com');
  }
  return value;
};

const token = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

/** A header name (RFC 9110 section 5.6.2), lower-cased, but for those that are not for passing on. */
export function headerName(forbidden: ReadonlySet<string>): Reader<string> {
  return (value) => {
    const name = value.toLowerCase();
    if (!token.test(name)) throw new ConfigValueError('expects header names');
    const meant = name.replaceAll('_', '-');
    if (forbidden.has(meant) || meant.startsWith('x-forwarded-'))
      throw new ConfigValueError(`must not name ${name}, which the gateway sets or withholds itself`);
    return name;
  };
}

/** A media range (RFC 9110 section 12.5.1) or a suffix pattern, such as application/*+json. Lower-cased. */
export const mediaRange: Reader<string> = (value) => {
  const range = value.toLowerCase();
  if (!/^(?:\*\/\*|[a-z0-9!#$&^_.+-]+\/(?:\*(?:\+[a-z0-9!#$&^_.-]+)?|[a-z0-9!#$&^_.+-]+))$/.test(range)) {
    throw new ConfigValueError('expects media types like application/json, application/*+json or */*');
  }
  return range;
};

/** A read to allow: literal and whole `:name` segments, beginning with a slash. */
export const readPattern: Reader<string> = (value) => {
  if (
    !/^(?:\/(?:[A-Za-z0-9._~-]+|:[A-Za-z][A-Za-z0-9_]*))+\/?$/.test(value) ||
    /\/\.{1,2}(?:\/|$)/.test(value)
  ) {
    throw new ConfigValueError('expects paths like /analytics/posts/ or /analytics/reports/:id/');
  }
  return value;
};

/** An address to listen on, `unix:/path`, or `fd:3` for a socket that the process was started with. */
export const listenHost: Reader<string> = (value) => {
  if (
    /^(?:unix:\/.|fd:(?:[3-9]|[1-9]\d{1,3})$)/.test(value) ||
    /^[A-Za-z0-9.%_-]+$/.test(value) ||
    isIPv6(value)
  )
    return value;
  throw new ConfigValueError('expects an address like 127.0.0.1, without a port, unix:/path.sock, or fd:3');
};

/** A value of `Host` in the one spelling that requests are compared in; a port does not count. */
export const hostName: Reader<string> = (value) => {
  const name = listedHostName(value);
  if (name === undefined) throw new ConfigValueError('expects host names, like gateway.internal');
  return name;
};

/** A proxy whose word on addresses is taken. A network of all addresses would take the word of each caller. */
export const trustedProxy: Reader<string> = (value) => {
  if (value === 'unix') return value;
  const network = parseNetwork(value);
  if (network === undefined)
    throw new ConfigValueError('expects addresses, networks like 10.0.0.0/8, or unix');
  if (network.hasHostBits) {
    const meant = `${network.first}/${network.prefix}`;
    throw new ConfigValueError(
      `must name a network by its first address, ${meant}, or an address alone without a prefix`,
    );
  }
  if (network.prefix === 0) throw new ConfigValueError('must not trust every address');
  return value;
};

/** Where the shared store listens. */
export const storeAddress: Reader<StoreAddress> = (value) => {
  try {
    return parseStoreAddress(value);
  } catch (error) {
    throw new ConfigValueError(error instanceof TypeError ? error.message : 'cannot be read');
  }
};

/** What begins names in a store that others may use as well. */
export const namePrefix: Reader<string> = (value) => {
  if (!/^[A-Za-z0-9._-]{1,64}$/.test(value)) {
    throw new ConfigValueError('expects up to 64 letters, digits, dots, hyphens and underscores');
  }
  return value;
};

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
 * it) and addresses, each with a port where only that is meant, and networks (`10.0.0.0/8`); `*` is every host. A member that
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
