/**
 * Finds the key by its value, wherever it might leave the process: in an answer of the upstream before it is
 * stored or passed, and in a log line as the last step before it is written.
 */
import { bufferOf, latin1Of, type Payload } from '../payload.ts';
import { exposeKey, type Key } from './key.ts';
import { escapeCharacters, needlesOf, patternOf } from './needles.ts';

/** What is searched of an answer. */
export interface Searchable {
  readonly headers: Readonly<Record<string, string | readonly string[]>>;
  readonly body: Payload;
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
  /** How each shape begins. V8 compiles it in a tenth of the time that the whole pattern takes, which few texts need. */
  readonly opening: RegExp;
  readonly pattern: RegExp;
}

/** Below this a body is searched with the pattern at once: one search of short text beats a dozen. */
const smallBytes = 16 * 1024;

/** Enough that other text hardly ever begins like a key. */
const openingCharacters = 6;

export function createScrubber(): Scrubber {
  let known: readonly Known[] = [];

  const leakIn = ({ headers, body }: Searchable): Key | undefined => {
    if (known.length === 0) return undefined;
    const fields = textOf(headers);
    // Byte for byte as Latin-1: every shape of the key is ASCII, and so is found as it stands in UTF-8.
    const small = body.length <= smallBytes ? latin1Of(body) : undefined;
    return known.find((one) => {
      const { needles } = one;
      if (has(one, fields)) return true;
      if (small !== undefined) return has(one, small);
      const bytes = bufferOf(body);
      if (needles.some((needle) => bytes.includes(needle))) return true;
      if (!escapeCharacters.some((character) => bytes.includes(character))) return false;
      return has(one, latin1Of(bytes));
    })?.key;
  };

  return {
    know: (key) => {
      const value = exposeKey(key);
      const needles = needlesOf(value).map((needle) => Buffer.from(needle, 'latin1'));
      const opening = new RegExp(patternOf(value, openingCharacters), 'gi');
      known = [{ key, needles, opening, pattern: new RegExp(patternOf(value), 'gi') }, ...known];
    },
    forget: (key) => {
      known = known.filter((one) => one.key !== key);
    },
    leakIn,
    leaksIn: (answer) => leakIn(answer) !== undefined,
    redact: (text) =>
      known.reduce(
        (clean, one) => (opens(one, clean) ? clean.replace(one.pattern, String(one.key)) : clean),
        text,
      ),
  };
}

function has(one: Known, text: string): boolean {
  return opens(one, text) && occursIn(text, one.pattern);
}

function opens({ opening }: Known, text: string): boolean {
  return occursIn(text, opening);
}

function occursIn(text: string, pattern: RegExp): boolean {
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
