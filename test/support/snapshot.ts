/** The snapshot of a gateway in which every metric has a sample. */
import { RequestCounts } from '../../src/admin/request-counts.ts';
import type { AdminSnapshot, RuntimeSnapshot, WorkspaceSnapshot } from '../../src/admin/sources.ts';
import type { AccessLine } from '../../src/edge/access-log.ts';
import { Durations } from '../../src/exchange/durations.ts';

const attemptDurations = new Durations();
for (let attempt = 0; attempt < 33; attempt++) attemptDurations.observe(20);

const at = Date.parse('2026-11-01T12:00:00Z');

export const line: AccessLine = {
  requestId: 'id',
  traceId: undefined,
  caller: 'script',
  subject: undefined,
  by: 'token',
  note: undefined,
  method: 'GET',
  workspace: undefined,
  operation: 'list-accounts',
  status: 200,
  problem: undefined,
  reason: undefined,
  cause: undefined,
  refusal: undefined,
  cache: 'hit',
  attempts: 0,
  upstreamStatus: undefined,
  generation: 1,
  gate: undefined,
  waitedMs: 0,
  upstreamMs: 0,
  totalMs: 0.2,
};

/** A snapshot of a gateway with one workspace: what that has is beside the rest as well. */
export type SnapshotOfOne = AdminSnapshot & WorkspaceSnapshot;

/** With members that differ; those of the workspace are put where they belong. */
export function changed(snapshot: SnapshotOfOne, more: Partial<SnapshotOfOne>): SnapshotOfOne {
  const all = { ...snapshot, ...more };
  const { name, key, gate, circuit, cache, attempts } = all;
  return { ...all, workspaces: [{ name, key, gate, circuit, cache, attempts }] };
}

/** The snapshot of a gateway that has nothing to complain of. @param more members that differ */
export function calmSnapshot(more: Partial<SnapshotOfOne> = {}): SnapshotOfOne {
  const full = fullSnapshot();
  return changed(full, {
    key: { ...full.key, reloadFailure: undefined },
    gate: { ...full.gate, state: 'open', callers: [], waiting: 0, closedForMs: 0, statedWaitMs: 0 },
    circuit: { state: 'closed', failuresInARow: 0, probeInMs: 0, operations: [] },
    ...more,
  });
}

