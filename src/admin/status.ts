/** `/status`: a snapshot for people and scripts. Its names are a contract. Pure: no `this`, no I/O, no clock. */
import type { DatedVerdict } from './health-watch.ts';
import { maxCallers, otherCallers } from './request-counts.ts';
import type { AdminSnapshot, AdminSources, WorkspaceSnapshot } from './sources.ts';

type Members = Record<string, unknown>;

/** What a purge asks for: nothing, the token of ADMIN_TOKEN_FROM, or that this setting is set at all. */
export type PurgeNeeds = 'nothing' | 'token' | 'setting';

export interface StatusOptions extends Pick<AdminSources, 'operations' | 'changedSettings'> {
  readonly purgeNeeds: PurgeNeeds;
}

/**
 * Members that do not apply are null, so that every member is always there. Of several workspaces each has its own key,
 * upstream, gate, circuit and cache, in `workspaces`.
 */
export function statusOf(
  snapshot: AdminSnapshot,
  { health, since, reasons }: DatedVerdict,
  { operations, changedSettings, purgeNeeds }: StatusOptions,
): Members {
  const { workspaces } = snapshot;
  const [only] = workspaces.length === 1 ? workspaces : [];
  return {
    version: snapshot.version,
    node: snapshot.nodeVersion,
    at: time(snapshot.at),
    startedAt: time(snapshot.startedAt),
    uptimeSeconds: seconds(snapshot.at - snapshot.startedAt),
    health,
    since: time(since),
    reasons: reasons.map(({ workspace = null, ...reason }) => ({ workspace, ...reason })),
    ready: snapshot.notReady === undefined,
    notReady: snapshot.notReady ?? null,
    workspace: only?.name || null,
    ...workspaceStatus(only),
    requests: requestStatus(snapshot),
    workspaces: only
      ? []
      : workspaces.map((one) => ({ workspace: one.name || null, ...workspaceStatus(one) })),
    callers: callerStatus(snapshot),
    sharedStore: sharedStoreStatus(snapshot),
    log: { lostLines: snapshot.log.lostLines, lastLostAt: time(snapshot.log.lastLostAt) },
    process: processStatus(snapshot),
    operations,
    settings: changedSettings,
    purgeNeeds,
  };
}

function workspaceStatus(workspace: WorkspaceSnapshot | undefined): Members {
  return {
    key: workspace ? keyStatus(workspace) : null,
    upstream: workspace ? upstreamStatus(workspace) : null,
    gate: workspace ? gateStatus(workspace) : null,
    circuit: workspace ? circuitStatus(workspace) : null,
    cache: workspace ? cacheStatus(workspace) : null,
  };
}

function keyStatus({ key }: WorkspaceSnapshot): Members {
  return {
    loaded: key.fingerprint !== undefined,
    source: key.source,
    fingerprint: key.fingerprint ?? null,
    generation: key.generation ?? null,
    loadedAt: time(key.loadedAt),
    ageSeconds: seconds(key.ageMs),
    lastAcceptedAt: time(key.lastAcceptedAt),
    lastRejectedAt: time(key.lastRejectedAt),
    rejected: key.rejected,
    fallenBack: key.fallenBack,
    newKey:
      key.newKey === undefined
        ? null
        : {
            fingerprint: key.newKey.fingerprint,
            generation: key.newKey.generation,
            standing: key.newKey.standing,
            since: time(key.newKey.since),
          },
    reloadFailures: key.reloadFailures,
    reloadFailure: key.reloadFailure ?? null,
  };
}

function requestStatus({ requests, waiting, connections }: AdminSnapshot): Members {
  return {
    started: requests.started,
    finished: requests.finished,
    aborted: requests.aborted,
    inFlight: requests.started - requests.finished,
    waiting,
    connections,
    counts: requests.requests.map(
      ({ workspace = null, operation = null, status = null, cache = null, count }) => ({
        workspace,
        operation,
        status,
        cache,
        count,
      }),
    ),
    problems: Object.fromEntries(requests.problems),
    recentProblems: requests.recentProblems.map((one) => ({
      at: time(one.at),
      caller: one.caller ?? null,
      workspace: one.workspace ?? null,
      operation: one.operation ?? null,
      code: one.code,
      requestId: one.requestId ?? null,
    })),
  };
}

