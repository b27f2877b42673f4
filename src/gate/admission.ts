/** Whether a request's turn will come before its deadline, and if not, when to come back. Pure: times come in. */
import { tuning } from './tuning.ts';
import type { Queued, Rejection } from './types.ts';

/** What the scheduler expects. */
export interface Outlook {
  /** The earliest that anything goes up. */
  readonly opensMs: number;
  /** What the upstream itself has asked for. */
  readonly statedUntilMs: number;
  /** Turns per ms; 0 while the rate is unknown or a guess: then no turn is called late. */
  readonly perMs: number;
}

function turnMs({ opensMs, perMs }: Outlook, ahead: number): number {
  return opensMs + (perMs > 0 ? ahead / perMs : 0);
}

/** Undefined where the turn comes in time. With nothing ahead it is late only where the gate opens too late. */
export function lateRejection(
  { deadlineMs, arrivedMs }: Queued,
  ahead: number,
  outlook: Outlook,
  nowMs: number,
): Rejection | undefined {
  const isLate = turnMs(outlook, ahead) - nowMs > tuning.patienceSlack * (deadlineMs - nowMs);
  if (!isLate && outlook.opensMs < deadlineMs) return undefined;
  return comeBack(deadlineMs - arrivedMs, ahead, outlook, nowMs);
}

/** Told to come back when so few are ahead that a request with this patience would be served. */
export function comeBack(patienceMs: number, ahead: number, outlook: Outlook, nowMs: number): Rejection {
  const { opensMs, statedUntilMs } = outlook;
  const opensLateMs = opensMs - nowMs >= patienceMs ? opensMs : 0;
  return rejection(Math.max(turnMs(outlook, ahead) - patienceMs, opensLateMs, statedUntilMs) - nowMs);
}

/** The queue is full: a tenth of it is served by then. */
export function overloadedRejection(waiting: number, outlook: Outlook, nowMs: number): Rejection {
  const drainedMs = Math.min(turnMs(outlook, waiting / 10), outlook.opensMs + 60_000);
  return rejection(Math.max(drainedMs, outlook.statedUntilMs) - nowMs, 'overloaded');
}

function rejection(afterMs: number, code: Rejection['code'] = 'upstream-rate-limited'): Rejection {
  return { code, retryAfterMs: Math.max(afterMs, tuning.leastRetryAfterMs) };
}
