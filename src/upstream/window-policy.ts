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
 * A window that doubles with each window of successes. A doubling takes effect with the first success after it:
 * when a first burst has just emptied the upstream's bucket, half as many run into the refusal.
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
      if (!isFull && successes < size) return;
      if (successes >= size) {
        size = Math.min(size * 2, most);
        successes = 0;
      }
      successes++;
    },
    reset() {
      size = Math.min(initial, most);
      successes = 0;
    },
  };
}
