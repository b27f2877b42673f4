/**
 * Finds credentials in a caller's text by their value. URLs and ids stand in access logs, histories and `Referer`
 * fields, on both sides of the gateway, so no credential may be in one, under whatever name.
 * Pure: no `this`, no I/O, no clock.
 */
import { decodings } from '../http/percent-encoding.ts';
import { holdsToken } from './token.ts';

/** The shortest upstream key. A shorter text that came as a credential could be any word of a query. */
export const leastCharacters = 16;

/**
 * Whether a text holds a credential: a token of our making, a credential that came with the request, or the upstream
 * key. It is searched as it came, and percent-decoded until nothing changes, five times at most.
 *
 * @param presented the credentials that came with the request, whatever they are worth
 * @param holdsKey whether a text holds the upstream key, encoded or not
 */
export function holdsCredential(
  text: string,
  presented: readonly string[],
  holdsKey: (text: string) => boolean,
): boolean {
  // The padding of base64 is often left out in a URL.
  const sought = beginningsOf(
    presented
      .map((credential) => (credential.endsWith('=') ? credential.replace(/={1,2}$/, '') : credential))
      .filter((credential) => credential.length >= leastCharacters),
  );
  const isFound = (reading: string): boolean =>
    holdsToken(reading) || sought.some((credential) => reading.includes(credential));
  return readingsOf(text).some(isFound) || holdsKey(text);
}

/**
 * V8 finds a text of no more than 250 characters in linear time. For a longer one it may begin again at each place, and who
 * chooses both texts chooses that.
 */
const soughtCharacters = 128;

/** What is sought of credentials: of a long one the beginning, which has its random part or says what it is. */
export function beginningsOf(credentials: readonly string[]): readonly string[] {
  return [...new Set(credentials.map((credential) => credential.slice(0, soughtCharacters)))];
}

/** The text as it came and percent-decoded. A form writes a blank as `+`: no credential has a blank, so one here was a `+`. */
export function readingsOf(text: string): readonly string[] {
  return decodings(text).map((decoded) => decoded.replaceAll(' ', '+'));
}
