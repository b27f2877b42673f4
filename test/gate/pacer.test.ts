import { describe, expect, it } from 'vitest';
import {
  burstOf,
  dueMs,
  type GateRecord,
  guessLimit,
  learnRate,
  type Mark,
  measureLimit,
  openRecord,
  rise,
  settleDown,
  throttle,
} from '../../src/gate/pacer.ts';

/** 50/s with a burst of 10, known or guessed. */
const limit = (perSecond: number, isMeasured: boolean): GateRecord => {
  return { ...openRecord, perMs: perSecond / 1000, isMeasured, crowd: 10 };
};
/** Closed from 0 to `openedMs`, then so many accepted until the 429 of `endMs`. */
const stretch = (openedMs: number, endMs: number, accepted: number, more: Mark[] = []) => {
  const marks = [{ atMs: openedMs, sent: 0 }, ...more];
  return { marks, throttled: 1, lastThrottled: { atMs: endMs, sent: accepted } };
};
const perSecond = (record: GateRecord): number => record.perMs * 1000;

describe('the first 429', () => {
  it('the first 429 tells the burst, and leaves the rate a guess', () => {
    const guess = guessLimit({ ...openRecord, ...stretch(0, 12, 10) });
    expect(guess).toMatchObject({ isMeasured: false, crowd: 10, crowdMs: 12 });
    expect(perSecond(guess)).toBe(25);
  });

  it('the first guess is no less a second than was accepted lately', () => {
    expect(perSecond(guessLimit({ ...openRecord, ...stretch(0, 2000, 200) }))).toBe(200);
  });

  it('the burst is counted without what came in at the rate while it went on', () => {
    const slow = { ...limit(50, true), crowd: 15, crowdMs: 100 };
    expect(burstOf(slow)).toBe(10);
  });
});

describe('a later 429', () => {
  it.each<[string, GateRecord, ReturnType<typeof stretch>, number, boolean]>([
    [
      'a rate that is measured after a full bucket is (n - B) / T',
      limit(20, false),
      stretch(1000, 3000, 110),
      50,
      true,
    ],
    [
      'a rate that is measured before the bucket had filled is n / (C + T)',
      limit(20, false),
      stretch(80, 1080, 8),
      7.4,
      true,
    ],
    [
      'the rate behind a pace that grew is told by the end of the stretch',
      limit(20, false),
      stretch(1000, 3000, 90, [{ atMs: 2000, sent: 30 }]),
      50,
      true,
    ],
    [
      'a later 429 within the bounds of the known rate leaves it',
      limit(50, true),
      stretch(1000, 3000, 111),
      50,
      true,
    ],
    [
      'a later 429 of a limit that has gone up raises the rate',
      limit(50, true),
      stretch(1000, 6000, 410),
      80,
      true,
    ],
    [
      'a later 429 of a limit that has come down lowers the rate',
      limit(50, true),
      stretch(1000, 6000, 160),
      30,
      true,
    ],
    [
      'a later 429 of a full bucket that was spent at once halves a guess',
      limit(20, false),
      stretch(1000, 1010, 10),
      10,
      false,
    ],
    [
      'a 429 to the trial request lowers the rate by half at most',
      limit(50, true),
      stretch(500, 500, 0),
      25,
      true,
    ],
  ])('%s', (_, before, seen, rate, isMeasured) => {
    const after = measureLimit({ ...before, ...seen });
    expect(perSecond(after)).toBeCloseTo(rate, 1);
    expect(after.isMeasured).toBe(isMeasured);
  });
});

