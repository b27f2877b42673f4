/** The metrics of requests and of callers. Pure: no `this`, no I/O, no clock. */
import { boundsSeconds } from './durations.ts';
import { bit, counts, one, type Row } from './metric-row-policy.ts';
import { maxCallers, otherCallers } from './request-counts.ts';
import type { AdminFacts } from './sources.ts';

export function requestRows({
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

export function callerRows({ requests, callers, gate }: AdminFacts): Row[] {
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
