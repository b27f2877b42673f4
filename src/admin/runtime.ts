/**
 * The process as the metrics show it, under the names that boards for Node expect. What Node tells of its garbage
 * collector and its event loop only to a program that watches is watched from the first scrape on, once for the process:
 * a gateway that is not scraped pays for none.
 */
import { readdir, readFile } from 'node:fs/promises';
import {
  constants,
  type ELDHistogram,
  monitorEventLoopDelay,
  type PerformanceNodeEntry,
  PerformanceObserver,
} from 'node:perf_hooks';
import { getHeapSpaceStatistics } from 'node:v8';
import { maxOpenFiles, readProcessLimits } from '../edge/connection-budget.ts';
import { Durations, type DurationsSnapshot } from '../exchange/figures.ts';
import {
  durationSamples,
  type Metric,
  metricsOfRows,
  type Row,
  sample,
  samplesByName,
  timestamp,
} from './exposition.ts';
import type { AdminSnapshot } from './snapshot.ts';

/** What the metrics alone show: it costs too much to be read for each status. Lags in seconds. */
export interface Runtime {
  readonly cpuUserSeconds: number;
  readonly cpuSystemSeconds: number;
  /** `undefined` where the system does not show them. */
  readonly virtualBytes: number | undefined;
  readonly dataBytes: number | undefined;
  readonly openDescriptors: number | undefined;
  readonly maxDescriptors: number | undefined;
  readonly heapTotalBytes: number;
  readonly heapUsedBytes: number;
  readonly externalBytes: number;
  readonly heapSpaces: readonly {
    readonly space: string;
    readonly totalBytes: number;
    readonly usedBytes: number;
    readonly availableBytes: number;
  }[];
  /** What keeps the event loop alive, by kind. */
  readonly activeResources: Readonly<Record<string, number>>;
  /** Runs of the garbage collector. */
  readonly collections: readonly { readonly kind: string; readonly durations: DurationsSnapshot }[];
  /** Delays of the event loop since the last look; `undefined` where none was measured yet. */
  readonly lag:
    | Readonly<Record<'min' | 'max' | 'mean' | 'stddev' | 'p50' | 'p90' | 'p99', number>>
    | undefined;
}

/** How often the delay of the event loop is measured. Ten times a second take 0.04 % of a processor, at the usual 10 ms 0.3 %. */
const resolutionMs = 100;

const collections = new Map([
  [constants.NODE_PERFORMANCE_GC_MAJOR, { kind: 'major', durations: new Durations() }],
  [constants.NODE_PERFORMANCE_GC_MINOR, { kind: 'minor', durations: new Durations() }],
  [constants.NODE_PERFORMANCE_GC_INCREMENTAL, { kind: 'incremental', durations: new Durations() }],
  [constants.NODE_PERFORMANCE_GC_WEAKCB, { kind: 'weakcb', durations: new Durations() }],
]);
let delays: ELDHistogram | undefined;

/**
 * The process, collections since the first call, and the delays of the event loop since the last one: those are absent
 * at first.
 */
export async function readRuntime(): Promise<Runtime> {
  const [status, descriptors] = await Promise.all([
    readFile('/proc/self/status', 'latin1').catch(() => ''),
    readdir('/proc/self/fd').catch(() => undefined),
  ]);
  delays ??= watch();
  const { user, system } = process.cpuUsage();
  const { heapTotal, heapUsed, external } = process.memoryUsage();
  const kinds = Map.groupBy(process.getActiveResourcesInfo(), (kind) => kind);
  const runtime: Runtime = {
    cpuUserSeconds: user / 1e6,
    cpuSystemSeconds: system / 1e6,
    virtualBytes: bytesIn(/^VmSize:\s+(\d+) kB/m.exec(status)),
    dataBytes: bytesIn(/^VmData:\s+(\d+) kB/m.exec(status)),
    // The folder itself is open while it is read.
    openDescriptors: descriptors && descriptors.length - 1,
    maxDescriptors: maxOpenFiles(readProcessLimits()),
    heapTotalBytes: heapTotal,
    heapUsedBytes: heapUsed,
    externalBytes: external,
    heapSpaces: getHeapSpaceStatistics().map((one) => ({
      space: one.space_name.replace(/_space$/, ''),
      totalBytes: one.space_size,
      usedBytes: one.space_used_size,
      availableBytes: one.space_available_size,
    })),
    activeResources: Object.fromEntries([...kinds].map(([kind, all]) => [kind, all.length])),
    collections: [...collections.values()].map(({ kind, durations }) => ({
      kind,
      durations: durations.snapshot(),
    })),
    lag: delays.count === 0 ? undefined : lagOf(delays),
  };
  delays.reset();
  return runtime;
}

