/** The metrics of requests and of callers. Pure: no `this`, no I/O, no clock. */
import type { TokenExpiry } from '../callers/callers-snapshot.ts';
import {
  counter,
  durationSamples,
  gauge,
  histogram,
  type Metric,
  sample,
  samplesByName,
  seconds,
  workspaceLabel,
} from './metric.ts';
import { maxCallers, otherCallers } from './request-counts.ts';
import type { AdminSnapshot } from './sources.ts';

export function requestMetrics({ requests }: AdminSnapshot): Metric[] {
  const { started, finished, durations, problems, unparsed } = requests;
  return [
    counter(
      'requests_started_total',
      'Requests received, without probes. It equals requests_total plus requests_in_flight.',
      started,
    ),
    counter(
      'requests_total',
      'Requests finished, one for each line of the log. Status 499: the caller left before the reply.',
      requests.requests.map(({ workspace, operation, status, cache, count }) =>
        sample(count, {
          ...workspaceLabel(workspace),
          operation: operation ?? 'none',
          status: status === undefined ? 'other' : String(status),
          cache: status === undefined ? 'other' : (cache ?? 'none'),
        }),
      ),
    ),
    gauge('requests_in_flight', 'Requests received and not yet finished.', started - finished),
    histogram(
      'request_duration_seconds',
      'From the arrival of a request to its reply. hit="true": the answer came from memory.',
      durations
        .filter(({ count }) => count > 0)
        .flatMap((one) => {
          const labels = { operation: one.operation ?? 'none', hit: String(one.hit) };
          return durationSamples({ ...workspaceLabel(one.workspace), ...labels }, one);
        }),
    ),
    counter('problems_total', 'Problems sent to callers, by code.', samplesByName(problems, 'code')),
    counter(
      'unparsed_requests_total',
      'Requests and connections refused before a request was complete, by the code of the HTTP parser.',
      samplesByName(unparsed, 'code'),
    ),
  ];
}

export function callerMetrics({ at, requests, callers, workspaces }: AdminSnapshot): Metric[] {
  const queues = boundedQueues(workspaces);
  return [
    gauge('callers', 'Callers in the version of the callers file that is in force.', callers.count),
    gauge('callers_loaded_timestamp_seconds', 'When that version was read.', seconds(callers.loadedAt)),
    gauge(
      'callers_file_refused',
      '1 while the newest version of the callers file is refused.',
      callers.problems.length > 0,
    ),
    gauge(
      'caller_token_expiry_seconds',
      `Time until the next token of a caller ends, negative once it has. The ${maxCallers} that end first.`,
      nextExpiries(callers.expiries, at).map(({ caller, expiresAt }) =>
        sample((expiresAt - at) / 1_000, { caller }),
      ),
    ),
    counter(
      'caller_requests_total',
      `Requests by caller and class of status: the first ${maxCallers} callers by name, the rest as ${otherCallers}.`,
      requests.callers.flatMap(({ caller, classes }) =>
        classes.flatMap((count, first) =>
          count === 0 ? [] : [sample(count, { caller, status: `${first}xx` })],
        ),
      ),
    ),
    counter(
      'caller_refusals_total',
      'Requests refused because of the caller itself: not granted, or over its limit.',
      requests.callers.flatMap(({ caller, refused }) =>
        [...refused].map(([code, count]) => sample(count, { caller, code })),
      ),
    ),
    counter(
      'caller_wait_seconds_total',
      'Time that the requests of a caller waited at the gate and between attempts.',
      requests.callers.flatMap(({ caller, waitedMs }) =>
        waitedMs === 0 ? [] : [sample(waitedMs / 1_000, { caller })],
      ),
    ),
    gauge(
      'gate_caller_waiting',
      'Requests of a caller that wait at the gate, without background refreshes.',
      queues.map(({ labels, length }) => sample(length, labels)),
    ),
    gauge(
      'gate_caller_refreshes_waiting',
      'Background refreshes that wait at the gate, by the caller that found the answer stale.',
      queues.map(({ labels, refreshes }) => sample(refreshes, labels)),
    ),
    gauge(
      'gate_caller_oldest_wait_seconds',
      'How long the oldest of these has waited.',
      queues.map(({ labels, oldestWaitMs }) => sample(oldestWaitMs / 1_000, labels)),
    ),
  ];
}

/** Of each caller the token that ends first, but for those that have a successor and have ended. */
function nextExpiries(expiries: readonly TokenExpiry[], at: number): readonly TokenExpiry[] {
  const next = new Map<string, TokenExpiry>();
  for (const expiry of expiries) {
    const isDone = expiry.expiresAt <= at && !expiry.isLast;
    if (!isDone && !next.has(expiry.caller)) next.set(expiry.caller, expiry);
    if (next.size === maxCallers) break;
  }
  return [...next.values()];
}

interface Queue {
  readonly labels: Readonly<Record<string, string>>;
  readonly length: number;
  readonly oldestWaitMs: number;
  readonly refreshes: number;
}

/** The longest queues at the gates of all workspaces; those beyond the bound are one. */
function boundedQueues(workspaces: AdminSnapshot['workspaces']): readonly Queue[] {
  const ranked = workspaces
    .flatMap(({ name: workspace, gate }) =>
      gate.callers.map(({ name: caller, ...queue }) => ({
        labels: { ...workspaceLabel(workspace), caller },
        ...queue,
      })),
    )
    .toSorted((one, other) => other.length - one.length || other.refreshes - one.refreshes);
  const rest = ranked.slice(maxCallers);
  if (rest.length === 0) return ranked;
  return [
    ...ranked.slice(0, maxCallers),
    {
      labels: { caller: otherCallers },
      length: rest.reduce((sum, { length }) => sum + length, 0),
      oldestWaitMs: Math.max(...rest.map(({ oldestWaitMs }) => oldestWaitMs)),
      refreshes: rest.reduce((sum, { refreshes }) => sum + refreshes, 0),
    },
  ];
}
