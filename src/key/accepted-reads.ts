/** What the upstream accepted a key for: the best reads to check it with. Pure: no I/O, no clock. */

/** A read that can be asked again, to see whether the key is accepted. */
export interface KeyRead {
  readonly operation: string;
  readonly path: string;
  readonly query: string;
}

/** "A 200 confirms a key", as the specification has it of the first. A key that one of them accepts is not rejected. */
export const specifiedReads: readonly [KeyRead, KeyRead] = [
  { operation: 'list-api-keys', path: '/users/api-keys/', query: '' },
  { operation: 'list-accounts', path: '/analytics/accounts/', query: '' },
];

export function isSpecified({ operation }: KeyRead): boolean {
  return specifiedReads.some((read) => read.operation === operation);
}

interface AcceptedRead {
  readonly operation: string;
  path: string;
  query: string;
  /** On the monotonic clock (`performance.now()`). */
  sentMs: number;
}

/** The last accepted read of each operation. Changed in place, because every answer is remembered. */
export class AcceptedReads {
  #reads: AcceptedRead[] = [];

  get isEmpty(): boolean {
    return this.#reads.length === 0;
  }

  /** Of all operations the last. */
  get latest(): KeyRead | undefined {
    return this.#reads.toSorted((one, other) => other.sentMs - one.sentMs)[0];
  }

  has(operation: string): boolean {
    return this.#reads.some((one) => one.operation === operation);
  }

  remember({ operation, path, query }: KeyRead, sentMs: number): void {
    const known = this.#reads.find((one) => one.operation === operation);
    if (known === undefined) this.#reads.push({ operation, path, query, sentMs });
    else {
      known.path = path;
      known.query = query;
      known.sentMs = sentMs;
    }
  }

  /** Forgets the operation, for it was refused. @returns what was accepted of it */
  take(operation: string): KeyRead | undefined {
    const known = this.#reads.find((one) => one.operation === operation);
    this.#reads = this.#reads.filter((one) => one !== known);
    return known;
  }

  clear(): void {
    this.#reads = [];
  }
}
