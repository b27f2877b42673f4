/** The metrics of the outbound side: cache, attempts, gate, circuit, key. Pure: no `this`, no I/O, no clock. */
import { counter, durationSamples, gauge, histogram, type Metric, sample, seconds } from './metric.ts';
import type { AdminSnapshot, WorkspaceSnapshot } from './sources.ts';

export function cacheBound({ workspaces }: AdminSnapshot): Metric[] {
  return [
    gauge('cache_max_bytes', 'CACHE_MAX_BYTES, of all workspaces together.', workspaces[0]?.cache.maxBytes),
  ];
}

export function cacheMetrics({ cache }: WorkspaceSnapshot): Metric[] {
  return [
    gauge('cache_entries', 'Stored reads, each with all its variants.', cache.entries),
    gauge('cache_bytes', 'Stored bytes, with fields and keys.', cache.bytes),
    counter('cache_evictions_total', 'Reads evicted to make room for others.', cache.evictions),
    gauge('cache_flights', 'Exchanges with the upstream that a further request may join.', cache.flights),
  ];
}

export function attemptMetrics({ attempts }: WorkspaceSnapshot): Metric[] {
  const times = new Map<string, number>();
  for (const { operation, ms } of attempts.ended) times.set(operation, (times.get(operation) ?? 0) + ms);
  return [
    counter(
      'upstream_attempts_total',
      'Attempts by outcome: a status, the code of a problem, or "abandoned". 429: the upstream limits the rate.',
      attempts.ended.map(({ operation, outcome, count }) => sample(count, { operation, outcome })),
    ),
    counter(
      'upstream_attempt_seconds_total',
      'Time spent in attempts.',
      [...times].map(([operation, ms]) => sample(ms / 1_000, { operation })),
    ),
    histogram(
      'upstream_attempt_duration_seconds',
      'From the start of an attempt to the last byte of its answer, or to its failure.',
      attempts.durations.flatMap((one) => durationSamples({ operation: one.operation }, one)),
    ),
    counter(
      'upstream_background_attempts_total',
      'Attempts that no request waited for: background refreshes. They are among upstream_attempts_total.',
      attempts.background,
    ),
    counter('upstream_retries_total', 'Attempts after the first of the same exchange.', attempts.further),
    gauge('upstream_in_flight', 'Attempts in progress.', attempts.inFlight),
    counter(
      'upstream_unreadable_waits_total',
      'Fields of a 429 or 5xx that should have said how long to wait, and were malformed or more than 31 days away.',
      attempts.unreadableWaits.map(({ field, count }) => sample(count, { field })),
    ),
  ];
}

const gateStates = ['open', 'paced', 'half-open', 'closed', 'off'] as const;

export function gateMetrics({ gate }: WorkspaceSnapshot): Metric[] {
  return [
    gauge(
      'gate_state',
      '1 for the state that the gate is in.',
      gateStates.map((state) => sample(Number(gate.state === state), { state })),
    ),
    gauge('gate_closed_seconds', 'How much longer the gate stays closed.', seconds(gate.closedForMs)),
    gauge(
      'gate_stated_wait_seconds',
      'How much longer the upstream has asked to wait.',
      seconds(gate.statedWaitMs),
    ),
    gauge(
      'gate_learned_attempts_per_second',
      'The rate that the upstream accepts, as measured. Absent while it is not known.',
      gate.perSecond,
    ),
    gauge('gate_window', 'How many attempts may be in flight at once.', gate.window),
    gauge(
      'upstream_limit',
      'Attempts that UPSTREAM_LIMIT allows in any window of this length, less the reserve.',
      gate.limits.map(({ window, most }) => sample(most, { window })),
    ),
    gauge(
      'upstream_limit_remaining',
      'Of these, attempts that may still go up now.',
      gate.limits.map(({ window, remaining }) => sample(remaining, { window })),
    ),
    gauge(
      'upstream_limit_window_seconds',
      'How long the window is.',
      gate.limits.map(({ window, windowMs }) => sample(windowMs / 1_000, { window })),
    ),
    gauge('gate_in_flight', 'Attempts in flight that the gate admitted.', gate.inFlight),
    gauge('gate_waiting', 'Requests that wait at the gate.', gate.waiting),
    counter('gate_attempts_total', 'Attempts that the gate admitted.', gate.attempts),
    counter('gate_refusals_total', 'Of these, attempts that the upstream answered with 429.', gate.refusals),
  ];
}

export function circuitMetrics({ circuit }: WorkspaceSnapshot): Metric[] {
  return [
    gauge('circuit_open', '1 while the circuit to the upstream is open.', circuit.state === 'open'),
    gauge('circuit_failures_in_a_row', 'Failures since the last success.', circuit.failuresInARow),
    gauge(
      'circuit_probe_seconds',
      'Time until a request may try the upstream again, while the circuit is open.',
      seconds(circuit.probeInMs),
    ),
    gauge(
      'circuit_operation_open',
      '1 while the circuit of one operation is open.',
      circuit.operations.map(({ operation, state }) => sample(Number(state === 'open'), { operation })),
    ),
  ];
}

export function keyMetrics({ key }: WorkspaceSnapshot): Metric[] {
  const { fingerprint, generation, ageMs } = key;
  return [
    gauge(
      'key_info',
      'Always 1 while a key is loaded. Its source, fingerprint and generation are labels.',
      fingerprint === undefined
        ? undefined
        : [sample(1, { source: key.source, fingerprint, generation: String(generation) })],
    ),
    gauge('key_loaded', '1 while a key is loaded.', fingerprint !== undefined),
    gauge('key_generation', 'Counts the values of the key since the start.', generation),
    gauge('key_age_seconds', 'How long this value has been in use.', seconds(ageMs)),
    gauge(
      'key_previous_expiry_seconds',
      'Time until the last replaced value of the key is forgotten; it is searched for in answers and log lines until then.',
      seconds(key.previousForgottenInMs),
    ),
    gauge(
      'key_fallen_back',
      '1 while the upstream refuses the newest key and the previous one is in use.',
      key.fallenBack,
    ),
    gauge(
      'key_rejected',
      '1 while the upstream rejects the key. Only probes are sent with it then.',
      key.rejected,
    ),
    gauge(
      'key_last_accepted_timestamp_seconds',
      'When the upstream last accepted the key.',
      seconds(key.lastAcceptedAt),
    ),
    gauge(
      'key_last_rejected_timestamp_seconds',
      'When the upstream last rejected the key.',
      seconds(key.lastRejectedAt),
    ),
    counter(
      'key_reload_failures_total',
      'Reads of the secret store that gave no valid key.',
      key.reloadFailures,
    ),
    gauge('key_reload_failing', '1 while the last such read failed.', key.reloadFailure !== undefined),
  ];
}
