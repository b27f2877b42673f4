/** The metrics: names, types, meanings, and what of the facts is in them. Pure: no `this`, no I/O, no clock. */
import { boundsSeconds } from './durations.ts';
import type { Family, MetricType, Sample } from './exposition-policy.ts';
import { maxCallers, otherCallers } from './request-counts.ts';
import type { AdminFacts } from './sources.ts';

const prefix = 'analytics_gateway_';

/** One metric: what it is called below the prefix, its meaning, its samples. */
type Row = readonly [name: string, type: MetricType, help: string, samples: readonly Sample[]];

/** Every metric of the gateway and of its process, at one moment. */
export function metricFamilies(facts: AdminFacts): readonly Family[] {
  const own = [
    ...gatewayRows(facts),
    ...requestRows(facts),
    ...callerRows(facts),
    ...cacheRows(facts),
    ...upstreamRows(facts),
    ...keyRows(facts),
  ].map((row) => family(prefix, row));
  // Under the names that every process has, so that dashboards made for any fit.
  return [...own, ...processRows(facts).map((row) => family('', row))];
}

function family(start: string, [name, type, help, samples]: Row): Family {
  return { name: `${start}${name}`, type, help, samples };
}

function gatewayRows({
  version,
  nodeVersion,
  notReady,
  at,
  startedAt,
  connections,
  waiting,
}: AdminFacts): Row[] {
  return [
    ['build_info', 'gauge', 'Always 1; the versions are labels.', [one(1, { version, node: nodeVersion })]],
    [
      'ready',
      'gauge',
      '1 while a key is loaded and the gateway is not stopping.',
      [bit(notReady === undefined)],
    ],
    ['uptime_seconds', 'gauge', 'Time since the start.', [one((at - startedAt) / 1_000)]],
    ['connections', 'gauge', 'Open connections of callers.', [one(connections)]],
    ['requests_waiting', 'gauge', 'Requests that wait for the upstream.', [one(waiting)]],
  ];
}

function requestRows({
  requests: { started, finished, requests, durations, problems, unparsed },
}: AdminFacts): Row[] {
  return [
    [
      'requests_started_total',
      'counter',
      'Requests that have come, but for probes. Equals requests_total and requests_in_flight together.',
      [one(started)],
    ],
    [
      'requests_total',
      'counter',
      'Requests that are done, one for each line of the log. Status 499: the caller left before it was answered.',
      requests.map(({ operation, status, cache, count }) =>
        one(count, {
          operation: operation ?? 'none',
          status: status === undefined ? 'other' : String(status),
          cache: status === undefined ? 'other' : (cache ?? 'none'),
        }),
      ),
    ],
    ['requests_in_flight', 'gauge', 'Requests that have come and are not done.', [one(started - finished)]],
    [
      'request_duration_seconds',
      'histogram',
      'From the arrival of a request to its reply. hit="true": the answer was in memory.',
      durations
        .filter(({ count }) => count > 0)
        .flatMap(({ operation = 'none', hit, count, sumSeconds, cumulative }) => {
          const labels = { operation, hit: String(hit) };
          return [
            ...boundsSeconds.map((bound, index) => ({
              suffix: '_bucket',
              labels: { ...labels, le: String(bound) },
              value: cumulative[index] ?? count,
            })),
            { suffix: '_bucket', labels: { ...labels, le: '+Inf' }, value: count },
            { suffix: '_sum', labels, value: sumSeconds },
            { suffix: '_count', labels, value: count },
          ];
        }),
    ],
    ['problems_total', 'counter', 'Problems that callers got, by code.', counts(problems, 'code')],
    [
      'unparsed_requests_total',
      'counter',
      "What was refused before there was a request, by the HTTP parser's code.",
      counts(unparsed, 'code'),
    ],
  ];
}

