import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as (options: { type: 'minor' }) => void;

/**
 * How many bytes each run leaves in V8's old generation, where they stay until the next full collection: the median of
 * five rounds, for a full collection takes away and what else happens in the process adds.
 */
export function promotedBytesPer(runs: number, run: (number: number) => void): number {
  // The first round: what is compiled, and what is kept once.
  bytesOfRound(runs, run);
  return [1, 2, 3, 4, 5].map(() => bytesOfRound(runs, run)).toSorted((a, b) => a - b)[2] as number;
}

function bytesOfRound(runs: number, run: (number: number) => void): number {
  collect({ type: 'minor' });
  const before = oldBytes();
  for (let number = 0; number < runs; number++) {
    run(number);
    if (number % 50 === 0) collect({ type: 'minor' });
  }
  return (oldBytes() - before) / runs;
}

function oldBytes(): number {
  return getHeapSpaceStatistics().find(({ space_name: name }) => name === 'old_space')?.space_used_size ?? 0;
}