export function processMetrics(
  { node, startedAt, process: shown }: AdminSnapshot,
  runtime: Runtime,
): Metric[] {
  const [major = '', minor = '', patch = ''] = node.replace(/^v/, '').split('.');
  const ofSnapshot: Row<AdminSnapshot['process']>[] = [
    ['process_start_time_seconds', 'gauge', 'When the gateway started.', () => timestamp(startedAt)],
    ['process_resident_memory_bytes', 'gauge', 'Resident memory.', ({ residentBytes }) => residentBytes],
    [
      'nodejs_eventloop_lag_seconds',
      'gauge',
      'Delay of the event loop, measured once for each scrape.',
      ({ eventLoopLagSeconds }) => eventLoopLagSeconds,
    ],
    [
      'nodejs_eventloop_busy_seconds_total',
      'counter',
      'Time that the event loop was busy. Its rate is the utilisation of the event loop.',
      ({ eventLoopBusySeconds }) => eventLoopBusySeconds,
    ],
    [
      'nodejs_eventloop_idle_seconds_total',
      'counter',
      'Time that the event loop was idle.',
      ({ beside }) => beside.eventLoopIdleSeconds,
    ],
    [
      'nodejs_version_info',
      'gauge',
      'Always 1. The version is the labels.',
      () => [sample(1, { version: node, major, minor, patch })],
    ],
  ];
  return [...metricsOfRows(ofSnapshot, [[shown, {}]]), ...metricsOfRows(runtimeRows, [[runtime, {}]])];
}

