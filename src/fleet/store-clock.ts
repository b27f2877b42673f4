/**
 * The store's clock as this gateway sees it. Clocks of gateways differ; times in shared records are the store's, and
 * each gateway keeps the offset between that clock and its own monotonic one.
 */

/** Clocks are not exact: what was written may seem to come from a moment as near as this in the future. */
export const clockErrorMs = 250;

/** Round trips that the offset is the median of: one slow reply must not move the clock. */
const samplesKept = 5;

export class StoreClock {
  readonly #offsetsMs: number[] = [];
  #offsetMs: number | undefined;

  /** The store's time at `nowMs` of the monotonic clock, in ms since 1970; `undefined` before the first sample. */
  at(nowMs: number): number | undefined {
    return this.#offsetMs === undefined ? undefined : nowMs + this.#offsetMs;
  }

  /** The moment on the monotonic clock that the store calls `storeMs`; `undefined` before the first sample. */
  local(storeMs: number): number | undefined {
    return this.#offsetMs === undefined ? undefined : storeMs - this.#offsetMs;
  }

  /**
   * Takes a reply of the store's `TIME`, which was read about half way through the round trip.
   *
   * @param time seconds since 1970, and the microseconds of this second
   */
  sample(sentMs: number, receivedMs: number, time: readonly number[]): void {
    const [seconds = Number.NaN, microseconds = Number.NaN] = time;
    const storeMs = seconds * 1_000 + microseconds / 1_000;
    if (!Number.isFinite(storeMs)) return;
    this.#offsetsMs.push(storeMs - (sentMs + receivedMs) / 2);
    if (this.#offsetsMs.length > samplesKept) this.#offsetsMs.shift();
    const sorted = this.#offsetsMs.toSorted((a, b) => a - b);
    this.#offsetMs = sorted[sorted.length >> 1];
  }
}
