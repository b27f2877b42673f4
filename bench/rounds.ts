/** Alternating rounds: each contender in turn, again and again, so that the machine's moods hit all alike. */
import type { Contender, Surroundings } from './contenders.ts';
import { token } from './contenders.ts';
import { applyLoad, type Load } from './load.ts';

export interface RoundOptions {
  readonly rounds: number;
  readonly seconds: number;
  /** Load that is not counted, until everything is compiled. */
  readonly warmUpSeconds: number;
  readonly connections: number;
  readonly reads: Load['reads'];
  readonly tokens?: readonly string[];
}

/** Medians over the rounds. */
export interface Measured {
  readonly name: string;
  readonly cpuUsPerRequest: number;
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly failed: number;
  /** CPU per request in each round: ratios are taken within a round. */
  readonly cpuByRound: readonly number[];
  readonly p99ByRound: readonly number[];
}

/** The share of requests that may fail, as where a connection is reset at the end of a load. */
const mostFailed = 0.01;

/**
 * Measures all side by side, after a warm-up.
 *
 * @throws Error where a program did not do the work
 */
export async function alternate(
  contenders: readonly Contender[],
  around: Surroundings,
  { rounds, seconds, warmUpSeconds, connections, reads, tokens = [token] }: RoundOptions,
): Promise<Measured[]> {
  const cpu = contenders.map((): number[] => []);
  const p99 = contenders.map((): number[] => []);
  const p50 = contenders.map((): number[] => []);
  const perSecond = contenders.map((): number[] => []);
  const failed = contenders.map(() => 0);
  for (let round = -1; round < rounds; round++) {
    for (const [index, { name, url, program }] of contenders.entries()) {
      const load: Load = {
        url,
        connections,
        seconds: round < 0 ? warmUpSeconds : seconds,
        reads,
        tokens,
        core: around.core,
      };
      const beforeUs = program.cpuUs();
      const result = await applyLoad(load, around.folder);
      const usedUs = program.cpuUs() - beforeUs;
      failed[index] = (failed[index] ?? 0) + result.failed;
      // A refusal is cheaper than an answer: figures made of them would say that a target is met.
      if (result.failed > mostFailed * result.requests) {
        throw new Error(`${name} refused or broke ${result.failed} of ${result.requests} requests`);
      }
      if (round < 0) continue;
      cpu[index]?.push(usedUs / Math.max(1, result.requests));
      p50[index]?.push(result.p50Ms);
      p99[index]?.push(result.p99Ms);
      perSecond[index]?.push(result.perSecond);
    }
  }
  return contenders.map(({ name }, index) => ({
    name,
    cpuUsPerRequest: median(cpu[index] ?? []),
    perSecond: median(perSecond[index] ?? []),
    p50Ms: median(p50[index] ?? []),
    p99Ms: median(p99[index] ?? []),
    failed: failed[index] ?? 0,
    cpuByRound: cpu[index] ?? [],
    p99ByRound: p99[index] ?? [],
  }));
}

/** The median of the ratios within each round: drift between rounds cancels out. */
export function ratio(of: readonly number[], to: readonly number[]): number {
  return median(of.map((value, round) => value / (to[round] ?? Number.NaN)));
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  return sorted.length % 2 === 1
    ? (sorted[middle] ?? Number.NaN)
    : ((sorted[middle - 1] ?? Number.NaN) + (sorted[middle] ?? Number.NaN)) / 2;
}
