/**
 * Who sent a request that came through balancers: the nearest hop of `X-Forwarded-For` or `Forwarded` (RFC 7239) that is not
 * one of TRUSTED_PROXIES. What stands before that hop may be its own invention. The answer is for the log and the limit of
 * failed authentications; nothing is granted by it. Pure: no `this`, no I/O, no clock.
 */
import { isIP } from 'node:net';
import { canonicalAddress, matchNetworks, parseNetwork } from '../http/address.ts';
import { splitUnquoted, trimBlanks } from '../http/fields.ts';

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
