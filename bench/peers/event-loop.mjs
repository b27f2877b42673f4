/**
 * Preloaded into the gateway for one round: measures how late its event loop runs, and tells on SIGUSR2. Never
 * loaded where CPU time is measured.
 */
import { writeFileSync } from 'node:fs';
import { monitorEventLoopDelay } from 'node:perf_hooks';

const resolutionMs = 10;
const delay = monitorEventLoopDelay({ resolution: resolutionMs });
delay.enable();
process.on('SIGUSR2', () => {
  const late = (ns) => Math.max(0, ns / 1e6 - resolutionMs);
  writeFileSync(
    process.env['BENCH_EVENT_LOOP'],
    JSON.stringify({
      p50Ms: late(delay.percentile(50)),
      p99Ms: late(delay.percentile(99)),
      maxMs: late(delay.max),
    }),
  );
  delay.reset();
});
