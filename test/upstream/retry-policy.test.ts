import { describe, expect, it } from 'vitest';
import { GatewayError, type GatewayErrorOptions, type ProblemCode } from '../../src/errors.ts';
import {
  failureOfError,
  failureOfStatus,
  mayRetry,
  type RetryFacts,
  statedUntilMs,
} from '../../src/upstream/retry-policy.ts';
import { answerOf } from '../support/requests.ts';

describe('an attempt is worth another one', () => {
  it.each([
    [429, 'throttled'],
    [502, 'failed'],
    [503, 'failed'],
    [504, 'failed'],
    ...[200, 304, 400, 401, 403, 404, 500, 501].map((status) => [status, undefined] as const),
  ] as const)('after %i: %s', (status, failure) => {
    expect(failureOfStatus(status)).toBe(failure);
  });

  it.each<[ProblemCode, GatewayErrorOptions, string | undefined]>([
    ['upstream-timeout', {}, 'failed'],
    ['upstream-unreachable', {}, 'failed'],
    ['upstream-unreachable', { retryAfterMs: 1000 }, undefined],
    ['upstream-invalid-response', {}, undefined],
    ['overloaded', {}, undefined],
  ])('after %s with %j: %s', (code, options, failure) => {
    expect(failureOfError(new GatewayError(code, options))).toBe(failure);
  });

  it('but not after an error that is not of the gateway', () => {
    expect(failureOfError(new Error('the caller has left'))).toBeUndefined();
  });
});

describe('another attempt is made', () => {
  const facts: RetryFacts = {
    failure: 'failed',
    hasRetriedFailure: false,
    nextMs: 1000,
    deadlineMs: 1001,
    live: 1,
    retrying: 0,
  };
  it.each<[string, Partial<RetryFacts>, boolean]>([
    ['before the deadline', {}, true],
    ['at the deadline', { deadlineMs: 1000 }, false],
    ['at the deadline of a 429', { failure: 'throttled', deadlineMs: 1000 }, false],
    ['after a second failure', { hasRetriedFailure: true }, false],
    ['after a 429 that follows a failure', { failure: 'throttled', hasRetriedFailure: true }, true],
    ['with 2 retries among 1 live request', { retrying: 2 }, true],
    ['with 3 retries among 1 live request', { retrying: 3 }, false],
    ['with 3 retries among 19 live requests', { retrying: 3, live: 19 }, false],
    ['with 3 retries among 20 live requests', { retrying: 3, live: 20 }, true],
    ['with 19 retries among 100 live requests', { retrying: 19, live: 100 }, true],
    ['with 20 retries among 100 live requests', { retrying: 20, live: 100 }, false],
    ['after a 429 whatever is retried', { failure: 'throttled', retrying: 20 }, true],
  ])('%s: %j: %s', (_, change, expected) => {
    expect(mayRetry({ ...facts, ...change })).toBe(expected);
  });
});

describe('the wait that the upstream states', () => {
  it('counts from the receipt of its answer, and is none where it states none', () => {
    const answer = answerOf(429, { 'retry-after': '7' });
    expect(statedUntilMs(answer)).toBe(answer.receivedMs + 7000);
    expect(statedUntilMs(answerOf(429))).toBe(0);
  });
});
