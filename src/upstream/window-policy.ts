/**
 * How many attempts may be in flight: few at an upstream met for the first time, more as its answers come.
 * Pure: no I/O, no clock.
 */

export interface Window {
  readonly size: number;
  /** An attempt was answered by a status that is no failure; `isFull` when the window was in the way. */
  succeeded(isFull: boolean): void;
  /** Starts over, as with an upstream met for the first time. */
  reset(): void;
}

/**
 * A window that doubles with each window of successes. The first of them it waits for: when a first burst has just
 * emptied the upstream's bucket, no more run into the refusal than the window held at the start.
 *
 * @param initial size at the start
 * @param most it never grows beyond this
 */
export function growWindow(initial: number, most: number): Window {
  let size = Math.min(initial, most);
  let successes = 0;
  return {
    get size() {
      return size;
    },
    succeeded(isFull) {
      successes++;
      if (isFull && successes > initial && size < most) size++;
    },
    reset() {
      size = Math.min(initial, most);
      successes = 0;
    },
  };
}
