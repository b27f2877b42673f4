/**
 * When the next attempt may go up, and whose it is: close, reopen, learn, take turns. Pure: no `this`, no I/O,
 * no clock, no timer; the layer in `gate.ts` acts on what this decides, and the simulation in the tests does so
 * on a virtual clock.
 *
 *   open ──429──▶ closed ──time──▶ probing ──any answer but 429──▶ paced ──429──▶ closed
 *                    ▲────────────429────────┘ └──────quiet for a minute───┴──────▶ open
 */
import { reckonClosings } from './closing-policy.ts';
import { learnPace } from './pace-policy.ts';
import { type Outlook, turnAway } from './refusal-policy.ts';
import type { Attempt, GateState, Next, Refusal, Ticket, Turnstile, TurnstileOptions } from './turnstile.ts';
import { standInLine } from './two-lines.ts';
import { growWindow } from './window-policy.ts';

/** After so long without a refusal, not counting the time closed, and with nobody waiting or expected, it opens. */
const quietMs = 60_000;
/** So often it is looked for those who wait in vain, besides when something is learned. */
const sweepMs = 1000;
/** What was sent so long before an attempt that was refused has helped to empty the upstream's bucket. */
const crowdMs = 250;

export function decideTurns<T extends Ticket>(options: TurnstileOptions): Turnstile<T> {
  const lines = standInLine<T>();
  const refusals = turnAway(lines, options.maxWaiting);
  const closings = reckonClosings(options);
  const window = growWindow(options.initialWindow, options.maxInFlight);
  // The first window was meant for an upstream of which nothing is known; so is a second's worth of it.
  const pace = learnPace(options.initialWindow / 1000);
  let state: GateState = 'open';
  let inFlight = 0;
  let isProbeOut = false;
  let refusedMs = Number.NEGATIVE_INFINITY;
  /** When the last safe turn was taken, and whether by a caller that asks for less than its share. */
  let lastSafeMs = Number.NaN;
  let wasLight = false;
  /** When it was looked for those who wait in vain. */
  let sweptMs = 0;
  let attemptCount = 0;
  let refusalCount = 0;
  /** Who went up last without having to wait, as many as may be in flight; where the next one's place is. */
  const crowd: Attempt[] = [];
  let crowdPlace = 0;

  /** What time alone changes. Every question and every event begins with it, so that nothing waits to be asked. */
  const advance = (nowMs: number): void => {
    if (state === 'open') return;
    if (state === 'closed') {
      if (nowMs < closings.reopensMs) return;
      state = 'probing';
    }
    if (lines.size > 0 || isProbeOut) return;
    // While the gate is closed nothing could be refused, and what the upstream itself has asked for counts as its
    // last refusal would.
    const refusedLastMs = Math.max(refusedMs, closings.reopensMs, closings.statedUntilMs);
    if (nowMs - refusedLastMs <= quietMs) return;
    // Those who were told to come back would all run into the limit anew.
    if (refusals.isAnyExpected(nowMs)) return;
    state = 'open';
    pace.letGo(nowMs);
    window.reset();
  };

  const outlook = (nowMs: number): Outlook => {
    const perMs = pace.limited ? pace.reliableRate : undefined;
    return {
      opensMs: state === 'closed' ? Math.max(closings.reopensMs, nowMs) : nowMs,
      statedUntilMs: closings.statedUntilMs,
      // No word rather than a wrong one.
      perMs: perMs !== undefined && perMs > 0 ? perMs : undefined,
      doubt: pace.doubt,
    };
  };

  const isSweepDue = (nowMs: number): boolean =>
    state === 'paced' && lines.size > 0 && nowMs - sweptMs >= sweepMs;

  const sweep = (nowMs: number): { ticket: T; refusal: Refusal }[] => {
    sweptMs = nowMs;
    return refusals.sweep(outlook(nowMs), nowMs);
  };

  const go = (ticket: T, nowMs: number, as: Attempt['state']): Next<T> => {
    return { kind: 'go', ticket, attempt: started(ticket.turn, nowMs, as) };
  };

  const started = (turn: Ticket['turn'], nowMs: number, as: Attempt['state']): Attempt => {
    inFlight++;
    attemptCount++;
    return { turn, sentMs: nowMs, state: as };
  };

  /** From now on turns are counted, and those of the crowd that ran into the limit are the first of them. */
  const chargeCrowd = (untilMs: number): void => {
    for (const { turn, sentMs } of crowd) if (sentMs > untilMs - crowdMs) lines.charge(turn);
    crowd.length = 0;
    crowdPlace = 0;
  };

  const wait = (untilMs?: number): Next<T> => {
    return { kind: 'wait', untilMs };
  };

  const nextPaced = (nowMs: number): Next<T> => {
    // A risky turn follows a safe one of the same moment: the safe one finds what the bucket holds, and the
    // next safe one a bucket that has filled meanwhile. So if one is refused, it is the risky one, and that
    // should be a heavy caller's. Where all are light, someone has to take it after a while; and where risky turns
    // become due faster than safe ones, the limit is far away.
    const isAfterSafe = lastSafeMs === nowMs;
    const riskAt = pace.searching ? 1 : !isAfterSafe ? 2 : wasLight ? 3 : 1;
    const isLight = lines.nextIsLight();
    const stream = pace.take(nowMs, isLight, riskAt);
    if (stream === undefined) {
      pace.waitedFor(true, nowMs);
      return wait(pace.nextAtMs(nowMs, isLight));
    }
    lastSafeMs = stream === 'safe' ? nowMs : Number.NaN;
    wasLight = isLight;
    return go(lines.take(stream === 'risky' && !pace.searching) as T, nowMs, 'paced');
  };

  return {
    get state() {
      return state;
    },
    get waiting() {
      return lines.size;
    },

    admit(turn, nowMs) {
      advance(nowMs);
      if (state !== 'open' || lines.size > 0 || inFlight >= window.size) return undefined;
      const attempt = started(turn, nowMs, 'open');
      crowd[crowdPlace] = attempt;
      crowdPlace = (crowdPlace + 1) % options.maxInFlight;
      return attempt;
    },

    enter(ticket, nowMs) {
      advance(nowMs);
      const seen = outlook(nowMs);
      const refusal = refusals.tooLate(ticket, seen, nowMs);
      if (refusal !== undefined) return { refusal };
      if (lines.sizeOf(ticket.turn.name) >= options.maxWaitingPerCaller) {
        return { refusal: refusals.overloaded(seen, nowMs) };
      }
      if (lines.size < options.maxWaiting) {
        lines.add(ticket);
        return {};
      }
      // Full: who has most waiting makes room for who has less, and background work for people.
      const displaced = lines.displacedBy(ticket);
      if (displaced === undefined) return { refusal: refusals.overloaded(seen, nowMs) };
      lines.remove(displaced);
      lines.add(ticket);
      return { displaced: { ticket: displaced, refusal: refusals.overloaded(seen, nowMs) } };
    },

    leave: (ticket) => lines.remove(ticket),

    moved(ticket) {
      if (lines.remove(ticket)) lines.add(ticket);
    },

    next(nowMs) {
      advance(nowMs);
      if (lines.size === 0 || inFlight >= window.size) {
        if (state === 'paced') pace.waitedFor(false, nowMs);
        return wait();
      }
      if (state === 'closed') return wait(closings.reopensMs);
      if (state === 'paced') return nextPaced(nowMs);
      if (state === 'open') return go(lines.take(false) as T, nowMs, 'open');
      if (isProbeOut) return wait();
      isProbeOut = true;
      return go(lines.take(false) as T, nowMs, 'probe');
    },

    settled(attempt, outcome, nowMs) {
      advance(nowMs);
      const wasFull = inFlight >= window.size;
      const isProbe = attempt.state === 'probe';
      inFlight--;
      if (isProbe) isProbeOut = false;
      if (outcome.kind === 'failed') return [];
      if (outcome.kind === 'answered') {
        pace.accepted(attempt.sentMs, nowMs);
        if (outcome.isHealthy) window.succeeded(wasFull);
        if (!isProbe || state !== 'probing') return isSweepDue(nowMs) ? sweep(nowMs) : [];
        state = 'paced';
        closings.reopened();
        pace.resumed(nowMs);
        return sweep(nowMs);
      }
      const { waitMs } = outcome;
      refusalCount++;
      refusedMs = nowMs;
      if (state === 'open') chargeCrowd(attempt.sentMs);
      pace.refused(attempt.sentMs, nowMs, Math.min(waitMs ?? 0, options.maxClosedMs));
      const isKnown = !pace.searching && pace.perSecond !== undefined;
      const closes = closings.refused(
        {
          waitMs,
          sentMs: attempt.sentMs,
          isProbe,
          isClosed: state === 'closed',
          perMs: isKnown ? (pace.perSecond as number) / 1000 : undefined,
        },
        nowMs,
      );
      if (closes) state = 'closed';
      lines.refund(attempt.turn);
      return sweep(nowMs);
    },

    expired: (ticket, nowMs) => refusals.expired(ticket, outlook(nowMs), nowMs),
    closed: (nowMs) => refusals.closed(outlook(nowMs), nowMs),

    clear() {
      const all = lines.all();
      for (const ticket of all) lines.remove(ticket);
      return all;
    },

    snapshot(nowMs) {
      advance(nowMs);
      return {
        state,
        perSecond: pace.limited ? pace.perSecond : undefined,
        window: window.size,
        inFlight,
        waiting: lines.size,
        callers: lines.callers(nowMs),
        closedForMs: state === 'closed' ? Math.max(closings.reopensMs - nowMs, 0) : 0,
        statedWaitMs: Math.max(closings.statedUntilMs - nowMs, 0),
        attempts: attemptCount,
        refusals: refusalCount,
      };
    },
  };
}
