import { describe, expect, it } from 'vitest';
import { GatewayError } from '../../src/errors.ts';
import { tallyAttempts } from '../../src/upstream/attempt-tally.ts';

describe('the tally of attempts', () => {
  it('counts what became of each, by operation', () => {
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
    const { beside, ...counts } = tally.snapshot();
    expect(beside.background).toBe(1);
    expect(beside.durations).toMatchObject([{ operation: 'a', count: 6, sumSeconds: 0.06 }]);
    expect(counts).toEqual({
      attempts: 7,
      retries: 1,
      inFlight: 1,
      outcomes: [
        { operation: 'a', outcome: '200', count: 2, seconds: 0.02 },
        { operation: 'a', outcome: '429', count: 1, seconds: 0.01 },
        { operation: 'a', outcome: 'upstream-timeout', count: 1, seconds: 0.01 },
        { operation: 'a', outcome: 'abandoned', count: 2, seconds: 0.02 },
      ],
      unreadableWaits: [
        { field: 'retry-after', count: 2 },
        { field: 'ratelimit', count: 1 },
      ],
    });
  });

  it('distinguishes a bounded number of outcomes, whatever the upstream says', () => {
    const tally = tallyAttempts();
    for (let status = 200; status < 1_000; status++) tally.ended('a', status, 1);
    tally.ended('a', 200, 1);
    const { outcomes } = tally.snapshot();
    expect(outcomes).toHaveLength(33);
    expect(outcomes[0]?.count).toBe(2);
    expect(outcomes.at(-1)).toEqual({ operation: 'a', outcome: 'other', count: 768, seconds: 0.768 });
  });
});
