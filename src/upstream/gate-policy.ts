/**
 * When the next attempt may go up, and whose it is: close, reopen, learn, take turns. Pure: no `this`, no I/O,
 * no clock, no timer; the layer in `gate.ts` acts on what this decides, and the simulation in the tests does so
 * on a virtual clock.
 *
 *   open ──429──▶ closed ──time──▶ probing ──any answer but 429──▶ paced ──429──▶ closed
 *                    ▲────────────429────────┘                      └──quiet for a minute──▶ open
 */
import { promiseReturns } from './comeback-policy.ts';
import { queueFairly } from './fair-queue.ts';
import { learnPace } from './pace-policy.ts';
import type {
  Attempt,
  CallerQueue,
  GateState,
  Next,
  Refusal,
  Ticket,
  Turnstile,
  TurnstileOptions,
} from './turnstile.ts';
import { growWindow } from './window-policy.ts';

/** Reopening comes later by up to this share of the time closed, and by no more than a second. */
const jitterShare = 0.1;
const mostJitterMs = 1000;
/** After this long without a refusal and with nobody waiting, attempts are no longer paced. */
const quietMs = 60_000;
/** With a known rate, a refusal that says nothing closes the gate for this many turns. */
const briefTurns = 4;

export function decideTurns<T extends Ticket>(options: TurnstileOptions): Turnstile<T> {
  const people = queueFairly<T>();
  const background = queueFairly<T>();
  /** Under which name a ticket stands, and in which of the two lines: its turn may have changed since. */
  const places = new Map<T, { line: typeof people; name: string }>();
  const window = growWindow(options.initialWindow, options.maxInFlight);
  const pace = learnPace();
  let state: GateState = 'open';
  let inFlight = 0;
  let isProbeOut = false;
  /** Refused probes in a row. */
  let failedProbes = 0;
  let closedAtMs = Number.NEGATIVE_INFINITY;
  let reopensMs = 0;
  /** 0 to 1, drawn once for each closing. */
  let jitter = 0;
  let statedUntilMs = 0;
  let refusedMs = Number.NEGATIVE_INFINITY;
  /** When the last safe turn was taken, and whether by a caller that asks for less than its share. */
  let lastSafeMs = Number.NaN;
  let wasLight = false;
  let attempts = 0;
  let refusals = 0;
  const returns = promiseReturns(options.maxWaiting);

  const waiting = (): number => people.size + background.size;

  const lineUp = (ticket: T): void => {
    const line = ticket.turn.background ? background : people;
    line.add(ticket);
    places.set(ticket, { line, name: ticket.turn.name });
  };

  const leave = (ticket: T): boolean => {
    const place = places.get(ticket);
    if (place === undefined) return false;
    places.delete(ticket);
    return place.line.remove(ticket, place.name);
  };

  const pick = (isRisky: boolean): T | undefined => {
    const line = people.size > 0 ? people : background;
    const ticket = isRisky ? line.takeFromHeaviest() : line.take();
    if (ticket !== undefined) places.delete(ticket);
    return ticket;
  };

  const go = (ticket: T, nowMs: number, as: Attempt<T>['state']): Next<T> => {
    inFlight++;
    attempts++;
    return { kind: 'go', attempt: { ticket, sentMs: nowMs, state: as } };
  };

  const wait = (untilMs?: number): Next<T> => {
    return { kind: 'wait', untilMs };
  };

  /** The wait for those turned away: the upstream's own word, where it has given one. */
  const closedRefusal = (nowMs: number): Refusal => {
    const untilMs = Math.max(statedUntilMs, state === 'closed' ? reopensMs : 0);
    return { code: 'upstream-rate-limited', retryAfterMs: Math.max(untilMs - nowMs, 1000) };
  };

  const closedUntil = (nowMs: number): number => (state === 'closed' ? Math.max(reopensMs, nowMs) : nowMs);

  /**
   * Whether a ticket's turn comes too late, and if so when to come again: when the line will have got so short
   * that its patience suffices.
   */
  const tooLate = (ticket: T, nowMs: number): Refusal | undefined => {
    const opensMs = closedUntil(nowMs);
    if (opensMs >= ticket.deadlineMs) return closedRefusal(nowMs);
    const rate = pace.limited ? pace.reliableRate : undefined;
    if (rate === undefined) return undefined;
    const { turn } = ticket;
    const ahead = turn.background ? people.size + background.ahead(ticket) : people.ahead(ticket);
    const turnMs = opensMs + ahead / rate;
    return turnMs <= ticket.deadlineMs ? undefined : promise(ticket, turnMs - ticket.deadlineMs, rate, nowMs);
  };

  /** Turns away who comes too late by `lateMs`. */
  const promise = ({ turn: { name } }: T, lateMs: number, rate: number, nowMs: number): Refusal => {
    const ownTurnMs = callersWaiting(name) / rate;
    const againMs = returns.promise(name, nowMs + lateMs, ownTurnMs, nowMs);
    return {
      code: 'upstream-rate-limited',
      retryAfterMs: Math.max(againMs, statedUntilMs, nowMs + 1000) - nowMs,
    };
  };

  /** Takes out of the line all whose turn can no longer come in time. */
  const sweep = (nowMs: number): { ticket: T; refusal: Refusal }[] => {
    const late: { ticket: T; refusal: Refusal }[] = [];
    const rate = pace.reliableRate;
    let before = 0;
    for (const line of [people, background]) {
      for (const ticket of line.inOrder()) {
        if (ticket.deadlineMs <= reopensMs) {
          leave(ticket);
          late.push({ ticket, refusal: closedRefusal(nowMs) });
          continue;
        }
        const turnMs = rate === undefined ? reopensMs : reopensMs + before / rate;
        // Not on a close call: who waits already may as well go on.
        if (turnMs - nowMs > 1.1 * (ticket.deadlineMs - nowMs) && rate !== undefined) {
          leave(ticket);
          late.push({ ticket, refusal: promise(ticket, turnMs - ticket.deadlineMs, rate, nowMs) });
        } else before++;
      }
    }
    return late;
  };

  /** Among how many callers, this one included, the turns go round now. */
  const callersWaiting = (name: string): number => {
    let count = people.sizeOf(name) > 0 ? 0 : 1;
    for (const _ of people.lines()) count++;
    return count;
  };

  const overloaded = (): Refusal => {
    const rate = pace.reliableRate;
    const drainMs = rate === undefined ? 1000 : (waiting() / rate) * 0.1;
    return { code: 'overloaded', retryAfterMs: Math.min(Math.max(drainMs, 1000), 60_000) };
  };

  const close = (waitMs: number | undefined, attempt: Attempt<T>, nowMs: number): void => {
    const isProbe = attempt.state === 'probe';
    let closedMs: number;
    if (waitMs !== undefined && waitMs > 0) {
      closedMs = Math.min(waitMs, options.maxClosedMs);
      statedUntilMs = Math.max(statedUntilMs, nowMs + waitMs);
      failedProbes = isProbe ? failedProbes + 1 : 0;
    } else {
      // Sent before the gate closed last: what it tells is known already.
      if (state === 'closed' || attempt.sentMs < closedAtMs) return;
      failedProbes = isProbe ? failedProbes + 1 : 0;
      const perMs = (pace.perSecond ?? 0) / 1000;
      const isKnown = pace.limited && !pace.searching && perMs > 0;
      const brief = isKnown ? Math.min(briefTurns / perMs, options.baseMs) : options.baseMs;
      closedMs = Math.min(brief * 2 ** failedProbes, options.capMs, options.maxClosedMs);
    }
    if (state !== 'closed') jitter = options.random();
    // Forward only, and jitter only later: never earlier than asked.
    const jitterMs = jitter * Math.min(closedMs * jitterShare, mostJitterMs);
    reopensMs = Math.max(reopensMs, nowMs + closedMs + jitterMs);
    if (state !== 'closed') closedAtMs = nowMs;
    state = 'closed';
  };

  return {
    get state() {
      return state;
    },

    enter(ticket, nowMs) {
      const refusal = tooLate(ticket, nowMs);
      if (refusal !== undefined) return { refusal };
      const { name } = ticket.turn;
      const own = people.sizeOf(name) + background.sizeOf(name);
      if (own >= options.maxWaitingPerCaller) return { refusal: overloaded() };
      if (waiting() < options.maxWaiting) {
        lineUp(ticket);
        return {};
      }
      // Full: who has most waiting makes room for who has less, and background work for people.
      const longest = background.size > 0 ? background.longest() : people.longest();
      const mayDisplace =
        longest !== undefined && (background.size > 0 ? !ticket.turn.background : longest.length > own + 1);
      if (!mayDisplace || longest === undefined) return { refusal: overloaded() };
      leave(longest.entry);
      lineUp(ticket);
      return { displaced: { ticket: longest.entry, refusal: overloaded() } };
    },

    leave,

    moved(ticket) {
      if (leave(ticket)) lineUp(ticket);
    },

    next(nowMs) {
      if (state === 'paced' && waiting() === 0 && nowMs - refusedMs > quietMs) {
        state = 'open';
        pace.letGo();
        window.reset();
      }
      if (waiting() === 0 || inFlight >= window.size) {
        if (state === 'paced') pace.waitedFor(false, nowMs);
        return wait();
      }
      if (state === 'closed') {
        if (nowMs < reopensMs) return wait(reopensMs);
        state = 'probing';
      }
      if (state === 'probing') {
        if (isProbeOut) return wait();
        isProbeOut = true;
        return go(pick(false) as T, nowMs, 'probe');
      }
      if (state === 'open') return go(pick(false) as T, nowMs, 'open');
      // A risky turn follows a safe one of the same moment: the safe one finds what the bucket holds, and the
      // next safe one a bucket that has filled meanwhile. So if one is refused, it is the risky one, and that
      // should be a heavy caller's. Where all are light, someone has to take it after a while.
      const isAfterSafe = lastSafeMs === nowMs;
      const riskAt = pace.searching ? 1 : !isAfterSafe ? Number.POSITIVE_INFINITY : wasLight ? 3 : 1;
      const isLight = people.nextIsLight();
      const stream = pace.take(nowMs, isLight, riskAt);
      if (stream === undefined) {
        pace.waitedFor(true, nowMs);
        return wait(pace.nextAtMs(nowMs, isLight));
      }
      if (stream === 'safe') {
        lastSafeMs = nowMs;
        wasLight = isLight;
      } else lastSafeMs = Number.NaN;
      return go(pick(stream === 'risky' && !pace.searching) as T, nowMs, 'paced');
    },

    settled(attempt, outcome, nowMs) {
      const wasFull = inFlight >= window.size;
      inFlight--;
      const isProbe = attempt.state === 'probe';
      if (isProbe) isProbeOut = false;
      if (outcome.kind === 'answered') {
        pace.accepted(attempt.sentMs, nowMs);
        if (outcome.isHealthy) window.succeeded(wasFull);
        if (isProbe && state === 'probing') {
          state = 'paced';
          failedProbes = 0;
          pace.resumed(nowMs);
        }
        return [];
      }
      if (outcome.kind === 'failed') return [];
      refusals++;
      refusedMs = nowMs;
      pace.refused(attempt.sentMs, nowMs, Math.min(outcome.waitMs ?? 0, options.maxClosedMs));
      close(outcome.waitMs, attempt, nowMs);
      const { turn } = attempt.ticket;
      (turn.background ? background : people).refund(turn.name);
      return sweep(nowMs);
    },

    expired: closedRefusal,

    clear() {
      const all = [...places.keys()];
      for (const ticket of all) leave(ticket);
      return all;
    },

    snapshot(nowMs) {
      const callers = new Map<string, CallerQueue>();
      for (const line of [people, background]) {
        for (const { name, length, oldestMs } of line.lines()) {
          const known = callers.get(name);
          callers.set(name, {
            name,
            length: length + (known?.length ?? 0),
            oldestWaitMs: Math.max(nowMs - oldestMs, known?.oldestWaitMs ?? 0),
          });
        }
      }
      return {
        state,
        perSecond: pace.limited ? pace.perSecond : undefined,
        window: window.size,
        inFlight,
        waiting: waiting(),
        callers: [...callers.values()],
        closedForMs: state === 'closed' ? Math.max(reopensMs - nowMs, 0) : 0,
        statedWaitMs: Math.max(statedUntilMs - nowMs, 0),
        attempts,
        refusals,
      };
    },
  };
}
