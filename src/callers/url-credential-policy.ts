/**
 * Finds credentials in a URL by their value. URLs stand in access logs, histories and `Referer` fields, on both
 * sides of the gateway, so no credential may be in one, under whatever name. Pure: no `this`, no I/O, no clock.
 */
import { decodePercent } from '../percent-encoding.ts';
import { holdsToken } from './token.ts';

/** The shortest upstream key. A shorter text that came as a credential could be any word of a query. */
const leastCharacters = 16;

/**
 * Whether a path or query holds a credential: a token of our making, a credential that came with the request, or
 * the upstream key. It is searched as it came, decoded, and decoded twice (a URL inside a URL).
 *
 * @param presented the credentials that came with the request, whatever they are worth
 * @param holdsKey whether a text holds the upstream key
 */
export function holdsCredential(
  urlPart: string,
  presented: readonly string[],
  holdsKey: (text: string) => boolean,
): boolean {
  // The padding of base64 is often left out in a URL.
  const sought = presented
    .map((value) => value.replace(/=+$/, ''))
    .filter((value) => value.length >= leastCharacters);
  return readings(urlPart).some(
    (text) => holdsToken(text) || sought.some((value) => text.includes(value)) || holdsKey(text),
  );
}

function readings(urlPart: string): readonly string[] {
  if (!urlPart.includes('%')) return [urlPart];
  const once = decodeOnce(urlPart);
  return once.includes('%') ? [urlPart, once, decodeOnce(once)] : [urlPart, once];
}

/** A form writes a blank as `+`. No credential has a blank, so one that is found here was a `+`. */
function decodeOnce(text: string): string {
  return decodePercent(text).replaceAll(' ', '+');
}