describe('what a cooldown tells', () => {
  /** Closed at 3000 until 3100. */
  const closed = { closedMs: 3_000, closedUntilMs: 3_100, wasProvoked: true, exploreIntervalMs: 8_000 };
  const fast = { ...limit(50, true), ...closed, ...stretch(1_000, 3_000, 111) };
  const reopened = { emptyMs: 3_000, marks: [{ atMs: 3_100, sent: 120 }] };

  it.each<[string, GateRecord, number, number | undefined]>([
    ['the same rate is explored later', fast, 50, 10_000],
    ['exploring has a longest interval', { ...fast, exploreIntervalMs: 230_000 }, 50, 240_000],
    [
      'a higher rate is explored soon',
      { ...fast, ...stretch(1_000, 6_000, 410), closedMs: 6_000 },
      80,
      5_000,
    ],
    [
      'a guess that is measured is explored soon',
      { ...fast, isMeasured: false, perMs: 0.05, riseMs: 1 },
      50.5,
      5_000,
    ],
    ['a long cooldown puts exploring off', { ...fast, closedUntilMs: 5_000 }, 50, 30_000],
    ['a trial that is refused halves the rate', { ...fast, ...stretch(3_000, 3_000, 0) }, 25, 5_000],
    ['one sent before the gate reopened is stray', { ...fast, ...stretch(1_000, 999, 0) }, 50, undefined],
    ['one that our pace does not explain is stray', { ...fast, wasProvoked: false }, 50, undefined],
    [
      'a burst is enough for that',
      { ...fast, wasProvoked: false, ...stretch(1_000, 3_000, 10) },
      50,
      undefined,
    ],
    ['less than a burst is not', { ...fast, wasProvoked: false, ...stretch(1_000, 3_000, 9) }, 3, 5_000],
    ['of a guess that does not grow it is stray', { ...fast, isMeasured: false }, 50, undefined],
  ])('after a cooldown %s', (_, record, rate, exploreIntervalMs) => {
    const learned = learnRate(record, 120);
    expect(perSecond(learned)).toBeCloseTo(rate, 0);
    if (exploreIntervalMs === undefined) expect(learned).toEqual({ ...record, ...reopened });
    else expect(learned).toMatchObject({ exploreIntervalMs, riseMs: 0, level: 0, levelMs: record.closedMs });
  });

  it('after a cooldown of more 429s than were accepted the rate is measured, and attempts count from its end', () => {
    const many = { ...stretch(1_000, 3_000, 34), throttled: 20 };
    const learned = learnRate({ ...fast, wasProvoked: false, ...many }, 120);
    expect(perSecond(learned)).toBeLessThan(50);
    expect(learned).toMatchObject({ ...reopened, exploreMs: 8_100 });
  });
});

describe('the pace', () => {
  const known = { ...limit(50, true), exploreMs: 100, marks: [{ atMs: 0, sent: 0 }] };

  it('the next turn is due when one has come back, or at once', () => {
    expect(dueMs({ ...known, level: 0.5 }, 0)).toBe(10);
    expect(dueMs({ ...known, level: 1 }, 7)).toBe(7);
  });

  it('the pace above a known rate rises from when exploring is due, and is marked as it grows', () => {
    expect(rise(known, 9, 99)).toBe(known);
    expect(settleDown(known, 99)).toBe(known);
    let rising = rise(known, 9, 100);
    expect(rising).toMatchObject({ riseMs: 100, marks: [{ sent: 0 }, { atMs: 100, sent: 9 }] });
    expect(rise(rising, 9, 101)).toBe(rising);
    expect(settleDown(rising, 2_000)).toMatchObject({ riseMs: 0, perMs: 0.05 });
    rising = {
      ...rising,
      marks: [...rising.marks, ...Array.from({ length: 99 }, () => ({ atMs: 200, sent: 9 }))],
    };
    expect(rise(rising, 99, 9_000).marks).toHaveLength(66);
  });
});

describe('a 429', () => {
  const options = { baseMs: 500, capMs: 8_000, maxClosedMs: 300_000, random: () => 0 };
  const known = { ...limit(50, true), marks: [{ atMs: 5, sent: 0 }] };
  const sent = { atMs: 10, sent: 3 };
  const close = (record: GateRecord, mark = sent, isTrial = false) =>
    throttle(record, mark, 0, isTrial, options, 20);

  it.each<[string, GateRecord, boolean, number]>([
    ['briefly where the rate is known', known, false, 80],
    ['for longer where it is not', { ...known, perMs: 0 }, false, 500],
    ['twice as long after a trial', { ...known, unstatedMs: 100 }, true, 200],
    ['briefly after the first trial', known, true, 80],
    ['no longer than the most', { ...known, unstatedMs: 7_000 }, true, 8_000],
  ])('a 429 without a wait closes %s', (_, record, isTrial, closedMs) => {
    expect(close(record, sent, isTrial)).toMatchObject({ state: 'closed', closedUntilMs: 20 + closedMs });
  });

  it('a 429 of before the gate reopened says nothing without a wait, and the one sent last counts', () => {
    const early = { atMs: 4, sent: 1 };
    expect(close(known, early)).toBe(known);
    expect(close({ ...known, perMs: 0 }, early)).toMatchObject({ state: 'closed' });
    expect(close({ ...known, marks: [] })).toMatchObject({ marks: [sent], lastThrottled: sent });
    const once = close(known);
    for (const [mark, last] of [
      [{ atMs: 9, sent: 2 }, sent],
      [{ atMs: 10, sent: 9 }, sent],
      [
        { atMs: 11, sent: 4 },
        { atMs: 11, sent: 4 },
      ],
    ] as const) {
      expect(close(once, mark)).toMatchObject({ throttled: 2, lastThrottled: last });
    }
  });
});
