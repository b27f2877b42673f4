/** The metrics of requests and of callers. Pure: no `this`, no I/O, no clock. */
import { boundsSeconds } from './durations.ts';
import {
  counter,
  gauge,
  histogram,
  type Metric,
  type Sample,
  sample,
  samplesByName,
  seconds,
} from './metric-policy.ts';
import { type DurationCount, maxCallers, otherCallers } from './request-counts.ts';
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
      requests.requests.map(({ operation, status, cache, count }) =>
        sample(count, {
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
      durations.filter(({ count }) => count > 0).flatMap(durationSamples),
    ),
    counter('problems_total', 'Problems sent to callers, by code.', samplesByName(problems, 'code')),
    counter(
      'unparsed_requests_total',
      'Requests and connections refused before a request was complete, by the code of the HTTP parser.',
      samplesByName(unparsed, 'code'),
    ),
  ];
}

function durationSamples({
  operation = 'none',
  hit,
  count,
  sumSeconds,
  cumulative,
}: DurationCount): Sample[] {
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
}

export function callerMetrics({ requests, callers, gate }: AdminSnapshot): Metric[] {
  const queues = boundedQueues(gate.callers);
  return [
    gauge('callers', 'Callers in the version of the callers file that is in force.', callers.count),
    gauge('callers_loaded_timestamp_seconds', 'When that version was read.', seconds(callers.loadedAt)),
    gauge(
      'callers_file_refused',
      '1 while the newest version of the callers file is refused.',
      callers.problems.length > 0,
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
      queues.map(({ name, length }) => sample(length, { caller: name })),
    ),
    gauge(
      'gate_caller_refreshes_waiting',
      'Background refreshes that wait at the gate, by the caller that found the answer stale.',
      queues.map(({ name, refreshes }) => sample(refreshes, { caller: name })),
    ),
    gauge(
      'gate_caller_oldest_wait_seconds',
      'How long the oldest of these has waited.',
      queues.map(({ name, oldestWaitMs }) => sample(oldestWaitMs / 1_000, { caller: name })),
    ),
  ];
}

/** The longest queues at the gate; those beyond the bound are one. */
function boundedQueues(callers: AdminSnapshot['gate']['callers']): AdminSnapshot['gate']['callers'] {
  const ranked = callers.toSorted(
    (one, other) => other.length - one.length || other.refreshes - one.refreshes,
  );
  const rest = ranked.slice(maxCallers);
  if (rest.length === 0) return ranked;
  return [
    ...ranked.slice(0, maxCallers),
    {
      name: otherCallers,
      length: rest.reduce((sum, { length }) => sum + length, 0),
      oldestWaitMs: Math.max(...rest.map(({ oldestWaitMs }) => oldestWaitMs)),
      refreshes: rest.reduce((sum, { refreshes }) => sum + refreshes, 0),
    },
  ];
}
