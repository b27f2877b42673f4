/** `/status`: the same facts for people and scripts. Its names are a contract. Pure: no `this`, no I/O, no clock. */
import { maxCallers, otherCallers } from './request-counts.ts';
import type { AdminFacts, AdminSources } from './sources.ts';

/** Members that do not apply are null, so that every member is always there. */
export function statusOf(
  facts: AdminFacts,
  { operations, changedSettings }: Pick<AdminSources, 'operations' | 'changedSettings'>,
): Record<string, unknown> {
  const { requests, key, gate, circuit, cache, attempts, callers } = facts;
  const counted = new Map(
    requests.callers.map(({ caller, classes }) => [caller, classes.reduce((sum, count) => sum + count, 0)]),
  );
  return {
    version: facts.version,
    node: facts.nodeVersion,
    at: time(facts.at),
    startedAt: time(facts.startedAt),
    uptimeSeconds: seconds(facts.at - facts.startedAt),
    ready: facts.notReady === undefined,
    notReady: facts.notReady ?? null,
    key: {
      loaded: key.fingerprint !== undefined,
      source: key.source,
      fingerprint: key.fingerprint ?? null,
      generation: key.generation ?? null,
      loadedAt: time(key.loadedAt),
      ageSeconds: seconds(key.ageMs),
      lastAcceptedAt: time(key.lastAcceptedAt),
      lastRejectedAt: time(key.lastRejectedAt),
      rejected: key.rejected,
      reloadFailures: key.reloadFailures,
      reloadFailure: key.reloadFailure ?? null,
    },
    requests: {
      started: requests.started,
      finished: requests.finished,
      aborted: requests.aborted,
      inFlight: requests.started - requests.finished,
      waiting: facts.waiting,
      connections: facts.connections,
      counts: requests.requests.map(({ operation = null, status = null, cache = null, count }) => ({
        operation,
        status,
        cache,
        count,
      })),
      problems: Object.fromEntries(requests.problems),
    },
    upstream: {
      attempts: attempts.ended.reduce((sum, { count }) => sum + count, attempts.inFlight),
      retries: attempts.further,
      inFlight: attempts.inFlight,
      outcomes: attempts.ended.map(({ operation, outcome, count, ms }) => ({
        operation,
        outcome,
        count,
        seconds: seconds(ms),
      })),
    },
    gate: {
      state: gate.state,
      closedForSeconds: seconds(gate.closedForMs),
      statedWaitSeconds: seconds(gate.statedWaitMs),
      attemptsPerSecond: gate.perSecond ?? null,
      window: gate.window,
      inFlight: gate.inFlight,
      waiting: gate.waiting,
      attempts: gate.attempts,
      refusals: gate.refusals,
      callers: gate.callers.slice(0, maxCallers).map(({ name, length, oldestWaitMs }) => ({
        name,
        waiting: length,
        oldestWaitSeconds: seconds(oldestWaitMs),
      })),
    },
    circuit: {
      state: circuit.state,
      failuresInARow: circuit.failuresInARow,
      probeInSeconds: seconds(circuit.probeInMs),
      operations: circuit.operations.map(({ operation, state, failuresInARow, probeInMs }) => ({
        operation,
        state,
        failuresInARow,
        probeInSeconds: seconds(probeInMs),
      })),
    },
    cache: {
      entries: cache.entries,
      bytes: cache.bytes,
      maxBytes: cache.maxBytes,
      evictions: cache.evictions,
      flights: cache.flights,
    },
    callers: {
      count: callers.count,
      loadedAt: time(callers.loadedAt),
      problems: callers.problems,
      list: callers.callers.map(({ name, operations, weight, by, tokens }) => ({
        name,
        operations,
        weight,
        by,
        tokens: tokens.length,
        nextExpiry: tokens.flatMap(({ expires = [] }) => expires).toSorted()[0] ?? null,
        requests: counted.get(name) ?? (counted.has(otherCallers) ? null : 0),
      })),
    },
    process: {
      cpuSeconds: facts.cpuSeconds,
      residentBytes: facts.residentBytes,
      eventLoopBusySeconds: facts.loopBusySeconds,
      eventLoopLagSeconds: facts.loopLagSeconds,
    },
    operations,
    settings: changedSettings,
  };
}

function time(ms: number | undefined): string | null {
  return ms === undefined ? null : new Date(ms).toISOString();
}

function seconds(ms: number | undefined): number | null {
  return ms === undefined ? null : Math.round(ms) / 1_000;
}
