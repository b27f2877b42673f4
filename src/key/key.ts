/**
 * The upstream API key as an object that cannot be printed: it serialises, inspects and converts to its
 * fingerprint. Only `upstream/credential.ts`, which sends it, and the files of `key/` may import `exposeKey` (a test
 * keeps that): `scrub.ts` searches for the value.
 */
import { createHmac, hkdfSync } from 'node:crypto';
import { inspect } from 'node:util';

/** Fixed, so that the fingerprints of two processes can be compared; keyed, so that no table of digests fits. */
const fingerprintKey = 'workspace-analytics-gateway: fingerprint of an upstream key';

let reveal: (key: Key) => string;

export class Key {
  readonly #value: string;
  /** Counts the different values seen since the start, from 1. */
  readonly generation: number;
  /** Eight hexadecimal characters that may be shown anywhere. */
  readonly fingerprint: string;

  static {
    reveal = (key) => key.#value;
  }

  /** @param value a value that was checked when it was loaded */
  constructor(value: string, generation: number) {
    this.#value = value;
    this.generation = generation;
    this.fingerprint = createHmac('sha256', fingerprintKey).update(value).digest('hex').slice(0, 8);
  }

  /** Whether this is the same key value as another, whatever its generation. */
  hasValue(value: string): boolean {
    return this.#value === value;
  }

  toString(): string {
    return `[key ${this.fingerprint}]`;
  }

  toJSON(): string {
    return this.toString();
  }

  [Symbol.toPrimitive](): string {
    return this.toString();
  }

  [inspect.custom](): string {
    return this.toString();
  }
}

/** The key's value, to be put on the wire. For `upstream/credential.ts` and `key/` only. */
export function exposeKey(key: Key): string {
  return reveal(key);
}

/**
 * 32 bytes that tell nothing of the key (HKDF, RFC 5869). The same key and purpose give the same bytes in every process;
 * another key, as after a rotation, gives others.
 *
 * @param purpose distinguishes the secrets of one key; never the same for two uses
 */
export function deriveSecret(key: Key, purpose: string): Buffer {
  return Buffer.from(hkdfSync('sha256', exposeKey(key), 'workspace-analytics-gateway', purpose, 32));
}

/** How long a key that was replaced is still searched for in answers and log lines, at the least. */
const retiredKeyMs = 10 * 60_000;

interface RetiredKeysOptions {
  /** How long an answer may take that was asked for with a key, in ms: a replaced key is searched for no shorter. */
  readonly longestAnswerMs: number;
  /** The time of a key is over. */
  onForget(key: Key): void;
}

/**
 * Keys that were in use: still searched for, because answers that were fetched with them are under way. Then they are
 * nowhere in memory.
 */
export class RetiredKeys {
  readonly #options: RetiredKeysOptions;
  readonly #timers = new Set<NodeJS.Timeout>();
  /** When the last of them is due, on the monotonic clock. */
  #lastMs = 0;

  constructor(options: RetiredKeysOptions) {
    this.#options = options;
  }

  add(key: Key): void {
    const keptMs = Math.max(retiredKeyMs, this.#options.longestAnswerMs);
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      this.#options.onForget(key);
    }, keptMs);
    timer.unref();
    this.#lastMs = performance.now() + keptMs;
    this.#timers.add(timer);
  }

  /** Until the last of them is forgotten, in ms; `undefined` where there is none. */
  get forgottenInMs(): number | undefined {
    return this.#timers.size === 0 ? undefined : this.#lastMs - performance.now();
  }

  close(): void {
    for (const timer of this.#timers) clearTimeout(timer);
  }
}
