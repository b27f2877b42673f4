/**
 * Who is turned away at the gate, and when it makes sense for them to come again. Pure: no I/O, no clock, times come
 * in.
 */
import { promiseReturns } from './comeback-policy.ts';
import type { Refusal, Ticket } from './turnstile.ts';
import type { TwoLines } from './two-lines.ts';

/** What there is to go by. */
export interface Outlook {
  /** The earliest that anything goes up. */
  readonly opensMs: number;
  /** What the upstream itself has asked for. */
  readonly statedUntilMs: number;
  /** Turns per ms to be counted on, for what is promised: more than 0. Undefined while there is no telling. */
  readonly perMs: number | undefined;
  /** There may be as many times more: nobody is turned away who might be served. */
  readonly doubt: number;
}

export interface Refusals<T extends Ticket> {
  /** Why a ticket's turn would come too late, if it joined now. */
  tooLate(ticket: T, outlook: Outlook, nowMs: number): Refusal | undefined;
  /** Takes out of the line all whose turn can no longer come in time. */
  sweep(outlook: Outlook, nowMs: number): { ticket: T; refusal: Refusal }[];
  /** The gate stays closed for longer than can be waited. */
  closed(outlook: Outlook, nowMs: number): Refusal;
  /** Its deadline has come: from when on one like it, come anew, would be served in time. */
  expired(ticket: T, outlook: Outlook, nowMs: number): Refusal;
  /** Too many wait already. */
  overloaded(outlook: Outlook): Refusal;
}

/** Who waits already is sent away only when its turn comes later than it can wait by this factor. */
const closeCall = 1.1;
/** Nobody is told to come back sooner. */
const leastMs = 1000;
/** After this share of the time that the line takes there is room in it again; but for a minute at most. */
const drainShare = 0.1;
const longestDrainMs = 60_000;

/** @param most so many callers' promises are remembered */
export function turnAway<T extends Ticket>(lines: TwoLines<T>, most: number): Refusals<T> {
  const returns = promiseReturns(most);

  const closed = ({ opensMs, statedUntilMs }: Outlook, nowMs: number): Refusal =>
    refusal('upstream-rate-limited', Math.max(opensMs, statedUntilMs) - nowMs);

  /** Comes too late by `lateMs`: by then the line will have got so short that its patience suffices. */
  const late = (
    { turn: { name } }: T,
    lateMs: number,
    { perMs, statedUntilMs }: Outlook,
    nowMs: number,
  ): Refusal => {
    const ownTurnMs = lines.callersWith(name) / (perMs as number);
    const againMs = returns.promise(name, nowMs + lateMs, ownTurnMs, nowMs);
    return refusal('upstream-rate-limited', Math.max(againMs, statedUntilMs) - nowMs);
  };

  return {
    closed,

    tooLate(ticket, outlook, nowMs) {
      const { opensMs, perMs, doubt } = outlook;
      const { deadlineMs } = ticket;
      if (opensMs >= deadlineMs) return closed(outlook, nowMs);
      if (perMs === undefined || opensMs + lines.size / perMs <= deadlineMs) return undefined;
      const ahead = lines.ahead(ticket);
      // The next in turn is never late: however low the rate was taken for, its own attempt will tell.
      if (ahead === 0) return undefined;
      const untilTurnMs = ahead / perMs;
      if (opensMs + untilTurnMs / doubt <= deadlineMs) return undefined;
      return late(ticket, opensMs + untilTurnMs - deadlineMs, outlook, nowMs);
    },

    expired(ticket, outlook, nowMs) {
      const { opensMs, perMs } = outlook;
      if (perMs === undefined) return closed(outlook, nowMs);
      const { turn, deadlineMs, arrivedMs } = ticket;
      const untilTurnMs = opensMs - nowMs + lines.ahead({ turn, arrivedMs: nowMs }) / perMs;
      const lateMs = untilTurnMs - (deadlineMs - arrivedMs);
      return lateMs > 0 ? late(ticket, lateMs, outlook, nowMs) : closed(outlook, nowMs);
    },

    sweep(outlook, nowMs) {
      const { opensMs, perMs, doubt } = outlook;
      const gone: { ticket: T; refusal: Refusal }[] = [];
      let before = 0;
      for (const ticket of lines.inOrder()) {
        const { deadlineMs } = ticket;
        const untilTurnMs = perMs === undefined ? 0 : before / perMs;
        const patienceMs = deadlineMs - opensMs;
        let why: Refusal | undefined;
        if (deadlineMs <= opensMs) why = closed(outlook, nowMs);
        else if (untilTurnMs / doubt > closeCall * patienceMs) {
          why = late(ticket, untilTurnMs - patienceMs, outlook, nowMs);
        } else before++;
        if (why === undefined) continue;
        lines.remove(ticket);
        gone.push({ ticket, refusal: why });
      }
      return gone;
    },

    overloaded({ perMs }) {
      const drainMs = perMs === undefined ? 0 : (lines.size / perMs) * drainShare;
      return refusal('overloaded', Math.min(drainMs, longestDrainMs));
    },
  };
}

/** @throws RangeError for a time that is none: who is told one never comes back */
function refusal(code: Refusal['code'], afterMs: number): Refusal {
  if (!Number.isFinite(afterMs)) throw new RangeError(`a refusal's wait cannot be ${afterMs}`);
  return { code, retryAfterMs: Math.max(afterMs, leastMs) };
}
