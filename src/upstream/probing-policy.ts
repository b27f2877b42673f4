/**
 * How often the limit is probed for, and how boldly: what a refusal costs against what it is good for. Pure: no
 * `this`, no I/O, no clock.
 */

import type { Certainty } from './limit-estimate.ts';

/** What is known of the limit, and how well. */
export interface Known {
  /** The learned rate, turns per ms. */
  readonly perMs: number;
  readonly certainty: Certainty;
  /** How many accepted attempts, beyond a burst, the last measurement rests on. */
  readonly sample: number;
  /** The limit has come down lately. */
  readonly hasFallen: boolean;
  /** For how long the last refusal asked everybody to wait, ms; 0 where it did not say. */
  readonly costMs: number;
  /** Attempts refused in the last episode. */
  readonly refusedAtOnce: number;
  /** From sending to answer, ms. */
  readonly roundTripMs: number;
}

/** What the risky stream starts with, as a share of the learned rate. */
const firstExcess = 0.1;
/** The same for a minute after the limit has come down: what has come down tends to go up again. */
const firstExcessAfterFall = 0.3;
/** The same while the rate is a mere guess. */
const firstExcessOfGuess = 2;
/** The risky stream doubles in this time, or slower where turns or answers are. */
const doublingMs = 400;
const doublingOfGuessMs = 200;
/**
 * While it is a guess, slower where a refusal costs more, up to this: the slower the limit is passed, the longer
 * the burst lasts and the better it is measured, so that no further refusal is needed to know it.
 */
const longestDoublingOfGuessMs = 1000;
/**
 * The pause between two probes of the limit is at least this, as long as so many turns take for each attempt that the
 * last one cost, which bounds the waste, and so many times what it cost everybody: probing then takes a sixtieth of
 * the time, and a limit that has gone up is found a minute later where a refusal costs a second.
 */
const steady = { ms: 3500, turns: 80, costs: 60 };
/** The same for a minute after the limit has come down. */
const afterFall = { ms: 1500, turns: 30, costs: 4 };
export const afterFallMs = 60_000;
/** A rate read from fewer accepted attempts than this is not so good: it is probed sooner, by the square. */
const trustedSample = 50;
/** But each confirmation makes it better known, if by few attempts each, up to half of the full trust. */
const confirmed = { each: 1 / 20, most: 0.5 };
/** However slow the limit and however much a refusal costs, one that has gone up is found within this. */
const longestPauseMs = 900_000;

/** From the reopening of the gate to the next probe of the limit, ms. A guess is probed at once. */
export function pauseMsOf({ perMs, certainty, sample, hasFallen, costMs, refusedAtOnce }: Known): number {
  if (certainty.kind === 'guess') return 0;
  const { ms, turns, costs } = hasFallen ? afterFall : steady;
  const told = Math.min(sample / trustedSample, 1) ** 2;
  const trust = hasFallen
    ? 1
    : Math.max(told, Math.min(certainty.confirmations * confirmed.each, confirmed.most));
  const attempts = hasFallen ? 1 : refusedAtOnce;
  return trust * Math.min(Math.max(ms, (turns * attempts) / perMs, costs * costMs), longestPauseMs);
}

/** What the risky stream starts with, as a share of the rate. */
export function firstExcessOf({ certainty, hasFallen }: Known): number {
  if (certainty.kind === 'guess') return firstExcessOfGuess;
  return hasFallen ? firstExcessAfterFall : firstExcess;
}

/** The time in which the risky stream doubles, ms: never so fast that answers or turns come too late to tell. */
export function doublingMsOf({ perMs, certainty, costMs, roundTripMs }: Known): number {
  const wanted =
    certainty.kind === 'guess'
      ? Math.min(Math.max(costMs, doublingOfGuessMs), longestDoublingOfGuessMs)
      : doublingMs;
  return Math.max(wanted, 4 * roundTripMs, 2 / perMs);
}
