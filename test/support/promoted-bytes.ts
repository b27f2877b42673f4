import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as (options: { type: 'minor' }) => void;

/** How many bytes each run leaves in V8's old generation, where they stay until the next full collection. */
export function promotedBytesPer(runs: number, run: (number: number) => void): number {
  // What is compiled, and what is kept once, is there already.
  for (let number = 0; number < runs; number++) run(number);
  collect({ type: 'minor' });
  const before = oldBytes();
  for (let number = 0; number < runs; number++) {
    run(runs + number);
    if (number % 50 === 0) collect({ type: 'minor' });
  }
  return (oldBytes() - before) / runs;
}

function oldBytes(): number {
  return getHeapSpaceStatistics().find(({ space_name: name }) => name === 'old_space')?.space_used_size ?? 0;
}
