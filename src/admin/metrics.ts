/**
 * Every metric of the gateway is a row: name, type, meaning, and what it is of the document of `/status`, or of what stands
 * beside it. Pure: no I/O, no clock.
 */
import type { TokenExpiry } from '../callers/callers-snapshot.ts';
import { toSeconds } from '../exchange/figures.ts';
import { callerOfFlow } from '../exchange/request-context.ts';
import { maxCallers, otherCallers, sumByCaller } from './caller-counts.ts';
import {
  durationSamples,
  type Metric,
  metricsOfRows,
  type Row,
  sample,
  samplesByName,
  samplesOfState,
  timestamp,
  workspaceLabel,
} from './exposition.ts';
import { type HealthCode, healthCodes, healthStates, type Verdict } from './health.ts';
import type { AdminSnapshot } from './snapshot.ts';
import { workspaceRows } from './workspace-metrics.ts';

const prefix = 'analytics_gateway_';

/** All of them; `runtime.ts` has those of the process. */
export function* metricsOf(snapshot: AdminSnapshot, verdict: Verdict): Generator<Metric> {
  const each = snapshot.workspaces.map((one) => [one, workspaceLabel(one.workspace)] as const);
  const parts = [
    metricsOfRows(gatewayRows, [[{ ...snapshot, ...verdict }, {}]]),
    metricsOfRows(workspaceRows, each),
  ];
  for (const part of parts) for (const metric of part) yield { ...metric, name: `${prefix}${metric.name}` };
}

