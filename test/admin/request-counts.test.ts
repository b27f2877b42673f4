import { describe, expect, it, vi } from 'vitest';
import { maxCallers, otherCallers, sumByCaller } from '../../src/admin/caller-counts.ts';
import { RequestCounts } from '../../src/admin/request-counts.ts';
import type { AccessLine } from '../../src/edge/access-log.ts';
import { boundsSeconds, Durations } from '../../src/exchange/figures.ts';
import { line as usual } from '../support/snapshot.ts';

function counted(...lines: Partial<AccessLine>[]) {
  const counts = new RequestCounts();
  for (const line of lines) {
    counts.begin();
    counts.count({ ...usual, ...line });
  }
  return counts;
}

const sum = (list: readonly { readonly count: number }[]): number =>
  list.reduce((all, { count }) => all + count, 0);

describe('an access line', () => {
  it('an access line adds one to the requests of its operation, status and cache outcome', () => {
    const { counts } = counted({}, {}, { cache: 'miss' }, {}, { status: 304 }, { operation: 'b' }).snapshot();
    expect(counts).toEqual(
      [
        { operation: 'list-accounts', status: 200, cache: 'hit', count: 3 },
        { operation: 'list-accounts', status: 200, cache: 'miss', count: 1 },
        { operation: 'list-accounts', status: 304, cache: 'hit', count: 1 },
        { operation: 'b', status: 200, cache: 'hit', count: 1 },
      ].map((one) => ({ workspace: null, ...one })),
    );
  });

  it('an access line adds one to the durations of hits or of the others', () => {
    const { beside } = counted(
      { totalMs: 0.2 },
      { totalMs: 0.25, cache: 'stale-while-revalidate' },
      { totalMs: 30, cache: 'miss' },
      { totalMs: 60_000, cache: 'stale-if-error' },
    ).snapshot();
    const [hits, others] = beside.durations;
    expect(hits).toMatchObject({ hit: true, count: 2, sumSeconds: expect.closeTo(0.00045) });
    expect(hits?.cumulative[0]).toBe(2);
    expect(others).toMatchObject({ hit: false, count: 2 });
    expect(others?.cumulative.at(-1)).toBe(1);
  });

  it('an access line finishes a request that had begun, and counts it as aborted where its caller left', () => {
    const counts = counted({}, { status: 499, reason: 'left' }, { status: 502 });
    counts.begin();
    expect(counts.snapshot()).toMatchObject({ started: 4, finished: 3, aborted: 1 });
  });
});

