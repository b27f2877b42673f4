/**
 * Network addresses in one spelling each, so that another spelling of the same address is the same peer
 * (`::ffff:127.0.0.1`), and the names of hosts: which `Host` the gateway answers for. Where an anonymous caller exists, that
 * stops a web page whose name was made to resolve to 127.0.0.1 (DNS rebinding): the browser still sends the page's own name.
 * Pure: no `this`, no I/O, no clock.
 */
import { BlockList, isIPv4, isIPv6 } from 'node:net';

/** The eight groups of an IPv6 address; `undefined` for any other text. A zone (`%eth0`) is left out. */
function ipv6Groups(address: string): readonly number[] | undefined {
  const zone = address.indexOf('%');
  let text = zone === -1 ? address : address.slice(0, zone);
  // Node's pattern for IPv6 takes 5 ms of a start when it is first used, which most starts need not do.
  if (!text.includes(':') || !isIPv6(text)) return undefined;
  const dotted = /^(.*:)(\d+)\.(\d+)\.(\d+)\.(\d+)$/.exec(text);
  if (dotted !== null) {
    const [a, b, c, d] = [dotted[2], dotted[3], dotted[4], dotted[5]].map(Number) as [
      number,
      number,
      number,
      number,
    ];
    text = `${dotted[1]}${(a * 256 + b).toString(16)}:${(c * 256 + d).toString(16)}`;
  }
  const [before = '', after] = text.split('::');
  const head = before === '' ? [] : before.split(':');
  const tail = after === undefined || after === '' ? [] : after.split(':');
  const gap = after === undefined ? 0 : 8 - head.length - tail.length;
  return [...head, ...Array.from({ length: gap }, () => '0'), ...tail].map((group) =>
    Number.parseInt(group, 16),
  );
}

/** As RFC 5952 writes it, in brackets: lower case, the longest run of zeros as `::`. URLs have the same form. */
function bracketed(groups: readonly number[]): string {
  return new URL(`http://[${groups.map((group) => group.toString(16)).join(':')}]`).hostname;
}

/** A network, as 10.0.0.0/8; an address alone is a network of one. `undefined` for any other text. */
export function parseNetwork(text: string): Network | undefined {
  const [address = '', bits, ...more] = text.split('/');
  const family = address.includes(':') ? 'ipv6' : 'ipv4';
  const longest = family === 'ipv6' ? 128 : 32;
  const isAddress = family === 'ipv6' || isIPv4(address);
  const groups = isAddress ? ipv6Groups(family === 'ipv6' ? address : `::ffff:${address}`) : undefined;
  const prefix = bits === undefined ? longest : /^\d{1,3}$/.test(bits) ? Number(bits) : Number.NaN;
  if (groups === undefined || more.length > 0 || !(prefix <= longest)) return undefined;
  const hostBits = longest - prefix;
  const first = groups.map((group, at) => {
    const free = Math.min(16, Math.max(0, hostBits - 16 * (7 - at)));
    return (group >> free) << free;
  });
  return { address, prefix, family, first: spelled(first), hasHostBits: spelled(first) !== spelled(groups) };
}

export interface Network {
  readonly address: string;
  readonly prefix: number;
  readonly family: 'ipv4' | 'ipv6';
  /** The first address of the network. */
  readonly first: string;
  /** The address is another one: its author may mean that address alone. */
  readonly hasHostBits: boolean;
}

/** @returns whether an address is in one of the networks */
export function matchNetworks(networks: readonly Network[]): (address: string) => boolean {
  const list = new BlockList();
  for (const { address, prefix, family } of networks) list.addSubnet(address, prefix, family);
  return (address) => list.check(address, address.includes(':') ? 'ipv6' : 'ipv4');
}

/** An address in one spelling: IPv4 dotted (also where it came mapped into IPv6), IPv6 as RFC 5952 has it. */
export function canonicalAddress(address: string): string {
  const groups = ipv6Groups(address);
  return groups === undefined ? address : spelled(groups);
}

function spelled(groups: readonly number[]): string {
  const mapped = groups.slice(0, 5).every((group) => group === 0) && groups[5] === 0xffff;
  if (!mapped) return bracketed(groups).slice(1, -1);
  const [high = 0, low = 0] = groups.slice(6);
  return `${high >> 8}.${high & 255}.${low >> 8}.${low & 255}`;
}

/**
 * Whom to count a failure against: the IPv4 address, the IPv6 network of 64 bits (one host has all of its
 * addresses), or the socket file, where there is no address.
 */
export function failureScope(address: string | undefined): string {
  if (address === undefined || address === '') return 'unix';
  const canonical = canonicalAddress(address);
  const network = canonical.includes(':') ? ipv6Groups(canonical)?.slice(0, 4) : undefined;
  return network === undefined ? canonical : `${network.map((group) => group.toString(16)).join(':')}::/64`;
}

/** The path of a host that is a Unix socket, written `unix:/path`; `undefined` for an address. */
export function socketPath(host: string): string | undefined {
  return host.startsWith('unix:') ? host.slice('unix:'.length) : undefined;
}

