/**
 * From a store's raw text to a key value, or the reason why not. Pure: no `this`, no I/O, no clock.
 *
 * A key becomes a header value, so its bytes are checked before anything else can happen with them: header
 * libraries print a value they refuse. The reason never holds any of the text.
 */

/** A larger header value is refused by many servers, and no key is that long. */
export const maxKeyBytes = 4096;
/** A shorter value is guessed, or a placeholder, or a word that occurs in answers by chance. */
export const minKeyCharacters = 16;

/** A value whose end has fewer different characters is a placeholder, and its end stands in ordinary texts. */
const leastDistinct = 4;

export type ParsedKey = { readonly value: string } | { readonly reason: string };

/** @param text what the store gave, decoded as UTF-8; whitespace at its end is dropped */
export function parseKey(text: string): ParsedKey {
  if (text === '') return { reason: 'is empty' };
  const value = text.slice(0, endWithoutWhitespace(text));
  if (value === '') return { reason: 'is blank: nothing but whitespace' };
  if (value.length > maxKeyBytes) return { reason: `is longer than ${maxKeyBytes} bytes` };
  if (value.startsWith('\uFEFF')) {
    return { reason: 'begins with a byte order mark: save the file as plain text without one' };
  }
  if (value.includes('\0')) {
    return { reason: 'contains NUL characters, as text saved in UTF-16 does: save it as plain text' };
  }
  if (/[\r\n]/.test(value)) return { reason: 'has several lines: it must be the key alone, on one line' };
  if (/^\s/.test(value)) return { reason: 'begins with whitespace' };
  if (!/^[\x21-\x7e]*$/.test(value)) {
    return {
      reason: 'contains a character that is not visible ASCII (a space, an accent, a control character)',
    };
  }
  if (value.length < minKeyCharacters) return { reason: `is shorter than ${minKeyCharacters} characters` };
  // By these the search for the key finds where to compare: see `search.ts`.
  if (new Set(value.slice(-minKeyCharacters)).size < leastDistinct) {
    return {
      reason: `ends in ${minKeyCharacters} characters of which fewer than ${leastDistinct} differ: it is a placeholder and no key`,
    };
  }
  return { value };
}

/** Only ASCII whitespace: what an editor or `echo` leaves. (No regular expression: the text may be long.) */
function endWithoutWhitespace(text: string): number {
  let end = text.length;
  while (end > 0 && ' \t\r\n\v\f'.includes(text.charAt(end - 1))) end--;
  return end;
}
