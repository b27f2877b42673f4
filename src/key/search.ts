/**
 * Finds the forms of keys in bytes, in one pass and in time that depends on the text's length alone.
 *
 * Most of a text is passed by with one look at two bytes at once (as Wu and Manber's search does); where a form may
 * begin, it is compared step by step. Nothing is compiled of a key: V8 keeps, prints and profiles patterns and names.
 */
import { EscapeReader, isEscape, mayBeginEscape } from './escapes.ts';
import { type Form, fold, formsOf } from './forms.ts';

export interface Text {
  readonly bytes: Buffer;
  /** The same bytes, or more, two by two. */
  readonly words: Uint16Array;
}

export interface Found<Owner> {
  readonly owner: Owner;
  /** Indices of bytes. */
  readonly start: number;
  readonly end: number;
}

/** After so many compared bytes for each of a text, 32 are proof enough: a key that repeats itself must not cost more. */
const maxStepsPerByte = 4;
const provingBytes = 32;

/** What two bytes may be: the first two of an opening, its middle two, its last two, or part of an escape. */
const first = 1;
const middle = 2;
const last = 4;
const escaped = 8;

/** The bytes that an escape may begin with. */
const escapes = [...fold.keys()].filter(isEscape);
/** By a folded byte, the bytes that fold to it. */
const unfolded: readonly number[][] = Array.from({ length: 128 }, () => []);
for (const [byte, folded] of fold.entries()) unfolded[folded]?.push(byte);
/** Where `wordOf` puts two bytes together. */
const twoBytes = new Uint8Array(2);
const oneWord = new Uint16Array(twoBytes.buffer);

export class FormIndex<Owner> {
  /** By two folded bytes, what they may be. */
  readonly #pairs = new Uint8Array(2 ** 14);
  /** The same but for `last`, by two bytes as the processor reads them at once. */
  readonly #words = new Uint8Array(2 ** 16);
  /** By an opening. */
  readonly #forms = new Map<number, { readonly owner: Owner; readonly form: Form }[]>();
  /** How many bytes the last search has compared with forms; for tests. */
  steps = 0;
  /** A shorter text holds no form. */
  leastBytes = Number.POSITIVE_INFINITY;

  constructor(values: Iterable<readonly [Owner, string]>) {
    for (const [owner, value] of values) this.add(owner, value);
    for (const opener of escapes) {
      for (let byte = 0; byte < 256; byte++) {
        this.#mark(wordOf(opener, byte), escaped);
        this.#mark(wordOf(byte, opener), escaped);
      }
    }
  }

  /** Searches for one more value. The work is that of this value alone: a gateway may have hundreds. */
  add(owner: Owner, value: string): void {
    for (const form of formsOf(value)) {
      this.leastBytes = Math.min(this.leastBytes, form.bytes.length, provingBytes);
      for (const opening of form.openings) this.#add(opening, owner, form);
    }
  }

