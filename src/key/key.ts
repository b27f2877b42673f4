/**
 * The upstream API key as an object that cannot be printed: it serialises, inspects and converts to its
 * fingerprint. Only `upstream/credential.ts`, which sends it, and the files of `key/` may import `exposeKey` (a test
 * keeps that): `scrub.ts` searches for the value, `derive-secret.ts` derives other secrets from it.
 */
import { createHmac } from 'node:crypto';
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
