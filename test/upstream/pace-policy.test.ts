import { describe, expect, it } from 'vitest';
import { learnPace } from '../../src/upstream/pace-policy.ts';

describe('the rate to be counted on', () => {
  it('is unknown while the pace is a guess', () => {
    const pace = learnPace(0.01);
    pace.refused(0, 5, 1000);
    expect(pace.limited).toBe(true);
    expect(pace.reliableRate).toBeUndefined();
  });

  it.each([1000, 10_000])(
    'is what the upstream accepts where every third turn is refused, and that costs everybody %i ms',
    (costMs) => {
      const pace = learnPace(0.01);
      pace.refused(0, 5, costMs);
      let nowMs = costMs;
      for (let round = 0; round < 50; round++) {
        pace.accepted(nowMs, nowMs + 5);
        pace.resumed(nowMs + 5);
        // Somebody waits, so that more is risked at once: the rate was read from little.
        pace.waitedFor(true, nowMs + 5);
        pace.take(nowMs + 500, false, 1);
        pace.accepted(nowMs + 500, nowMs + 505);
        pace.refused(nowMs + 1000, nowMs + 1005, costMs);
        nowMs += 1005 + costMs;
      }
      const turns = (pace.reliableRate ?? Number.NaN) * (1005 + costMs);
      expect(turns).toBeGreaterThan(1.99);
      expect(turns).toBeLessThan(2.01);
    },
  );
});

describe('while the limit is probed for', () => {
  /** 50/s and a burst of ten, measured, with the bucket full; somebody waits until it is time to probe. */
  function probing() {
    const pace = learnPace(0.01);
    for (let i = 0; i < 10; i++) pace.accepted(0, 5);
    pace.refused(1, 5, 0);
    pace.accepted(500, 505);
    pace.resumed(505);
    for (let i = 1; i <= 60; i++) pace.accepted(505 + i * 16, 505 + i * 16);
    pace.refused(1510, 1510, 0);
    pace.accepted(2000, 2000);
    pace.resumed(2000);
    let nowMs = 2000;
    pace.waitedFor(true, nowMs);
    for (; pace.take(nowMs, false, 99) !== 'risky' && nowMs < 6200; nowMs += 5);
    return { pace, nowMs };
  }

  it('a light caller need not wait for the safe turn that is due next, but for one of them only', () => {
    const { pace, nowMs } = probing();
    expect(pace.perSecond).toBeCloseTo(50, -1);
    expect(pace.take(nowMs, false, 99)).toBeUndefined();
    const atMs = nowMs + 5;
    expect(pace.take(atMs, false, 99)).toBeUndefined();
    expect(pace.take(atMs, true, 99)).toBe('safe');
    expect(pace.take(atMs, true, 99)).toBeUndefined();
  });
});
