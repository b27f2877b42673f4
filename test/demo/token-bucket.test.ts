import { describe, expect, it } from 'vitest';
import { fillBucket, retryAfterValue } from '../../src/demo/specification.ts';

describe('the token bucket', () => {
  it('the token bucket lets the burst through at once and then one for each token', () => {
    const take = fillBucket({ perSecond: 10, burst: 3 }, 1_000);
    expect([take(1_000), take(1_000), take(1_000)]).toEqual([0, 0, 0]);
    expect(take(1_000)).toBeCloseTo(100);
    expect(take(1_099)).toBeCloseTo(1);
    expect(take(1_100)).toBe(0);
    expect(take(1_100)).toBeCloseTo(100);
  });

  it('the token bucket counts no refusal against the limit', () => {
    const take = fillBucket({ perSecond: 50, burst: 1 }, 0);
    let accepted = 0;
    for (let nowMs = 0; nowMs <= 10_000; nowMs++) if (take(nowMs) === 0) accepted++;
    expect(accepted).toBe(501);
  });

  it('the token bucket holds no more than the burst after a long rest', () => {
    const take = fillBucket({ perSecond: 1_000, burst: 2 }, 0);
    expect([take(1e9), take(1e9)]).toEqual([0, 0]);
    expect(take(1e9)).toBeGreaterThan(0);
  });
});

describe('Retry-After (RFC 9110 section 10.2.3)', () => {
  const limit = { perSecond: 1, burst: 1 };
  const nowMs = Date.UTC(2026, 0, 2, 3, 4, 5, 678);
  it.each([
    ['seconds by default, at least one', limit, 20, '1'],
    ['seconds rounded up', limit, 1_001, '2'],
    ['the claimed seconds', { ...limit, retryAfterSeconds: 7 }, 20, '7'],
    ['a claimed zero', { ...limit, retryAfterSeconds: 0 }, 20, '0'],
    [
      'a date that is not too early',
      { ...limit, retryAfter: 'date' as const },
      20,
      'Fri, 02 Jan 2026 03:04:07 GMT',
    ],
    ['nothing', { ...limit, retryAfter: 'none' as const }, 20, undefined],
  ])('Retry-After of the token bucket says %s', (_, given, waitMs, value) => {
    expect(retryAfterValue(given, waitMs, nowMs)).toBe(value);
  });
});
