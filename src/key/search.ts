/**
 * Finds keys in bytes, in a time that depends on the text and never on what it has in common with a key. Callers choose
 * texts and measure times: a comparison that ends at the first difference tells them a key character by character.
 *
 * Each 16 bytes in a row are hashed (a rolling hash, as in Rabin and Karp's search), and the hash is looked up among
 * those of the last 16 bytes of every form of every key. Only where it is equal, bytes are compared, in constant time.
 * Rows of characters that keys are made of are hashed and nothing else: hardly any in JSON has 16. Which characters these
 * are is the same for all keys but odd ones, so what is skipped tells nothing of a key.
 * The time does show that an end is equal, so an end must be too long to guess. In hexadecimal two bytes write one
 * character: it is searched by itself, 32 bytes at a time.
 * The hash is random for each process. Where other bytes have an equal one, as by chance once in some hundreds of megabytes,
 * it is drawn anew.
 *
 * Nothing is compiled of a key: V8 keeps, prints and profiles patterns and names.
 */
import { randomFillSync, timingSafeEqual } from 'node:crypto';
import { hexDigits } from '../http/percent-encoding.ts';

/** So many bytes are hashed, but of hexadecimal, and no shorter text holds a key. */
export const windowBytes = 16;
/** A text is unescaped so many times at the most: each level costs time, and strangers choose the texts. */
export const maxLevels = 5;
/** An end of a key that comes so often is taken for the key: to compare what stands before it each time would take seconds. */
const maxComparisons = 1_000;

/** A place in a text, and the owner of what stands there. Indices of bytes. */
export interface Found<Owner> {
  readonly owner: Owner;
  readonly start: number;
  readonly end: number;
}

/** Forms of a key that are searched for together. */
interface Forms {
  /** So many bytes are hashed. What is shorter is not searched for. */
  readonly window: number;
  of(value: string): readonly Uint8Array[];
  /** 1 for each byte that stands in such forms of ordinary keys. Where a key has another, all bytes count. */
  readonly alphabet: Uint8Array;
}

interface Form<Owner> {
  readonly owner: Owner;
  /** Folded. */
  readonly bytes: Uint8Array;
}

/** What a byte counts as: a letter is the same in either case, both alphabets of base64 are one, and a blank is a `+`. */
const fold = Uint8Array.from({ length: 256 }, (_, byte) => {
  if (byte >= 0x41 && byte <= 0x5a) return byte + 0x20;
  if (byte === 0x2d || byte === 0x20) return 0x2b;
  return byte === 0x5f ? 0x2f : byte;
});

/** A hash of 32 bits that rolls over a window: `hash * base + entering[last byte] - leaving[first byte]`. */
class RollingHash {
  /** 5 modulo 8: its powers repeat as late as they can. */
  readonly base = ((random(1)[0] as number) & ~7) | 5;
  readonly entering = random(256).map((_, byte, all) => all[folded(byte)] as number);
  readonly leaving: Int32Array;

  constructor(window: number) {
    this.leaving = this.entering.map((value) => {
      let power = value;
      for (let at = 0; at < window; at++) power = Math.imul(power, this.base);
      return power;
    });
  }

  /** Of a whole window. */
  of(bytes: Uint8Array): number {
    const add = (hash: number, byte: number): number =>
      (Math.imul(hash, this.base) + (this.entering[byte] as number)) | 0;
    return bytes.reduce(add, 0);
  }
}

const random = (length: number): Int32Array => randomFillSync(new Int32Array(length));

export class FormIndex<Owner> {
  readonly #kind: Forms;
  #forms: Form<Owner>[] = [];
  /** By the hash of their last bytes. */
  #byHash = new Map<number, Form<Owner>[]>();
  #hash: RollingHash;
  #alphabet: Uint8Array;
  /** The hash of each form's last bytes, at the place that its top bits say or, where that is taken, its last bits; else 0. */
  #hashes = new Int32Array(1);
  /** Leaves the top bits of a hash. */
  #shift = 0;

  constructor(kind: Forms) {
    this.#kind = kind;
    this.#hash = new RollingHash(kind.window);
    this.#alphabet = kind.alphabet;
  }