/** The descriptor of a socket that the process was started with, written `fd:3`; `undefined` for any other host. */
export function passedSocket(host: string): number | undefined {
  return host.startsWith('fd:') ? Number(host.slice('fd:'.length)) : undefined;
}

/** A host as it stands in a URL: an IPv6 address in brackets (RFC 3986 section 3.2.2). */
export function hostInUrl(host: string): string {
  return host.includes(':') ? `[${host}]` : host;
}

/** A host as it is connected to, from one in an address: without the brackets of IPv6. */
export function hostFromUrl(hostname: string): string {
  return hostname.replace(/^\[|\]$/g, '');
}

/** Whether the peer is Fly's proxy (172.16.0.0/16). From any other peer a `Fly-Src` may be a replay. */
export function isFlyProxy(address: string | undefined): boolean {
  if (address === undefined) return false;
  const canonical = canonicalAddress(address);
  return isIPv4(canonical) && canonical.startsWith('172.16.');
}

/** Whether the address means this machine. `0.0.0.0` does not, though some systems connect to it. */
export function isLoopbackAddress(address: string): boolean {
  const canonical = canonicalAddress(address);
  return (isIPv4(canonical) && canonical.startsWith('127.')) || canonical === '::1';
}

/**
 * Whether a host, a name or an address, means this machine on every machine: `localhost` and names below it (RFC 6761
 * section 6.3: never asked of a name server), 127.0.0.0/8 and ::1. Other spellings, as `127.1`, do not count: a URL
 * parser and a browser never send those.
 *
 * @param host as in a URL, in a `Host` field without its port, or as an address to listen on
 */
export function isLoopbackHost(host: string): boolean {
  const name = host.toLowerCase().replace(/\.$/, '');
  if (name === 'localhost' || name.endsWith('.localhost')) return true;
  return isLoopbackAddress(name.startsWith('[') && name.endsWith(']') ? name.slice(1, -1) : name);
}

// RFC 3986 section 3.2.2 without percent signs: letters, digits, hyphens, dots, and the underscores of containers.
const nameAndPort = /^([a-z0-9_](?:[a-z0-9._-]*[a-z0-9_.])?)(?::\d{0,5})?$/;
const literalAndPort = /^\[([0-9a-f:.]+)\](?::\d{0,5})?$/;

/**
 * The name in a `Host` field without port and case, an IPv6 address in one spelling and in brackets, a final dot
 * left out; `undefined` where it is no valid one.
 */
export function hostName(host: string): string | undefined {
  if (host.length > 260) return undefined;
  const text = host.toLowerCase();
  const literal = literalAndPort.exec(text)?.[1];
  if (literal !== undefined) {
    const groups = ipv6Groups(literal);
    return groups === undefined ? undefined : bracketed(groups);
  }
  const name = nameAndPort.exec(text)?.[1];
  if (name === undefined || name.includes('..')) return undefined;
  return name.endsWith('.') ? name.slice(0, -1) : name;
}

/** The name in an entry of ALLOWED_HOSTS, or in an address to listen on: there a bare IPv6 address needs no brackets. */
export function listedHostName(entry: string): string | undefined {
  return hostName(ipv6Groups(entry) === undefined ? entry : `[${entry}]`);
}

/**
 * Whether to answer a request with this `Host`.
 *
 * @param host the field's value; `undefined` where HTTP/1.0 left it out
 * @param allowed ALLOWED_HOSTS; left out, only loopback names where an anonymous caller exists, else any that is one
 * @param admitsAnonymous an anonymous caller exists
 */
export function isHostAllowed(
  host: string | undefined,
  allowed: ReadonlySet<string> | undefined,
  admitsAnonymous: boolean,
): boolean {
  const name = host === undefined ? undefined : hostName(host);
  if (name === undefined) return false;
  if (allowed !== undefined) return allowed.has(name);
  return !admitsAnonymous || isLoopbackHost(name);
}

/** What is wrong with an entry of CORS_ORIGINS; `undefined` for one that is exactly as a browser sends it. */
export function originProblem(entry: string): string | undefined {
  if (entry === '*') return 'every origin may not read answers: list the origins';
  if (entry === 'null') return 'null is the origin of every sandboxed page and file';
  const url = URL.parse(entry);
  // The URL parser takes a star as a character of a host, but its author meant a pattern.
  if (url === null || entry.includes('*') || (url.protocol !== 'https:' && url.protocol !== 'http:')) {
    return 'must be scheme and host (and port), as https://app.example.com';
  }
  return url.origin === entry ? undefined : `must be written as the browser sends it: ${url.origin}`;
}

/** A proxy on the way out. */
export interface ProxyAddress {
  /** Without brackets. */
  readonly host: string;
  readonly port: number;
  /** The proxy itself is spoken to by TLS. */
  readonly isTls: boolean;
  /** `user:password`. */
  readonly credentials: string | undefined;
}

/** Which hosts are reached without the proxy. */
export interface NoProxy {
  /** @param host a name, or an address without brackets */
  names(host: string, port: number): boolean;
  /** Members that name no host. */
  readonly unreadable: number;
}
