import { describe, expect, it } from 'vitest';
import { BodyBudget, SharedBudget } from '../../src/upstream/budgets.ts';

const mebibyte = 2 ** 20;
/** A bound that is one workspace's own. */
const alone = (bytes: number) => new SharedBudget(bytes, 0).join();

/** Those that wait for an answer. */
const by =
  (...callers: string[]) =>
  () =>
    callers;

describe('bodies in flight stay under the bound', () => {
  it('a body that says its length waits, in order, until that much is free', () => {
    const budget = new BodyBudget(alone(100), 0);
    const started: string[] = [];
    const a = budget.reserve(by('one'), 80, () => started.push('a'));
    const b = budget.reserve(by('one'), 50, () => started.push('b'));
    const c = budget.reserve(by('one'), 10, () => started.push('c'));
    expect([a.isReady, b.isReady, c.isReady]).toEqual([true, false, false]);
    a.release();
    expect(started).toEqual(['b', 'c']);
    expect([b.isReady, c.isReady]).toEqual([true, true]);
    b.release();
    c.release();
    expect(budget.share.used).toBe(0);
  });

  it('bodies that do not say their length wait where nothing is left, but for one, and each ends', () => {
    const budget = new BodyBudget(alone(100), 0);
    const started: string[] = [];
    const names = ['a', 'b', 'c', 'd'];
    const shares = names.map((name) => budget.reserve(by(name), 0, () => {}));
    const more = (at: number, bytes: number) =>
      shares[at]?.extend(bytes, () => started.push(names[at] ?? ''));
    expect(names.map((_, at) => more(at, 25))).toEqual([true, true, true, true]);
    // Nothing is left: one goes on all the same, as far as it likes.
    expect([more(1, 30), more(0, 30), more(2, 30), more(1, 30)]).toEqual([true, false, false, true]);
    // What came before its connection paused.
    expect(more(0, 10)).toBe(false);
    expect(budget.share.used).toBe(160);
    shares[1]?.release();
    expect([started, budget.share.used]).toEqual([['a'], 115]);
    shares[0]?.release();
    expect([started, budget.share.used]).toEqual([['a', 'c'], 80]);
    shares[2]?.release();
    shares[3]?.release();
    expect([budget.share.used, budget.waiting]).toEqual([0, []]);
  });

  it('a body waits behind no body of a caller that holds more', () => {
    const budget = new BodyBudget(alone(100), 0);
    const started: string[] = [];
    const first = budget.reserve(by('busy'), 40, () => {});
    const second = budget.reserve(by('busy'), 30, () => {});
    budget.reserve(by('small'), 15, () => {});
    for (const name of ['third', 'fourth']) budget.reserve(by('busy'), 40, () => started.push(name));
    // What is left is too little for the bodies that wait.
    expect(budget.reserve(by('other'), 10, () => {}).isReady).toBe(true);
    budget.reserve(by('quiet'), 30, () => started.push('quiet'));
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

  it('one caller’s bodies that stall leave room to those of every other caller, for each a share', () => {
    const budget = new BodyBudget(alone(1_000), 0);
    const taken = (caller: string): number =>
      Array.from({ length: 40 }, () => budget.reserve(by(caller), 50, () => {})).filter(
        ({ isReady }) => isReady,
      ).length;
    expect([taken('first'), taken('second'), taken('third')]).toEqual([15, 3, 1]);
    const growing = ['first', 'fourth'].map((caller) => budget.reserve(by(caller), 0, () => {}));
    expect(growing.map((share) => share.grow(10))).toEqual([false, true]);
  });

  it('a caller’s only body may have all that is free, and its next ones go on when it has come', () => {
    const budget = new BodyBudget(alone(100), 0);
    const started: string[] = [];
    const only = budget.reserve(by('one'), 100, () => {});
    for (const name of ['a', 'b', 'c']) budget.reserve(by('one'), 40, () => started.push(name));
    expect(only.isReady).toBe(true);
    only.release();
    expect(started).toEqual(['a']);
  });

  it('a body that gives up its place holds up no other', () => {
    const budget = new BodyBudget(alone(100), 0);
    const started: string[] = [];
    const a = budget.reserve(by('one'), 100, () => started.push('a'));
    const b = budget.reserve(by('one'), 100, () => started.push('b'));
    budget.reserve(by('one'), 1, () => started.push('c'));
    b.release();
    a.release();
    a.release();
    expect(started).toEqual(['c']);
    expect(budget.share.used).toBe(1);
  });

  it('an answer of up to 64 KiB does not wait for large ones', () => {
    const budget = new BodyBudget(alone(64 * mebibyte));
    const large = ['one', 'one', 'one', 'one', 'one', 'one', 'two', 'three', 'one'].map((caller) =>
      budget.reserve(by(caller), 8 * mebibyte, () => {}),
    );
    expect(large.map(({ isReady }) => isReady)).toEqual([...Array(8).fill(true), false]);
    expect(budget.reserve(by('one'), 11, () => {}).isReady).toBe(true);
    expect(budget.reserve(by('one'), 64 * 1_024, () => {}).isReady).toBe(true);
    const chunked = budget.reserve(by('one'), 0, () => {});
    expect([chunked.isReady, chunked.grow(60_000), chunked.grow(5_000)]).toEqual([true, true, true]);
    const larger = budget.reserve(by('one'), 0, () => {});
    expect([larger.grow(2 * mebibyte), budget.reserve(by('one'), mebibyte, () => {}).isReady]).toEqual([
      false,
      false,
    ]);
    expect(budget.share.used).toBe(64 * mebibyte + 11 + 64 * 1_024 + 65_000);
  });

  it('many small answers are counted, so that large ones leave room for them', () => {
    const budget = new BodyBudget(alone(64 * mebibyte));
    const shares = Array.from({ length: 100 }, () => budget.reserve(by('one'), 10_000, () => {}));
    expect(budget.share.used).toBe(1_000_000);
    expect(budget.reserve(by('one'), 64 * mebibyte - 999_999, () => {}).isReady).toBe(false);
    for (const share of shares) share.release();
    expect(budget.share.used).toBe(64 * mebibyte - 999_999);
  });
});
