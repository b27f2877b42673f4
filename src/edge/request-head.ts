/**
 * What a request's head means: what makes it invalid though Node's parser lets it pass, which authority and path it is for,
 * whether a body follows it, and who sent it. Pure: no `this`, no I/O, no clock.
 */
import { isIP } from 'node:net';
import { canonicalAddress, hostName, matchNetworks, parseNetwork } from '../http/address.ts';
import { splitUnquoted, trimBlanks } from '../http/fields.ts';

/** What Node's parser has made of a request's head. */
export interface ParsedHead {
  readonly httpVersion: string;
  /** Names and values in turn, as they came. */
  readonly rawHeaders: readonly string[];
  /** The lines of a repeated field joined by commas. */
  readonly headers: { readonly 'transfer-encoding'?: string | undefined };
}

export interface HeadRefusal {
  readonly status: 400 | 431 | 505;
  /** For the log and the metrics. */
  readonly code: string;
}

export interface RequestTarget {
  /** In origin form: path and query; or `*`. */
  readonly target: string;
  /** The authority of an absolute target; `undefined` where `Host` says it. */
  readonly authority: string | undefined;
}

/** More are refused. Names and values that a head makes of its bytes take many times their length. */
export const maxHeaderFields = 100;

/**
 * Why a request is refused before anything else is done for it; `undefined` for a good one.
 *
 * @param goodHost the `Host` of an earlier good request: it needs no second look
 */
export function headRefusal(head: ParsedHead, goodHost?: string): HeadRefusal | undefined {
  // First: of a head with more fields than Node gives, the rest cannot be judged (RFC 6585 section 5).
  if (head.rawHeaders.length > 2 * maxHeaderFields) return { status: 431, code: 'HEADER_FIELDS' };
  if (head.httpVersion !== '1.1' && head.httpVersion !== '1.0') return { status: 505, code: 'HTTP_VERSION' };
  const code = hostProblem(head, goodHost) ?? codingProblem(head.headers['transfer-encoding']);
  return code === undefined ? undefined : { status: 400, code };
}

/** RFC 9112 section 3.2: one `Host` that is a name; HTTP/1.0 may do without. */
function hostProblem(
  { httpVersion, rawHeaders }: ParsedHead,
  goodHost: string | undefined,
): string | undefined {
  let host: string | undefined;
  for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] ?? '';
    if (name.length !== 4 || name.toLowerCase() !== 'host') continue;
    if (host !== undefined) return 'HOST_REPEATED';
    host = rawHeaders[index + 1] ?? '';
  }
  if (host === undefined) return httpVersion === '1.0' ? undefined : 'NO_HOST';
  return host === goodHost || hostName(host) !== undefined ? undefined : 'HOST_MALFORMED';
}

/** RFC 9112 section 6.3: where a body ends is only known if its last coding is `chunked`. */
function codingProblem(transferEncoding: string | undefined): string | undefined {
  if (transferEncoding === undefined) return undefined;
  const last = transferEncoding.slice(transferEncoding.lastIndexOf(',') + 1).trim();
  return last.toLowerCase() === 'chunked' ? undefined : 'TRANSFER_CODING';
}

