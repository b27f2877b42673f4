/**
 * Turns beyond the known limit, to find out whether it has moved: few at first, then exponentially more, until one
 * is refused. No clock: times come in as arguments.
 */
import { doublingMsOf, firstExcessOf, type Known, pauseMsOf } from './probing-policy.ts';

/** As many turns per ms at most are caught up on after a late timer. */
const mostPerMs = 1000;
/** So many doublings at most. */
const mostDoublings = 40;

export interface RiskyStream {
  readonly isOn: boolean;
  /** How long it has been on, ms. */
  readonly onMs: number;
  /** When it was turned on last. */
  readonly startedMs: number;
  /** Spends one turn if at least so many are due. */
  take(leastDue: number): boolean;
  /** Forgets what is due: it has been spent otherwise. */
  drop(): void;
  /** Adds what has become due since, while somebody waits for it; returns how much that was. */
  advance(elapsedMs: number, nowMs: number, isWaitedFor: boolean, known: Known, catchUpMs: number): number;
  /** When so many turns will be due. */
  dueAtMs(turns: number, nowMs: number, known: Known): number;
  /** Turns per ms now. */
  rate(nowMs: number, known: Known): number;
  /** Ends it, until its pause after `resumedMs` is over. */
  restart(resumedMs: number): void;
}

export function riskMore(): RiskyStream {
  let due = 0;
  let onMs = 0;
  let startedMs = 0;
  let resumedMs = 0;

  const probeAtMs = (known: Known): number => resumedMs + pauseMsOf(known);
  /** Turns that come in the time of a doubling; the scale of the integral. */
  const scale = (known: Known): number =>
    (known.perMs * firstExcessOf(known) * doublingMsOf(known)) / Math.LN2;

  return {
    get isOn() {
      return onMs > 0;
    },
    get onMs() {
      return onMs;
    },
    get startedMs() {
      return startedMs;
    },
    take(leastDue) {
      if (due < leastDue) return false;
      due -= 1;
      return true;
    },
    drop() {
      due = 0;
    },

    advance(elapsedMs, nowMs, isWaitedFor, known, catchUpMs) {
      const addedMs = isWaitedFor ? Math.min(elapsedMs, nowMs - probeAtMs(known)) : 0;
      if (addedMs <= 0) return 0;
      if (onMs === 0) startedMs = nowMs - addedMs;
      const doublingMs = doublingMsOf(known);
      const before = 2 ** (onMs / doublingMs);
      onMs = Math.min(onMs + addedMs, mostDoublings * doublingMs);
      const added = (2 ** (onMs / doublingMs) - before) * scale(known);
      due = Math.min(due + added, 4 + catchUpMs * Math.min(added / addedMs + known.perMs, mostPerMs));
      return added;
    },

    dueAtMs(turns, nowMs, known) {
      const doublingMs = doublingMsOf(known);
      const needed = 2 ** (onMs / doublingMs) + (turns - due) / scale(known);
      return Math.max(nowMs, probeAtMs(known)) + Math.log2(needed) * doublingMs - onMs;
    },

    rate(nowMs, known) {
      if (nowMs < probeAtMs(known)) return 0;
      return known.perMs * firstExcessOf(known) * 2 ** (onMs / doublingMsOf(known));
    },

    restart(atMs) {
      resumedMs = atMs;
      onMs = 0;
      due = 0;
    },
  };
}
