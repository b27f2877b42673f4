/** The snapshot of a gateway in which every metric has a sample. */
import { RequestCounts } from '../../src/admin/request-counts.ts';
import type { Runtime } from '../../src/admin/runtime.ts';
import type { AdminSnapshot, WorkspaceSnapshot } from '../../src/admin/snapshot.ts';
import type { AccessLine } from '../../src/edge/access-log.ts';
import { Durations } from '../../src/exchange/figures.ts';

const attemptDurations = new Durations();
for (let attempt = 0; attempt < 33; attempt++) attemptDurations.observe(20);

const atMs = Date.parse('2026-11-01T12:00:00Z');
/** The moment that is this long after the snapshot's. */
export const timeAt = (ms: number): string => new Date(atMs + ms).toISOString();

export const line: AccessLine = {
  requestId: 'id',
  traceId: undefined,
  trace_id: undefined,
  span_id: undefined,
  trace_flags: undefined,
  caller: 'script',
  subject: undefined,
  by: 'token',
  note: undefined,
  would: undefined,
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
  const { workspace, key, upstream, gate, circuit, cache, links } = all;
  return { ...all, workspaces: [{ workspace, key, upstream, gate, circuit, cache, links }] };
}

/** The snapshot of a gateway that has nothing to complain of. @param more members that differ */
export function calmSnapshot(more: Partial<SnapshotOfOne> = {}): SnapshotOfOne {
  const full = fullSnapshot();
  return changed(full, {
    key: { ...full.key, reloadFailure: null },
    gate: { ...full.gate, state: 'open', callers: [], waiting: 0, closedForSeconds: 0, statedWaitSeconds: 0 },
    circuit: { state: 'closed', failuresInARow: 0, probeInSeconds: 0, lastFailure: null, operations: [] },
    ...more,
  });
}