/** @param more members that differ */
export function fullSnapshot(more: Partial<SnapshotOfOne> = {}): SnapshotOfOne {
  const counts = new RequestCounts();
  const limited = { status: 429, problem: 'caller-rate-limited', reason: 'x', cache: undefined, waitedMs: 5 };
  for (const one of [line, { ...line, ...limited }, { ...line, operation: undefined, status: 404 }]) {
    counts.begin();
    counts.count(one);
  }
  counts.begin();
  counts.refuse('HPE_INVALID_METHOD');
  const snapshot: SnapshotOfOne = {
    name: '',
    workspaces: [],
    version: '0.1.0',
    nodeVersion: 'v26.0.0',
    at,
    startedAt: at - 60_000,
    notReady: undefined,
    requests: counts.snapshot(),
    key: {
      source: 'file:/run/secrets/a"b\\c',
      fingerprint: '0123abcd',
      generation: 3,
      loadedAt: at - 30_000,
      ageMs: 30_000,
      lastAcceptedAt: at - 1_000,
      lastRejectedAt: at - 40_000,
      suspect: false,
      rejected: false,
      fallenBack: false,
      newKey: undefined,
      previousForgottenInMs: 540_000,
      reloadFailures: 2,
      reloadFailure: 'file:/run/secrets/key: does not exist',
    },
    gate: {
      state: 'closed',
      perSecond: 12.5,
      window: 10,
      limits: [
        { window: '1m', windowMs: 60_000, most: 60, used: 20, remaining: 40, resetsInMs: 12_000 },
        {
          window: '1d',
          windowMs: 86_400_000,
          most: 9_000,
          used: 8_500,
          remaining: 500,
          resetsInMs: 3_600_000,
        },
      ],
      inFlight: 1,
      waiting: 7,
      callers: [
        { name: 'script', length: 5, oldestWaitMs: 1_500, refreshes: 0 },
        { name: 'page', length: 2, oldestWaitMs: 100, refreshes: 3 },
      ],
      closedForMs: 2_000,
      statedWaitMs: 1_500,
      attempts: 40,
      refusals: 3,
    },
    circuit: {
      state: 'open',
      failuresInARow: 12,
      probeInMs: 4_000,
      operations: [
        { operation: 'list-accounts', state: 'closed', failuresInARow: 0, probeInMs: 0 },
        { operation: 'account', state: 'open', failuresInARow: 11, probeInMs: 2_000 },
      ],
    },
    cache: { entries: 3, bytes: 9_000, maxBytes: 64_000, evictions: 1, flights: 1, compressing: 0 },
    attempts: {
      inFlight: 1,
      further: 4,
      background: 2,
      ended: [
        { operation: 'list-accounts', outcome: '200', count: 30, ms: 900 },
        { operation: 'list-accounts', outcome: '429', count: 3, ms: 60 },
      ],
      durations: [{ operation: 'list-accounts', ...attemptDurations.snapshot() }],
      unreadableWaits: [{ field: 'retry-after', count: 2 }],
    },
    callers: {
      count: 1,
      loadedAt: at - 60_000,
      problems: [],
      logins: [],
      expiries: [
        { caller: 'script', expiresAt: Date.parse('2027-01-01T00:00:00Z'), isLast: false },
        { caller: 'script', expiresAt: Date.parse('2027-02-01T00:00:00Z'), isLast: true },
      ],
      callers: [
        {
          name: 'script',
          operations: ['list-accounts'],
          workspaces: [''],
          weight: 1,
          by: ['token'],
          tokens: [
            { token: 'deadbeef', expires: '2027-02-01T00:00:00.000Z' },
            { token: 'cafecafe', expires: '2027-01-01T00:00:00.000Z' },
          ],
        },
      ],
    },
    log: { lostLines: 0, lastLostAt: undefined },
    certificate: { validFrom: at - 60 * 86_400_000, validTo: at + 30 * 86_400_000, problem: undefined },
    fleet: {
      store: {
        address: 'redis://store:6379',
        inUse: true,
        reason: undefined,
        refusal: undefined,
        calls: 120,
        failures: 2,
        latencyMs: 0.21,
      },
      id: '0011aabb',
      members: [{ id: '0011aabb', host: 'gateway-1', version: '0.1.0', startedAt: at - 60_000 }],
      answers: { found: 5, joined: 3, exchanges: 7 },
      gate: { role: 'leads', leader: '0011aabb', turnsGiven: 9, turnsTaken: 4 },
    },
    waiting: 7,
    connections: 2,
    cpuSeconds: 1.5,
    residentBytes: 90_000_000,
    loopBusySeconds: 1,
    loopIdleSeconds: 59,
    loopLagSeconds: 0.000_05,
  };
  return changed(snapshot, more);
}

/** What a watched runtime shows. */
export const fullRuntime: RuntimeSnapshot = {
  process: {
    cpuUserSeconds: 1.25,
    cpuSystemSeconds: 0.25,
    virtualBytes: 900_000_000,
    dataBytes: 200_000_000,
    openDescriptors: 25,
    maxDescriptors: 1_024,
    heapTotalBytes: 20_000_000,
    heapUsedBytes: 15_000_000,
    externalBytes: 3_000_000,
    heapSpaces: [{ space: 'new', totalBytes: 1_000_000, usedBytes: 400_000, availableBytes: 600_000 }],
    activeResources: new Map([
      ['TCPServerWrap', 2],
      ['FSReqCallback', 1],
      ['Timeout', 4],
    ]),
  },
  collections: ['major', 'minor', 'incremental', 'weakcb'].map((kind) => ({
    kind,
    durations: new Durations().snapshot(),
  })),
  lag: { min: 0, max: 0.02, mean: 0.001, stddev: 0.002, p50: 0.001, p90: 0.004, p99: 0.02 },
};
