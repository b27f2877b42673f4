/**
 * When the attempts were sent that the upstream has accepted: what the pace is learned from. No clock: times come in
 * as arguments.
 */

/**
 * Of times long ago none is needed one by one: some attempts are remembered as one, but no more than this share of
 * those sent after them. So a stretch is known to a thousandth of itself, however long it is, and the last two
 * thousand attempts are known exactly.
 */
const grain = 1 / 1024;
/** Not gone through for that before there are so many. */
const fewest = 4096;
/** So many attempts may have arrived on the other side of a stretch's end than they were sent. */
const slack = 0.5;

/** Between which two rates, per ms, the limit must lie. */
export interface RateBounds {
  readonly least: number;
  readonly most: number;
}

export interface AcceptedHistory {
  add(sentMs: number): void;
  /** Accepted attempts sent after `sinceMs` and not after `untilMs`. */
  between(sinceMs: number, untilMs: number): number;
  /**
   * What the refusal of an attempt sent at `untilMs` says of the rate. Over any stretch that ends there, all but
   * what a full bucket gives at first came from the rate: none allows less. Over the stretch that began when the
   * bucket was full last, nothing was left over but the part of a token; which one that is, is not known.
   *
   * @param burst what a full bucket holds
   * @param sinceMs no stretch begins earlier
   * @param shortestMs no stretch is shorter: a late timer would say too much
   */
  boundsOfRate(burst: number, sinceMs: number, untilMs: number, shortestMs: number): RateBounds;
}

export function rememberAccepted(): AcceptedHistory {
  /** In order of sending; `counts[i]` were sent after `times[i - 1]` and up to `times[i]`. */
  let times: number[] = [];
  let counts: number[] = [];
  let thinOutAt = fewest;

  const thinOut = (): void => {
    /** From the last to the first, as long as they are made. */
    const thinTimes: number[] = [];
    const thinCounts: number[] = [];
    /** Sent after those of the last step made. */
    let later = 0;
    for (let i = times.length - 1; i >= 0; i--) {
      const made = thinCounts.at(-1) ?? 0;
      const together = made + (counts[i] as number);
      if (together <= later * grain) thinCounts[thinCounts.length - 1] = together;
      else {
        thinTimes.push(times[i] as number);
        thinCounts.push(counts[i] as number);
        later += made;
      }
    }
    times = thinTimes.reverse();
    counts = thinCounts.reverse();
    thinOutAt = Math.max(2 * times.length, fewest);
  };

  return {
    add(sentMs) {
      if (times.length >= thinOutAt) thinOut();
      // Answers overtake each other, by little.
      let place = times.length;
      while (place > 0 && (times[place - 1] as number) > sentMs) place--;
      if (place === times.length) {
        times.push(sentMs);
        counts.push(1);
      } else {
        times.splice(place, 0, sentMs);
        counts.splice(place, 0, 1);
      }
    },

    between(sinceMs, untilMs) {
      let count = 0;
      for (let i = times.length - 1; i >= 0 && (times[i] as number) > sinceMs; i--) {
        if ((times[i] as number) <= untilMs) count += counts[i] as number;
      }
      return count;
    },

    boundsOfRate(burst, sinceMs, untilMs, shortestMs) {
      /** Sent after `times[i]`. */
      let later = 0;
      const bounds = { least: 0, most: 0 };
      for (let i = times.length - 1; i >= 0 && (times[i] as number) >= sinceMs; i--) {
        const spanMs = untilMs - (times[i] as number);
        if (spanMs >= shortestMs) {
          const count = later + 1;
          bounds.least = Math.max(bounds.least, (count - burst - slack) / spanMs);
          bounds.most = Math.max(bounds.most, (count - burst + 1 + slack) / spanMs);
        }
        if (spanMs >= 0) later += counts[i] as number;
      }
      return bounds;
    },
  };
}
