/**
 * Finds the key by its value, wherever it might leave the process: in an answer of the upstream before it is
 * stored or passed, and in a log line as the last step before it is written.
 */
import { exposeKey, type Key } from './key.ts';
import { escapeCharacters, needlesOf, patternOf } from './needles.ts';

/** What is searched of an answer. */
export interface Searchable {
  readonly headers: Readonly<Record<string, string | readonly string[]>>;
  readonly body: Buffer;
}

export interface Scrubber {
  know(key: Key): void;
  forget(key: Key): void;
  /** The known key that the answer holds, in any shape; `undefined` when there is none. */
  leakIn(answer: Searchable): Key | undefined;
  /** Whether the answer holds a known key. */
  leaksIn(answer: Searchable): boolean;
  /** The text with `[key <fingerprint>]` in place of every known key, in any shape. */
  redact(text: string): string;
}

interface Known {
  readonly key: Key;
  readonly needles: readonly Buffer[];
  readonly pattern: RegExp;
}

/** Below this a body is searched with the pattern at once: one search of short text beats a dozen. */
const smallBytes = 16 * 1024;

export function createScrubber(): Scrubber {
  let known: readonly Known[] = [];

  const leakIn = ({ headers, body }: Searchable): Key | undefined => {
    if (known.length === 0) return undefined;
    const fields = textOf(headers);
    const small = body.length <= smallBytes;
    // Byte for byte as latin1: every shape of the key is ASCII, and so is found as it stands in UTF-8.
    let text = small ? body.toString('latin1') : undefined;
    for (const { key, needles, pattern } of known) {
      if (has(pattern, fields)) return key;
      if (!small) {
        if (needles.some((needle) => body.includes(needle))) return key;
        if (!escapeCharacters.some((character) => body.includes(character))) continue;
      }
      text ??= body.toString('latin1');
      if (has(pattern, text)) return key;
    }
    return undefined;
  };

  return {
    know: (key) => {
      const value = exposeKey(key);
      const needles = needlesOf(value).map((needle) => Buffer.from(needle, 'latin1'));
      known = [{ key, needles, pattern: new RegExp(patternOf(value), 'gi') }, ...known];
    },
    forget: (key) => {
      known = known.filter((one) => one.key !== key);
    },
    leakIn,
    leaksIn: (answer) => leakIn(answer) !== undefined,
    redact: (text) => known.reduce((clean, { key, pattern }) => clean.replace(pattern, String(key)), text),
  };
}

function has(pattern: RegExp, text: string): boolean {
  // A global expression remembers where it stopped.
  pattern.lastIndex = 0;
  return pattern.test(text);
}

/** Names too: an upstream that echoes may well make a field name of what it was sent. */
function textOf(headers: Searchable['headers']): string {
  let text = '';
  for (const name in headers) text += `${name}: ${headers[name]}\n`;
  return text;
}
