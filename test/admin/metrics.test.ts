import { describe, expect, it } from 'vitest';
import { maxCallers, otherCallers } from '../../src/admin/caller-counts.ts';
import { exposition } from '../../src/admin/exposition.ts';
import { judgeHealth } from '../../src/admin/health.ts';
import { metricsOf } from '../../src/admin/metrics.ts';
import { processMetrics } from '../../src/admin/runtime.ts';
import { parseExposition } from '../support/exposition-parser.ts';
import { fullRuntime, fullSnapshot, type SnapshotOfOne } from '../support/snapshot.ts';

const allMetrics = (snapshot: SnapshotOfOne) => [
  ...metricsOf(snapshot, judgeHealth(snapshot)),
  ...processMetrics(snapshot, fullRuntime),
];
const scrape = (changes: Partial<SnapshotOfOne> = {}) =>
  parseExposition([...exposition(allMetrics(fullSnapshot(changes)))].join(''));
const own = (name: string): string => `analytics_gateway_${name}`;

describe('the metrics', () => {
  it('the metrics can all be read by a strict parser', () => {
    expect(scrape().types.size).toBe(allMetrics(fullSnapshot()).length);
  });

  it('the metrics of the process have every name that prom-client gives it, which boards for Node ask for', () => {
    const lags = ['min', 'max', 'mean', 'stddev', 'p50', 'p90', 'p99'].map((one) => `eventloop_lag_${one}`);
    const active = ['active_handles', 'active_requests', 'active_resources'].map((one) => `${one}_total`);
    const spaces = ['total', 'used', 'available'].map((one) => `heap_space_size_${one}_bytes`);
    const heap = ['heap_size_total_bytes', 'heap_size_used_bytes', 'external_memory_bytes', ...spaces];
    const seconds = ['eventloop_lag', ...lags, 'gc_duration'].map((one) => `${one}_seconds`);
    const nodes = [...seconds, ...active, 'active_resources', ...heap, 'version_info'];
    const bytes = ['resident_memory', 'virtual_memory', 'heap'].map((one) => `${one}_bytes`);
    const cpu = ['cpu_user', 'cpu_system', 'cpu'].map((one) => `${one}_seconds_total`);
    const processes = [...cpu, ...bytes, 'start_time_seconds', 'open_fds', 'max_fds'];
    const { types, value } = scrape();
    for (const name of nodes) expect(types.has(`nodejs_${name}`), name).toBe(true);
    for (const name of processes) expect(types.has(`process_${name}`), name).toBe(true);
    expect(value('nodejs_active_handles_total')).toBe(2);
    expect(value('nodejs_active_requests_total')).toBe(1);
    expect(value('nodejs_active_resources_total')).toBe(7);
    for (const kind of ['major', 'minor', 'incremental', 'weakcb'])
      expect(value('nodejs_gc_duration_seconds_count', { kind })).toBe(0);
  });

  it('the metrics have the values of the snapshot, in base units', () => {
    const { value } = scrape();
    const labels = { operation: 'list-accounts', status: '200', cache: 'hit' };
    expect(value(own('requests_total'), labels)).toBe(1);
    expect(value(own('requests_total'), { operation: 'none', status: '404', cache: 'hit' })).toBe(1);
    expect(value(own('requests_started_total'))).toBe(4);
    expect(value(own('requests_in_flight'))).toBe(1);
    expect(value(own('certificate_expiry_seconds'))).toBe(30 * 86_400);
    expect(value(own('key_age_seconds'))).toBe(30);
    expect(value(own('key_reload_failures_total'))).toBe(2);
    expect(value(own('key_reload_failing'))).toBe(1);
    expect(value(own('key_last_accepted_timestamp_seconds'))).toBe(
      Date.parse('2026-11-01T11:59:59Z') / 1_000,
    );
    const source = 'file:/run/secrets/a"b\\c';
    expect(value(own('key_info'), { source, fingerprint: '0123abcd', generation: '3' })).toBe(1);
    expect(value(own('gate_state'), { state: 'closed' })).toBe(1);
    expect(value(own('gate_state'), { state: 'open' })).toBe(0);
    expect(value(own('gate_closed_seconds'))).toBe(2);
    expect(value(own('gate_learned_attempts_per_second'))).toBe(12.5);
    expect(value(own('gate_caller_waiting'), { caller: 'script' })).toBe(5);
    expect(value(own('gate_caller_oldest_wait_seconds'), { caller: 'script' })).toBe(1.5);
    expect(value(own('gate_caller_refreshes_waiting'), { caller: 'page' })).toBe(3);
    expect(value(own('health'), { state: 'failing' })).toBe(1);
    expect(value(own('health'), { state: 'ok' })).toBe(0);
    expect(value(own('health_reason'), { code: 'circuit-open' })).toBe(1);
    expect(value(own('health_reason'), { code: 'key-refused' })).toBe(0);
    expect(value(own('caller_requests_total'), { caller: 'script', status: '4xx' })).toBe(2);
    expect(value(own('caller_refusals_total'), { caller: 'script', code: 'caller-rate-limited' })).toBe(1);
    expect(value(own('caller_wait_seconds_total'), { caller: 'script' })).toBe(0.005);
    expect(value(own('circuit_open'))).toBe(1);
    expect(value(own('circuit_operation_open'), { operation: 'account' })).toBe(1);
    expect(value(own('circuit_operation_open'), { operation: 'list-accounts' })).toBe(0);
    expect(value(own('upstream_attempts_total'), { operation: 'list-accounts', outcome: '429' })).toBe(3);
    expect(value(own('upstream_attempt_seconds_total'), { operation: 'list-accounts' })).toBe(0.66);
    expect(value(own('unparsed_requests_total'), { code: 'HPE_INVALID_METHOD' })).toBe(1);
    expect(value('process_resident_memory_bytes')).toBe(90_000_000);
    expect(value('process_cpu_user_seconds_total')).toBe(1.25);
    expect(value('nodejs_heap_space_size_used_bytes', { space: 'new' })).toBe(400_000);
    expect(value('nodejs_version_info', { version: 'v26.0.0', major: '26', minor: '0', patch: '0' })).toBe(1);
    const attempts = own('upstream_attempt_duration_seconds');
    expect(value(`${attempts}_bucket`, { operation: 'list-accounts', le: '0.01' })).toBe(0);
    expect(value(`${attempts}_bucket`, { operation: 'list-accounts', le: '0.025' })).toBe(33);
    expect(value(`${attempts}_count`, { operation: 'list-accounts' })).toBe(33);
    expect(value(own('upstream_background_attempts_total'))).toBe(2);
    expect(value(own('key_previous_expiry_seconds'))).toBe(540);
    const left = (Date.parse('2027-01-01T00:00:00Z') - Date.parse('2026-11-01T12:00:00Z')) / 1_000;
    expect(value(own('caller_token_expiry_seconds'), { caller: 'script' })).toBe(left);
  });

  it('the metrics leave out a value that is not known', () => {
    const { gate, key } = fullSnapshot();
    const { types, value } = scrape({
      ready: false,
      gate: { ...gate, attemptsPerSecond: null },
      key: {
        ...key,
        loaded: false,
        fingerprint: null,
        generation: null,
        ageSeconds: null,
        lastAcceptedAt: null,
        lastRejectedAt: null,
        reloadFailure: null,
      },
    });
    for (const name of [
      'gate_learned_attempts_per_second',
      'key_info',
      'key_age_seconds',
      'key_last_accepted_timestamp_seconds',
    ]) {
      expect(types.has(own(name)), name).toBe(false);
    }
    expect(value(own('ready'))).toBe(0);
    expect(value(own('key_loaded'))).toBe(0);
    expect(value(own('key_reload_failing'))).toBe(0);
  });

  it('the metrics name a bounded number of waiting callers and add up the rest', () => {
    const callers = Array.from({ length: maxCallers + 50 }, (_, number) => ({
      name: `c${number}`,
      waiting: number < 50 ? 1 : 2,
      oldestWaitSeconds: number / 1_000,
      refreshes: number < 50 ? 3 : 0,
    }));
    const { series, value } = scrape({ gate: { ...fullSnapshot().gate, callers } });
    expect(series.filter(({ name }) => name === own('gate_caller_waiting'))).toHaveLength(maxCallers + 1);
    expect(value(own('gate_caller_waiting'), { caller: otherCallers })).toBe(50);
    expect(value(own('gate_caller_oldest_wait_seconds'), { caller: otherCallers })).toBe(0.049);
    expect(value(own('gate_caller_refreshes_waiting'), { caller: otherCallers })).toBe(150);
  });
});
