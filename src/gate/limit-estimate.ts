/**
 * What 429s and counts tell of the upstream's limit: a token bucket of an unknown rate R and burst B. Pure.
 *
 * Between two 429s nothing was sent for C ms (closed), then requests went up for T ms, of which n were accepted. The
 * bucket was empty at both ends, so
 *
 *     n = min(B, R * C) + R * T   (one more or less)      and      R = max((n - B) / T, n / (C + T))
 *
 * T may begin at any moment of the stretch: of the n sent since then at most B were the burst, and exactly B where the
 * bucket was full for the last time at that moment. So the greatest over all marks of the stretch is the rate.
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
  /** Measurements that told this rate; 0 while it is a guess. */
  readonly confirmations: number;
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
  /** When the last attempt was sent that was answered with 429, and all attempts so far but those. */
  readonly endMs: number;
  readonly accepted: number;
}

const leastPerMs = 1e-6;

/** Burst of the bucket: the first burst, less what came in at the rate while it went on. */
export function burstOf({ crowd, crowdMs }: LimitEstimate, perMs: number): number {
  return Math.max(1, crowd - perMs * crowdMs);
}

/** After the first 429: the burst is what was accepted beyond a steady rate; the rate is a guess. */
export function firstGuess({ marks, endMs, accepted }: Stretch): LimitEstimate {
  const { guessPerSecond, historyMs } = tuning;
  const lengthMs = endMs - marks[0].atMs;
  const steady = lengthMs < historyMs / 2 ? 0 : (accepted - marks[0].sent) / lengthMs;
  const perMs = Math.max(guessPerSecond / 1000, steady);
  let [crowd, crowdMs] = [1, 0];
  for (const { atMs, sent } of marks) {
    const ms = Math.max(endMs - atMs, 0);
    if (accepted - sent - perMs * ms > crowd - perMs * crowdMs) [crowd, crowdMs] = [accepted - sent, ms];
  }
  return { perMs: Math.max(perMs, crowd / 1000), confirmations: 0, crowd, crowdMs };
}

/** After each later 429 that our own sending explains. */
export function measured(before: LimitEstimate, stretch: Stretch): LimitEstimate {
  const { perMs, confirmations } = before;
  const [least, middle, most] = rateBounds(before, stretch);
  const told = (rate: number, confirmed: number): LimitEstimate => {
    return { ...before, perMs: Math.max(rate, leastPerMs), confirmations: confirmed };
  };
  // The trial request was refused: not one token has come since.
  if (stretch.accepted <= stretch.marks[0].sent) {
    return told(Math.min(perMs, Math.max(perMs / 2, most)), confirmations);
  }
  if (confirmations > 0 && perMs >= least && perMs <= most) return told(perMs, confirmations + 1);
  // The stretch was too short to tell rate from burst.
  if (most > tuning.usefulRange * least) return told(Math.min(Math.max(perMs / 2, least), most), 0);
  return told(confirmations > 0 ? Math.max(middle, perMs / 2) : middle, 1);
}

/** The rate that a stretch tells, between its bounds. */
export function rateBounds(before: LimitEstimate, stretch: Stretch): [number, number, number] {
  const boundWith = (error: number): number => {
    let { perMs } = before;
    // The faster the rate, the smaller the burst was, and so again.
    for (let round = 0; round < 8; round++) perMs = rateOf(stretch, burstOf(before, perMs), error);
    return perMs;
  };
  return [boundWith(-1), boundWith(0), boundWith(1)];
}

function rateOf({ emptyMs, marks, endMs, accepted }: Stretch, burst: number, error: number): number {
  const sinceEmpty = (accepted - marks[0].sent + error) / Math.max(endMs - emptyMs, 1);
  const beyondBurst = error * (1 + tuning.burstError * burst) - burst;
  const sinceMarks = marks.map(
    ({ atMs, sent }) => (accepted - sent + beyondBurst) / Math.max(endMs - atMs, 1),
  );
  return Math.max(sinceEmpty, ...sinceMarks, 0);
}
