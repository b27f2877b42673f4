import { describe, expect, it } from 'vitest';
import { type Known, pauseMsOf } from '../../src/upstream/probing-policy.ts';

/** Fifty a second, well known, where a 429 costs nothing but itself. */
const known: Known = {
  perMs: 0.05,
  certainty: { kind: 'measured', confirmations: 3 },
  sample: 1000,
  hasFallen: false,
  costMs: 0,
  refusedAtOnce: 1,
  roundTripMs: 10,
};

describe('the pause between two probes of the limit', () => {
  it.each<[string, Partial<Known>, number]>([
    ['is a few seconds where a 429 costs nothing but itself', {}, 3500],
    ['is sixty times what a 429 costs everybody', { costMs: 1000 }, 60_000],
    ['is a quarter of an hour at most, whatever a 429 costs', { costMs: 3_600_000 }, 900_000],
    ['is a quarter of an hour at most, however slow the limit', { perMs: 1 / 20_000 }, 900_000],
    ['is four times the cost after the limit has come down', { costMs: 1000, hasFallen: true }, 4000],
    ['is none while the rate is a guess', { certainty: { kind: 'guess' } }, 0],
    ['is short after a measurement from little', { sample: 5 }, 3500 * 0.15],
    [
      'is never longer than half for a rate that was only ever read from little',
      { sample: 0, certainty: { kind: 'measured', confirmations: 1000 } },
      1750,
    ],
    [
      'is none where a rate was read from nothing and never confirmed',
      { sample: 0, certainty: { kind: 'measured', confirmations: 0 } },
      0,
    ],
  ])('%s', (_, over, ms) => {
    expect(pauseMsOf({ ...known, ...over })).toBeCloseTo(ms);
  });
});
