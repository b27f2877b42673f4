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

/** When the turn of a request with so many ahead of it comes. */
function turnMs({ opensMs, perMs }: Outlook, ahead: number): number {
  return opensMs + (perMs > 0 ? ahead / perMs : 0);
}

/** Whether the turn comes too late. With nothing ahead it is late only where the gate opens too late. */
export function isLate(deadlineMs: number, ahead: number, outlook: Outlook, nowMs: number): boolean {
  if (outlook.opensMs >= deadlineMs) return true;
  return turnMs(outlook, ahead) - nowMs > tuning.patienceSlack * (deadlineMs - nowMs);
}

/** Told to come back when the queue is so short that a request with the same patience would be served. */
export function lateRejection(
  { deadlineMs, arrivedMs }: Queued,
  ahead: number,
  outlook: Outlook,
  nowMs: number,
): Rejection {
  const patienceMs = deadlineMs - arrivedMs;
  const opensLateMs = outlook.opensMs - nowMs >= patienceMs ? outlook.opensMs : 0;
  return rejection(Math.max(turnMs(outlook, ahead) - patienceMs, opensLateMs, outlook.statedUntilMs) - nowMs);
}

/** The gate opens after the deadline. */
export function closedRejection({ opensMs, statedUntilMs }: Outlook, nowMs: number): Rejection {
  return rejection(Math.max(opensMs, statedUntilMs) - nowMs);
}

/** The queue is full: a tenth of it is served by then. */
export function overloadedRejection(waiting: number, outlook: Outlook, nowMs: number): Rejection {
  const { opensMs, statedUntilMs, perMs } = outlook;
  const drainMs = perMs > 0 ? Math.min(waiting / perMs / 10, 60_000) : 0;
  return rejection(Math.max(opensMs - nowMs, statedUntilMs - nowMs, drainMs), 'overloaded');
}

function rejection(afterMs: number, code: Rejection['code'] = 'upstream-rate-limited'): Rejection {
  return { code, retryAfterMs: Math.min(Math.max(afterMs, tuning.leastRetryAfterMs), 2 ** 31 - 1) };
}
