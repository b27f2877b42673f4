import { describe, expect, it } from 'vitest';
import {
  burstOf,
  type GateRecord,
  guessLimit,
  type Mark,
  measureLimit,
  openRecord,
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
