import { describe, expect, it } from 'vitest';
import { BodyBudget } from '../../src/upstream/body-budget.ts';
import { SharedBudget } from '../../src/upstream/shared-limits.ts';

const mebibyte = 2 ** 20;
/** A bound that is one workspace's own. */
const alone = (bytes: number) => new SharedBudget(bytes, 0).join();

describe('bodies in flight stay under the bound', () => {
  it('a body that says its length waits, in order, until that much is free', () => {
    const budget = new BodyBudget(alone(100), 0);
    const started: string[] = [];
    const a = budget.reserve(
      () => ['one'],
      80,
      () => started.push('a'),
    );
    const b = budget.reserve(
      () => ['one'],
      50,
      () => started.push('b'),
    );
    const c = budget.reserve(
      () => ['one'],
      10,
      () => started.push('c'),
    );
    expect([a.isReady, b.isReady, c.isReady]).toEqual([true, false, false]);
    a.release();
    expect(started).toEqual(['b', 'c']);
    expect([b.isReady, c.isReady]).toEqual([true, true]);
    b.release();
    c.release();
    expect(budget.share.used).toBe(0);
  });

  it('a body that does not say its length is refused when nothing is left', () => {
    const budget = new BodyBudget(alone(100), 0);
    const share = budget.reserve(
      () => ['one'],
      0,
      () => {},
    );
    expect([share.grow(60), share.grow(60), share.grow(40)]).toEqual([true, false, true]);
    share.release();
    expect(budget.share.used).toBe(0);
  });

  it('a body waits behind no body of a caller that holds more', () => {
    const budget = new BodyBudget(alone(100), 0);
    const started: string[] = [];
    const first = budget.reserve(
      () => ['busy'],
      60,
      () => {},
    );
    const second = budget.reserve(
      () => ['busy'],
      30,
      () => {},
    );
    for (const name of ['third', 'fourth'])
      budget.reserve(
        () => ['busy'],
        60,
        () => started.push(name),
      );
    // What is left is too little for the bodies that wait.
    expect(
      budget.reserve(
        () => ['other'],
        10,
        () => {},
      ).isReady,
    ).toBe(true);
    budget.reserve(
      () => ['quiet'],
      30,
      () => started.push('quiet'),
    );
    second.release();
    expect(started).toEqual(['quiet']);
    first.release();
    expect(started).toEqual(['quiet', 'third']);
  });

  it('a body waits no longer than it would for the caller that holds the least, of those that wait for it now', () => {
    const budget = new BodyBudget(alone(100), 0);
    const started: string[] = [];
    const first = budget.reserve(
      () => ['busy'],
      60,
      () => {},
    );
    const second = budget.reserve(
      () => ['busy'],
      30,
      () => {},
    );
    const callers = ['busy'];
    budget.reserve(
      () => ['busy'],
      30,
      () => started.push('of the busy one'),
    );
    const joined = budget.reserve(
      () => callers,
      30,
      () => started.push('of both'),
    );
    callers.push('quiet');
    second.release();
    expect(started).toEqual(['of both']);
    // It is in the quiet caller's name now, also when that one leaves.
    callers.pop();
    expect([budget.heldBy('busy'), budget.heldBy('quiet')]).toEqual([60, 30]);
    joined.release();
    first.release();
    expect([started, budget.heldBy('quiet')]).toEqual([['of both', 'of the busy one'], 0]);
  });

  it('a body that gives up its place holds up no other', () => {
    const budget = new BodyBudget(alone(100), 0);
    const started: string[] = [];
    const a = budget.reserve(
      () => ['one'],
      100,
      () => started.push('a'),
    );
    const b = budget.reserve(
      () => ['one'],
      100,
      () => started.push('b'),
    );
    budget.reserve(
      () => ['one'],
      1,
      () => started.push('c'),
    );
    b.release();
    a.release();
    a.release();
    expect(started).toEqual(['c']);
    expect(budget.share.used).toBe(1);
  });

  it('an answer of up to 64 KiB neither waits for large ones nor is refused because of them', () => {
    const budget = new BodyBudget(alone(64 * mebibyte));
    const large = Array.from({ length: 9 }, () =>
      budget.reserve(
        () => ['one'],
        8 * mebibyte,
        () => {},
      ),
    );
    expect(large.map(({ isReady }) => isReady)).toEqual([...Array(8).fill(true), false]);
    expect(
      budget.reserve(
        () => ['one'],
        11,
        () => {},
      ).isReady,
    ).toBe(true);
    expect(
      budget.reserve(
        () => ['one'],
        64 * 1_024,
        () => {},
      ).isReady,
    ).toBe(true);
    const chunked = budget.reserve(
      () => ['one'],
      0,
      () => {},
    );
    expect([chunked.isReady, chunked.grow(60_000), chunked.grow(5_000)]).toEqual([true, true, true]);
    const larger = budget.reserve(
      () => ['one'],
      0,
      () => {},
    );
    expect([
      larger.grow(2 * mebibyte),
      budget.reserve(
        () => ['one'],
        mebibyte,
        () => {},
      ).isReady,
    ]).toEqual([false, false]);
    expect(budget.share.used).toBe(64 * mebibyte + 11 + 64 * 1_024 + 65_000);
  });

  it('many small answers are counted, so that large ones leave room for them', () => {
    const budget = new BodyBudget(alone(64 * mebibyte));
    const shares = Array.from({ length: 100 }, () =>
      budget.reserve(
        () => ['one'],
        10_000,
        () => {},
      ),
    );
    expect(budget.share.used).toBe(1_000_000);
    expect(
      budget.reserve(
        () => ['one'],
        64 * mebibyte - 999_999,
        () => {},
      ).isReady,
    ).toBe(false);
    for (const share of shares) share.release();
    expect(budget.share.used).toBe(64 * mebibyte - 999_999);
  });
});
