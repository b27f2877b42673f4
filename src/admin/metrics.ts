/** All metrics of a snapshot: names, types, meanings, samples. Pure: no `this`, no I/O, no clock. */
import { fleetMetrics } from './fleet-metrics.ts';
import { type HealthCode, healthCodes, healthStates, type Verdict } from './health.ts';
import { gauge, type Metric, metricsOfEach, sample, seconds, workspaceLabel } from './metric.ts';
import { processMetrics } from './process-metrics.ts';
import { callerMetrics, requestMetrics } from './request-metrics.ts';
import type { AdminSnapshot, RuntimeSnapshot } from './sources.ts';
import {
  attemptMetrics,
  cacheBound,
  cacheMetrics,
  circuitMetrics,
  gateMetrics,
  keyMetrics,
} from './upstream-metrics.ts';

const prefix = 'analytics_gateway_';

/** Every metric of the gateway and of its process. */
export function metricsOf(
  snapshot: AdminSnapshot,
  verdict: Verdict,
  runtime: RuntimeSnapshot,
): readonly Metric[] {
  const own = [
    ...gatewayMetrics(snapshot),
    ...healthMetrics(verdict),
    ...requestMetrics(snapshot),
    ...callerMetrics(snapshot),
    ...cacheBound(snapshot),
    ...metricsOfEach(snapshot.workspaces, (workspace) => [
      ...cacheMetrics(workspace),
      ...attemptMetrics(workspace),
      ...gateMetrics(workspace),
      ...circuitMetrics(workspace),
      ...keyMetrics(workspace),
    ]),
    ...fleetMetrics(snapshot),
  ].map((metric) => ({ ...metric, name: `${prefix}${metric.name}` }));
  // These have the names that every process uses, so that ready-made dashboards fit.
  return [...own, ...processMetrics(snapshot, runtime)];
}

function gatewayMetrics(snapshot: AdminSnapshot): Metric[] {
  const { version, nodeVersion: node, notReady, at, startedAt, connections, waiting, certificate } = snapshot;
  return [
    gauge('build_info', 'Always 1. The versions are labels.', [sample(1, { version, node })]),
    gauge('ready', '1 while a key is loaded and the gateway is not stopping.', notReady === undefined),
    gauge('uptime_seconds', 'Time since the start.', seconds(at - startedAt)),
    gauge('connections', 'Open connections of callers.', connections),
    gauge(
      'certificate_expiry_seconds',
      'Time until the certificate for callers ends, negative once it has.',
      certificate && seconds(certificate.validTo - at),
    ),
    gauge('requests_waiting', 'Requests that wait for the upstream.', waiting),
  ];
}

function healthMetrics({ health, reasons }: Verdict): Metric[] {
  const present = new Set(reasons.filter(({ workspace }) => workspace === undefined).map(({ code }) => code));
  const named = reasons.filter(({ workspace }) => workspace !== undefined);
  return [
    gauge(
      'health',
      '1 for the verdict on the gateway: ok, degraded or failing.',
      healthStates.map((state) => sample(Number(state === health), { state })),
    ),
    gauge('health_reason', '1 for each reason why the verdict is not ok. "/status" says what to do.', [
      ...(Object.keys(healthCodes) as HealthCode[]).map((code) =>
        sample(Number(present.has(code)), { code }),
      ),
      ...named.map(({ code, workspace }) => sample(1, { ...workspaceLabel(workspace), code })),
    ]),
  ];
}
