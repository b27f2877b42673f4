import { describe, expect, it } from 'vitest';
import { pointBetween } from '../../src/admin/history.ts';
import { RequestCounts } from '../../src/admin/request-counts.ts';
import { tallyAttempts } from '../../src/upstream/attempt-tally.ts';
import { calmSnapshot, line, type SnapshotOfOne, timeAt } from '../support/snapshot.ts';

const calm = calmSnapshot();

describe('a point of the history', () => {
  it('a point of the history has the rates and quantiles of its interval alone', () => {
    const counts = new RequestCounts();
    const attempts = tallyAttempts();
    const look = (atMs: number): SnapshotOfOne =>
      calmSnapshot({
        at: timeAt(atMs),
        requests: { ...calm.requests, ...counts.snapshot() },
        upstream: attempts.snapshot(),
      });
    const ask = (count: number, changes: object): void => {
      for (let more = 0; more < count; more++) counts.count({ ...line, ...changes });
    };
    // Before the interval, and slow.
    ask(50, { cache: 'miss', totalMs: 9_000 });
    const before = look(0);
    ask(98, { cache: 'hit', totalMs: 0.2 });
    ask(1, { cache: 'miss', totalMs: 400 });
    ask(1, { cache: 'miss', totalMs: 400, status: 502, problem: 'upstream-unreachable', reason: 'x' });
    attempts.begun(0, false);
    attempts.ended('list-accounts', 200, 300);
    const point = pointBetween(before, look(5_000));
    expect(point).toMatchObject({
      at: Date.parse(calm.at) + 5_000,
      requests: 20,
      fromMemory: 19.6,
      problems: 0.2,
      attempts: 0.2,
      // What fails saves nothing.
      saved: 19.6,
      pace: 12.5,
      waiting: 7,
    });
    expect(point.callerP50).toBeLessThan(0.000_25);
    expect(point.callerP99).toBeCloseTo(0.375, 3);
    expect(point.upstreamP99).toBeGreaterThan(0.25);
    expect(point.upstreamP99).toBeLessThanOrEqual(0.5);
  });

  it('a point of the history has no quantile of nothing, and no rate below zero', () => {
    const point = pointBetween(calm, calmSnapshot({ gate: { ...calm.gate, attemptsPerSecond: null } }));
    expect(point).toMatchObject({ requests: 0, saved: 0, pace: null, callerP99: null, upstreamP50: null });
  });
});