function callerRows({ requests, callers, gate }: AdminFacts): Row[] {
  const ranked = gate.callers.toSorted((one, other) => other.length - one.length);
  const rest = ranked.slice(maxCallers);
  const lines = ranked.slice(0, maxCallers);
  if (rest.length > 0) {
    lines.push({
      name: otherCallers,
      length: rest.reduce((sum, { length }) => sum + length, 0),
      oldestWaitMs: Math.max(...rest.map(({ oldestWaitMs }) => oldestWaitMs)),
    });
  }
  return [
    [
      'callers',
      'gauge',
      'Callers in the version of the callers file that is in force.',
      [one(callers.count)],
    ],
    [
      'callers_loaded_timestamp_seconds',
      'gauge',
      'When that version was read.',
      [one(callers.loadedAt / 1_000)],
    ],
    [
      'callers_file_refused',
      'gauge',
      '1 while the newest version of the callers file is refused.',
      [bit(callers.problems.length > 0)],
    ],
    [
      'caller_requests_total',
      'counter',
      `Requests by caller and class of status: the first ${maxCallers} callers by name, the rest as ${otherCallers}.`,
      requests.callers.flatMap(({ caller, classes }) =>
        classes.flatMap((count, first) =>
          count === 0 ? [] : [one(count, { caller, status: `${first}xx` })],
        ),
      ),
    ],
    [
      'caller_refusals_total',
      'counter',
      'What a caller was refused for its own sake: not granted, over its limit.',
      requests.callers.flatMap(({ caller, refused }) =>
        [...refused].map(([code, count]) => one(count, { caller, code })),
      ),
    ],
    [
      'caller_wait_seconds_total',
      'counter',
      "Time a caller's requests have waited for turns and between attempts.",
      requests.callers.flatMap(({ caller, waitedMs }) =>
        waitedMs === 0 ? [] : [one(waitedMs / 1_000, { caller })],
      ),
    ],
    [
      'gate_caller_waiting',
      'gauge',
      'Requests of a caller that wait at the gate.',
      lines.map(({ name, length }) => one(length, { caller: name })),
    ],
    [
      'gate_caller_oldest_wait_seconds',
      'gauge',
      'How long the eldest of them has waited.',
      lines.map(({ name, oldestWaitMs }) => one(oldestWaitMs / 1_000, { caller: name })),
    ],
  ];
}

function cacheRows({ cache }: AdminFacts): Row[] {
  return [
    ['cache_entries', 'gauge', 'Reads held, each with all its variants.', [one(cache.entries)]],
    ['cache_bytes', 'gauge', 'Bytes held, fields and keys included.', [one(cache.bytes)]],
    ['cache_max_bytes', 'gauge', 'CACHE_MAX_BYTES.', [one(cache.maxBytes)]],
    ['cache_evictions_total', 'counter', 'Reads that had to go to make room.', [one(cache.evictions)]],
    ['cache_flights', 'gauge', 'Exchanges with the upstream that may be joined now.', [one(cache.flights)]],
  ];
}

const gateStates = ['open', 'paced', 'probing', 'closed', 'off'] as const;

function upstreamRows({ attempts, gate, circuit }: AdminFacts): Row[] {
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
  ];
}

function keyRows({ key }: AdminFacts): Row[] {
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

function processRows(facts: AdminFacts): Row[] {
  return [
    ['process_cpu_seconds_total', 'counter', 'User and system CPU time.', [one(facts.cpuSeconds)]],
    ['process_resident_memory_bytes', 'gauge', 'Resident memory.', [one(facts.residentBytes)]],
    ['process_start_time_seconds', 'gauge', 'When the gateway started.', [one(facts.startedAt / 1_000)]],
    [
      'nodejs_eventloop_busy_seconds_total',
      'counter',
      'Time the event loop has worked; its rate is its utilisation.',
      [one(facts.loopBusySeconds)],
    ],
    [
      'nodejs_eventloop_idle_seconds_total',
      'counter',
      'Time the event loop has waited.',
      [one(facts.loopIdleSeconds)],
    ],
    [
      'nodejs_eventloop_lag_seconds',
      'gauge',
      'How late the event loop was for this very request.',
      [one(facts.loopLagSeconds)],
    ],
  ];
}

function one(value: number, labels?: Readonly<Record<string, string>>): Sample {
  return labels === undefined ? { value } : { value, labels };
}

function bit(isSo: boolean): Sample {
  return { value: isSo ? 1 : 0 };
}

function some(value: number | undefined): Sample[] {
  return value === undefined ? [] : [{ value }];
}

function seconds(ms: number | undefined): Sample[] {
  return some(ms === undefined ? undefined : ms / 1_000);
}

function counts(byName: ReadonlyMap<string, number>, label: string): Sample[] {
  return [...byName].map(([name, value]) => one(value, { [label]: name }));
}