const absolute = /^https?:\/\/([^/?#]*)(.*)$/is;

/**
 * Takes a request target apart (RFC 9112 section 3.2). The authority of an absolute one is what the request is for,
 * whatever its `Host` says (section 3.2.2).
 *
 * @returns `undefined` for a text that is no target, as `*` with another method than OPTIONS
 */
export function requestTarget(method: string, target: string): RequestTarget | undefined {
  if (target.startsWith('/')) return { target, authority: undefined };
  if (target === '*') return method === 'OPTIONS' ? { target, authority: undefined } : undefined;
  const [, authority = '', rest = ''] = absolute.exec(target) ?? [];
  if (hostName(authority) === undefined) return undefined;
  return { target: rest.startsWith('/') ? rest : `/${rest}`, authority };
}

/** Whether a request announces a body, be it an empty chunked one (RFC 9112 section 6.3). Reads have none: it is refused. */
export function announcesBody(headers: {
  readonly 'content-length'?: string | undefined;
  readonly 'transfer-encoding'?: string | undefined;
}): boolean {
  const length = headers['content-length'];
  return headers['transfer-encoding'] !== undefined || (length !== undefined && length !== '0');
}

// Who sent a request that came through balancers: the nearest hop of `X-Forwarded-For` or `Forwarded` (RFC 7239) that is not
// one of TRUSTED_PROXIES. What stands before that hop may be its own invention. The answer is for the log and the limit of
// failed authentications; nothing is granted by it.

/**
 * Finds the address of a request's sender; `undefined` on a Unix socket.
 *
 * @param connected the other end of the connection
 * @param rawHeaders names and values in turn, as they came
 */
export type FindPeer = (connected: string | undefined, rawHeaders: readonly string[]) => string | undefined;

/** @param proxies addresses and networks, and `unix` for the other end of a Unix socket */
export function findPeerBehind(proxies: readonly string[]): FindPeer {
  if (proxies.length === 0) return (connected) => connected;
  const isInNetworks = matchNetworks(proxies.flatMap((proxy) => parseNetwork(proxy) ?? []));
  const trustsSocket = proxies.includes('unix');
  const isTrusted = (address: string | undefined): boolean => {
    if (address === undefined) return trustsSocket;
    return isInNetworks(canonicalAddress(address));
  };

  /** @param hops the nearest one last; `undefined` for one that gives no address */
  function nearestUntrusted(hops: readonly (string | undefined)[], connected: string | undefined) {
    let peer = connected;
    for (const hop of hops.toReversed()) {
      // Its sender hides who came before, and so it is as far as is known.
      if (hop === undefined) return peer;
      peer = canonicalAddress(hop);
      if (!isTrusted(peer)) return peer;
    }
    return peer;
  }

  return (connected, rawHeaders) => {
    if (!isTrusted(connected)) return connected;
    const peers = [
      linesOf(rawHeaders, 'x-forwarded-for').flatMap(hopsOfXForwardedFor),
      linesOf(rawHeaders, 'forwarded').flatMap(hopsOfForwarded),
    ]
      .filter((hops) => hops.length > 0)
      .map((hops) => nearestUntrusted(hops, connected));
    const [peer, other = peer] = peers;
    // A proxy that writes one field passes on the other as its caller made it: of two that differ none is believed.
    return peers.length === 0 || peer !== other ? connected : peer;
  };
}

function linesOf(rawHeaders: readonly string[], name: string): string[] {
  return rawHeaders.filter((_, at) => at % 2 === 1 && rawHeaders[at - 1]?.toLowerCase() === name);
}

function hopsOfXForwardedFor(line: string): (string | undefined)[] {
  return line.split(',').map((hop) => addressOfNode(trimBlanks(hop)));
}

/** The hops of one line; of a malformed one none is known (RFC 7239 section 4). */
function hopsOfForwarded(line: string): (string | undefined)[] {
  const elements = splitUnquoted(line, ',');
  if (elements === undefined) return [undefined];
  return elements.map((element) => {
    const pairs = (splitUnquoted(element, ';') ?? []).map((pair) => forPair.exec(trimBlanks(pair))?.[1]);
    const [node, second] = pairs.filter((value) => value !== undefined);
    if (node === undefined || second !== undefined) return undefined;
    return addressOfNode(node.startsWith('"') ? node.slice(1, -1).replace(/\\(.)/g, '$1') : node);
  });
}

const forPair = /^for=([!#$%&'*+.^_`|~0-9A-Za-z-]+|"(?:[^"\\]|\\.)*")$/i;

const ipv4Node = /^([\d.]+)(?::\d{1,5})?$/;
const ipv6Node = /^\[([\da-f:.]+)\](?::\d{1,5})?$/i;

/** The address of a node, with or without a port (RFC 7239 section 6); `undefined` for `unknown` and all else. */
function addressOfNode(node: string): string | undefined {
  const address = ipv4Node.exec(node)?.[1] ?? ipv6Node.exec(node)?.[1] ?? node;
  return isIP(address) === 0 ? undefined : address;
}
