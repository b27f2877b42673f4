/**
 * What 429s and counts tell of the upstream's limit: a token bucket of an unknown rate R and burst B. Pure.
 *
 * Between two 429s nothing was sent for C ms (closed), then requests went up for T ms, of which n were accepted. The
 * bucket was empty at both ends, so
 *
 *     n = min(B, R * C) + R * T   (one more or less)      and      R = max((n - B) / T, n / (C + T))
 *
 * T may begin at any moment of the stretch: n - B tokens at most came from the rate since then, and exactly as many if
 * the bucket was full for the last time at that moment. So the greatest over all marks of the stretch is the rate.
 */
import { tuning } from './tuning.ts';

/** How many attempts had been sent at a moment. */
export interface Mark {
  readonly atMs: number;
  readonly sent: number;
}

/** What is known of the limit. */
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
  readonly marks: readonly Mark[];
  /** The 429 that ends the stretch was for an attempt sent then; the count leaves out what was answered with 429. */
  readonly endMs: number;
  readonly accepted: number;
  /** The pace was above the known rate: a probe, or a guess that grows. */
  readonly isRising: boolean;
}

const leastPerMs = 1e-6;

/** Burst of the bucket: the first burst, less what came in at the rate while it went on. */
export function burstOf({ crowd, crowdMs }: LimitEstimate, perMs: number): number {
  return Math.max(1, crowd - perMs * crowdMs);
}

/** After the first 429: the burst is what was accepted beyond a steady rate; the rate is a guess. */
export function firstGuess(stretch: Stretch): LimitEstimate {
  const { marks, endMs, accepted } = stretch;
  const slowest = tuning.guessPerSecond / 1000;
  const [first] = marks;
  const lengthMs = first === undefined ? 0 : endMs - first.atMs;
  const steady = lengthMs < tuning.historyMs / 2 ? 0 : (accepted - (first?.sent ?? 0)) / lengthMs;
  const perMs = Math.max(slowest, steady);
  let crowd = { sent: 1, ms: 0 };
  for (const { atMs, sent } of marks) {
    const ms = Math.max(endMs - atMs, 0);
    if (accepted - sent - perMs * ms > crowd.sent - perMs * crowd.ms) crowd = { sent: accepted - sent, ms };
  }
  return {
    perMs: Math.max(perMs, crowd.sent / 1000),
    confirmations: 0,
    crowd: crowd.sent,
    crowdMs: crowd.ms,
  };
}

/** After each later 429 that was provoked by what was sent. */
export function measured(before: LimitEstimate, stretch: Stretch): LimitEstimate {
  const { perMs, confirmations } = before;
  const [least, middle, most] = rateBounds(before, stretch);
  const told = (rate: number, confirmed: number): LimitEstimate => {
    return { ...before, perMs: Math.max(rate, leastPerMs), confirmations: confirmed };
  };
  if (stretch.accepted <= (stretch.marks[0]?.sent ?? 0)) {
    // The trial request was refused: not even one token has come since.
    return told(Math.min(perMs, Math.max(perMs / 2, most)), confirmations);
  }
  const isUseful = most <= tuning.usefulRange * least;
  if (perMs >= least && perMs <= most && confirmations > 0) return told(perMs, confirmations + 1);
  if (!isUseful) return told(Math.min(Math.max(perMs / 2, least), most), 0);
  if (confirmations === 0) return told(middle, 1);
  const lowered = Math.max(Math.min(middle, perMs), perMs / 2);
  return told(stretch.isRising && middle > perMs ? middle : lowered, 1);
}

/** The rate that a stretch tells, with its bounds. */
export function rateBounds(before: LimitEstimate, stretch: Stretch): [number, number, number] {
  return [-1, 0, 1].map((error) => {
    let perMs = before.perMs;
    // The faster the rate, the smaller the burst was, and so again.
    for (let round = 0; round < 8; round++) perMs = rateOf(stretch, burstOf(before, perMs), error);
    return perMs;
  }) as [number, number, number];
}

function rateOf({ emptyMs, marks, endMs, accepted }: Stretch, burst: number, error: number): number {
  const sinceEmpty = accepted - (marks[0]?.sent ?? accepted) + error;
  let perMs = sinceEmpty / Math.max(endMs - emptyMs, 1);
  const beyondBurst = error * (1 + tuning.burstError * burst) - burst;
  for (const { atMs, sent } of marks) {
    perMs = Math.max(perMs, (accepted - sent + beyondBurst) / Math.max(endMs - atMs, 1));
  }
  return Math.max(perMs, 0);
}