function upstreamStatus({ attempts }: WorkspaceSnapshot): Members {
  return {
    attempts: attempts.ended.reduce((sum, { count }) => sum + count, attempts.inFlight),
    retries: attempts.further,
    inFlight: attempts.inFlight,
    outcomes: attempts.ended.map(({ operation, outcome, count, ms }) => ({
      operation,
      outcome,
      count,
      seconds: seconds(ms),
    })),
    unreadableWaits: attempts.unreadableWaits,
  };
}

function gateStatus({ gate }: WorkspaceSnapshot): Members {
  return {
    state: gate.state,
    closedForSeconds: seconds(gate.closedForMs),
    statedWaitSeconds: seconds(gate.statedWaitMs),
    attemptsPerSecond: gate.perSecond ?? null,
    window: gate.window,
    limits: gate.limits.map(({ window, most, used, remaining, resetsInMs }) => ({
      window,
      limit: most,
      used,
      remaining,
      resetsInSeconds: seconds(resetsInMs),
    })),
    inFlight: gate.inFlight,
    waiting: gate.waiting,
    attempts: gate.attempts,
    refusals: gate.refusals,
    callers: gate.callers.slice(0, maxCallers).map(({ name, length, oldestWaitMs, refreshes }) => ({
      name,
      waiting: length,
      oldestWaitSeconds: seconds(oldestWaitMs),
      refreshes,
    })),
  };
}

function circuitStatus({ circuit }: WorkspaceSnapshot): Members {
  return {
    state: circuit.state,
    failuresInARow: circuit.failuresInARow,
    probeInSeconds: seconds(circuit.probeInMs),
    operations: circuit.operations.map(({ operation, state, failuresInARow, probeInMs }) => ({
      operation,
      state,
      failuresInARow,
      probeInSeconds: seconds(probeInMs),
    })),
  };
}

function cacheStatus({ cache }: WorkspaceSnapshot): Members {
  return {
    entries: cache.entries,
    bytes: cache.bytes,
    maxBytes: cache.maxBytes,
    evictions: cache.evictions,
    flights: cache.flights,
  };
}

function callerStatus({ callers, requests }: AdminSnapshot): Members {
  const counted = new Map(
    requests.callers.map(({ caller, classes }) => [caller, classes.reduce((sum, count) => sum + count, 0)]),
  );
  return {
    count: callers.count,
    loadedAt: time(callers.loadedAt),
    problems: callers.problems,
    list: callers.callers.map(({ name, operations, workspaces, weight, by, tokens }) => ({
      name,
      operations,
      workspaces: workspaces.map((workspace) => workspace || null),
      weight,
      by,
      tokens: tokens.length,
      nextExpiry: tokens.flatMap(({ expires = [] }) => expires).toSorted()[0] ?? null,
      requests: counted.get(name) ?? (counted.has(otherCallers) ? null : 0),
    })),
  };
}

function sharedStoreStatus({ fleet }: AdminSnapshot): Members | null {
  if (fleet === undefined) return null;
  const { store, id, members, answers, gate } = fleet;
  return {
    address: store.address,
    inUse: store.inUse,
    reason: store.reason ?? store.refusal ?? null,
    latencySeconds: seconds(store.latencyMs, 1_000),
    calls: store.calls,
    failures: store.failures,
    reads: answers,
    gate: { ...gate, leader: gate.leader ?? null },
    gateways: members.map((member) => ({
      id: member.id,
      isThis: member.id === id,
      host: member.host,
      version: member.version,
      startedAt: time(member.startedAt),
    })),
  };
}

function processStatus(snapshot: AdminSnapshot): Members {
  return {
    cpuSeconds: snapshot.cpuSeconds,
    residentBytes: snapshot.residentBytes,
    eventLoopBusySeconds: snapshot.loopBusySeconds,
    eventLoopLagSeconds: snapshot.loopLagSeconds,
  };
}

function time(ms: number | undefined): string | null {
  return ms === undefined ? null : new Date(ms).toISOString();
}

/** @param parts of a millisecond that are shown */
function seconds(ms: number | undefined, parts = 1): number | null {
  return ms === undefined ? null : Math.round(ms * parts) / (1_000 * parts);
}
