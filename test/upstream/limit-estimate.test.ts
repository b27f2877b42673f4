import { describe, expect, it } from 'vitest';
import { burstOf, estimateLimit, type Limit } from '../../src/upstream/limit-estimate.ts';

/** An upstream's bucket and what is learned about it from attempts at given times. */
function met({ perSecond, burst }: { perSecond: number; burst: number }) {
  const estimate = estimateLimit();
  let rate = perSecond / 1000;
  let tokens = burst;
  let lastMs = 0;
  let nowMs = 0;
  /** One attempt; whether it was accepted. */
  const attempt = (atMs: number, isRisky = false, answerMs = 0): boolean => {
    nowMs = atMs;
    tokens = Math.min(burst, tokens + (atMs - lastMs) * rate);
    lastMs = atMs;
    if (tokens < 1) {
      estimate.refused(atMs, atMs, isRisky);
      return false;
    }
    tokens -= 1;
    estimate.accepted(atMs, atMs + answerMs);
    return true;
  };
  return {
    estimate,
    /** Attempts at this rate until one is refused; then the gate is closed for a second. */
    until(per: number, isRisky = false, answerMs: (sinceMs: number) => number = () => 0): Limit {
      const fromMs = nowMs;
      while (attempt(nowMs + 1000 / per, isRisky, answerMs(nowMs - fromMs)));
      nowMs += 1000;
      estimate.reopened(nowMs);
      return estimate.limit as Limit;
    },
    allow(next: number) {
      rate = next / 1000;
    },
  };
}

const perSecond = ({ perMs }: Limit): number => perMs * 1000;

describe('the limit', () => {
  it('is unknown before the first refusal', () => {
    const { estimate } = met({ perSecond: 50, burst: 10 });
    estimate.accepted(0, 5);
    expect(estimate.limit).toBeUndefined();
  });

  it('is told as a burst by the first refusal, and is a guess', () => {
    const limit = met({ perSecond: 50, burst: 10 }).until(10_000);
    expect(burstOf(limit, 0.05)).toBe(10);
    expect(limit.certainty).toEqual({ kind: 'guess' });
  });

  it.each([
    [50, 10],
    [20, 5],
    [200, 40],
    [2, 1],
  ])('of %i/s and a burst of %i is told by the second refusal', (rate, burst) => {
    const upstream = met({ perSecond: rate, burst });
    upstream.until(10_000);
    const limit = upstream.until(rate * 1.2);
    expect(Math.abs(perSecond(limit) / rate - 1)).toBeLessThan(0.12);
    expect(limit.certainty).toEqual({ kind: 'measured', confirmations: 0 });
  });

  it('is told the more closely the longer the refusal was in coming', () => {
    const upstream = met({ perSecond: 50, burst: 10 });
    upstream.until(10_000);
    upstream.until(60);
    const limit = upstream.until(50.5, true);
    expect(Math.abs(perSecond(limit) - 50)).toBeLessThan(0.1);
    expect(limit.certainty).toEqual({ kind: 'measured', confirmations: 1 });
  });

  it('is kept where a probe of it ends within its bounds', () => {
    const upstream = met({ perSecond: 50, burst: 10 });
    upstream.until(10_000);
    const before = upstream.until(50.5);
    expect(upstream.until(80, true).perMs).toBe(before.perMs);
  });

  it('is found higher by a probe when it has gone up', () => {
    const upstream = met({ perSecond: 20, burst: 10 });
    upstream.until(10_000);
    upstream.until(24);
    upstream.allow(50);
    expect(perSecond(upstream.until(60, true))).toBeCloseTo(50, -1);
  });

  it('is found lower within two refusals when it has come down, and that is remembered', () => {
    const upstream = met({ perSecond: 50, burst: 10 });
    upstream.until(10_000);
    upstream.until(60);
    upstream.until(50.5);
    upstream.allow(20);
    upstream.until(50);
    const limit = upstream.until(50);
    expect(perSecond(limit)).toBeLessThan(30);
    expect(limit.fallenMs).toBeGreaterThan(0);
    expect(limit.fallenFrom).toBeCloseTo(0.05, 2);
  });

  it('is never taken for more because of a refusal that nothing was risked for', () => {
    const upstream = met({ perSecond: 50, burst: 10 });
    upstream.until(10_000);
    let before = upstream.until(60);
    for (let i = 0; i < 5; i++) {
      const after = upstream.until(perSecond(before) + 0.5);
      expect(after.perMs).toBeLessThanOrEqual(before.perMs);
      before = after;
    }
  });

  it('stays a guess, approached more slowly, where the second refusal comes as fast as the first', () => {
    const upstream = met({ perSecond: 50, burst: 10 });
    // A first crowd that comes in drops: nobody knows how much of it was the rate's.
    const first = upstream.until(100);
    const second = upstream.until(100);
    expect(second.certainty).toEqual({ kind: 'guess' });
    expect(second.perMs).toBe(first.perMs / 2);
  });

  it('is told by the clock once it can be, where the first crowd was in coming for longer than its answers tell', () => {
    const upstream = met({ perSecond: 2000, burst: 400 });
    // The first answers are the slowest: connections, cold code.
    upstream.until(6000, false, (sinceMs) => 5 + Math.max(0, 60 - sinceMs));
    const second = upstream.until(3200, true);
    expect(Math.abs(perSecond(second) - 2000)).toBeGreaterThan(60);
    expect(burstOf(second, 2)).toBeCloseTo(400, -1);
    const third = upstream.until(2600, true);
    expect(Math.abs(perSecond(third) - 2000)).toBeLessThan(20);
  });

  it('is not guessed lower than told because of one stray refusal, and the next corrects it', () => {
    const estimate = estimateLimit(0.01);
    estimate.refused(0, 5, false);
    expect(estimate.limit).toMatchObject({ perMs: 0.01, certainty: { kind: 'guess' } });
    estimate.reopened(1000);
    estimate.accepted(1000, 1005);
    estimate.refused(1050, 1055, true);
    expect(estimate.limit).toMatchObject({ perMs: 0.005, certainty: { kind: 'guess' } });
  });

  it('is never guessed lower than a turn in twenty seconds, however often each turn but one is refused', () => {
    const estimate = estimateLimit(0.01);
    for (let atMs = 0; atMs < 100_000; atMs += 1000) {
      estimate.accepted(atMs, atMs);
      estimate.refused(atMs + 50, atMs + 50, true);
      estimate.reopened(atMs + 990);
    }
    expect(estimate.limit).toMatchObject({ certainty: { kind: 'guess' } });
    expect(estimate.limit?.perMs).toBeGreaterThanOrEqual(1 / 20_000);
  });

  it('that was a guess is none that was measured when it is met anew', () => {
    const upstream = met({ perSecond: 50, burst: 10 });
    upstream.until(10_000);
    upstream.estimate.forget();
    expect(upstream.until(10_000).certainty).toEqual({ kind: 'guess' });
  });

  it('met anew is the first guess', () => {
    const upstream = met({ perSecond: 50, burst: 10 });
    upstream.until(10_000);
    const before = upstream.until(60);
    upstream.estimate.forget();
    expect(upstream.until(10_000).perMs).toBe(before.perMs);
  });
});
