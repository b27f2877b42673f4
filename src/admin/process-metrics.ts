/** The metrics of the process, under the names that boards for Node expect. Pure: no `this`, no I/O, no clock. */
import {
  counter,
  durationSamples,
  gauge,
  histogram,
  type Metric,
  sample,
  samplesByName,
  seconds,
  untyped,
} from './metric.ts';
import type { AdminSnapshot, ProcessSnapshot, RuntimeSnapshot } from './sources.ts';

export function processMetrics(snapshot: AdminSnapshot, runtime: RuntimeSnapshot): Metric[] {
  const { collections, lag, process: shown } = runtime;
  const cpuSeconds = shown.cpuUserSeconds + shown.cpuSystemSeconds;
  return [
    counter('process_cpu_user_seconds_total', 'User CPU time.', shown.cpuUserSeconds),
    counter('process_cpu_system_seconds_total', 'System CPU time.', shown.cpuSystemSeconds),
    counter('process_cpu_seconds_total', 'User and system CPU time.', cpuSeconds),
    gauge('process_start_time_seconds', 'When the gateway started.', seconds(snapshot.startedAt)),
    gauge('process_resident_memory_bytes', 'Resident memory.', snapshot.residentBytes),
    gauge('process_virtual_memory_bytes', 'Virtual memory.', shown.virtualBytes),
    gauge('process_heap_bytes', 'Data segment of the process.', shown.dataBytes),
    gauge('process_open_fds', 'Open file descriptors.', shown.openDescriptors),
    gauge('process_max_fds', 'The limit of open file descriptors.', shown.maxDescriptors),
    ...eventLoopMetrics(snapshot),
    ...lagMetrics(lag),
    histogram(
      'nodejs_gc_duration_seconds',
      'Runs of the garbage collector since the first scrape: major, minor, incremental or weakcb.',
      collections.flatMap(({ kind, durations }) => durationSamples({ kind }, durations)),
    ),
    ...heapMetrics(shown),
    ...activeMetrics(shown),
    gauge('nodejs_version_info', 'Always 1. The version is the labels.', [
      sample(1, versionLabels(snapshot.nodeVersion)),
    ]),
  ];
}

function eventLoopMetrics(snapshot: AdminSnapshot): Metric[] {
  return [
    gauge(
      'nodejs_eventloop_lag_seconds',
      'Delay of the event loop, measured once for each scrape.',
      snapshot.loopLagSeconds,
    ),
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
  ];
}

/** The delay between measurements, less the time that is meant to be between them. */
function lagMetrics(lag: RuntimeSnapshot['lag']): Metric[] {
  const of = (what: keyof NonNullable<RuntimeSnapshot['lag']>, name: string): Metric =>
    gauge(
      `nodejs_eventloop_lag_${what}_seconds`,
      `${name} of the event loop's delays since the last scrape.`,
      lag?.[what],
    );
  return [
    of('min', 'The least'),
    of('max', 'The greatest'),
    of('mean', 'The mean'),
    of('stddev', 'The standard deviation'),
    of('p50', 'The 50th percentile'),
    of('p90', 'The 90th percentile'),
    of('p99', 'The 99th percentile'),
  ];
}

/** Kinds of resources that are requests to the system; timers are neither requests nor handles. */
const requestKind = /Req|(?:Connect|Shutdown|Write|Send)Wrap$/;
const timerKind = /^(?:Timeout|Immediate)$/;

function activeMetrics({ activeResources }: ProcessSnapshot): Metric[] {
  const countOf = (isMeant: (kind: string) => boolean): number =>
    [...activeResources].reduce((sum, [kind, count]) => (isMeant(kind) ? sum + count : sum), 0);
  return [
    gauge(
      'nodejs_active_resources',
      'What keeps the event loop alive, by kind.',
      samplesByName(activeResources, 'type'),
    ),
    untyped(
      'nodejs_active_resources_total',
      'What keeps the event loop alive.',
      countOf(() => true),
    ),
    untyped(
      'nodejs_active_handles_total',
      'Of these, sockets, servers, pipes and the like.',
      countOf((kind) => !requestKind.test(kind) && !timerKind.test(kind)),
    ),
    untyped(
      'nodejs_active_requests_total',
      'Of these, requests to the system that are not answered.',
      countOf((kind) => requestKind.test(kind)),
    ),
  ];
}

function heapMetrics({
  heapTotalBytes,
  heapUsedBytes,
  externalBytes,
  heapSpaces,
}: ProcessSnapshot): Metric[] {
  return [
    gauge('nodejs_heap_size_total_bytes', 'Size of the heap.', heapTotalBytes),
    gauge('nodejs_heap_size_used_bytes', 'Used part of the heap.', heapUsedBytes),
    gauge('nodejs_external_memory_bytes', 'Memory outside the heap that objects in it hold.', externalBytes),
    gauge(
      'nodejs_heap_space_size_total_bytes',
      'Size of each space of the heap.',
      heapSpaces.map(({ space, totalBytes }) => sample(totalBytes, { space })),
    ),
    gauge(
      'nodejs_heap_space_size_used_bytes',
      'Used part of each space of the heap.',
      heapSpaces.map(({ space, usedBytes }) => sample(usedBytes, { space })),
    ),
    gauge(
      'nodejs_heap_space_size_available_bytes',
      'Free part of each space of the heap.',
      heapSpaces.map(({ space, availableBytes }) => sample(availableBytes, { space })),
    ),
  ];
}

function versionLabels(version: string): Record<string, string> {
  const [major = '', minor = '', patch = ''] = version.replace(/^v/, '').split('.');
  return { version, major, minor, patch };
}
