/**
 * Finds the key by its value, wherever it might leave the process: in an answer of the upstream before it is
 * stored or passed, and in a log line as the last step before it is written.
 */
import type { Payload } from '../payload.ts';
import { exposeKey, type Key } from './key.ts';
import { FormIndex, type Text, textOf } from './search.ts';

/** What is searched of an answer. */
export interface Searchable {
  readonly headers: Readonly<Record<string, string | readonly string[]>>;
  readonly body: Payload;
}

/** Texts up to this size are searched in memory that is used again. */
const reusedBytes = 32 * 1024;
const backslash = 0x5c;

export class Scrubber {
  /** By value: a store that goes back and forth between two makes many keys, and is to cost no more than two. */
  readonly #keys = new Map<string, Set<Key>>();
  readonly #reused = textOf(Buffer.alloc(reusedBytes));
  #index = new FormIndex<Key>([]);

  know(key: Key): void {
    const value = exposeKey(key);
    const alike = this.#keys.get(value);
    if (alike !== undefined) {
      alike.add(key);
      return;
    }
    this.#keys.set(value, new Set([key]));
    this.#index.add(key, value);
  }

  forget(key: Key): void {
    const value = exposeKey(key);
    const alike = this.#keys.get(value);
    alike?.delete(key);
    if (alike?.size === 0) this.#keys.delete(value);
    this.#index = new FormIndex([...this.#keys].map(([one, [first]]) => [first as Key, one]));
  }

  /** The known key that the answer holds, in any form; `undefined` when there is none. */
  leakIn({ headers, body }: Searchable): Key | undefined {
    if (this.#keys.size === 0) return undefined;
    let text = '';
    // Names too: an upstream that echoes may well make a field name of what it was sent.
    for (const name in headers) text += `${name}: ${headers[name]}\n`;
    const ofBody = typeof body === 'string' ? this.#read(body) : textOf(body);
    return (this.#index.find(ofBody) ?? this.#index.find(this.#read(text)))?.owner;
  }

  /** The text with `[key <fingerprint>]` in place of every known key, in any form. */
  redact(text: string): string {
    if (text.length < this.#index.leastBytes) return text;
    const searched = this.#read(text);
    let clean = '';
    let done = 0;
    for (;;) {
      const found = this.#index.find(searched, done);
      if (found === undefined) return clean + text.slice(done);
      let { start } = found;
      // They escape what they stand before: left alone, they would escape what is put there.
      while (start > done && searched.bytes[start - 1] === backslash) start--;
      clean += `${text.slice(done, start)}${found.owner}`;
      done = found.end;
    }
  }

  /** One byte for each character, for every form is ASCII: of a wider character its lower byte. */
  #read(text: string): Text {
    if (text.length > reusedBytes) return textOf(Buffer.from(text, 'latin1'));
    const { bytes, words } = this.#reused;
    return { bytes: bytes.subarray(0, bytes.write(text, 'latin1')), words };
  }
}
