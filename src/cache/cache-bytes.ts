/**
 * The bytes of several stores together. A store may take what no other uses, and gives it back when another needs it:
 * what a store holds within its share, an equal part of all, is never evicted for another.
 */

/** A store as the bound on all of them sees it. */
export interface BoundedStore {
  readonly bytes: number;
  /** Evicts the least recently used. */
  evict(): void;
}

export class CacheBytes {
  readonly #maxBytes: number;
  readonly #stores: BoundedStore[] = [];

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  join(store: BoundedStore): void {
    this.#stores.push(store);
  }

  /** Whether a store could hold that much after `fit`: what others hold beyond it is evicted before its own. */
  mayHold(store: BoundedStore, bytes: number): boolean {
    let allBytes = bytes;
    for (const other of this.#stores) if (other !== store) allBytes += Math.min(other.bytes, bytes);
    return allBytes <= this.#maxBytes;
  }

  /** Evicts until all fit, each time from the store that holds most: the shares are equal. */
  fit(): void {
    for (;;) {
      let allBytes = 0;
      let largest: BoundedStore | undefined;
      for (const store of this.#stores) {
        allBytes += store.bytes;
        if (largest === undefined || store.bytes > largest.bytes) largest = store;
      }
      if (allBytes <= this.#maxBytes || largest === undefined) return;
      largest.evict();
    }
  }
}