  get isEmpty(): boolean {
    return this.#forms.length === 0;
  }

  /** Searches for one more value. The work is that of this value alone: a gateway may have hundreds. */
  add(owner: Owner, value: string): void {
    const forms = this.#kind.of(value).filter(({ length }) => length >= this.#kind.window);
    const added = forms.map((form) => ({ owner, bytes: Uint8Array.from(form, folded) }));
    this.#forms.push(...added);
    this.#widenFor(added);
    const isRoomy = 32 * this.#forms.length <= this.#hashes.length;
    if (!isRoomy || !added.every((form) => this.#place(form))) this.#draw();
  }

  remove(owner: Owner): void {
    this.#forms = this.#forms.filter((form) => form.owner !== owner);
    this.#alphabet = this.#kind.alphabet;
    this.#widenFor(this.#forms);
    this.#draw();
  }

  #widenFor(forms: readonly Form<Owner>[]): void {
    const { alphabet } = this.#kind;
    const isOrdinary = forms.every(({ bytes }) => bytes.every((byte) => alphabet[byte] === 1));
    if (!isOrdinary) this.#alphabet = allBytes;
  }

  /** A new hash, with which each form has a place. */
  #draw(): void {
    let bits = Math.ceil(Math.log2(32 * this.#forms.length + 1));
    do {
      bits++;
      this.#hash = new RollingHash(this.#kind.window);
      this.#hashes = new Int32Array(2 ** bits);
      this.#shift = 32 - bits;
      this.#byHash = new Map();
    } while (!this.#forms.every((form) => this.#place(form)));
  }

  #place(form: Form<Owner>): boolean {
    const hash = this.#hash.of(form.bytes.subarray(-this.#kind.window));
    const alike = this.#byHash.get(hash);
    if (alike !== undefined) return alike.push(form) > 0;
    this.#byHash.set(hash, [form]);
    const places = [hash >>> this.#shift, hash & (this.#hashes.length - 1)];
    const free = places.find((place) => this.#hashes[place] === 0);
    if (free !== undefined) this.#hashes[free] = hash;
    return free !== undefined && hash !== 0;
  }

  /** The places of forms that end after `from` and no later than `to`; those that overlap as one, with the longest's owner. */
  find(bytes: Uint8Array, from: number, to: number): Found<Owner>[] {
    const found: Found<Owner>[] = [];
    if (this.isEmpty) return found;
    let comparisons = 0;
    for (let end = this.#nextEqual(bytes, from, to); end > 0; end = this.#nextEqual(bytes, end, to)) {
      const match = this.#matchAt(bytes, end, ++comparisons > maxComparisons);
      if (match !== undefined) addFound(found, match);
    }
    return found;
  }

  /** Where the first window ends, after `from`, that is hashed as a form's last; 0 where there is none. */
  #nextEqual(bytes: Uint8Array, from: number, to: number): number {
    const { base, entering, leaving } = this.#hash;
    const { window } = this.#kind;
    const [hashes, shift, mask] = [this.#hashes, this.#shift, this.#hashes.length - 1];
    const alphabet = this.#alphabet;
    for (let end = Math.max(0, from - window + 1); ; end++) {
      end = this.#nextRow(bytes, end, to);
      if (end === -1) return 0;
      let hash = 0;
      for (const full = end + window; end < full; end++) {
        hash = (Math.imul(hash, base) + (entering[bytes[end] as number] as number)) | 0;
      }
      for (;;) {
        // Whole hashes are compared: where they differ says nothing.
        if (hashes[hash >>> shift] === hash || hashes[hash & mask] === hash) return end;
        if (end >= to) return 0;
        const byte = bytes[end] as number;
        if (alphabet[byte] === 0) break;
        const left = leaving[bytes[end - window] as number] as number;
        hash = (Math.imul(hash, base) + (((entering[byte] as number) - left) | 0)) | 0;
        end++;
      }
    }
  }

  /** Where the first whole window of the alphabet begins; -1 where there is none. Each is read from its end, to skip most of it. */
  #nextRow(bytes: Uint8Array, from: number, to: number): number {
    const { window } = this.#kind;
    const alphabet = this.#alphabet;
    for (let start = from; start + window <= to; ) {
      let at = start + window - 1;
      while (at >= start && alphabet[bytes[at] as number] === 1) at--;
      if (at < start) return start;
      start = at + 1;
    }
    return -1;
  }

  /** The longest form that ends here; where it is `isEnough`, its last bytes suffice. */
  #matchAt(bytes: Uint8Array, end: number, isEnough: boolean): Found<Owner> | undefined {
    const { window } = this.#kind;
    const last = bytes.subarray(end - window, end).map(folded);
    const alike = (this.#byHash.get(this.#hash.of(last)) ?? []).filter((form) =>
      timingSafeEqual(form.bytes.subarray(-window), last),
    );
    // Other bytes with an equal hash. The time of this can be seen: it would tell something of the key while the hash is used.
    if (alike.length === 0) this.#draw();
    let longest: Found<Owner> | undefined;
    for (const { owner, bytes: form } of alike) {
      const start = end - (isEnough ? window : form.length);
      if (start < 0 || start >= (longest?.start ?? end)) continue;
      const isWhole = isEnough || timingSafeEqual(form, bytes.subarray(start, end).map(folded));
      if (isWhole) longest = { owner, start, end };
    }
    return longest;
  }
}

const folded = (byte: number): number => fold[byte] as number;

/** Adds a place; those that overlap become one, with the owner of the longest. In the order in which they end. */
export function addFound<Owner>(found: Found<Owner>[], next: Found<Owner>): void {
  let merged = next;
  for (let before = found.at(-1); before !== undefined && before.end > merged.start; before = found.at(-1)) {
    found.pop();
    const longer = before.end - before.start > next.end - next.start ? before : merged;
    merged = { owner: longer.owner, start: Math.min(before.start, merged.start), end: merged.end };
  }
  found.push(merged);
}

/** A token68 (RFC 9110 section 11.2), which base64 and hexadecimal are too. */
const token68 = Uint8Array.from({ length: 256 }, (_, byte) =>
  Number(/[A-Za-z0-9._~+/=-]/.test(String.fromCharCode(byte))),
);
const allBytes = new Uint8Array(256).fill(1);

/** A key as it is, and as it is read where escapes in it are resolved as well; in base64 at each of three places in a group. */
export const plainForms: Forms = {
  window: windowBytes,
  of(value) {
    const bytes = Buffer.from(value, 'latin1');
    const texts: Uint8Array[] = [bytes, ...[0, 1, 2].map((before) => base64Core(bytes, before))];
    const reading = Buffer.from(bytes);
    for (let [level, before, left] = [0, 0, value.length]; level < maxLevels && left !== before; level++) {
      before = left;
      left = new Unescaper(reading, before).run(before);
      if (left !== before) texts.push(Uint8Array.from(reading.subarray(0, left)));
    }
    return texts;
  },
  // A blank may be the `+` of base64.
  alphabet: token68.with(0x20, 1),
};

/** A key in hexadecimal, where two bytes write one. */
export const hexForms: Forms = {
  window: 2 * windowBytes,
  of: (value) => [Buffer.from(Buffer.from(value, 'latin1').toString('hex'))],
  // Not the digits alone: then the steps would differ by which letters of a text are digits, as those of a key may be.
  alphabet: token68,
};

/** The part of the base64 text that is the same whatever stands around the key. */
function base64Core(bytes: Buffer, before: number): Buffer {
  const text = Buffer.concat([Buffer.alloc(before), bytes]).toString('base64');
  return Buffer.from(text.slice(Math.ceil((before * 8) / 6), Math.floor(((before + bytes.length) * 8) / 6)));
}

const backslash = 0x5c;
const percent = 0x25;
const ampersand = 0x26;
/** What an escape may begin with. */
const openers = [backslash, percent, ampersand];
const isOpener = Uint8Array.from({ length: 256 }, (_, byte) => Number(openers.includes(byte)));
/** HTML's names of characters that a key may have, and the character before each. Compared byte by byte. */
const names = ['&amp;', '<lt;', '>gt;', '"quot;', "'apos;"].map((name) => Buffer.from(name));
/** No number of a character that a key may have is longer. */
const maxDigits = 9;

/**
 * Resolves escapes in place, one level of them: percent, backslash as JSON and JavaScript write it, HTML's references. What
 * comes out is not looked at again: that is the next level.
 */
export class Unescaper {
  readonly #bytes: Buffer;
  readonly #length: number;
  readonly #places: Uint32Array | undefined;
  #read = 0;
  #written = 0;

  /** @param places where each byte came from: kept true */
  constructor(bytes: Buffer, length: number, places?: Uint32Array) {
    this.#bytes = bytes;
    this.#length = length;
    this.#places = places;
  }

  /** Goes on until so many bytes are read. @returns how many are left of them: fewer, where there was an escape */
  run(until: number): number {
    const [bytes, places] = [this.#bytes, this.#places];
    let [read, written] = [this.#read, this.#written];
    if (read === written) read = written = nextOpener(bytes, read, until);
    for (; read < until; written++) {
      const byte = bytes[read] as number;
      const resolved = isOpener[byte] === 0 ? 0 : escapeAt(bytes, read, this.#length);
      bytes[written] = resolved === 0 ? byte : resolved & 0xff;
      if (places !== undefined) places[written] = places[read] as number;
      read += resolved === 0 ? 1 : resolved >> 8;
    }
    this.#read = read;
    this.#written = written;
    return written;
  }
}

/** Until the first escape nothing moves, and few texts have one: Node's own search for a byte is told nothing but the text. */
function nextOpener(bytes: Buffer, from: number, to: number): number {
  let end = to;
  for (const opener of openers) {
    const found = bytes.subarray(from, end).indexOf(opener);
    if (found !== -1) end = from + found;
  }
  return end;
}

/** The byte that an escape here stands for, and above its eight bits the escape's length; 0 where there is none. */
function escapeAt(bytes: Uint8Array, at: number, end: number): number {
  const next = at + 1 < end ? (bytes[at + 1] as number) : 0;
  if (bytes[at] === percent) return escapeOf(3, hexAt(bytes, at + 1, 2, end));
  if (bytes[at] === ampersand) return referenceAt(bytes, at, end);
  if (next === 0x75) return escapeOf(6, hexAt(bytes, at + 2, 4, end));
  if (next === 0x78) return escapeOf(4, hexAt(bytes, at + 2, 2, end));
  // Of `\n` and such like `n` is left: no key has the character that it stands for.
  return next === 0 ? 0 : escapeOf(2, next);
}

function escapeOf(length: number, code: number): number {
  return code < 0 || code > 0xff ? 0 : (length << 8) | code;
}

/** Reads `&amp;`, `&#119;`, `&#x77;` and such like. */
function referenceAt(bytes: Uint8Array, at: number, end: number): number {
  if (bytes[at + 1] === 0x23) return numberAt(bytes, at, end);
  // No letter, no name: of ampersands alone each is done with here.
  if (lowerAt(bytes, at + 1, end) < 0x61) return 0;
  for (const name of names) {
    let matched = 1;
    while (matched < name.length && name[matched] === lowerAt(bytes, at + matched, end)) matched++;
    if (matched === name.length) return escapeOf(matched, name[0] as number);
  }
  return 0;
}

function numberAt(bytes: Uint8Array, at: number, end: number): number {
  const isHex = lowerAt(bytes, at + 2, end) === 0x78;
  const first = at + (isHex ? 3 : 2);
  let [place, code] = [first, 0];
  for (; place < end && place < first + maxDigits; place++) {
    const digit = hexDigits[bytes[place] as number] as number;
    if (digit < 0 || (!isHex && digit > 9)) break;
    code = code * (isHex ? 16 : 10) + digit;
  }
  return place === first || place >= end || bytes[place] !== 0x3b ? 0 : escapeOf(place + 1 - at, code);
}

/** In lower case where it is a letter; 0 behind the end. */
const lowerAt = (bytes: Uint8Array, at: number, end: number): number =>
  at < end ? (bytes[at] as number) | 0x20 : 0;

/** The value of so many hexadecimal digits, or -1 where they are none. */
function hexAt(bytes: Uint8Array, at: number, length: number, end: number): number {
  let value = 0;
  for (let place = at; place < at + length; place++) {
    const digit = place < end ? (hexDigits[bytes[place] as number] as number) : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}
