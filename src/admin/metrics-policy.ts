/** The metrics: names, types, meanings, and what of the facts is in them. Pure: no `this`, no I/O, no clock. */
import type { Family } from './exposition-policy.ts';
import { bit, one, type Row } from './metric-row-policy.ts';
import { callerRows, requestRows } from './request-metrics-policy.ts';
import type { AdminFacts } from './sources.ts';
import { cacheRows, keyRows, upstreamRows } from './upstream-metrics-policy.ts';

const prefix = 'analytics_gateway_';

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
