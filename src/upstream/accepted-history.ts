/**
 * When the attempts were sent that the upstream has accepted lately: what the pace is learned from.
 * No clock: times come in as arguments.
 */

/** More than that are not remembered: enough for seconds at any limit that is paced at. */
const most = 4096;
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
  /** In order of sending. */
  let times: number[] = [];

  return {
    add(sentMs) {
      if (times.length >= 2 * most) times = times.slice(-most);
      // Answers overtake each other, by little.
      let place = times.length;
      while (place > 0 && (times[place - 1] as number) > sentMs) place--;
      if (place === times.length) times.push(sentMs);
      else times.splice(place, 0, sentMs);
    },

    between(sinceMs, untilMs) {
      let count = 0;
      for (let i = times.length - 1; i >= 0 && (times[i] as number) > sinceMs; i--) {
        if ((times[i] as number) <= untilMs) count++;
      }
      return count;
    },

    boundsOfRate(burst, sinceMs, untilMs, shortestMs) {
      let count = 0;
      const bounds = { least: 0, most: 0 };
      for (let i = times.length - 1; i >= 0 && (times[i] as number) >= sinceMs; i--) {
        const spanMs = untilMs - (times[i] as number);
        if (spanMs >= 0) count++;
        if (spanMs < shortestMs) continue;
        bounds.least = Math.max(bounds.least, (count - burst - slack) / spanMs);
        bounds.most = Math.max(bounds.most, (count - burst + 1 + slack) / spanMs);
      }
      return bounds;
    },
  };
}