const gatewayRows: readonly Row<AdminSnapshot & Verdict>[] = [
  [
    'build_info',
    'gauge',
    'Always 1. The versions are labels.',
    ({ version, node }) => [sample(1, { version, node })],
  ],
  ['ready', 'gauge', '1 while a key is loaded and the gateway is not stopping.', ({ ready }) => ready],
  ['uptime_seconds', 'gauge', 'Time since the start.', ({ uptimeSeconds }) => uptimeSeconds],
  ['connections', 'gauge', 'Open connections of callers.', ({ requests }) => requests.connections],
  [
    'certificate_expiry_seconds',
    'gauge',
    'Time until the certificate for callers ends, negative once it has.',
    ({ at, beside: { certificate } }) => certificate && toSeconds(certificate.validTo - Date.parse(at)),
  ],
  ['requests_waiting', 'gauge', 'Requests that wait for the upstream.', ({ requests }) => requests.waiting],
  [
    'health',
    'gauge',
    '1 for the verdict on the gateway: ok, degraded or failing.',
    ({ health }) => samplesOfState(healthStates, health),
  ],
  [
    'health_reason',
    'gauge',
    '1 for each reason why the verdict is not ok. "/status" says what to do.',
    ({ reasons }) => [
      ...(Object.keys(healthCodes) as HealthCode[]).map((code) =>
        sample(Number(reasons.some((one) => one.workspace === null && one.code === code)), { code }),
      ),
      ...reasons.flatMap(({ code, workspace }) =>
        workspace === null ? [] : [sample(1, { ...workspaceLabel(workspace), code })],
      ),
    ],
  ],
  [
    'requests_started_total',
    'counter',
    'Requests received, without probes. It equals requests_total plus requests_in_flight.',
    ({ requests }) => requests.started,
  ],
  [
    'requests_total',
    'counter',
    'Requests finished, one for each line of the log. Status 499: the caller left before the reply.',
    ({ requests }) =>
      requests.counts.map(({ workspace, operation, status, cache, count }) =>
        sample(count, {
          ...workspaceLabel(workspace),
          operation: operation ?? 'none',
          status: String(status ?? 'other'),
          cache: status === null ? 'other' : (cache ?? 'none'),
        }),
      ),
  ],
  [
    'requests_in_flight',
    'gauge',
    'Requests received and not yet finished.',
    ({ requests }) => requests.inFlight,
  ],
  [
    'request_duration_seconds',
    'histogram',
    'From the arrival of a request to its reply. hit="true": the answer came from memory.',
    ({ requests }) =>
      requests.beside.durations
        .filter(({ count }) => count > 0)
        .flatMap((one) => {
          const labels = { operation: one.operation ?? 'none', hit: String(one.hit) };
          return durationSamples({ ...workspaceLabel(one.workspace), ...labels }, one);
        }),
  ],
  [
    'problems_total',
    'counter',
    'Problems sent to callers, by code.',
    ({ requests }) => samplesByName(requests.problems, 'code'),
  ],
  [
    'unparsed_requests_total',
    'counter',
    'Requests and connections refused before a request was complete, by the code of the HTTP parser.',
    ({ requests }) => samplesByName(requests.beside.unparsed, 'code'),
  ],
  [
    'callers',
    'gauge',
    'Callers in the version of the callers file that is in force.',
    ({ callers }) => callers.count,
  ],
  [
    'callers_loaded_timestamp_seconds',
    'gauge',
    'When that version was read.',
    ({ callers }) => timestamp(callers.loadedAt),
  ],
  [
    'callers_file_refused',
    'gauge',
    '1 while the newest version of the callers file is refused.',
    ({ callers }) => callers.problems.length > 0,
  ],
  [
    'caller_token_expiry_seconds',
    'gauge',
    `Time until the next token of a caller ends, negative once it has. The ${maxCallers} that end first.`,
    ({ at, callers }) => {
      const atMs = Date.parse(at);
      return nextExpiries(callers.beside.expiries, atMs).map(({ caller, expiresAt }) =>
        sample(toSeconds(expiresAt - atMs), { caller }),
      );
    },
  ],
  [
    'caller_requests_total',
    'counter',
    `Requests by caller and class of status: the first ${maxCallers} callers by name, the rest as ${otherCallers}.`,
    ({ requests }) =>
      sumByCaller(requests.beside.callers).flatMap(({ caller, classes }) =>
        classes.flatMap((count, first) =>
          count === 0 ? [] : [sample(count, { caller, status: `${first}xx` })],
        ),
      ),
  ],
  [
    'caller_refusals_total',
    'counter',
    'Requests of a caller that were refused: not granted, over its limit, or without a turn at the upstream in time.',
    ({ requests }) =>
      sumByCaller(requests.beside.callers).flatMap(({ caller, refused }) =>
        Object.entries(refused).map(([code, count]) => sample(count, { caller, code })),
      ),
  ],
  [
    'caller_spared_total',
    'counter',
    'Requests that passed because the callers file says "enforce": false, by the problem that they would have got.',
    ({ requests }) =>
      requests.beside.callers.flatMap(({ caller, spared }) =>
        Object.entries(spared).map(([code, count]) => sample(count, { caller, code })),
      ),
  ],
  [
    'caller_wait_seconds_total',
    'counter',
    'Time that the requests of a caller waited at the gate and between attempts.',
    ({ requests }) =>
      sumByCaller(requests.beside.callers).flatMap(({ caller, waitedMs }) =>
        waitedMs === 0 ? [] : [sample(waitedMs / 1_000, { caller })],
      ),
  ],
  [
    'gate_caller_waiting',
    'gauge',
    'Requests of a caller that wait at the gate, without background refreshes.',
    ({ workspaces }) => longestQueues(workspaces).map(({ labels, waiting }) => sample(waiting, labels)),
  ],
  [
    'gate_caller_refreshes_waiting',
    'gauge',
    'Background refreshes that wait at the gate, by the caller that found the answer stale.',
    ({ workspaces }) => longestQueues(workspaces).map(({ labels, refreshes }) => sample(refreshes, labels)),
  ],
  [
    'gate_caller_oldest_wait_seconds',
    'gauge',
    'How long the oldest of these has waited.',
    ({ workspaces }) =>
      longestQueues(workspaces).map(({ labels, oldestWaitSeconds }) => sample(oldestWaitSeconds, labels)),
  ],
  [
    'cache_max_bytes',
    'gauge',
    'CACHE_MAX_BYTES, of all workspaces together.',
    ({ workspaces }) => workspaces[0]?.cache.maxBytes,
  ],
  [
    'shared_store_in_use',
    'gauge',
    '1 while the shared store answers. 0: this gateway goes on alone. Absent without SHARED_STORE.',
    ({ sharedStore }) => sharedStore?.inUse,
  ],
  [
    'shared_store_gateways',
    'gauge',
    'Gateways that use the store, this one included.',
    ({ sharedStore }) => sharedStore?.gateways.length,
  ],
  ['shared_store_calls_total', 'counter', 'Calls to the store.', ({ sharedStore }) => sharedStore?.calls],
  [
    'shared_store_failures_total',
    'counter',
    'Calls that failed, were refused or took too long.',
    ({ sharedStore }) => sharedStore?.failures,
  ],
  [
    'shared_store_latency_seconds',
    'gauge',
    'Median time of the last calls.',
    ({ sharedStore }) => sharedStore?.latencySeconds,
  ],
  [
    'shared_store_reads_total',
    'counter',
    'Reads that went to the store: found there, joined the exchange of another gateway, asked the upstream for all.',
    ({ sharedStore }) =>
      sharedStore && [
        sample(sharedStore.reads.found, { outcome: 'found' }),
        sample(sharedStore.reads.joined, { outcome: 'joined' }),
        sample(sharedStore.reads.exchanges, { outcome: 'asked' }),
      ],
  ],
  [
    'shared_gate_leads',
    'gauge',
    '1 where this gateway gives the turns at the upstream to all gateways. One of them does while a limit is known or told.',
    ({ sharedStore }) => sharedStore && sharedStore.gate.role === 'leads',
  ],
  [
    'shared_gate_turns_total',
    'counter',
    'Turns at the upstream between gateways: given to others, taken from the one that leads.',
    ({ sharedStore }) =>
      sharedStore && [
        sample(sharedStore.gate.turnsGiven, { way: 'given' }),
        sample(sharedStore.gate.turnsTaken, { way: 'taken' }),
      ],
  ],
];

