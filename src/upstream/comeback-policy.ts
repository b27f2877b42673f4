/**
 * When somebody who is turned away for want of a turn should come back. No clock: times come in.
 *
 * Everybody of one caller is told a time of its own, a turn apart: told the same time, all would come back for the
 * same place, and what they were told would be true for one.
 */

export interface Returns {
  /**
   * @param earliestMs when the line will have got short enough
   * @param turnMs the time between two turns of this caller
   * @returns when to come back
   */
  promise(name: string, earliestMs: number, turnMs: number, nowMs: number): number;
}

/** Nobody is told to come back later than this because of those who were told before it. */
const longestMs = 600_000;

/** @param most so many callers are remembered; beyond that all are forgotten, and some may come back in vain once */
export function promiseReturns(most: number): Returns {
  const last = new Map<string, number>();
  return {
    promise(name, earliestMs, turnMs, nowMs) {
      const atMs = Math.min(Math.max(earliestMs, last.get(name) ?? 0) + turnMs, nowMs + longestMs);
      if (last.size >= most) last.clear();
      last.set(name, atMs);
      return atMs;
    },
  };
}
