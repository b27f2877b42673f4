/** Random numbers that follow from a seed, so that what failed once can be run again. */

export type Random = () => number;

/** Numbers from 0 to 1, without 1 (mulberry32). */
export function randomFrom(seed: number): Random {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A whole number from 0, below the bound. */
export function below(random: Random, bound: number): number {
  return Math.floor(random() * bound);
}

/** @throws RangeError where there is nothing to choose from */
export function pick<T>(random: Random, from: readonly T[]): T {
  if (from.length === 0) throw new RangeError('nothing to choose from');
  return from[below(random, from.length)] as T;
}
