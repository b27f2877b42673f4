/**
 * How many attempts the upstream has accepted lately, by the time they were sent: what the pace is learned from.
 * No clock: times come in as arguments.
 */

const bucketMs = 10;
const buckets = 640;
/** Over a shorter stretch than this a burst says too little about a rate. */
const shortestMs = 200;

export interface AcceptedHistory {
  add(sentMs: number): void;
  /** Accepted attempts sent within the last `spanMs` before `untilMs`, to the precision of a bucket. */
  within(spanMs: number, untilMs: number): number;
  /**
   * The rate, per ms, that the upstream must at least allow to have accepted what it did: over any stretch that
   * ends at `untilMs` and begins after `sinceMs`, all but what a full burst gives came from the rate itself.
   */
  leastRate(burst: number, sinceMs: number, untilMs: number): number;
}

export function rememberAccepted(): AcceptedHistory {
  const counts = new Float64Array(buckets);
  /** The bucket number that `counts` holds last. */
  let newest = Number.NEGATIVE_INFINITY;

  const advance = (bucket: number): void => {
    if (bucket <= newest) return;
    const steps = Math.min(bucket - newest, buckets);
    for (let step = 0; step < steps; step++) counts[(bucket - step) % buckets] = 0;
    newest = bucket;
  };

  return {
    add(sentMs) {
      const bucket = Math.floor(sentMs / bucketMs);
      advance(bucket);
      if (bucket > newest - buckets) counts[bucket % buckets] = (counts[bucket % buckets] as number) + 1;
    },

    within(spanMs, untilMs) {
      const last = Math.floor(untilMs / bucketMs);
      const oldest = Math.max(Math.floor((untilMs - spanMs) / bucketMs), newest - buckets + 1, 0);
      let count = 0;
      for (let bucket = Math.min(last, newest); bucket >= oldest; bucket--) {
        count += counts[bucket % buckets] as number;
      }
      return count;
    },

    leastRate(burst, sinceMs, untilMs) {
      const last = Math.floor(untilMs / bucketMs);
      let count = 0;
      let best = 0;
      const oldest = Math.max(Math.floor(sinceMs / bucketMs), newest - buckets + 1, 0);
      for (let bucket = Math.min(last, newest); bucket >= oldest; bucket--) {
        count += counts[bucket % buckets] as number;
        const spanMs = untilMs - bucket * bucketMs;
        if (spanMs >= shortestMs) best = Math.max(best, (count - burst) / spanMs);
      }
      return best;
    },
  };
}
