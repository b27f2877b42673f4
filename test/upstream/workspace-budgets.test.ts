import { describe, expect, it } from 'vitest';
import { AttemptSlots, BodyBudget, SharedBudget } from '../../src/upstream/budgets.ts';
import { patientContext } from '../support/requests.ts';

/** What has settled of these promises, after every promise that could go on has. */
async function settled(promises: readonly Promise<unknown>[]): Promise<number> {
  let count = 0;
  for (const promise of promises) {
    void promise.then(
      () => count++,
      () => count++,
    );
  }
  await new Promise((resolve) => setImmediate(resolve));
  return count;
}

describe('a budget that several workspaces share', () => {
  it('one that takes all it can leaves every other its own part', () => {
    const budget = new SharedBudget(10, 20);
    const [busy, quiet, other] = [budget.join(), budget.join(), budget.join()];
    expect(busy.take(30)).toBe(true);
    expect(busy.take(1)).toBe(false);
    expect([quiet.take(10), other.take(10)]).toEqual([true, true]);
    expect(quiet.take(1)).toBe(false);
    // What is common goes to the next that asks, what is one's own to no other.
    busy.give(5);
    expect(quiet.take(6)).toBe(false);
    expect(quiet.take(5)).toBe(true);
    busy.give(25);
    expect([quiet.take(15), other.take(1)]).toEqual([true, false]);
    expect([busy.used, quiet.used, other.used]).toEqual([0, 30, 10]);
  });

  it('one that may not take all that is common leaves the rest of it to the others', () => {
    const budget = new SharedBudget(10, 20, 15);
    const [busy, quiet, other] = [budget.join(), budget.join(), budget.join()];
    expect([busy.most, busy.take(25), busy.take(1)]).toEqual([25, true, false]);
    expect([quiet.take(15), quiet.take(1), other.take(11), other.take(10)]).toEqual([
      true,
      false,
      false,
      true,
    ]);
    busy.give(5);
    expect([quiet.take(5), busy.take(1)]).toEqual([true, false]);
  });

  it('what was taken although it was not free keeps others from what is common until it is given back', () => {
    const budget = new SharedBudget(10, 20);
    const [forced, other] = [budget.join(), budget.join()];
    forced.takeAnyway(50);
    expect([other.take(10), other.take(1)]).toEqual([true, false]);
    forced.give(25);
    expect([other.take(5), other.take(1)]).toEqual([true, false]);
  });

  it('those that wait for what is common are told in turn', () => {
    const budget = new SharedBudget(0, 1);
    const shares = [budget.join(), budget.join(), budget.join()];
    const got: number[] = [];
    shares[0]?.take(1);
    for (const [index, share] of shares.entries()) {
      share.onFreed = () => {
        if (index > 0 && share.take(1)) got.push(index);
      };
    }
    shares[0]?.give(1);
    for (let more = 0; more < 5; more++) shares[got.at(-1) ?? 0]?.give(1);
    expect(got.filter((index) => index === 1).length).toBe(3);
    expect(got.filter((index) => index === 2).length).toBe(3);
  });
});

describe('attempts at once', () => {
  it('attempts beyond a share wait in order, until one of their own or a common one is free', async () => {
    const budget = new SharedBudget(1, 1);
    const [busy, quiet] = [new AttemptSlots(budget.join()), new AttemptSlots(budget.join())];
    const asked = [busy, busy, busy, busy].map((slots) => slots.take(patientContext()));
    expect(await settled(asked)).toBe(2);
    // Held up by none of them.
    expect(await settled([quiet.take(patientContext())])).toBe(1);
    busy.release();
    expect(await settled(asked)).toBe(3);
    busy.release();
    expect(await settled(asked)).toBe(4);
  });

  it('an attempt whose request ends does not wait any longer and takes no slot', async () => {
    const slots = new AttemptSlots(new SharedBudget(1, 0).join());
    await slots.take(patientContext());
    const ending = new AbortController();
    const leaving = patientContext(ending.signal);
    const left = slots.take(leaving);
    const next = slots.take(patientContext());
    ending.abort(new Error('left'));
    await expect(left).rejects.toThrow('left');
    slots.release();
    await next;
    await expect(slots.take(leaving)).rejects.toThrow('left');
  });
});

describe('bodies of several workspaces in flight', () => {
  it('of all workspaces one answer goes on beyond what there is, and then one of those that wait in any', () => {
    const budget = new SharedBudget(50, 0);
    const began: string[] = [];
    const growing = ['a', 'b', 'c'].map((name) => {
      const share = new BodyBudget(budget.join(), 0).reserve(
        () => [name],
        0,
        () => {},
      );
      return { share, more: (bytes: number) => share.extend(bytes, () => began.push(name)) };
    });
    expect(growing.map(({ more }) => more(50))).toEqual([true, true, true]);
    expect(growing.map(({ more }) => more(10))).toEqual([true, false, false]);
    for (const { share } of growing) share.release();
    expect(began).toEqual(['b', 'c']);
  });

  it('a workspace whose answers fill all they may leaves the other its part, and a freed byte goes to what waits', () => {
    const budget = new SharedBudget(100, 200);
    const [busy, quiet] = [new BodyBudget(budget.join(), 0), new BodyBudget(budget.join(), 0)];
    const large = busy.reserve(
      () => ['one'],
      300,
      () => {},
    );
    const began: string[] = [];
    const waits = busy.reserve(
      () => ['one'],
      10,
      () => began.push('busy'),
    );
    expect([large.isReady, waits.isReady]).toEqual([true, false]);
    expect(
      quiet.reserve(
        () => ['one'],
        100,
        () => {},
      ).isReady,
    ).toBe(true);
    const second = quiet.reserve(
      () => ['one'],
      50,
      () => began.push('quiet'),
    );
    expect(second.isReady).toBe(false);
    large.release();
    expect(began.toSorted()).toEqual(['busy', 'quiet']);
  });
});
