import { describe, expect, it } from 'vitest';
import { GatewayError, type GatewayErrorOptions, type ProblemCode } from '../../src/errors.ts';
import {
  type Ended,
  type Ending,
  failuresAfter,
  isOpen,
  judgeEnding,
  type RecentFailures,
} from '../../src/upstream/circuit-rules.ts';

describe('what the end of an attempt says of the upstream', () => {
  it.each<[number, Ending]>([
    [200, 'answered'],
    [429, 'answered'],
    [500, 'broken'],
    [501, 'broken'],
    [502, 'unanswered'],
    [503, 'unanswered'],
    [504, 'unanswered'],
    [505, 'broken'],
  ])('an answer with status %i says that it has %s', (status, ending) => {
    expect(judgeEnding(status, true)).toBe(ending);
  });

  it.each<[string, Ending, ProblemCode, GatewayErrorOptions?]>([
    ['a refused connection', 'unreachable', 'upstream-unreachable', { proxyError: 'connection_refused' }],
    ['no connection in time', 'unreachable', 'upstream-timeout', { proxyError: 'connection_timeout' }],
    [
      'a connection that broke off',
      'unanswered',
      'upstream-unreachable',
      { proxyError: 'connection_terminated' },
    ],
    ['no answer in time', 'unanswered', 'upstream-timeout', { proxyError: 'http_response_timeout' }],
    [
      'a wait for a free connection',
      'unknown',
      'upstream-timeout',
      { proxyError: 'connection_limit_reached' },
    ],
    ['a refusal of our own', 'unknown', 'upstream-unreachable', { retryAfterMs: 1_000 }],
    ['a refused key', 'answered', 'upstream-key-rejected'],
    ['an answer that may not pass', 'answered', 'upstream-invalid-response'],
    ['a fault of the gateway', 'unknown', 'internal-error'],
  ])('%s means %s', (_, ending, code, options) => {
    expect(judgeEnding(new GatewayError(code, options), true)).toBe(ending);
  });

  it('a deadline that ends before anything was sent says nothing of the upstream', () => {
    expect(judgeEnding(new GatewayError('upstream-timeout'), false)).toBe('unknown');
  });
});

describe('the circuit of the whole upstream', () => {
  const opens = (ending: Ending, ends: readonly (readonly [atMs: number, read: string])[]) => {
    let failures: RecentFailures | undefined;
    for (const [atMs, read] of ends) {
      const ended: Ended = { operation: read, caller: read, ending, atMs, result: 503 };
      failures = failuresAfter(failures, {}, ended);
    }
    return isOpen(failures, {});
  };
  const ends = (count: number, overMs: number, readOf: (index: number) => string) =>
    Array.from({ length: count }, (_, i) => [5_000 + (i * overMs) / (count - 1), readOf(i)] as const);

  it.each<[Ending, (index: number) => string]>([
    ['unreachable', () => 'one'],
    ['unanswered', (index) => (index === 1 ? 'other' : 'one')],
  ])('opens at the tenth that is %s, after a second or more', (ending, readOf) => {
    expect(opens(ending, ends(10, 1_000, readOf))).toBe(true);
    expect(opens(ending, ends(9, 1_000, readOf))).toBe(false);
    expect(opens(ending, ends(10, 999, readOf))).toBe(false);
  });
});
