import { describe, expect, it } from 'vitest';
import { mayRetry } from '../../src/upstream/retry-budget-policy.ts';
import { backoffMs, failureOfStatus, retriesFor } from '../../src/upstream/retry-policy.ts';

const options = { baseMs: 500, capMs: 8000 };

describe('the wait before a retry', () => {
  it.each([
    [1, undefined, 500],
    [2, undefined, 1000],
    [4, undefined, 4000],
    [5, undefined, 8000],
    [9, undefined, 8000],
    [1, 100, 500],
    [1, 7000, 7000],
    [9, 60_000, 60_000],
  ])('before retry %i, when %s ms are asked for, is %i ms', (retry, statedMs, expected) => {
    expect(backoffMs(retry, statedMs, options, 0)).toBe(expected);
  });

  it('is spread at the cap too, and only later', () => {
    expect(backoffMs(9, undefined, options, 0.5)).toBe(9000);
    expect(backoffMs(1, 7000, options, 0.5)).toBe(7062.5);
  });
});

describe('what is tried again', () => {
  it.each([
    [429, 'refused', 4],
    [502, 'broken', 1],
    [503, 'broken', 1],
    [504, 'broken', 1],
  ] as const)('%i is %s: up to %i times', (status, failure, times) => {
    expect(failureOfStatus(status)).toBe(failure);
    expect(retriesFor(failure, 4)).toBe(times);
    expect(retriesFor(failure, 0)).toBe(0);
  });

  it.each([200, 304, 400, 401, 403, 404, 500, 501])('%i is not', (status) => {
    expect(failureOfStatus(status)).toBeUndefined();
  });
});

describe('the budget of retries', () => {
  it.each([
    [0, 1, true],
    [2, 1, true],
    [3, 1, false],
    [3, 19, false],
    [3, 20, true],
    [19, 100, true],
    [20, 100, false],
  ])('with %i retries among %i live requests: one more is allowed: %s', (retrying, live, expected) => {
    expect(mayRetry(retrying, live)).toBe(expected);
  });
});
