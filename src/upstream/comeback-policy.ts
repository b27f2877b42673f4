/**
 * When somebody who is turned away for want of a turn should come back, and what of the line is kept for it until
 * then. No clock: times come in.
 *
 * Everybody of one caller is told a time of its own, a turn apart: told the same time, all would come back for the
 * same place, and what they were told would be true for one. And who comes unexpected meanwhile gets no place that
 * one of them was told of: a loop that is answered and asks again at once would always be there first.
 */

/** Where somebody would stand, and how fast its own line goes. */
export interface Place {
  readonly name: string;
  /** How many go before it. */
  readonly ahead: number;
  /** From one turn of this caller to the next, and from one turn of anybody to the next, ms. */
  readonly ownTurnMs: number;
  readonly turnMs: number;
  /** The earliest that anything goes up. */
  readonly opensMs: number;
}

export interface Returns {
  /** How many are expected. */
  count(nowMs: number): number;
  /** Whether any is expected within ten minutes: what the upstream once asked for may be longer. */
  isDueSoon(nowMs: number): boolean;
  /** One of this caller has come: if one was told to come by now, this is it. */
  claim(name: string, nowMs: number): boolean;
  /**
   * How many are expected before `untilMs` whose callers have nothing waiting now, and will go before one that is to
   * take the `turn`th turn of its own: as turns go round, no more of each of them than that.
   */
  absentBefore(untilMs: number, turn: number, isWaiting: (name: string) => boolean): number;
  /** Whether one more at this place would take a turn that one of its own caller was told of. */
  isKept(place: Place): boolean;
  /**
   * @param patienceMs for how long it can wait once it is back
   * @param leastMs the earliest time that makes sense
   * @returns in how many ms to come back
   */
  promise(place: Place, patienceMs: number, leastMs: number, nowMs: number): number;
}

interface Promised {
  readonly name: string;
  readonly atMs: number;
  /** When its turn has to come. */
  readonly byMs: number;
  /** After this it is not expected any more. */
  readonly lapsesMs: number;
}

/** Nobody is told to come back later than this because of those who go before it; what the upstream asks for counts. */
const longestMs = 600_000;
/** `Retry-After` is told in whole seconds: until then another of its caller could take what is kept for it. */
const grainMs = 1000;
/** Who is later than that by more is not expected any more. */
const graceMs = 2000;
const graceShare = 1 / 8;
/** After so many times at which nobody came, one after the other, none of a caller is expected any more. */
const mostMissed = 3;
/** Told a bit later than the line has become short enough: it may have become so more slowly. */
const marginShare = 1 / 20;
/** And those after it a bit further apart than its caller's turns are; who comes unexpected fills what is left over. */
const spread = 1.1;

/** @param most so many are remembered; beyond that the caller with most of them may have some come back in vain */
export function promiseReturns(most: number): Returns {
  /** In order of `atMs`. */
  let promised: Promised[] = [];
  /** How many of them each caller has. */
  const counts = new Map<string, number>();
  /** At how many times nobody of a caller came, since one of it did. */
  const missed = new Map<string, number>();
  let firstLapseMs = Number.POSITIVE_INFINITY;

  const add = (one: Promised): void => {
    let place = promised.length;
    while (place > 0 && (promised[place - 1] as Promised).atMs > one.atMs) place--;
    promised.splice(place, 0, one);
    counts.set(one.name, (counts.get(one.name) ?? 0) + 1);
    firstLapseMs = Math.min(firstLapseMs, one.lapsesMs);
  };

  const discount = ({ name }: Promised): void => {
    const left = (counts.get(name) ?? 1) - 1;
    if (left > 0) counts.set(name, left);
    else {
      counts.delete(name);
      missed.delete(name);
    }
  };

  const forgetLapsed = (nowMs: number): void => {
    if (nowMs < firstLapseMs) return;
    // Many were told the same second: one of them may be late, and the others have come.
    const lapsed = new Set(promised.flatMap(({ name, lapsesMs }) => (lapsesMs <= nowMs ? name : [])));
    for (const name of lapsed) missed.set(name, (missed.get(name) ?? 0) + 1);
    const isExpected = ({ name, lapsesMs }: Promised): boolean =>
      lapsesMs > nowMs && (missed.get(name) ?? 0) < mostMissed;
    firstLapseMs = Number.POSITIVE_INFINITY;
    const before = promised;
    promised = before.filter(isExpected);
    for (const one of before) {
      if (!isExpected(one)) discount(one);
      else firstLapseMs = Math.min(firstLapseMs, one.lapsesMs);
    }
  };

  /** The caller that has most of them loses its last one. */
  const makeRoom = (): void => {
    let most = { name: '', count: 0 };
    for (const [name, count] of counts) if (count > most.count) most = { name, count };
    const last = promised.findLastIndex(({ name }) => name === most.name);
    promised.splice(last, 1).forEach(discount);
  };

  return {
    count(nowMs) {
      forgetLapsed(nowMs);
      return promised.length;
    },

    isDueSoon(nowMs) {
      forgetLapsed(nowMs);
      return promised[0] !== undefined && promised[0].atMs <= nowMs + longestMs;
    },

    claim(name, nowMs) {
      forgetLapsed(nowMs);
      if (!counts.has(name)) return false;
      for (let i = 0; i < promised.length; i++) {
        const one = promised[i] as Promised;
        if (one.atMs > nowMs) return false;
        if (one.name !== name) continue;
        promised.splice(i, 1);
        missed.delete(name);
        discount(one);
        return true;
      }
      return false;
    },

    absentBefore(untilMs, turn, isWaiting) {
      const counted = new Map<string, number>();
      let count = 0;
      for (const { name, atMs } of promised) {
        if (atMs >= untilMs) break;
        const before = counted.get(name) ?? 0;
        if (before >= turn || isWaiting(name)) continue;
        counted.set(name, before + 1);
        count++;
      }
      return count;
    },

    isKept({ name, ahead, ownTurnMs, turnMs, opensMs }) {
      if (!counts.has(name)) return false;
      let turnAtMs = opensMs + ahead * turnMs;
      for (const one of promised) {
        if (one.name !== name) continue;
        turnAtMs += ownTurnMs;
        if (turnAtMs > one.byMs) return true;
      }
      return false;
    },

    promise({ name, ahead, ownTurnMs, turnMs, opensMs }, patienceMs, leastMs, nowMs) {
      if (promised.length >= most) makeRoom();
      const before = counts.get(name) ?? 0;
      const turnAtMs = opensMs + ahead * turnMs + before * ownTurnMs * spread;
      const marginMs = Math.min(ownTurnMs, patienceMs * marginShare);
      const lineMs = Math.min(turnAtMs - patienceMs + marginMs - nowMs, longestMs);
      const againMs = Math.ceil(Math.max(lineMs, leastMs - nowMs) / grainMs) * grainMs;
      const atMs = nowMs + againMs;
      const lapsesMs = atMs + graceMs + againMs * graceShare;
      add({ name, atMs, byMs: atMs + patienceMs, lapsesMs });
      return againMs;
    },
  };
}
