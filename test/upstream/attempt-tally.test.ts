import { describe, expect, it } from 'vitest';
import { GatewayError } from '../../src/errors.ts';
import { tallyAttempts } from '../../src/upstream/attempt-tally.ts';

describe('the tally of attempts', () => {
  it('the tally of attempts counts what became of each, by operation', () => {
    const tally = tallyAttempts();
    const outcomes = [200, 200, 429, new GatewayError('upstream-timeout'), new Error('left'), undefined];
    for (const outcome of outcomes) {
      tally.begun(0, false);
      tally.ended('a', outcome, 10);
    }
    tally.begun(2, true);
    tally.unreadable(['retry-after']);
    tally.unreadable(['retry-after', 'ratelimit']);
    tally.unreadable([]);
    const { durations, ...counts } = tally.snapshot();
    expect(durations).toMatchObject([{ operation: 'a', count: 6, sumSeconds: 0.06 }]);
    expect(counts).toEqual({
      inFlight: 1,
      further: 1,
      background: 1,
      ended: [
        { operation: 'a', outcome: '200', count: 2, ms: 20 },
        { operation: 'a', outcome: '429', count: 1, ms: 10 },
        { operation: 'a', outcome: 'upstream-timeout', count: 1, ms: 10 },
        { operation: 'a', outcome: 'abandoned', count: 2, ms: 20 },
      ],
      unreadableWaits: [
        { field: 'retry-after', count: 2 },
        { field: 'ratelimit', count: 1 },
      ],
    });
  });

  it('the tally of attempts distinguishes a bounded number of outcomes, whatever the upstream says', () => {
    const tally = tallyAttempts();
    for (let status = 200; status < 1_000; status++) tally.ended('a', status, 1);
    tally.ended('a', 200, 1);
    const { ended } = tally.snapshot();
    expect(ended).toHaveLength(33);
    expect(ended[0]?.count).toBe(2);
    expect(ended.at(-1)).toEqual({ operation: 'a', outcome: 'other', count: 768, ms: 768 });
  });
});
