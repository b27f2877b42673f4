/** How long a 429 closes the gate. Pure but for the jitter: times come in. */
import type { LimitEstimate } from './limit-estimate.ts';
import { tuning } from './tuning.ts';
import type { SchedulerOptions } from './types.ts';

export interface Cooldown {
  /** Nothing goes up before. Moves only forward while anything is known of a limit. */
  readonly closedUntilMs: number;
  /** What the upstream itself has asked for, however long; 0 once it has accepted an attempt again. */
  readonly statedUntilMs: number;
  /** How long a 429 without a stated wait closed the gate last, ms, `maxClosedMs` aside. */
  readonly unstatedMs: number;
}

/**
 * The gate closes until the stated time; where none is stated, briefly once a rate is known, and twice as long after
 * each trial request that is answered with 429; `maxClosedMs` at most. The jitter only adds.
 *
 * @param statedMs 0 where no wait is stated
 */
export function cooledDown<R extends Cooldown & LimitEstimate>(
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
