/** The metrics of each workspace: cache, attempts, gate, circuit, key. Pure: no I/O, no clock. */
import { durationSamples, type Row, sample, samplesOfState, timestamp } from './exposition.ts';
import type { WorkspaceSnapshot } from './snapshot.ts';

const gateStates = ['open', 'paced', 'half-open', 'closed', 'off'] as const;

/** Each sample gets the label of its workspace. */
export const workspaceRows: readonly Row<WorkspaceSnapshot>[] = [
  ['cache_entries', 'gauge', 'Stored reads, each with all its variants.', ({ cache }) => cache.entries],
  ['cache_bytes', 'gauge', 'Stored bytes, with fields and keys.', ({ cache }) => cache.bytes],
  [
    'cache_evictions_total',
    'counter',
    'Reads evicted to make room for others.',
    ({ cache }) => cache.evictions,
  ],
  [
    'cache_flights',
    'gauge',
    'Exchanges with the upstream that a further request may join.',
    ({ cache }) => cache.flights,
  ],
  [
    'links_dropped_total',
    'counter',
    'Links of Link fields that led past the gateway, or could not be read, and did not come down.',
    ({ links }) => links.dropped,
  ],
  [
    'upstream_attempts_total',
    'counter',
    'Attempts by outcome: a status, the code of a problem, "proxy-failed" where the proxy gave no connection, or "abandoned". 429: the upstream limits the rate.',
    ({ upstream }) =>
      upstream.outcomes.map(({ operation, outcome, count }) => sample(count, { operation, outcome })),
  ],
  [
    'upstream_attempt_seconds_total',
    'counter',
    'Time spent in attempts.',
    ({ upstream }) =>
      upstream.beside.durations.map(({ operation, sumSeconds }) => sample(sumSeconds, { operation })),
  ],
  [
    'upstream_attempt_duration_seconds',
    'histogram',
    'From the start of an attempt to the last byte of its answer, or to its failure.',
    ({ upstream }) =>
      upstream.beside.durations.flatMap((one) => durationSamples({ operation: one.operation }, one)),
  ],
  [
    'upstream_background_attempts_total',
    'counter',
    'Attempts that no request waited for: background refreshes. They are among upstream_attempts_total.',
    ({ upstream }) => upstream.beside.background,
  ],
  [
    'upstream_retries_total',
    'counter',
    'Attempts after the first of the same exchange.',
    ({ upstream }) => upstream.retries,
  ],
  ['upstream_in_flight', 'gauge', 'Attempts in progress.', ({ upstream }) => upstream.inFlight],
  [
    'upstream_unreadable_waits_total',
    'counter',
    'Fields of a 429 or 5xx that should have said how long to wait, and were malformed or more than 31 days away.',
    ({ upstream }) => upstream.unreadableWaits.map(({ field, count }) => sample(count, { field })),
  ],
  [
    'gate_state',
    'gauge',
    '1 for the state that the gate is in.',
    ({ gate }) => samplesOfState(gateStates, gate.state),
  ],
  [
    'gate_closed_seconds',
    'gauge',
    'How much longer the gate stays closed.',
    ({ gate }) => gate.closedForSeconds,
  ],
  [
    'gate_stated_wait_seconds',
    'gauge',
    'How much longer the upstream has asked to wait.',
    ({ gate }) => gate.statedWaitSeconds,
  ],
  [
    'gate_learned_attempts_per_second',
    'gauge',
    'The rate that the upstream accepts, as measured. Absent while it is not known.',
    ({ gate }) => gate.attemptsPerSecond,
  ],
  ['gate_window', 'gauge', 'How many attempts may be in flight at once.', ({ gate }) => gate.window],
  [
    'upstream_limit',
    'gauge',
    'Attempts that UPSTREAM_LIMIT allows in any window of this length, less the reserve.',
    ({ gate }) => gate.limits.map(({ window, limit }) => sample(limit, { window })),
  ],
  [
    'upstream_limit_remaining',
    'gauge',
    'Of these, attempts that may still go up now.',
    ({ gate }) => gate.limits.map(({ window, remaining }) => sample(remaining, { window })),
  ],
  [
    'upstream_limit_window_seconds',
    'gauge',
    'How long the window is.',
    ({ gate }) => gate.limits.map(({ window, beside }) => sample(beside.windowSeconds, { window })),
  ],
  ['gate_in_flight', 'gauge', 'Attempts in flight that the gate admitted.', ({ gate }) => gate.inFlight],
  ['gate_waiting', 'gauge', 'Requests that wait at the gate.', ({ gate }) => gate.waiting],
  ['gate_attempts_total', 'counter', 'Attempts that the gate admitted.', ({ gate }) => gate.attempts],
  [
    'gate_refusals_total',
    'counter',
    'Of these, attempts that the upstream answered with 429.',
    ({ gate }) => gate.refusals,
  ],
  [
    'circuit_open',
    'gauge',
    '1 while the circuit to the upstream is open.',
    ({ circuit }) => circuit.state === 'open',
  ],
  [
    'circuit_failures_in_a_row',
    'gauge',
    'Failures since the last success.',
    ({ circuit }) => circuit.failuresInARow,
  ],
  [
    'circuit_probe_seconds',
    'gauge',
    'Time until a request may try the upstream again, while the circuit is open.',
    ({ circuit }) => circuit.probeInSeconds,
  ],
  [
    'circuit_operation_open',
    'gauge',
    '1 while the circuit of one operation is open.',
    ({ circuit }) =>
      circuit.operations.map(({ operation, state }) => sample(Number(state === 'open'), { operation })),
  ],
  [
    'key_info',
    'gauge',
    'Always 1 while a key is loaded. Its source, fingerprint and generation are labels.',
    ({ key: { source, fingerprint, generation } }) =>
      fingerprint === null ? null : [sample(1, { source, fingerprint, generation: String(generation) })],
  ],
  ['key_loaded', 'gauge', '1 while a key is loaded.', ({ key }) => key.loaded],
  ['key_generation', 'gauge', 'Counts the values of the key since the start.', ({ key }) => key.generation],
  ['key_age_seconds', 'gauge', 'How long this value has been in use.', ({ key }) => key.ageSeconds],
  [
    'key_previous_expiry_seconds',
    'gauge',
    'Time until the last replaced value of the key is forgotten; it is searched for in answers and log lines until then.',
    ({ key }) => key.beside.previousForgottenInSeconds,
  ],
  [
    'key_fallen_back',
    'gauge',
    '1 while the upstream refuses the newest key and the previous one is in use.',
    ({ key }) => key.fallenBack,
  ],
  [
    'key_rejected',
    'gauge',
    '1 while the upstream rejects the key. Only key checks are sent with it then.',
    ({ key }) => key.rejected,
  ],
  [
    'key_last_accepted_timestamp_seconds',
    'gauge',
    'When the upstream last accepted the key.',
    ({ key }) => timestamp(key.lastAcceptedAt),
  ],
  [
    'key_last_rejected_timestamp_seconds',
    'gauge',
    'When the upstream last rejected the key.',
    ({ key }) => timestamp(key.lastRejectedAt),
  ],
  [
    'key_reload_failures_total',
    'counter',
    'Reads of the secret store that gave no valid key.',
    ({ key }) => key.reloadFailures,
  ],
  [
    'key_reload_failing',
    'gauge',
    '1 while the last such read failed.',
    ({ key }) => key.reloadFailure !== null,
  ],
];
