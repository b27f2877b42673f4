/**
 * Which `Host` the gateway answers for. Where an anonymous caller exists, this stops a web
 * page whose name was made to resolve to 127.0.0.1 (DNS rebinding): the browser still sends the page's own name.
 * Pure: no `this`, no I/O, no clock.
 */
import { ipv6Groups, isLoopbackHost } from './address.ts';

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
    return groups === undefined ? undefined : `[${groups.map((group) => group.toString(16)).join(':')}]`;
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
