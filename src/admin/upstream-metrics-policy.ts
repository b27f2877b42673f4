/** The metrics of the way to the upstream: cache, attempts, gate, circuit, key. Pure: no `this`, no I/O, no clock. */
import { bit, one, type Row, seconds, some } from './metric-row-policy.ts';
import type { AdminFacts } from './sources.ts';

export function cacheRows({ cache }: AdminFacts): Row[] {
  return [
    ['cache_entries', 'gauge', 'Reads held, each with all its variants.', [one(cache.entries)]],
    ['cache_bytes', 'gauge', 'Bytes held, fields and keys included.', [one(cache.bytes)]],
    ['cache_max_bytes', 'gauge', 'CACHE_MAX_BYTES.', [one(cache.maxBytes)]],
    ['cache_evictions_total', 'counter', 'Reads that had to go to make room.', [one(cache.evictions)]],
    ['cache_flights', 'gauge', 'Exchanges with the upstream that may be joined now.', [one(cache.flights)]],
  ];
}

const gateStates = ['open', 'paced', 'probing', 'closed', 'off'] as const;

export function upstreamRows({ attempts, gate, circuit }: AdminFacts): Row[] {
  const times = new Map<string, number>();
  for (const { operation, ms } of attempts.ended) times.set(operation, (times.get(operation) ?? 0) + ms);
  return [
    [
      'upstream_attempts_total',
      'counter',
      'Attempts by what became of them: a status, a problem code, or "abandoned". 429 is the rate limit.',
      attempts.ended.map(({ operation, outcome, count }) => one(count, { operation, outcome })),
    ],
    [
      'upstream_attempt_seconds_total',
      'counter',
      'Time spent in attempts.',
      [...times].map(([operation, ms]) => one(ms / 1_000, { operation })),
    ],
    [
      'upstream_retries_total',
      'counter',
      'Attempts after the first of the same exchange.',
      [one(attempts.further)],
    ],
    ['upstream_in_flight', 'gauge', 'Attempts under way.', [one(attempts.inFlight)]],
    [
      'gate_state',
      'gauge',
      '1 for the state that the gate is in.',
      gateStates.map((state) => one(Number(gate.state === state), { state })),
    ],
    ['gate_closed_seconds', 'gauge', 'How much longer nothing goes up.', [one(gate.closedForMs / 1_000)]],
    [
      'gate_stated_wait_seconds',
      'gauge',
      'How much longer the upstream itself has asked to wait.',
      [one(gate.statedWaitMs / 1_000)],
    ],
    [
      'gate_learned_attempts_per_second',
      'gauge',
      'The rate that the upstream accepts, as learned; absent while none is known.',
      gate.perSecond === undefined ? [] : [one(gate.perSecond)],
    ],
    ['gate_window', 'gauge', 'Attempts that may be in flight at once.', [one(gate.window)]],
    [
      'gate_in_flight',
      'gauge',
      'Attempts that the gate has let go and that are under way.',
      [one(gate.inFlight)],
    ],
    ['gate_waiting', 'gauge', 'Requests that wait at the gate.', [one(gate.waiting)]],
    ['gate_attempts_total', 'counter', 'Attempts that the gate has let go.', [one(gate.attempts)]],
    [
      'gate_refusals_total',
      'counter',
      'Of these, those that the upstream answered with 429.',
      [one(gate.refusals)],
    ],
    ['circuit_open', 'gauge', '1 while the upstream counts as down.', [bit(circuit.state === 'open')]],
    ['circuit_failures_in_a_row', 'gauge', 'Failures since the last success.', [one(circuit.failuresInARow)]],
    [
      'circuit_probe_seconds',
      'gauge',
      'Until the upstream is asked again, while it counts as down.',
      [one(circuit.probeInMs / 1_000)],
    ],
    [
      'circuit_operation_open',
      'gauge',
      'The same as circuit_open, for one operation: 1 while it counts as down, for itself.',
      circuit.operations.map(({ operation, state }) => one(Number(state === 'open'), { operation })),
    ],
  ];
}

export function keyRows({ key }: AdminFacts): Row[] {
  const { fingerprint, generation, ageMs } = key;
  return [
    [
      'key_info',
      'gauge',
      'Always 1 while a key is loaded; where it comes from, which one it is and what may be shown of it are labels.',
      fingerprint === undefined
        ? []
        : [one(1, { source: key.source, fingerprint, generation: String(generation) })],
    ],
    ['key_loaded', 'gauge', '1 while there is a key.', [bit(fingerprint !== undefined)]],
    ['key_generation', 'gauge', 'Counts the values since the start.', some(generation)],
    [
      'key_age_seconds',
      'gauge',
      'Since this value is in use.',
      some(ageMs === undefined ? undefined : ageMs / 1_000),
    ],
    [
      'key_rejected',
      'gauge',
      '1 while the upstream refuses the key and nothing but probes is sent with it.',
      [bit(key.rejected)],
    ],
    [
      'key_last_accepted_timestamp_seconds',
      'gauge',
      'When the upstream last took the key.',
      seconds(key.lastAcceptedAt),
    ],
    ['key_last_rejected_timestamp_seconds', 'gauge', 'When it last refused it.', seconds(key.lastRejectedAt)],
    [
      'key_reload_failures_total',
      'counter',
      'Reads of the secret store that gave no good key.',
      [one(key.reloadFailures)],
    ],
    [
      'key_reload_failing',
      'gauge',
      '1 while the last such read failed.',
      [bit(key.reloadFailure !== undefined)],
    ],
  ];
}
