/**
 * Which processor runs what. CPU time per request is measured with contender and load generator on one processor
 * and the upstream on another: on two, a program that answers faster than the generator asks has to wake it with an
 * interrupt, and that costs more than the answer and differs from contender to contender.
 */
import { execFileSync } from 'node:child_process';
import { availableParallelism } from 'node:os';

export const canPin = availableParallelism() > 1 && hasTaskset();
/** Where contender and generator run. */
export const measuredCore = 1;
/** Where the upstream runs. */
export const upstreamCore = 0;

function hasTaskset(): boolean {
  try {
    execFileSync('taskset', ['-c', '-p', String(process.pid)], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

/** A command line that runs on one processor only, where that can be had. */
export function onCore(
  core: number | undefined,
  command: string,
  args: readonly string[],
): [string, string[]] {
  if (core === undefined || !canPin) return [command, [...args]];
  return ['taskset', ['-c', String(core), command, ...args]];
}
