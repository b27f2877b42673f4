import { describe, expect, it } from 'vitest';
import { History, pointBetween } from '../../src/admin/history.ts';
import { RequestCounts } from '../../src/admin/request-counts.ts';
import { snapshotOfOne } from '../../src/admin/snapshot.ts';
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

  it('what fails saves no call: in a storm of 502 nothing is saved', () => {
    const counts = new RequestCounts();
    const look = (atMs: number) =>
      calmSnapshot({ at: timeAt(atMs), requests: { ...calm.requests, ...counts.snapshot() } });
    const before = look(0);
    const failed = { status: 502, problem: 'upstream-unreachable', reason: 'x', cache: 'miss' };
    for (let time = 0; time < 100; time++) counts.count({ ...line, ...failed });
    expect(pointBetween(before, look(5_000))).toMatchObject({ requests: 20, problems: 20, saved: 0 });
  });

  it('the history knows what each caller did in the last minute, in all and in one workspace', async () => {
    const counts = new RequestCounts();
    let atMs = 0;
    const look = (): SnapshotOfOne =>
      calmSnapshot({ at: timeAt(atMs), requests: { ...calm.requests, ...counts.snapshot() } });
    const fault = (error: unknown) => expect.unreachable(String(error));
    const history = new History({ look: async () => look(), onPoint: () => {}, onFault: fault });
    history.close();
    await Promise.resolve();
    for (; atMs < 120_000; atMs += 5_000) {
      counts.count({ ...line, caller: 'greedy', workspace: atMs < 60_000 ? undefined : 'berlin' });
      const limited = { status: 429, problem: 'upstream-rate-limited', reason: 'x' };
      if (atMs >= 60_000) counts.count({ ...line, caller: 'greedy', workspace: 'berlin', ...limited });
      await history.take();
    }
    const recent = history.recentOf(look());
    expect(recent('greedy')).toEqual({ seconds: 65, requests: 24, refused: 12 });
    expect(recent('other')).toMatchObject({ requests: 0, refused: 0 });
    expect(history.recentOf(snapshotOfOne(look(), ''))('greedy')).toMatchObject({ requests: 0 });
  });

  it('a point of the history has no quantile of nothing, and no rate below zero', () => {
    const point = pointBetween(calm, calmSnapshot({ gate: { ...calm.gate, attemptsPerSecond: null } }));
    expect(point).toMatchObject({ requests: 0, saved: 0, pace: null, callerP99: null, upstreamP50: null });
  });
});
