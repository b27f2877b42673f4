/** All metrics of a snapshot: names, types, meanings, samples. Pure: no `this`, no I/O, no clock. */
import { fleetMetrics } from './fleet-metrics-policy.ts';
import { counter, gauge, type Metric, sample, seconds } from './metric-policy.ts';
import { callerMetrics, requestMetrics } from './request-metrics-policy.ts';
import type { AdminSnapshot } from './sources.ts';
import {
  attemptMetrics,
  cacheMetrics,
  circuitMetrics,
  gateMetrics,
  keyMetrics,
} from './upstream-metrics-policy.ts';

const prefix = 'analytics_gateway_';

/** Every metric of the gateway and of its process. */
export function metricsOf(snapshot: AdminSnapshot): readonly Metric[] {
  const own = [
    ...gatewayMetrics(snapshot),
    ...requestMetrics(snapshot),
    ...callerMetrics(snapshot),
    ...cacheMetrics(snapshot),
    ...attemptMetrics(snapshot),
    ...gateMetrics(snapshot),
    ...circuitMetrics(snapshot),
    ...keyMetrics(snapshot),
    ...fleetMetrics(snapshot),
  ].map((metric) => ({ ...metric, name: `${prefix}${metric.name}` }));
  // These have the names that every process uses, so that ready-made dashboards fit.
  return [...own, ...processMetrics(snapshot)];
}

function gatewayMetrics(snapshot: AdminSnapshot): Metric[] {
  const { version, nodeVersion: node, notReady, at, startedAt, connections, waiting } = snapshot;
  return [
    gauge('build_info', 'Always 1. The versions are labels.', [sample(1, { version, node })]),
    gauge('ready', '1 while a key is loaded and the gateway is not stopping.', notReady === undefined),
    gauge('uptime_seconds', 'Time since the start.', seconds(at - startedAt)),
    gauge('connections', 'Open connections of callers.', connections),
    gauge('requests_waiting', 'Requests that wait for the upstream.', waiting),
  ];
}

function processMetrics(snapshot: AdminSnapshot): Metric[] {
  return [
    counter('process_cpu_seconds_total', 'User and system CPU time.', snapshot.cpuSeconds),
    gauge('process_resident_memory_bytes', 'Resident memory.', snapshot.residentBytes),
    gauge('process_start_time_seconds', 'When the gateway started.', seconds(snapshot.startedAt)),
    counter(
      'nodejs_eventloop_busy_seconds_total',
      'Time that the event loop was busy. Its rate is the utilisation of the event loop.',
      snapshot.loopBusySeconds,
    ),
    counter(
      'nodejs_eventloop_idle_seconds_total',
      'Time that the event loop was idle.',
      snapshot.loopIdleSeconds,
    ),
    gauge(
      'nodejs_eventloop_lag_seconds',
      'Delay of the event loop, measured once for each scrape.',
      snapshot.loopLagSeconds,
    ),
  ];
}
