/**
 * When the attempts were sent that the upstream has accepted lately: what the pace is learned from.
 * No clock: times come in as arguments.
 */

/** More than that are not remembered: enough for seconds at any limit that is paced at. */
const most = 4096;
export interface AcceptedHistory {
  add(sentMs: number): void;
  /** Accepted attempts sent within the last `spanMs` before `untilMs`. */
  within(spanMs: number, untilMs: number): number;
  /**
   * The rate, per ms, that the upstream allows at least, as an attempt sent at `untilMs` was refused: over any
   * stretch that ends there and begins after `sinceMs`, all but what a full burst gives came from the rate itself.
   * What the bucket held when it refused, something below one, is taken for a half.
   *
   * @param shortestMs no stretch is shorter: a burst thought too small, or a late timer, would say too much
   */
  leastRate(burst: number, sinceMs: number, untilMs: number, shortestMs: number): number;
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

    within(spanMs, untilMs) {
      let count = 0;
      for (let i = times.length - 1; i >= 0 && (times[i] as number) >= untilMs - spanMs; i--) {
        if ((times[i] as number) <= untilMs) count++;
      }
      return count;
    },

    leastRate(burst, sinceMs, untilMs, shortestMs) {
      let count = 0;
      let best = 0;
      for (let i = times.length - 1; i >= 0 && (times[i] as number) >= sinceMs; i--) {
        const spanMs = untilMs - (times[i] as number);
        if (spanMs >= 0) count++;
        if (spanMs >= shortestMs) best = Math.max(best, (count - burst + 0.5) / spanMs);
      }
      return best;
    },
  };
}
