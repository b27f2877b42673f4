/** The pace: a mirror of the upstream's token bucket, exploring above the known rate, cooldowns. Pure: times come in. */
import { burstOf, type LimitEstimate, type Mark } from './limit-estimate.ts';
import { tuning } from './tuning.ts';
import type { SchedulerOptions } from './types.ts';

export interface Pace extends LimitEstimate {
  /** Tokens in the mirror bucket at a moment. */
  readonly level: number;
  readonly levelMs: number;
  /** The pace rises above the rate since then; 0 while it does not. */
  readonly riseMs: number;
  /** No exploring before, and the interval that led to it. */
  readonly exploreMs: number;
  readonly exploreIntervalMs: number;
  /** The history of the stretch; the first mark is the reopening, or in an open gate a moment of the last seconds. */
  readonly marks: readonly Mark[];
  /** Nothing goes up before. Moves only forward while anything is known of a limit. */
  readonly closedUntilMs: number;
  /** What the upstream itself has asked for, however long; 0 once it has accepted an attempt again. */
  readonly statedUntilMs: number;
  /** How long a 429 without a stated wait closed the gate last, ms, `maxClosedMs` aside. */
  readonly unstatedMs: number;
}

/** Turns per ms. While requests wait, a guess grows by itself and what lies above a known rate is explored now and then. */
function paceOf({ perMs, isMeasured, riseMs }: Pace, nowMs: number): number {
  if (riseMs === 0) return perMs;
  const risingMs = Math.min(nowMs - riseMs, tuning.longestRiseMs);
  if (!isMeasured) return perMs * 2 ** (risingMs / tuning.guessDoublingMs);
  return perMs * (1 + tuning.exploreExcess * 2 ** (risingMs / tuning.exploreDoublingMs));
}

/** The mirror uses a part of the burst: the rest is the margin for errors. */
function capacityOf(limit: LimitEstimate): number {
  return Math.max(1, burstOf(limit, limit.perMs) * tuning.usedBurst);
}

function levelAt(record: Pace, nowMs: number, capacity = capacityOf(record)): number {
  return Math.min(record.level + Math.max(nowMs - record.levelMs, 0) * paceOf(record, nowMs), capacity);
}

/** When the next turn is due; not later than `nowMs` where one is due now. */
export function dueMs(record: Pace, nowMs: number): number {
  const level = levelAt(record, nowMs);
  return level >= 1 - 1e-9 ? nowMs : nowMs + (1 - level) / paceOf(record, nowMs);
}

/** Whether half of the mirror is to spare: then our own pace does not explain a 429 that comes now. */
export function hasSpare(record: Pace, nowMs: number): boolean {
  return levelAt(record, nowMs, Number.POSITIVE_INFINITY) >= 1 + capacityOf(record) / 2;
}

/** One turn is taken. */
export function takeTurn<R extends Pace>(record: R, nowMs: number): R {
  return { ...record, level: levelAt(record, nowMs) - 1, levelMs: nowMs };
}

/** Requests wait: lets the pace rise where exploring is due, and marks how many had been sent as it does. */
export function rise<R extends Pace>(record: R, sent: number, nowMs: number): R {
  const { riseMs, exploreMs, isMeasured } = record;
  if (riseMs === 0 && isMeasured && nowMs < exploreMs) return record;
  const [reopening, ...later] = record.marks as [Mark, ...Mark[]];
  const markedMs = later.at(-1)?.atMs ?? 0;
  if (riseMs > 0 && paceOf(record, nowMs) < tuning.markGrowth * paceOf(record, markedMs)) return record;
  // Older ones are dropped, but for the first.
  const marks = [reopening, ...later.slice(-64), { atMs: nowMs, sent }];
  if (riseMs > 0) return { ...record, marks };
  return { ...record, marks, level: levelAt(record, nowMs), levelMs: nowMs, riseMs: nowMs };
}

/** No request waits: the pace is enough. A guess that has grown is kept; exploring ends without a result. */
export function settleDown<R extends Pace>(record: R, nowMs: number): R {
  if (record.riseMs === 0) return record;
  const perMs = record.isMeasured ? record.perMs : paceOf(record, nowMs);
  return { ...record, perMs, level: levelAt(record, nowMs), levelMs: nowMs, riseMs: 0 };
}

/** When to explore next after a cooldown: later each time the same rate is found, and the longer the cooldown was. */
export function exploreLater<R extends Pace>(record: R, isSameRate: boolean, closedUntilMs: number): R {
  const { exploreIntervalMs: firstMs, exploreBackoff, exploreCosts, longestExploreIntervalMs } = tuning;
  const grownMs = isSameRate
    ? Math.min(record.exploreIntervalMs * exploreBackoff, longestExploreIntervalMs)
    : 0;
  const exploreIntervalMs = Math.max(firstMs, grownMs, exploreCosts * (closedUntilMs - record.levelMs));
  return { ...record, exploreIntervalMs, exploreMs: closedUntilMs + exploreIntervalMs, riseMs: 0 };
}

/**
 * The gate closes until the stated time; where none is stated, briefly once a rate is known, and twice as long after
 * each trial request that is answered with 429; `maxClosedMs` at most. The jitter only adds. `statedMs` is 0 where no
 * wait is stated.
 */
export function coolDown<R extends Pace>(
  record: R,
  statedMs: number,
  isTrial: boolean,
  { baseMs, capMs, maxClosedMs, random }: SchedulerOptions,
  nowMs: number,
): R {
  const briefMs = record.perMs > 0 ? Math.min(tuning.briefClosedMs, baseMs) : baseMs;
  const unstatedMs = Math.min(isTrial ? Math.max(record.unstatedMs * 2, briefMs) : briefMs, capMs);
  const closedMs = Math.min(statedMs || unstatedMs, maxClosedMs) * (1 + random() * tuning.jitter);
  const statedUntilMs = Math.max(record.statedUntilMs, statedMs && nowMs + statedMs);
  const closedUntilMs = Math.max(record.closedUntilMs, nowMs + closedMs);
  return { ...record, unstatedMs, statedUntilMs, closedUntilMs };
}
