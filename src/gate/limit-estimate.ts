/**
 * What 429s and counts tell of the upstream's limit: a token bucket of an unknown rate R and burst B. Pure.
 *
 * Between two 429s nothing was sent for C ms (closed), then requests went up for T ms, of which n were accepted. The
 * bucket was empty at both ends, so
 *
 *     n = min(B, R * C) + R * T   (one more or less)      and      R = max((n - B) / T, n / (C + T))
 *
 * T may begin at any mark of the stretch: of the n sent since then at most B were the burst, and exactly B where the
 * bucket was full at that mark for the last time. A wrong mark only underestimates, so the greatest is the rate.
 */
import { tuning } from './tuning.ts';

/** How many attempts had been sent at a moment. */
export interface Mark {
  readonly atMs: number;
  readonly sent: number;
}

export interface LimitEstimate {
  /** Attempts per ms; 0 while no limit is known. */
  readonly perMs: number;
  /** False while the rate is a guess. */
  readonly isMeasured: boolean;
  /** What was accepted in the burst before the first 429, and how long that took. */
  readonly crowd: number;
  readonly crowdMs: number;
}

/** What was sent between two 429s. */
export interface Stretch {
  /** The bucket was empty: the 429 before. */
  readonly emptyMs: number;
  /** In order of time; the first is the reopening. */
  readonly marks: readonly [Mark, ...Mark[]];
  /** When the last attempt was sent that was answered with 429. */
  readonly endMs: number;
  /** All attempts up to then, since the start, but those answered with 429 in this cooldown. */
  readonly accepted: number;
}

/** Burst of the bucket: the first burst, less what came in at the rate while it went on. */
export function burstOf({ crowd, crowdMs }: LimitEstimate, perMs: number): number {
  return Math.max(1, crowd - perMs * crowdMs);
}

/** After the first 429: all that was accepted lately is taken for the burst; the rate is a guess. */
export function firstGuess({ marks: [first], endMs, accepted }: Stretch): LimitEstimate {
  const crowd = Math.max(accepted - first.sent, 1);
  const perMs = Math.max(tuning.guessPerSecond, crowd) / 1000;
  return { perMs, isMeasured: false, crowd, crowdMs: Math.max(endMs - first.atMs, 0) };
}

/** After each later 429 that our own sending explains. */
export function measure(before: LimitEstimate, stretch: Stretch): LimitEstimate {
  const { perMs, isMeasured } = before;
  const rate = (error: number): number => rateOf(stretch, burstOf(before, perMs), error);
  const [least, middle, most] = [rate(-1), rate(0), rate(1)];
  // The trial request was throttled: not one token has come since.
  if (stretch.accepted <= stretch.marks[0].sent) {
    return { ...before, perMs: Math.min(perMs, Math.max(perMs / 2, most)) };
  }
  if (isMeasured && perMs >= least && perMs <= most) return before;
  // The stretch was too short to tell rate from burst.
  if (most > tuning.usefulRange * least) {
    return { ...before, perMs: Math.min(Math.max(perMs / 2, least), most), isMeasured: false };
  }
  return { ...before, perMs: middle, isMeasured: true };
}

/** @param error -1 and 1 for the bounds: one accepted less or more, and a bucket known less closely */
function rateOf({ emptyMs, marks, endMs, accepted }: Stretch, burst: number, error: number): number {
  const sinceEmpty = (accepted - marks[0].sent + error) / Math.max(endMs - emptyMs, 1);
  const beyondBurst = error * (1 + tuning.burstError * burst) - burst;
  const rates = marks.map(({ atMs, sent }) => (accepted - sent + beyondBurst) / Math.max(endMs - atMs, 1));
  return Math.max(sinceEmpty, ...rates, 1e-6);
}
