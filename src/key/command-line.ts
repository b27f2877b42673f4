/** A command line taken apart without a shell. Pure: no `this`, no I/O, no clock. */

export type CommandLine = { readonly words: readonly string[] } | { readonly reason: string };

/**
 * Splits at whitespace. `'…'` keeps everything as it is; `"…"` too, but for `\"` and `\\`; outside of quotes a
 * backslash keeps the next character. Nothing is expanded: what only a shell could do is refused, for it would
 * reach the program as text and surprise its author.
 *
 * @returns the words, or why not, in words that hold nothing of the text
 */
export function splitWords(text: string): CommandLine {
  const words: string[] = [];
  let word: string | undefined;
  for (let at = 0; at < text.length; at++) {
    const character = text.charAt(at);
    if (/\s/.test(character)) {
      if (word !== undefined) words.push(word);
      word = undefined;
    } else if (character === "'") {
      const end = text.indexOf("'", at + 1);
      if (end < 0) return { reason: "has a ' that is never closed" };
      word = (word ?? '') + text.slice(at + 1, end);
      at = end;
    } else if (character === '"') {
      word ??= '';
      for (at++; text.charAt(at) !== '"'; at++) {
        if (at >= text.length) return { reason: 'has a " that is never closed' };
        if (text.charAt(at) === '\\' && /["\\]/.test(text.charAt(at + 1))) at++;
        word += text.charAt(at);
      }
    } else if (character === '\\') {
      at++;
      if (at >= text.length) return { reason: 'ends with a backslash' };
      word = (word ?? '') + text.charAt(at);
    } else if ('|<>;&`$'.includes(character)) {
      return {
        reason: `has a ${character} outside of single or double quotes, and no shell runs it: quote it, or name a script`,
      };
    } else {
      word = (word ?? '') + character;
    }
  }
  if (word !== undefined) words.push(word);
  if (words.length === 0 || words[0] === '') return { reason: 'names no program' };
  if (text.includes('\0')) return { reason: 'contains NUL' };
  return { words };
}