/** Of each caller the token that ends first, but for those that have a successor and have ended. */
function nextExpiries(expiries: readonly TokenExpiry[], atMs: number): readonly TokenExpiry[] {
  const next = new Map<string, TokenExpiry>();
  for (const expiry of expiries) {
    const isDone = expiry.expiresAt <= atMs && !expiry.isLast;
    if (!isDone && !next.has(expiry.caller)) next.set(expiry.caller, expiry);
    if (next.size === maxCallers) break;
  }
  return [...next.values()];
}

interface Queue {
  readonly labels: Readonly<Record<string, string>>;
  readonly waiting: number;
  readonly oldestWaitSeconds: number;
  readonly refreshes: number;
}

/** The longest queues at the gates of all workspaces; those beyond the bound are one, and so are an entry's people. */
function longestQueues(workspaces: AdminSnapshot['workspaces']): readonly Queue[] {
  const ranked = workspaces
    .flatMap(({ workspace, gate }) =>
      [...Map.groupBy(gate.callers, ({ name }) => callerOfFlow(name))].map(([caller, queues]) =>
        joined({ ...workspaceLabel(workspace), caller }, queues),
      ),
    )
    .toSorted((one, other) => other.waiting - one.waiting || other.refreshes - one.refreshes);
  const rest = ranked.slice(maxCallers);
  if (rest.length === 0) return ranked;
  return [...ranked.slice(0, maxCallers), joined({ caller: otherCallers }, rest)];
}

function joined(labels: Queue['labels'], queues: readonly Omit<Queue, 'labels'>[]): Queue {
  return {
    labels,
    waiting: queues.reduce((sum, { waiting }) => sum + waiting, 0),
    oldestWaitSeconds: Math.max(...queues.map(({ oldestWaitSeconds }) => oldestWaitSeconds)),
    refreshes: queues.reduce((sum, { refreshes }) => sum + refreshes, 0),
  };
}