/** @param more members that differ */
export function fullSnapshot(more: Partial<SnapshotOfOne> = {}): SnapshotOfOne {
  const counts = new RequestCounts();
  const limited = { status: 429, problem: 'caller-rate-limited', reason: 'x', cache: undefined, waitedMs: 5 };
  for (const one of [
    line,
    { ...line, ...limited },
    { ...line, operation: undefined, status: 404, would: 'caller-forbidden' },
  ]) {
    counts.begin();
    counts.count(one);
  }
  counts.begin();
  counts.refuse('HPE_INVALID_METHOD');
  const snapshot: SnapshotOfOne = {
    workspace: null,
    workspaces: [],
    version: '0.1.0',
    node: 'v26.0.0',
    at: timeAt(0),
    startedAt: timeAt(-60_000),
    uptimeSeconds: 60,
    ready: true,
    notReady: null,
    requests: { ...counts.snapshot(), waiting: 7, connections: 2 },
    key: {
      loaded: true,
      source: 'file:/run/secrets/a"b\\c',
      fingerprint: '0123abcd',
      generation: 3,
      loadedAt: timeAt(-30_000),
      ageSeconds: 30,
      lastAcceptedAt: timeAt(-1_000),
      lastRejectedAt: timeAt(-40_000),
      rejected: false,
      fallenBack: false,
      newKey: null,
      reloadFailures: 2,
      reloadFailure: 'file:/run/secrets/key: does not exist',
      beside: { suspect: false, previousForgottenInSeconds: 540 },
    },
    upstream: {
      attempts: 34,
      retries: 4,
      inFlight: 1,
      outcomes: [
        { operation: 'list-accounts', outcome: '200', count: 30, seconds: 0.9 },
        { operation: 'list-accounts', outcome: '429', count: 3, seconds: 0.06 },
      ],
      unreadableWaits: [{ field: 'retry-after', count: 2 }],
      beside: {
        background: 2,
        durations: [{ operation: 'list-accounts', ...attemptDurations.snapshot() }],
      },
    },
    gate: {
      state: 'closed',
      closedForSeconds: 2,
      statedWaitSeconds: 1.5,
      attemptsPerSecond: 12.5,
      window: 10,
      limits: [
        {
          window: '1m',
          limit: 60,
          used: 20,
          remaining: 40,
          resetsInSeconds: 12,
          beside: { windowSeconds: 60 },
        },
        {
          window: '1d',
          limit: 9_000,
          used: 8_500,
          remaining: 500,
          resetsInSeconds: 3_600,
          beside: { windowSeconds: 86_400 },
        },
      ],
      inFlight: 1,
      waiting: 7,
      attempts: 40,
      refusals: 3,
      callers: [
        { name: 'script', waiting: 5, oldestWaitSeconds: 1.5, refreshes: 0 },
        { name: 'page', waiting: 2, oldestWaitSeconds: 0.1, refreshes: 3 },
      ],
    },
    circuit: {
      state: 'open',
      failuresInARow: 12,
      probeInSeconds: 4,
      lastFailure: 'ECONNREFUSED',
      operations: [
        {
          operation: 'list-accounts',
          state: 'closed',
          failuresInARow: 0,
          probeInSeconds: 0,
          lastFailure: null,
        },
        { operation: 'account', state: 'open', failuresInARow: 11, probeInSeconds: 2, lastFailure: null },
      ],
    },
    links: { leadPast: false, dropped: 2 },
    cache: { entries: 3, bytes: 9_000, maxBytes: 64_000, evictions: 1, flights: 1 },
    callers: {
      count: 1,
      loadedAt: timeAt(-60_000),
      problems: [],
      list: [
        {
          name: 'script',
          operations: ['list-accounts'],
          workspaces: [null],
          weight: 1,
          by: ['token'],
          tokens: 2,
          nextExpiry: '2027-01-01T00:00:00.000Z',
          lastUse: [
            { token: 1, expires: '2027-01-01T00:00:00.000Z', lastUsed: '2026-10-31' },
            { token: 2, expires: '2027-02-01T00:00:00.000Z', lastUsed: null },
          ],
          limits: ['20/1s', '5000/1d'],
          each: null,
          enforce: true,
          requests: 3,
        },
      ],
      beside: {
        logins: [],
        expiries: [
          { caller: 'script', expiresAt: Date.parse('2027-01-01T00:00:00Z'), isLast: false },
          { caller: 'script', expiresAt: Date.parse('2027-02-01T00:00:00Z'), isLast: true },
        ],
      },
    },
    sharedStore: {
      address: 'redis://store:6379',
      kind: 'tcp',
      nodes: ['store:6379'],
      inUse: true,
      reason: null,
      latencySeconds: 0.000_21,
      calls: 120,
      failures: 2,
      reads: { found: 5, joined: 3, exchanges: 7 },
      gate: { role: 'leads', leader: '0011aabb', turnsGiven: 9, turnsTaken: 4 },
      gateways: [
        {
          id: '0011aabb',
          isThis: true,
          host: 'gateway-1',
          version: '0.1.0',
          startedAt: timeAt(-60_000),
          figures: { requests: 3, attempts: 40, waiting: 7 },
        },
      ],
    },
    log: { lostLines: 0, lastLostAt: null },
    process: {
      cpuSeconds: 1.5,
      residentBytes: 90_000_000,
      eventLoopBusySeconds: 1,
      eventLoopLagSeconds: 0.000_05,
      beside: { eventLoopIdleSeconds: 59 },
    },
    operations: ['list-accounts', 'list-api-keys'],
    settings: ['PORT', 'CACHE_TTL'],
    beside: {
      certificate: {
        validFrom: atMs - 60 * 86_400_000,
        validTo: atMs + 30 * 86_400_000,
        problem: undefined,
      },
    },
  };
  return changed(snapshot, more);
}

/** What a watched process shows. */
export const fullRuntime: Runtime = {
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
  activeResources: { TCPServerWrap: 2, FSReqCallback: 1, Timeout: 4 },
  collections: ['major', 'minor', 'incremental', 'weakcb'].map((kind) => ({
    kind,
    durations: new Durations().snapshot(),
  })),
  lag: { min: 0, max: 0.02, mean: 0.001, stddev: 0.002, p50: 0.001, p90: 0.004, p99: 0.02 },
};
