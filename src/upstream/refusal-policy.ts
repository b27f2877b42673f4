/**
 * Who is turned away at the gate, and when it makes sense for them to come again. Pure: no I/O, no clock, times come
 * in.
 */
import type { Turn } from '../claim.ts';
import { type Place, promiseReturns } from './comeback-policy.ts';
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
  /** Whether any have been told to come back and are expected within ten minutes. */
  isAnyExpected(nowMs: number): boolean;
  /** Too many wait already. */
  overloaded(outlook: Outlook, nowMs: number): Refusal;
}

/** Who waits already is sent away only when its turn comes later than it can wait by this factor. */
const closeCall = 1.1;
/** Nobody is told to come back sooner. */
const shortestMs = 1000;
/** However low the rate: a turn comes in so long. */
const longestTurnMs = 600_000;
/** After this share of the time that the line takes there is room in it again; but for a minute at most. */
const drainShare = 0.1;
const longestDrainMs = 60_000;

/** @param most so many callers' promises are remembered */
export function turnAway<T extends Ticket>(lines: TwoLines<T>, most: number): Refusals<T> {
  const returns = promiseReturns(most);

  const closed = ({ opensMs, statedUntilMs }: Outlook, nowMs: number): Refusal =>
    refusal('upstream-rate-limited', Math.max(opensMs, statedUntilMs) - nowMs);

  /** Where one of this caller stands that has so many before it, of its own and of all. */
  const placeOf = (turn: Turn, own: number, ahead: number, perMs: number, opensMs: number): Place => {
    const turnMs = Math.min(1 / perMs, longestTurnMs);
    return {
      name: turn.name,
      ahead: Math.max(ahead, lines.likelyAhead(turn, own)),
      turnMs,
      ownTurnMs: lines.turnsEach(turn) * turnMs,
      opensMs,
    };
  };

  /** Who has stood or would stand there comes too late: it is told when its patience will suffice. */
  const late = (ticket: T, place: Place, patienceMs: number, outlook: Outlook, nowMs: number): Refusal => {
    // A refresh in the background is nobody's to come back with.
    if (ticket.turn.background) return closed(outlook, nowMs);
    const { opensMs, statedUntilMs } = outlook;
    // Sooner than the gate opens there is only waiting; who can wait that long may wait here.
    const opensInTimeMs = opensMs < ticket.deadlineMs ? 0 : opensMs;
    const leastMs = Math.max(statedUntilMs, opensInTimeMs, nowMs + shortestMs);
    return refusal('upstream-rate-limited', returns.promise(place, patienceMs, leastMs, nowMs));
  };

  return {
    closed,
    isAnyExpected: (nowMs) => returns.isDueSoon(nowMs),

    tooLate(ticket, outlook, nowMs) {
      const { opensMs, perMs, doubt } = outlook;
      const { turn, deadlineMs } = ticket;
      const own = lines.ownAhead(ticket);
      // What was refused by the upstream and returns to its old place is no newcomer.
      const isLast = lines.goesLast(ticket);
      const isBack = isLast && returns.claim(turn.name, nowMs);
      if (perMs === undefined) return opensMs < deadlineMs ? undefined : closed(outlook, nowMs);
      const most = Math.max(lines.size + returns.count(nowMs), lines.likelyAhead(turn, own));
      if (opensMs + most / perMs <= deadlineMs) return undefined;
      const ahead = lines.ahead(ticket);
      // The next in turn is never late: however low the rate was taken for, its own attempt will tell.
      if (ahead === 0 && opensMs < deadlineMs) return undefined;
      const place = placeOf(turn, own, ahead, perMs, opensMs);
      const patienceMs = deadlineMs - nowMs;
      const turnAtMs = opensMs + (place.ahead * place.turnMs) / doubt;
      if (isBack && turnAtMs <= nowMs + closeCall * patienceMs) return undefined;
      const absent = isBack ? 0 : returns.absentBefore(turnAtMs, own + 1, (name) => lines.sizeOf(name) > 0);
      const isInTime = !isBack && turnAtMs + (absent * place.turnMs) / doubt <= deadlineMs;
      if (isInTime && !(isLast && returns.isKept(place))) return undefined;
      return late(ticket, { ...place, ahead: place.ahead + absent }, patienceMs, outlook, nowMs);
    },

    expired(ticket, outlook, nowMs) {
      const { opensMs, perMs } = outlook;
      if (perMs === undefined) return closed(outlook, nowMs);
      const { turn, deadlineMs, arrivedMs } = ticket;
      const anew = { turn, arrivedMs: nowMs };
      const place = placeOf(turn, lines.ownAhead(anew), lines.ahead(anew), perMs, opensMs);
      const patienceMs = deadlineMs - arrivedMs;
      const isInTime = opensMs + place.ahead * place.turnMs <= nowMs + patienceMs;
      if (isInTime && !returns.isKept(place)) return closed(outlook, nowMs);
      return late(ticket, place, patienceMs, outlook, nowMs);
    },

    sweep(outlook, nowMs) {
      const { opensMs, perMs, doubt } = outlook;
      const gone: { ticket: T; refusal: Refusal }[] = [];
      const stay = new Map<string, number>();
      let ahead = 0;
      for (const ticket of lines.inOrder()) {
        const { turn, deadlineMs, arrivedMs } = ticket;
        const own = stay.get(turn.name) ?? 0;
        const place = perMs === undefined ? undefined : placeOf(turn, own, ahead, perMs, opensMs);
        const untilTurnMs = place === undefined ? 0 : (place.ahead * place.turnMs) / doubt;
        if (opensMs < deadlineMs && untilTurnMs <= closeCall * (deadlineMs - opensMs)) {
          stay.set(turn.name, own + 1);
          ahead++;
          continue;
        }
        lines.remove(ticket);
        const patienceMs = deadlineMs - arrivedMs;
        const isKnown = place !== undefined;
        const refusal = isKnown ? late(ticket, place, patienceMs, outlook, nowMs) : closed(outlook, nowMs);
        gone.push({ ticket, refusal });
      }
      return gone;
    },

    overloaded({ perMs, opensMs, statedUntilMs }, nowMs) {
      const drainMs = perMs === undefined ? 0 : (lines.size / perMs) * drainShare;
      const closedMs = Math.max(opensMs, statedUntilMs) - nowMs;
      return refusal('overloaded', Math.max(Math.min(drainMs, longestDrainMs), closedMs));
    },
  };
}

/** @throws RangeError for a time that is none: who is told one never comes back */
function refusal(code: Refusal['code'], afterMs: number): Refusal {
  if (!Number.isFinite(afterMs)) throw new RangeError(`a refusal's wait cannot be ${afterMs}`);
  return { code, retryAfterMs: Math.max(afterMs, shortestMs) };
}
