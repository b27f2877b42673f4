/**
 * The pace: a mirror of the upstream's token bucket, and probes above the known rate. Pure: records of numbers in and
 * out, times come in.
 */
import { burstOf, type LimitEstimate, type Mark } from './limit-estimate.ts';
import { tuning } from './tuning.ts';

export interface Pacer {
  /** Turns in the mirror bucket at a moment. */
  readonly level: number;
  readonly levelMs: number;
  /** The pace rises above the rate since then; 0 while it does not. */
  readonly riseMs: number;
  /** No probe before, and how long the interval is. */
  readonly probeMs: number;
  readonly probeIntervalMs: number;
  /** The history of the stretch. */
  readonly marks: readonly Mark[];
}

type Paced = Pacer & LimitEstimate;

const mostMarks = 64;

export const idlePacer: Pacer = {
  level: 0,
  levelMs: 0,
  riseMs: 0,
  probeMs: 0,
  probeIntervalMs: tuning.probeIntervalMs,
  marks: [],
};

/** Turns per ms. While requests wait, a guess grows by itself and a known rate is probed now and then. */
export function paceOf({ perMs, confirmations, riseMs }: Paced, nowMs: number): number {
  if (riseMs === 0) return perMs;
  const { guessDoublingMs, probeExcess, probeDoublingMs } = tuning;
  if (confirmations === 0) return perMs * 2 ** ((nowMs - riseMs) / guessDoublingMs);
  return perMs * (1 + probeExcess * 2 ** ((nowMs - riseMs) / probeDoublingMs));
}

/** The mirror uses a part of the burst only: the rest is the margin for errors. */
export function capacityOf(limit: LimitEstimate): number {
  return Math.max(1, burstOf(limit, limit.perMs) * tuning.usedBurst);
}

/** What the mirror would hold without its capacity. */
function uncapped<R extends Paced>(record: R, nowMs: number): number {
  return record.level + Math.max(nowMs - record.levelMs, 0) * paceOf(record, nowMs);
}

/** The mirror up to date: before its pace changes. */
export function filled<R extends Paced>(record: R, nowMs: number): R {
  return { ...record, level: Math.min(uncapped(record, nowMs), capacityOf(record)), levelMs: nowMs };
}

/** When the next turn is due; not later than `nowMs` where one is due now. */
export function dueMs(record: Paced, nowMs: number): number {
  const level = Math.min(uncapped(record, nowMs), capacityOf(record));
  return level >= 1 - 1e-9 ? nowMs : nowMs + (1 - level) / paceOf(record, nowMs);
}

/** Whether more turns are at hand than half of what the mirror holds. */
export function hasSpare(record: Paced, nowMs: number): boolean {
  return uncapped(record, nowMs) >= 1 + capacityOf(record) / 2;
}

/** One turn is taken. */
export function taken<R extends Paced>(record: R, nowMs: number): R {
  const now = filled(record, nowMs);
  return { ...now, level: now.level - 1 };
}

/** Lets the pace rise where a probe is due, and remembers how many had been sent as it does. */
export function risen<R extends Paced>(record: R, sent: number, nowMs: number): R {
  const { riseMs, probeMs, confirmations, marks } = record;
  if (riseMs === 0) {
    if (confirmations > 0 && nowMs < probeMs) return record;
    return { ...filled(record, nowMs), riseMs: nowMs, marks: marked(marks, sent, nowMs) };
  }
  const last = marks.at(-1)?.atMs ?? 0;
  if (paceOf(record, nowMs) < tuning.markGrowth * paceOf(record, Math.max(last, riseMs))) return record;
  return { ...record, marks: marked(marks, sent, nowMs) };
}

/** No request waits: the pace is enough. A guess that has grown is kept, and a rate that was exceeded is a guess. */
export function settledDown<R extends Paced>(record: R, sent: number, nowMs: number): R {
  if (record.riseMs === 0) return record;
  const now = filled(record, nowMs);
  const start = now.marks.find(({ atMs }) => atMs >= record.riseMs) ?? { atMs: nowMs, sent };
  const proven = (sent - start.sent - 1 - burstOf(now, now.perMs)) / Math.max(nowMs - start.atMs, 1);
  const isExceeded = proven > now.perMs * (1 + tuning.sameRate);
  if (now.confirmations > 0 && !isExceeded) return { ...now, riseMs: 0 };
  return { ...now, perMs: paceOf(now, nowMs), confirmations: 0, riseMs: 0 };
}

/** The first mark of a stretch stays: it is the reopening. */
export function marked(marks: readonly Mark[], sent: number, atMs: number): readonly Mark[] {
  const [first, ...others] = marks;
  const mark = { atMs, sent };
  return first === undefined ? [mark] : [first, ...others.slice(-mostMarks), mark];
}

/** When to probe next: later with each confirmation, and the later the more a 429 costs. */
export function withNextProbe<R extends Paced>(
  record: R,
  isSameRate: boolean,
  costMs: number,
  nowMs: number,
): R {
  const leastMs = Math.max(tuning.probeIntervalMs, tuning.probeCosts * costMs);
  const grownMs = Math.min(record.probeIntervalMs * tuning.probeBackoff, tuning.longestProbeIntervalMs);
  const probeIntervalMs = isSameRate ? Math.max(grownMs, leastMs) : leastMs;
  return { ...record, probeIntervalMs, probeMs: nowMs + probeIntervalMs, riseMs: 0 };
}
