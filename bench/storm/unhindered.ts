/** What one exchange takes on a side when no limit is in its way: what "demand" is reckoned with. */
import { setTimeout as sleep } from 'node:timers/promises';
import { standInKey } from '../../test/support/stand-in/stand-in.ts';
import type { StartSide } from './callers.ts';
import { quantile } from './figures.ts';
import { startUpstream } from './upstream.ts';

const warmUps = 100;
const samples = 60;
/** About what a request of the crowd comes after, so that it meets a process as awake as theirs. */
const pauseMs = 15;

/** The median round trip of one lone caller, ms, with a stand-in and a side that are then thrown away. */
export async function measureRoundTrip(
  start: StartSide,
  latencyMs: number,
  deadlineMs: number,
): Promise<number> {
  const unlimited = { perSecond: 1e6, burst: 1e6, retryAfterSeconds: undefined };
  const upstream = await startUpstream(unlimited, latencyMs);
  const plan = { name: 'lone', loops: 1, thinkMs: pauseMs, weight: 1 };
  const side = await start(upstream.url, standInKey, deadlineMs, [plan]);
  const latencies: number[] = [];
  for (let i = 0; i < warmUps + samples; i++) {
    const fromMs = performance.now();
    const { kind } = await side.ask(plan.name);
    if (kind !== 'answered') throw new Error(`a lone caller without a limit was ${kind}`);
    if (i >= warmUps) latencies.push(performance.now() - fromMs);
    await sleep(pauseMs);
  }
  await side.close();
  await upstream.close();
  return quantile(
    latencies.toSorted((a, b) => a - b),
    0.5,
  );
}
