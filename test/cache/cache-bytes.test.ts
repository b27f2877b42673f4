import { describe, expect, it } from 'vitest';
import { type BoundedStore, CacheBytes } from '../../src/cache/cache-bytes.ts';

class Store implements BoundedStore {
  readonly #bytes: CacheBytes;
  /** Oldest first. */
  entries: number[] = [];

  constructor(bytes: CacheBytes) {
    this.#bytes = bytes;
    bytes.join(this);
  }

  get bytes(): number {
    return this.entries.reduce((sum, size) => sum + size, 0);
  }

  evict(): void {
    this.entries.shift();
  }

  put(size: number): void {
    this.entries.push(size);
    this.#bytes.fit();
  }
}

describe('the bytes of several stores', () => {
  it('a store may take what no other uses, and gives it back when another needs its share', () => {
    const bytes = new CacheBytes(100);
    const [busy, quiet] = [new Store(bytes), new Store(bytes)];
    for (let more = 0; more < 20; more++) busy.put(5);
    expect(busy.bytes).toBe(100);
    for (let more = 0; more < 20; more++) quiet.put(5);
    expect([busy.bytes, quiet.bytes]).toEqual([50, 50]);
  });

  it('a busy store never evicts what another holds within its share', () => {
    const bytes = new CacheBytes(100);
    const [busy, quiet] = [new Store(bytes), new Store(bytes)];
    quiet.put(20);
    quiet.put(20);
    for (let more = 0; more < 1_000; more++) busy.put(7);
    expect(quiet.entries).toEqual([20, 20]);
    expect(busy.bytes).toBeGreaterThan(50);
    expect(busy.bytes + quiet.bytes).toBeLessThanOrEqual(100);
  });
});
