/** The pace: a mirror of the upstream's token bucket, and probes above the known rate. Pure: times come in. */
import { burstOf, type LimitEstimate, type Mark } from './limit-estimate.ts';
import { tuning } from './tuning.ts';

export interface Pacer {
  /** Turns in the mirror bucket at a moment. */
  readonly level: number;
  readonly levelMs: number;
  /** The pace rises above the rate since then; 0 while it does not. */
  readonly riseMs: number;
  /** No probe before, and the interval that led to it. */
  readonly probeMs: number;
  readonly probeIntervalMs: number;
  /** The history of the stretch; the first mark is the reopening. */
  readonly marks: readonly Mark[];
}

type Paced = Pacer & LimitEstimate;

/** Beyond so many the oldest marks are dropped, but for the first. */
const mostMarks = 64;

/** Turns per ms. While requests wait, a guess grows by itself and a known rate is probed now and then. */
function paceOf({ perMs, confirmations, riseMs }: Paced, nowMs: number): number {
  const { guessDoublingMs, probeExcess, probeDoublingMs } = tuning;
  if (riseMs === 0) return perMs;
  if (confirmations === 0) return perMs * 2 ** ((nowMs - riseMs) / guessDoublingMs);
  return perMs * (1 + probeExcess * 2 ** ((nowMs - riseMs) / probeDoublingMs));
}

/** The mirror uses a part of the burst: the rest is the margin for errors. */
function capacityOf(limit: LimitEstimate): number {
  return Math.max(1, burstOf(limit, limit.perMs) * tuning.usedBurst);
}

/** The level now if the mirror had no capacity. */
function uncapped(record: Paced, nowMs: number): number {
  return record.level + Math.max(nowMs - record.levelMs, 0) * paceOf(record, nowMs);
}

function levelAt(record: Paced, nowMs: number): number {
  return Math.min(uncapped(record, nowMs), capacityOf(record));
}

/** When the next turn is due; not later than `nowMs` where one is due now. */
export function dueMs(record: Paced, nowMs: number): number {
  const level = levelAt(record, nowMs);
  return level >= 1 - 1e-9 ? nowMs : nowMs + (1 - level) / paceOf(record, nowMs);
}

/** Whether the mirror is more than half full: a 429 for an attempt that is sent now would be provoked by others. */
export function hasSpare(record: Paced, nowMs: number): boolean {
  return uncapped(record, nowMs) >= 1 + capacityOf(record) / 2;
}

/** One turn is taken. */
export function taken<R extends Paced>(record: R, nowMs: number): R {
  return { ...record, level: levelAt(record, nowMs) - 1, levelMs: nowMs };
}

/** Requests wait: lets the pace rise where a probe is due, and marks how many had been sent as it does. */
export function risen<R extends Paced>(record: R, sent: number, nowMs: number): R {
  const { riseMs, probeMs, confirmations, marks } = record;
  if (riseMs === 0 && confirmations > 0 && nowMs < probeMs) return record;
  const markedMs = Math.max(marks.at(-1)?.atMs ?? 0, riseMs);
  if (riseMs > 0 && paceOf(record, nowMs) < tuning.markGrowth * paceOf(record, markedMs)) return record;
  const kept = marks.length <= mostMarks ? marks : [...marks.slice(0, 1), ...marks.slice(2)];
  const next = { ...record, marks: [...kept, { atMs: nowMs, sent }] };
  return riseMs > 0 ? next : { ...next, level: levelAt(record, nowMs), levelMs: nowMs, riseMs: nowMs };
}

/** No request waits: the pace is enough. A guess that has grown is kept, and a rate that was exceeded is a guess. */
export function settledDown<R extends Paced>(record: R, sent: number, nowMs: number): R {
  const { perMs, confirmations, riseMs, marks } = record;
  if (riseMs === 0) return record;
  const start = marks.find(({ atMs }) => atMs >= riseMs) ?? { atMs: nowMs, sent };
  const provenPerMs = (sent - start.sent - 1 - burstOf(record, perMs)) / Math.max(nowMs - start.atMs, 1);
  const isGuess = confirmations === 0 || provenPerMs > perMs * (1 + tuning.sameRate);
  const level = { level: levelAt(record, nowMs), levelMs: nowMs, riseMs: 0 };
  return isGuess
    ? { ...record, ...level, perMs: paceOf(record, nowMs), confirmations: 0 }
    : { ...record, ...level };
}

/** When to probe next: later with each confirmation, and the later the more a 429 costs. */
export function withNextProbe<R extends Paced>(
  record: R,
  isSameRate: boolean,
  costMs: number,
  nowMs: number,
): R {
  const { probeIntervalMs: firstMs, probeBackoff, probeCosts, longestProbeIntervalMs } = tuning;
  const leastMs = Math.max(firstMs, probeCosts * costMs);
  const grownMs = Math.min(record.probeIntervalMs * probeBackoff, longestProbeIntervalMs);
  const probeIntervalMs = isSameRate ? Math.max(grownMs, leastMs) : leastMs;
  return { ...record, probeIntervalMs, probeMs: nowMs + probeIntervalMs, riseMs: 0 };
}