const runtimeRows: readonly Row<Runtime>[] = [
  ['process_cpu_user_seconds_total', 'counter', 'User CPU time.', (shown) => shown.cpuUserSeconds],
  ['process_cpu_system_seconds_total', 'counter', 'System CPU time.', (shown) => shown.cpuSystemSeconds],
  [
    'process_cpu_seconds_total',
    'counter',
    'User and system CPU time.',
    (shown) => shown.cpuUserSeconds + shown.cpuSystemSeconds,
  ],
  ['process_virtual_memory_bytes', 'gauge', 'Virtual memory.', (shown) => shown.virtualBytes],
  ['process_heap_bytes', 'gauge', 'Data segment of the process.', (shown) => shown.dataBytes],
  ['process_open_fds', 'gauge', 'Open file descriptors.', (shown) => shown.openDescriptors],
  ['process_max_fds', 'gauge', 'The limit of open file descriptors.', (shown) => shown.maxDescriptors],
  ...lagRows(),
  [
    'nodejs_gc_duration_seconds',
    'histogram',
    'Runs of the garbage collector since the first scrape: major, minor, incremental or weakcb.',
    (shown) => shown.collections.flatMap(({ kind, durations }) => durationSamples({ kind }, durations)),
  ],
  ['nodejs_heap_size_total_bytes', 'gauge', 'Size of the heap.', (shown) => shown.heapTotalBytes],
  ['nodejs_heap_size_used_bytes', 'gauge', 'Used part of the heap.', (shown) => shown.heapUsedBytes],
  [
    'nodejs_external_memory_bytes',
    'gauge',
    'Memory outside the heap that objects in it hold.',
    (shown) => shown.externalBytes,
  ],
  [
    'nodejs_heap_space_size_total_bytes',
    'gauge',
    'Size of each space of the heap.',
    ({ heapSpaces }) => heapSpaces.map(({ space, totalBytes }) => sample(totalBytes, { space })),
  ],
  [
    'nodejs_heap_space_size_used_bytes',
    'gauge',
    'Used part of each space of the heap.',
    ({ heapSpaces }) => heapSpaces.map(({ space, usedBytes }) => sample(usedBytes, { space })),
  ],
  [
    'nodejs_heap_space_size_available_bytes',
    'gauge',
    'Free part of each space of the heap.',
    ({ heapSpaces }) => heapSpaces.map(({ space, availableBytes }) => sample(availableBytes, { space })),
  ],
  [
    'nodejs_active_resources',
    'gauge',
    'What keeps the event loop alive, by kind.',
    ({ activeResources }) => samplesByName(activeResources, 'type'),
  ],
  [
    'nodejs_active_resources_total',
    'untyped',
    'What keeps the event loop alive.',
    (shown) => activeOf(shown, () => true),
  ],
  [
    'nodejs_active_handles_total',
    'untyped',
    'Of these, sockets, servers, pipes and the like.',
    (shown) => activeOf(shown, (kind) => !requestKind.test(kind) && !timerKind.test(kind)),
  ],
  [
    'nodejs_active_requests_total',
    'untyped',
    'Of these, requests to the system that are not answered.',
    (shown) => activeOf(shown, (kind) => requestKind.test(kind)),
  ],
];

/** The delay between measurements, less the time that is meant to be between them. */
function lagRows(): Row<Runtime>[] {
  const names = {
    min: 'The least',
    max: 'The greatest',
    mean: 'The mean',
    stddev: 'The standard deviation',
    p50: 'The 50th percentile',
    p90: 'The 90th percentile',
    p99: 'The 99th percentile',
  };
  return (Object.keys(names) as (keyof typeof names)[]).map((what) => [
    `nodejs_eventloop_lag_${what}_seconds`,
    'gauge',
    `${names[what]} of the event loop's delays since the last scrape.`,
    ({ lag }) => lag?.[what],
  ]);
}

/** Kinds of resources that are requests to the system; timers are neither requests nor handles. */
const requestKind = /Req|(?:Connect|Shutdown|Write|Send)Wrap$/;
const timerKind = /^(?:Timeout|Immediate)$/;

function activeOf({ activeResources }: Runtime, isMeant: (kind: string) => boolean): number {
  return Object.entries(activeResources).reduce(
    (sum, [kind, count]) => (isMeant(kind) ? sum + count : sum),
    0,
  );
}

function bytesIn(kibibytes: RegExpExecArray | null): number | undefined {
  return kibibytes === null ? undefined : Number(kibibytes[1]) * 1_024;
}

function watch(): ELDHistogram {
  new PerformanceObserver((list) => {
    for (const { duration, detail } of list.getEntries() as PerformanceNodeEntry[]) {
      collections.get((detail as { kind: number }).kind)?.durations.observe(duration);
    }
  }).observe({ entryTypes: ['gc'] });
  const started = monitorEventLoopDelay({ resolution: resolutionMs });
  started.enable();
  return started;
}

/** The histogram has the time between two measurements, which is the resolution where nothing delays them. */
function lagOf(measured: ELDHistogram): Runtime['lag'] {
  const lag = (nanoseconds: number): number => Math.max(0, nanoseconds / 1e9 - resolutionMs / 1e3);
  return {
    min: lag(measured.min),
    max: lag(measured.max),
    mean: lag(measured.mean),
    stddev: measured.stddev / 1e9,
    p50: lag(measured.percentile(50)),
    p90: lag(measured.percentile(90)),
    p99: lag(measured.percentile(99)),
  };
}
