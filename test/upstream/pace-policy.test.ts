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
