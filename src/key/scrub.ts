/**
 * Finds the key by its value, wherever it might leave the process: in an answer of the upstream before it is
 * stored or passed, in a caller's text, and in a log line as the last step before it is written.
 *
 * Each text is read as it is, and with its escapes resolved, level by level. Which readings there are depends on the
 * text alone.
 */
import { setImmediate } from 'node:timers/promises';
import type { Eventually } from '../exchange/layer.ts';
import type { Payload } from '../http/payload.ts';
import { exposeKey, type Key } from './key.ts';
import {
  addFound,
  FormIndex,
  type Found,
  hexForms,
  maxLevels,
  plainForms,
  Unescaper,
  windowBytes,
} from './search.ts';

/** What is searched of an answer. */
export interface Searchable {
  readonly headers: Readonly<Record<string, string | readonly string[]>>;
  readonly body: Payload;
}

/** So much is read in one turn of the event loop: about a millisecond. */
const sliceBytes = 256 * 1024;
/** Texts up to this size are read in memory that is used again. */
const reusedBytes = 32 * 1024;
const backslash = 0x5c;

export class Scrubber {
  /** By value: a store that goes back and forth between two makes many keys, and is to cost no more than two. */
  readonly #keys = new Map<string, Set<Key>>();
  readonly #reused = Buffer.alloc(reusedBytes);
  readonly #reusedPlaces = new Uint32Array(reusedBytes);
  readonly #indexes = [new FormIndex<Key>(plainForms), new FormIndex<Key>(hexForms)] as const;
  /** Large answers are searched one after the other: each takes a copy of its body. */
  #largeSearch: Promise<unknown> = Promise.resolve();

  know(key: Key): void {
    const value = exposeKey(key);
    const alike = this.#keys.get(value);
    if (alike === undefined) for (const index of this.#indexes) index.add(key, value);
    this.#keys.set(value, (alike ?? new Set()).add(key));
  }

  forget(key: Key): void {
    const value = exposeKey(key);
    const alike = this.#keys.get(value);
    if (alike?.delete(key) !== true) return;
    const [another] = alike;
    for (const index of this.#indexes) {
      index.remove(key);
      if (another !== undefined) index.add(another, value);
    }
    if (another === undefined) this.#keys.delete(value);
    this.#reused.fill(0);
  }

  /**
   * The known key that the answer holds, in any form; `undefined` when there is none. A promise of it for a large body,
   * during whose search other requests go on.
   */
  leakIn({ headers, body }: Searchable): Eventually<Key | undefined> {
    if (this.#keys.size === 0) return undefined;
    let text = '';
    // Names too: an upstream that echoes may well make a field name of what it was sent.
    for (const name in headers) text += `${name}: ${headers[name]}\n`;
    const isLarge = body.length > sliceBytes;
    const leaked = this.#firstIn(text, isLarge ? '' : body);
    if (leaked !== undefined || !isLarge) return leaked;
    const search = this.#largeSearch.then(() => this.#firstInLarge(body));
    // One that fails, as for want of memory, fails its own answer and none of those that wait.
    this.#largeSearch = search.catch(() => undefined);
    return search;
  }

  /** Whether a text holds a known key, in any form. */
  holdsKey(text: string): boolean {
    return this.#firstIn(text) !== undefined;
  }

  /** The text with `[key <fingerprint>]` in place of every known key, in any form. */
  redact(text: string): string {
    const { length } = text;
    if (length < windowBytes) return text;
    const places = length <= reusedBytes ? this.#reusedPlaces : new Uint32Array(length);
    for (let at = 0; at < length; at++) places[at] = at;
    const found = [...this.#search(this.#copyOf(text), length, places)].filter((one) => one !== undefined);
    if (found.length === 0) return text;
    let clean = '';
    let done = 0;
    for (const { start, end, owner } of merged(found)) {
      let from = start;
      // They escape what they stand before: left alone, they would escape what is put there.
      while (from > done && text.charCodeAt(from - 1) === backslash) from--;
      clean += `${text.slice(done, from)}${owner}`;
      done = end;
    }
    return clean + text.slice(done);
  }

  /** A key that a text holds, or what follows it. */
  #firstIn(text: Payload, more: Payload = ''): Key | undefined {
    const length = text.length + more.length;
    if (length < windowBytes) return undefined;
    for (const found of this.#search(this.#copyOf(text, more), length)) if (found) return found.owner;
    return undefined;
  }

  async #firstInLarge(text: Payload): Promise<Key | undefined> {
    const copy = this.#copyOf(text);
    try {
      for (const found of this.#search(copy, text.length)) {
        if (found) return found.owner;
        await setImmediate();
      }
      return undefined;
    } finally {
      // Gives its memory back now: V8 would let several of these lie.
      (copy.buffer as ArrayBuffer).transfer(0);
    }
  }

  /**
   * Searches bytes as they are, and with their escapes resolved in place, level by level. Gives what is found, and
   * `undefined` after each slice.
   *
   * @param places where each byte stands in the text as it came, for places in that
   */
  *#search(bytes: Buffer, length: number, places?: Uint32Array): Generator<Found<Key> | undefined, void> {
    for (let [level, left] = [0, length]; ; level++) {
      for (let from = 0; from < left; from += sliceBytes) {
        const to = Math.min(from + sliceBytes, left);
        for (const index of this.#indexes) {
          for (const { owner, start, end } of index.find(bytes, from, to)) {
            const endInText = end === left ? length : (places?.[end] ?? end);
            yield { owner, start: places?.[start] ?? start, end: endInText };
          }
        }
        yield undefined;
      }
      if (level === maxLevels) return;
      const unescaper = new Unescaper(bytes, left, places);
      const before = left;
      for (let to = 0; to < before; ) {
        to = Math.min(to + sliceBytes, before);
        left = unescaper.run(to);
        yield undefined;
      }
      if (left === before) return;
    }
  }

  /** One byte for each character, for every form is ASCII: of a wider character its lower byte. */
  #copyOf(text: Payload, more: Payload = ''): Buffer {
    const length = text.length + more.length;
    const copy = length <= reusedBytes ? this.#reused : Buffer.allocUnsafeSlow(length);
    put(copy, text, 0);
    if (more.length > 0) put(copy, more, text.length);
    return copy;
  }
}

function put(copy: Buffer, text: Payload, at: number): void {
  if (typeof text === 'string') copy.write(text, at, 'latin1');
  else text.copy(copy, at);
}

/** The places of several readings, in the order of the text; those that overlap as one. */
function merged(found: Found<Key>[]): Found<Key>[] {
  const inOrder: Found<Key>[] = [];
  for (const one of found.sort((a, b) => a.end - b.end)) addFound(inOrder, one);
  return inOrder;
}
