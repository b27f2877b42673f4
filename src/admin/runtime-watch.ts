/**
 * What Node tells of its garbage collector and its event loop only to a program that watches. Watching begins with the
 * first scrape, and there is one watch for the process: a gateway that is not scraped pays for none.
 */
import {
  constants,
  type ELDHistogram,
  monitorEventLoopDelay,
  type PerformanceNodeEntry,
  PerformanceObserver,
} from 'node:perf_hooks';
import { Durations } from '../exchange/durations.ts';
import { readProcess } from './process-snapshot.ts';
import type { RuntimeSnapshot } from './sources.ts';

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
export async function readRuntime(): Promise<RuntimeSnapshot> {
  const process = await readProcess();
  delays ??= watch();
  const snapshot = {
    process,
    collections: [...collections.values()].map(({ kind, durations }) => ({
      kind,
      durations: durations.snapshot(),
    })),
    lag: delays.count === 0 ? undefined : lagOf(delays),
  };
  delays.reset();
  return snapshot;
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
function lagOf(measured: ELDHistogram): RuntimeSnapshot['lag'] {
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
