/** The metrics of the shared store and of the gateways that use it. Pure: no `this`, no I/O, no clock. */
import { counter, gauge, type Metric, sample, seconds } from './metric.ts';
import type { AdminSnapshot } from './sources.ts';

/** None where the gateway is alone by its settings. */
export function fleetMetrics({ fleet }: AdminSnapshot): Metric[] {
  if (fleet === undefined) return [];
  const { store, members, answers, gate } = fleet;
  return [
    gauge(
      'shared_store_in_use',
      '1 while the shared store answers. 0: this gateway goes on alone. Absent without SHARED_STORE.',
      store.inUse,
    ),
    gauge('shared_store_gateways', 'Gateways that use the store, this one included.', members.length),
    counter('shared_store_calls_total', 'Calls to the store.', store.calls),
    counter(
      'shared_store_failures_total',
      'Calls that failed, were refused or took too long.',
      store.failures,
    ),
    gauge('shared_store_latency_seconds', 'Median time of the last calls.', seconds(store.latencyMs)),
    counter(
      'shared_store_reads_total',
      'Reads that went to the store: found there, joined the exchange of another gateway, asked the upstream for all.',
      [
        sample(answers.found, { outcome: 'found' }),
        sample(answers.joined, { outcome: 'joined' }),
        sample(answers.exchanges, { outcome: 'asked' }),
      ],
    ),
    gauge(
      'shared_gate_leads',
      '1 where this gateway gives the turns at the upstream to all gateways. One of them does while a limit is known or told.',
      gate.role === 'leads',
    ),
    counter(
      'shared_gate_turns_total',
      'Turns at the upstream between gateways: given to others, taken from the one that leads.',
      [sample(gate.turnsGiven, { way: 'given' }), sample(gate.turnsTaken, { way: 'taken' })],
    ),
  ];
}
