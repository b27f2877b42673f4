/** Figures as `/status` shows them: durations counted in fixed buckets, seconds, times, hundredths. */

/** Upper bounds of the buckets, in seconds: from a hit to the default of REQUEST_TIMEOUT. */
export const boundsSeconds = [
  0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25,
] as const;

const boundsMs = Float64Array.from(boundsSeconds, (seconds) => seconds * 1_000);

export interface DurationsSnapshot {
  readonly count: number;
  readonly sumSeconds: number;
  /** For each bound, how many took no longer. Those beyond the last bound are in `count` alone. */
  readonly cumulative: readonly number[];
}

/** Durations as a histogram. Observing allocates nothing. */
export class Durations {
  /** One more than there are bounds: the last is for durations beyond all bounds. */
  readonly #buckets = new Float64Array(boundsMs.length + 1);
  readonly #sumMs = new Float64Array(1);

  observe(ms: number): void {
    let index = 0;
    while (index < boundsMs.length && ms > (boundsMs[index] as number)) index++;
    (this.#buckets[index] as number) += 1;
    (this.#sumMs[0] as number) += ms;
  }

  snapshot(): DurationsSnapshot {
    let count = 0;
    const cumulative: number[] = [];
    for (const inBucket of this.#buckets) {
      count += inBucket;
      cumulative.push(count);
    }
    return { count, sumSeconds: (this.#sumMs[0] as number) / 1_000, cumulative: cumulative.slice(0, -1) };
  }
}

/** A duration as `/status` shows it: in seconds, null where it does not apply. @param parts of a millisecond that are kept */
export function toSeconds(ms: number, parts?: number): number;
export function toSeconds(ms: number | undefined, parts?: number): number | null;
export function toSeconds(ms: number | undefined, parts = 1): number | null {
  return ms === undefined ? null : Math.round(ms * parts) / (1_000 * parts);
}

/** A moment as `/status` shows it (ISO 8601), null where there is none. @param ms wall clock */
export function toTime(ms: number): string;
export function toTime(ms: number | undefined): string | null;
export function toTime(ms: number | undefined): string | null {
  return ms === undefined ? null : new Date(ms).toISOString();
}

/** A figure as it is shown: to a hundredth. */
export function toHundredths(value: number): number {
  return Math.round(value * 100) / 100;
}