describe('problems', () => {
  it('problems are counted by code, also that of a fault, whose line has none', () => {
    const { problems } = counted(
      { status: 404, problem: 'unknown-operation', reason: 'x' },
      { status: 404, problem: 'unknown-operation', reason: 'y' },
      { status: 500, reason: 'a fault' },
      { status: 499, reason: 'left' },
      // The upstream's own.
      { status: 500 },
    ).snapshot();
    expect(problems).toEqual({ 'unknown-operation': 2, 'internal-error': 1 });
  });

  it('one caller’s problems do not take the places of other callers’ among the recent ones', () => {
    const { count, snapshot } = new RequestCounts();
    const failed = (caller: string | undefined) =>
      count({
        ...usual,
        caller,
        status: 404,
        problem: 'unknown-operation',
        reason: 'no operation at this path',
      });
    failed('modest');
    failed(undefined);
    for (let time = 0; time < 100; time++) failed('greedy');
    const callers = snapshot().recentProblems.map(({ caller }) => caller);
    expect([callers.length, ...callers.slice(-2)]).toEqual([20, null, 'modest']);
  });

  it('problems that concern one caller are counted by caller where the caller is known', () => {
    const limited = { status: 429, problem: 'caller-rate-limited', reason: 'x' };
    const { beside } = counted(limited, limited, {
      caller: undefined,
      status: 401,
      problem: 'caller-unauthenticated',
      reason: 'x',
    }).snapshot();
    expect(beside.callers).toEqual([
      {
        workspace: null,
        caller: 'script',
        classes: [0, 0, 0, 0, 2, 0],
        refused: { 'caller-rate-limited': 2 },
        spared: {},
        waitedMs: 0,
      },
    ]);
  });

  it('a caller is counted in each workspace apart, and what it did not get for want of a turn as refused', () => {
    const late = { workspace: 'berlin', status: 429, problem: 'upstream-rate-limited', reason: 'x' };
    const counts = counted({}, {}, late, { ...late, problem: 'overloaded' });
    const { callers, problems } = counts.snapshot().beside;
    expect(callers.map(({ workspace, classes }) => [workspace, classes[2], classes[4]])).toEqual([
      [null, 2, 0],
      ['berlin', 0, 2],
    ]);
    expect(sumByCaller(callers)).toMatchObject([
      {
        caller: 'script',
        classes: [0, 0, 2, 0, 2, 0],
        refused: { 'upstream-rate-limited': 1, overloaded: 1 },
      },
    ]);
    expect(problems).toEqual([{ workspace: 'berlin', count: 2 }]);
    expect(counts.today('script')).toMatchObject({ requests: 4, refused: 0 });
  });

  it('a turn that the limit gives too late has the setting as its cause, and what to do names the limit that is told', () => {
    const counts = counted();
    const reason =
      'the upstream limits requests, and the turn of this one would come after its time (REQUEST_TIMEOUT)';
    counts.count({ ...usual, status: 429, problem: 'upstream-rate-limited', reason });
    const [group] = counts.snapshot().problemGroups;
    expect(group?.cause).toBe('REQUEST_TIMEOUT');
    expect(group?.todo).toMatch(/UPSTREAM_LIMIT.*REQUEST_TIMEOUT/);
  });

  it('problems are grouped by code: how many, whose, since when, the last id and cause, and what to do', () => {
    vi.useFakeTimers({ now: new Date('2026-03-01T12:00:00Z') });
    try {
      const counts = counted();
      const fail = (caller: string, code = 'upstream-key-rejected'): void =>
        counts.count({
          ...usual,
          caller,
          status: 502,
          problem: code,
          reason: 'x',
          cause: `Error: connect ECONN_${caller.toUpperCase()} 127.0.0.1:1`,
        });
      for (let time = 0; time < 150; time++) {
        for (const caller of ['a', 'b', 'c']) fail(caller);
        vi.advanceTimersByTime(200);
      }
      fail('a', 'upstream-timeout');
      fail('a');
      const [first, second] = counts.snapshot().problemGroups;
      expect(first).toMatchObject({
        ...{
          code: 'upstream-key-rejected',
          workspace: null,
          count: 451,
          callers: ['a', 'b', 'c'],
          callerCount: 3,
        },
        ...{ since: '2026-03-01T12:00:00.000Z', lastAt: '2026-03-01T12:00:30.000Z', cause: 'ECONN_A' },
        todo: expect.stringContaining('secret store'),
      });
      expect(second).toMatchObject({ code: 'upstream-timeout', count: 1 });
      // Five quiet minutes later it is another one.
      vi.advanceTimersByTime(301_000);
      fail('a');
      expect(counts.snapshot().problemGroups[0]).toMatchObject({ count: 1, callerCount: 1 });
    } finally {
      vi.useRealTimers();
    }
  });

  it("a caller's requests of the day begin anew at midnight UTC", () => {
    vi.useFakeTimers({ now: new Date('2026-03-01T23:59:00Z') });
    try {
      const limited = {
        status: 429,
        problem: 'caller-rate-limited',
        reason: 'x',
        cache: undefined,
        attempts: 0,
      };
      const counts = counted({ cache: 'hit', attempts: 0 }, { cache: 'miss', attempts: 2 }, limited);
      expect(counts.today('script')).toEqual({ requests: 3, fromMemory: 1, sentUp: 1, refused: 1 });
      expect(counts.today('other')).toEqual({ requests: 0, fromMemory: 0, sentUp: 0, refused: 0 });
      vi.advanceTimersByTime(60_000);
      expect(counts.today('script')).toEqual({ requests: 0, fromMemory: 0, sentUp: 0, refused: 0 });
      vi.advanceTimersByTime(86_399_000);
      counts.count({ ...usual, cache: 'hit' });
      expect(counts.today('script')).toMatchObject({ requests: 1, fromMemory: 1 });
      vi.advanceTimersByTime(1_000);
      expect(counts.today('script')).toMatchObject({ requests: 0 });
      expect(counts.snapshot().beside.callers[0]?.classes).toEqual([0, 0, 3, 0, 1, 0]);
    } finally {
      vi.useRealTimers();
    }
  });

  it('requests that passed because rules are not enforced are counted by the problem they were spared', () => {
    const would = 'caller-forbidden';
    const both = `caller-rate-limited ${would}`;
    const [script] = counted({}, { would }, { would: both }).snapshot().beside.callers;
    expect(script).toMatchObject({ spared: { [would]: 2, 'caller-rate-limited': 1 }, refused: {} });
  });

  it('problems of the HTTP parser are counted by a bounded number of codes', () => {
    const counts = new RequestCounts();
    for (let code = 0; code < 1_000; code++) counts.refuse(`code-${code}`);
    counts.refuse('code-0');
    const { unparsed } = counts.snapshot().beside;
    expect(Object.keys(unparsed)).toHaveLength(51);
    expect(unparsed).toMatchObject({ 'code-0': 2, other: 950 });
  });
});

describe('the number of series is bounded', () => {
  it('callers beyond the bound are counted together', () => {
    const lines = Array.from({ length: 3 * maxCallers }, (_, number) => ({ caller: `c${number}` }));
    const { callers } = counted(...lines, ...lines).snapshot().beside;
    expect(callers).toHaveLength(maxCallers + 1);
    expect(callers[0]).toMatchObject({ caller: 'c0', classes: [0, 0, 2, 0, 0, 0] });
    expect(callers.at(-1)).toMatchObject({ caller: otherCallers, classes: [0, 0, 4 * maxCallers, 0, 0, 0] });
  });

  it('statuses beyond the bound are counted together', () => {
    const lines = Array.from({ length: 800 }, (_, number) => ({ status: 200 + number, cache: 'miss' }));
    const { counts } = counted(...lines, ...lines).snapshot();
    expect(counts).toHaveLength(101);
    expect(counts.filter(({ status }) => status === null)).toEqual([
      { workspace: null, operation: 'list-accounts', status: null, cache: null, count: 1_400 },
    ]);
    expect(sum(counts)).toBe(1_600);
  });
});

describe('durations', () => {
  it('durations that equal a bound are within it, and those beyond the last bound are in the count alone', () => {
    const durations = new Durations();
    for (const seconds of boundsSeconds) durations.observe(seconds * 1_000);
    durations.observe(1e9);
    const { count, cumulative } = durations.snapshot();
    expect(cumulative).toEqual(boundsSeconds.map((_, index) => index + 1));
    expect(count).toBe(boundsSeconds.length + 1);
  });
});