  #add(opening: Uint8Array, owner: Owner, form: Form): void {
    for (const [at, flag] of [first, middle, last].entries()) {
      const pair = pairAt(opening, at);
      this.#pairs[pair] = this.#flags(pair) | flag;
      // Few words of the 65,536 say anything: to look at each of them would take longer than all else of a start.
      if (flag !== last) for (const word of wordsOf(opening, at)) this.#mark(word, flag);
    }
    const hash = (pairAt(opening, 0) << 14) | pairAt(opening, 2);
    const forms = this.#forms.get(hash);
    if (forms === undefined) this.#forms.set(hash, [{ owner, form }]);
    else forms.push({ owner, form });
  }

  #mark(word: number, flag: number): void {
    this.#words[word] = (this.#words[word] as number) | flag;
  }

  #flags(pair: number): number {
    return this.#pairs[pair] as number;
  }

  /** The first form at or after a place; `undefined` where there is none. */
  find({ bytes: text, words }: Text, from = 0): Found<Owner> | undefined {
    this.steps = 0;
    const count = text.length >> 1;
    let unescapedUntil = from;
    // Of each opening either the first two bytes or the middle two are a word.
    for (let word = from >> 1; ; word++) {
      word = passBy(words, word, count, this.#words);
      if (word >= count) return undefined;
      const flags = this.#words[words[word] as number] as number;
      const at = 2 * word;
      let found: Found<Owner> | undefined;
      if ((flags & middle) !== 0 && at > from) found = this.#foundAt(text, at - 1);
      if ((flags & first) !== 0 && at >= from) found ??= this.#foundAt(text, at);
      const isEscaped = (flags & escaped) !== 0 && at + 1 >= unescapedUntil;
      if (isEscaped && (mayBeginEscape(text, at) || mayBeginEscape(text, at + 1))) {
        const reader = new EscapeReader(text, Math.max(from, at - 3));
        found ??= this.#findUnescaped(text, reader);
        unescapedUntil = reader.at;
      }
      if (found !== undefined) return found;
    }
  }

  /** A form whose opening stands here as it is. */
  #foundAt(text: Uint8Array, start: number): Found<Owner> | undefined {
    const end = pairAt(text, start + 2);
    return (this.#flags(end) & last) === 0
      ? undefined
      : this.#match(text, start, (pairAt(text, start) << 14) | end);
  }

  /** A form whose opening has an escape in it: reads on until no escape is near. */
  #findUnescaped(text: Uint8Array, reader: EscapeReader): Found<Owner> | undefined {
    /** Where the last four characters begin. */
    let [a, b, c, d] = [0, 0, 0, 0];
    let hash = 0;
    for (let count = 1, plain = 0; plain < 3 || count < 8; count++) {
      [a, b, c, d] = [b, c, d, reader.at];
      const byte = reader.next();
      if (byte < 0) return undefined;
      plain = reader.at - d > 1 || isEscape(byte) ? 0 : plain + 1;
      hash = ((hash << 7) | byteAt(fold, byte)) & 0xfff_ffff;
      if (count < 4 || (this.#flags(hash & 0x3fff) & last) === 0) continue;
      const found = this.#match(text, a, hash);
      if (found !== undefined) return found;
    }
    return undefined;
  }

  /** The longest form that begins here: one key may begin with another, whose end would leave the rest of it. */
  #match(text: Uint8Array, start: number, hash: number): Found<Owner> | undefined {
    let longest: Found<Owner> | undefined;
    for (const { owner, form } of this.#forms.get(hash) ?? []) {
      const end =
        this.#endOf(form, new EscapeReader(text, start, false), text.length) ??
        this.#endOf(form, new EscapeReader(text, start), text.length);
      if (end !== undefined && end > (longest?.end ?? 0)) longest = { owner, start, end };
    }
    return longest;
  }

  /** Where the form that begins at the reader's place ends; `undefined` where something else follows. */
  #endOf({ bytes, between }: Form, reader: EscapeReader, textBytes: number): number | undefined {
    for (const [done, expected] of bytes.entries()) {
      if (this.steps > maxStepsPerByte * textBytes && done >= provingBytes) break;
      this.steps++;
      if (between === 'pairs' && done > 0 && done % 2 === 0) reader.skipSeparator();
      if (between === 'numbers' && bytes[done - 1] === comma) reader.skipToNumber();
      const byte = reader.next();
      if (byte < 0 || fold[byte] !== expected) return undefined;
    }
    return reader.at;
  }
}

/** Goes on while nothing is said of two bytes: where most of the time is spent, and so a function of its own. */
function passBy(words: Uint16Array, from: number, count: number, flags: Uint8Array): number {
  let at = from;
  while (at < count && flags[words[at] as number] === 0) at++;
  return at;
}

/** A text that can be searched; a copy, where it begins at an odd address. */
export function textOf(given: Buffer): Text {
  const bytes = given.byteOffset % 2 === 0 ? given : Buffer.from(new Uint8Array(given).buffer);
  return { bytes, words: new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.length >> 1) };
}

/** All pairs of bytes that fold to the two here, as words. */
function wordsOf(folded: Uint8Array, at: number): number[] {
  const others = unfolded[byteAt(folded, at + 1)] ?? [];
  return (unfolded[byteAt(folded, at)] ?? []).flatMap((one) => others.map((other) => wordOf(one, other)));
}

/** Two bytes as the processor reads them at once. */
function wordOf(one: number, other: number): number {
  twoBytes[0] = one;
  twoBytes[1] = other;
  return oneWord[0] as number;
}

const byteAt = (bytes: Uint8Array, at: number): number => bytes[at] ?? 0;
const pairAt = (bytes: Uint8Array, at: number): number =>
  (byteAt(fold, byteAt(bytes, at)) << 7) | byteAt(fold, byteAt(bytes, at + 1));
const comma = 0x2c;
