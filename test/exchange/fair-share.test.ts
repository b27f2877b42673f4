import { describe, expect, it } from 'vitest';
import { type Evictable, FairBytes, FairShare } from '../../src/exchange/fair-share.ts';

class Store implements Evictable {
  readonly own: number;
  readonly #bytes: FairBytes<Store>;
  /** Oldest first. */
  entries: number[] = [];

  constructor(bytes: FairBytes<Store>, own = 0) {
    this.#bytes = bytes;
    this.own = own;
    bytes.join(this);
  }

  get held(): number {
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
    const bytes = new FairBytes<Store>(100);
    const [busy, quiet] = [new Store(bytes), new Store(bytes)];
    for (let more = 0; more < 20; more++) busy.put(5);
    expect(busy.held).toBe(100);
    for (let more = 0; more < 20; more++) quiet.put(5);
    expect([busy.held, quiet.held]).toEqual([50, 50]);
  });

  it('a busy store never evicts what another holds within its share', () => {
    const bytes = new FairBytes<Store>(100);
    const [busy, quiet] = [new Store(bytes), new Store(bytes)];
    quiet.put(20);
    quiet.put(20);
    for (let more = 0; more < 1_000; more++) busy.put(7);
    expect(quiet.entries).toEqual([20, 20]);
    expect(busy.held).toBeGreaterThan(50);
    expect(busy.held + quiet.held).toBeLessThanOrEqual(100);
  });

  it('what is a store’s own does not count against it, and a store without a share gives way first', () => {
    const bytes = new FairBytes<Store>(100);
    const common = new Store(bytes, 50);
    const gone = new Store(bytes, Number.NEGATIVE_INFINITY);
    const busy = new Store(bytes);
    for (let more = 0; more < 7; more++) common.put(10);
    for (let more = 0; more < 3; more++) gone.put(10);
    for (let more = 0; more < 20; more++) busy.put(5);
    expect([common.held, gone.held, busy.held]).toEqual([70, 0, 30]);
  });
});

describe('a share of a bound', () => {
  const shareOf = (...held: number[]) => {
    const share = new FairShare<{ held: number; own: number }>();
    for (const amount of held) share.join({ held: amount, own: 0 });
    return share;
  };
  const one = { held: 0, own: 0 };

  it.each<[string, number[], number, boolean]>([
    ['what is free', [40, 40], 20, true],
    ['as much as each of two others, which hold more', [70, 70], 33, true],
    ['more than each of two others could have beside it', [70, 70], 34, false],
    ['more than all beside others that hold little', [10, 10], 81, false],
    ['all but what others hold', [10, 10], 80, true],
    ['all, alone', [], 100, true],
    ['more than there is', [], 101, false],
  ])('one that shares a bound may hold %s', (_, others, amount, expected) => {
    expect(shareOf(...others).mayHold(one, amount, 100)).toBe(expected);
  });

  it('what one holds already counts for it, its own does not, and one that left counts no more', () => {
    const share = shareOf(40);
    const holder = { held: 60, own: 0 };
    share.join(holder);
    expect([share.held, share.mayHold(holder, 60, 100), share.mayHold(holder, 70, 100)]).toEqual([
      100,
      true,
      false,
    ]);
    share.leave(holder);
    expect([share.held, share.heaviest?.held]).toEqual([40, 40]);
    expect(shareOf(70).mayHold({ held: 0, own: 50 }, 60, 100)).toBe(true);
  });
});
