/**
 * The pace at which attempts go up. Pure: no I/O, no clock, times come in.
 *
 * What the limit is, `limit-estimate.ts` learns from the upstream's refusals. Here its bucket is kept account of: a
 * turn is *safe* where the bucket should hold a token for it. Heavy callers leave some of it to light ones, and to
 * a rate estimated a bit too high: it lasts the longer, the smaller that error is. A bucket that has filled while
 * the gate was closed makes good for some of that time at once.
 *
 * Now and then, and only while somebody waits for it, *risky* turns go on top (`risky-stream.ts`). If the limit has
 * not moved, they spend what the bucket has saved and cost one refusal; if it has, they find the new rate within a
 * second or two. How often is a matter of `probing-policy.ts`.
 */
import { burstOf, estimateLimit } from './limit-estimate.ts';
import { afterFallMs, type Known, pauseMsOf } from './probing-policy.ts';
import { riskMore } from './risky-stream.ts';

/** A timer may be late by this much without costing any of the pace. */
const catchUpMs = 20;
/** What a light caller's turn leaves in the upstream's bucket: room for attempts that arrive unevenly. */
const leastReserve = 0.5;
/** What a heavy caller's leaves, as a share of the burst. */
const reserveShare = 0.5;
/** But no more than comes in so long: after a closing everybody waits for it. */
const mostReserveMs = 500;
/** What a light caller leaves as long as the limit is probed for, when the level is not known so well. */
const probingReserveShare = 0.3;
/** Where the bucket holds but one token there is no room: then the pace keeps off the limit by this share. */
const evenShare = 0.98;
/** There may be more turns than are counted on, but never more than so many times. */
const mostDoubt = 3;
/** A turn, but for the rounding of many small shares of one. */
const whole = 1 - 1e-6;

export type Stream = 'safe' | 'risky';

export interface Pace {
  /** A refusal has been seen: attempts are paced. */
  readonly limited: boolean;
  /** The learned rate per second, or undefined while nothing is known. */
  readonly perSecond: number | undefined;
  /** Turns per ms to be counted on, the cost of probing included; undefined while the rate is a guess. */
  readonly reliableRate: number | undefined;
  /** There may be as many times more, as little as the rate was read from. */
  readonly doubt: number;
  /** Attempts may be refused at any time: the rate is being searched for, and risk cannot be put on one caller. */
  readonly searching: boolean;
  /**
   * Spends one turn, if there is one.
   *
   * @param isLight the turn is one of a caller that asks for less than its share
   * @param riskAt take one of the risky stream when so many are due
   */
  take(nowMs: number, isLight: boolean, riskAt: number): Stream | undefined;
  /** When there will be a turn, if none is taken before. */
  nextAtMs(nowMs: number, isLight: boolean): number;
  /** Somebody waits for the pace and for nothing else, or nobody does any more. */
  waitedFor(isWaitedFor: boolean, nowMs: number): void;
  accepted(sentMs: number, nowMs: number): void;
  /** @param costMs for how long nothing goes up because of it */
  refused(sentMs: number, nowMs: number, costMs: number): void;
  /** A probe was accepted: the gate is open again. */
  resumed(nowMs: number): void;
  /** Nobody has been limited for a while. The last rate stays as the first guess of the next time. */
  letGo(nowMs: number): void;
}

