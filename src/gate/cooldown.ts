/** How long a 429 closes the gate. Pure: a record of numbers in and out, times come in. */
import { tuning } from './tuning.ts';
import type { CooldownOptions } from './types.ts';

export interface Cooldown {
  /** Nothing goes up before. Moves only forward. */
  readonly closedUntilMs: number;
  /** What the upstream itself has asked for, however long; 0 once it has accepted an attempt again. */
  readonly statedUntilMs: number;
  /** The wait that the last 429 stated, ms: what it costs. */
  readonly costMs: number;
  /** How long the last 429 without a stated wait closed the gate, ms. */
  readonly unstatedMs: number;
}

/**
 * The gate closes until the stated time; where none is stated, briefly once a rate is known, and twice as long after
 * each refused trial request. The jitter only adds.
 *
 * @param perMs known rate; 0 where there is none
 * @param jitter 0 to 1
 */
export function cooledDown<R extends Cooldown>(
  record: R,
  refused: { readonly waitMs: number | undefined; readonly perMs: number; readonly isTrial: boolean },
  options: CooldownOptions,
  jitter: number,
  nowMs: number,
): R {
  const { waitMs, perMs, isTrial } = refused;
  const isStated = waitMs !== undefined && waitMs > 0;
  const briefMs = perMs > 0 ? Math.min(tuning.briefClosedMs, options.baseMs) : options.baseMs;
  const unstatedMs = Math.min(isTrial ? Math.max(record.unstatedMs * 2, briefMs) : briefMs, options.capMs);
  const wantedMs = isStated ? waitMs : unstatedMs;
  const closedMs = Math.min(wantedMs, options.maxClosedMs);
  return {
    ...record,
    unstatedMs,
    costMs: isStated ? closedMs : 0,
    statedUntilMs: isStated ? Math.max(record.statedUntilMs, nowMs + waitMs) : record.statedUntilMs,
    closedUntilMs: Math.max(record.closedUntilMs, nowMs + closedMs * (1 + jitter * tuning.jitter)),
  };
}