/** @param leastGuessPerMs see `estimateLimit` */
export function learnPace(leastGuessPerMs: number): Pace {
  const estimate = estimateLimit(leastGuessPerMs);
  const risky = riskMore();
  let limited = false;
  /** What the upstream's bucket should hold. */
  let level = 0;
  /** Safe turns that are due while the risky stream is on: then the bucket's level is not known. */
  let due = 0;
  let acceptedSinceProbe = 0;
  /** Attempts refused in the last closing, and for how long nothing went up because of it. */
  let refusedAtOnce = 1;
  let costMs = 0;
  /** Smoothed time from sending to answer. */
  let roundTripMs = 0;
  let resumedMs = 0;
  let isWaitedFor = false;
  let lastMs = 0;
  /** What was accepted per ms lately, closings included. */
  let acceptedRate = 0;
  let burst = 1;
  let known: Known = knownNow();

  function knownNow(): Known {
    const { limit } = estimate;
    return {
      perMs: limit?.perMs ?? 0,
      certainty: limit?.certainty ?? { kind: 'guess' },
      sample: limit?.sample ?? 0,
      hasFallen: limit !== undefined && lastMs - limit.fallenMs < afterFallMs,
      costMs,
      refusedAtOnce,
      roundTripMs,
    };
  }

  const isGuess = (): boolean => known.certainty.kind === 'guess';
  /** The upstream takes no two at once: then what is risked goes between the safe turns, not right after one. */
  const isEven = (): boolean => limited && burst < 2;
  const isSearching = (): boolean =>
    isGuess() || acceptedSinceProbe > risky.onMs * known.perMs + 1.2 * burst + 2;

  /** What the bucket should hold for a turn. */
  const needed = (isLight: boolean): number => {
    if (isEven()) return whole;
    const full = Math.min(burst * reserveShare, burst - 1.5);
    // A rate that was read from nothing may be far too low, and is found by what the reserve leaves.
    const most = known.sample < 1 ? full : mostReserveMs * known.perMs;
    const heavy = Math.max(Math.min(full, most), leastReserve);
    return 1 + (isLight && !isGuess() ? leastReserve : heavy);
  };

  /** While the risky stream is on: a light caller need not wait for the turn that is due next, if much is left. */
  const mayGoEarly = (): boolean => due > 0 && level >= Math.max(needed(true), burst * probingReserveShare);

  const advance = (nowMs: number): void => {
    const elapsedMs = Math.max(0, nowMs - lastMs);
    lastMs = Math.max(lastMs, nowMs);
    if (estimate.limit === undefined) return;
    const perMs = known.perMs * (isEven() ? evenShare : 1);
    const excess = risky.advance(elapsedMs, nowMs, isWaitedFor, known, catchUpMs);
    level = Math.min(level + elapsedMs * perMs, burst);
    if (isEven()) {
      level = Math.min(level + excess, burst);
      risky.drop();
    }
    due = risky.isOn ? Math.min(due + elapsedMs * perMs, 1 + catchUpMs * perMs) : 0;
  };

  const relearn = (): void => {
    known = knownNow();
    acceptedRate = estimate.acceptedRate(lastMs);
    burst = estimate.limit === undefined ? 1 : burstOf(estimate.limit, known.perMs);
  };

  const reliableRate = (): number | undefined => {
    const { certainty } = known;
    if (certainty.kind === 'guess') return undefined;
    if (certainty.confirmations === 0) return known.perMs;
    // Between two probes of the limit the rate, then nothing for as long as the refusal costs, then the one turn
    // that shows the gate open: never 0, however short the pause.
    const pauseMs = pauseMsOf(known);
    const probed = (pauseMs * known.perMs + 1) / (pauseMs + costMs + 1 / known.perMs);
    return Math.min(Math.max(probed, acceptedRate), known.perMs);
  };

  return {
    get limited() {
      return limited;
    },
    get perSecond() {
      return estimate.limit === undefined ? undefined : known.perMs * 1000;
    },
    get reliableRate() {
      return reliableRate();
    },
    get doubt() {
      const most = (estimate.limit?.mostPerMs ?? Number.POSITIVE_INFINITY) / (reliableRate() ?? known.perMs);
      return Math.min(Math.max(most, 1), mostDoubt);
    },
    get searching() {
      return isSearching();
    },

    take(nowMs, isLight, riskAt) {
      advance(nowMs);
      const isSafe =
        risky.isOn && !isEven() ? due >= whole || (isLight && mayGoEarly()) : level >= needed(isLight);
      if (isSafe) {
        if (risky.isOn) due -= 1;
        level = Math.max(level - 1, 0);
        return 'safe';
      }
      if (risky.take(riskAt * whole)) {
        level = Math.max(level - 1, 0);
        return 'risky';
      }
      return undefined;
    },

    nextAtMs(nowMs, isLight) {
      if (estimate.limit === undefined) return nowMs;
      const { perMs } = known;
      if (isEven()) return nowMs + (1 - level) / (perMs * evenShare + risky.rate(nowMs, known));
      const safeAtMs = nowMs + (risky.isOn ? 1 - due : needed(isLight) - level) / perMs;
      // A known rate is probed right after safe turns, so there is nothing to wake up for in between, unless the
      // limit is far away.
      if (!isWaitedFor) return safeAtMs;
      return Math.min(safeAtMs, risky.dueAtMs(isSearching() ? 1 : 2, nowMs, known));
    },

    waitedFor(waited, nowMs) {
      advance(nowMs);
      isWaitedFor = waited;
    },

    accepted(sentMs, nowMs) {
      estimate.accepted(sentMs, nowMs);
      roundTripMs += (nowMs - sentMs - roundTripMs) / 8;
      if (risky.isOn && sentMs >= risky.startedMs) acceptedSinceProbe++;
    },

    refused(sentMs, nowMs, cost) {
      advance(nowMs);
      costMs = cost;
      if (!limited || sentMs >= resumedMs) refusedAtOnce = 1;
      else refusedAtOnce = Math.min(refusedAtOnce + 1, 10);
      limited = true;
      estimate.refused(sentMs, nowMs, risky.isOn);
      relearn();
      resumedMs = Number.POSITIVE_INFINITY;
      risky.restart(resumedMs);
      acceptedSinceProbe = 0;
      level = 0;
    },

    resumed(nowMs) {
      advance(nowMs);
      estimate.reopened(nowMs);
      relearn();
      resumedMs = nowMs;
      risky.restart(nowMs);
      acceptedSinceProbe = 0;
      // Filled since it was empty; the probe has taken one.
      const filled = (nowMs - estimate.emptyMs) * known.perMs;
      level = Math.max(Math.min(filled, burst) - 1, 0);
    },

    letGo(nowMs) {
      limited = false;
      // Nobody may have come since the gate closed: what is known then is all there will be.
      estimate.reopened(nowMs);
      estimate.forget();
      relearn();
      risky.restart(nowMs);
    },
  };
}
