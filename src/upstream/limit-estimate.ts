/**
 * What the upstream's limit is, as far as its refusals tell. No clock: times come in as arguments.
 *
 * The upstream is taken for a bucket that holds so many tokens at most (the burst) and gets `perMs` of them back. A
 * refusal says that it is empty now, so what was accepted since it was full, or empty, *is* the limit: a
 * measurement, where additive or cubic growth would only search. The first refusal tells the burst, the second the
 * rate, to one token over the time from passing the limit to being refused. Every later one bounds the rate more
 * closely the longer it was in coming, and what was known before is kept as far as it lies within the new bounds.
 */
import { type AcceptedHistory, type RateBounds, rememberAccepted } from './accepted-history.ts';
import { longestCrowdMs, watchCrowd } from './first-crowd.ts';

/** How far a rate can be trusted; `confirmations`: how often later measurements said the same. */
export type Certainty =
  | { readonly kind: 'guess' }
  | { readonly kind: 'measured'; readonly confirmations: number };

/** What is known of the limit. */
export interface Limit {
  readonly perMs: number;
  /** It is no more than this, if the upstream keeps account of it as thought. */
  readonly mostPerMs: number;
  readonly certainty: Certainty;
  /** How many accepted attempts, beyond a burst, the rate was read from. */
  readonly sample: number;
  /** How long the gate had been open, ms. */
  readonly spanMs: number;
  /** A full bucket gave so many in so many ms: a burst, and what the rate gave meanwhile. */
  readonly crowd: number;
  readonly crowdMs: number;
  /** How long is known by the clock, not reckoned from the answers of a first crowd. */
  readonly isTimed: boolean;
  /** When the limit came down last, and from which rate. */
  readonly fallenMs: number;
  readonly fallenFrom: number;
}

export interface LimitEstimate {
  /** Undefined before the first refusal. */
  readonly limit: Limit | undefined;
  /** When the refused attempt was sent that last showed the bucket empty. */
  readonly emptyMs: number;
  /** What was accepted per ms lately: the upstream can be counted on for so much, whatever else is known. */
  acceptedRate(nowMs: number): number;
  accepted(sentMs: number, nowMs: number): void;
  /** The first refusal since the gate was open last, or one more of those under way. */
  refused(sentMs: number, nowMs: number, isRisky: boolean): void;
  /** The gate is open again: all who were under way at the refusal have been answered. */
  reopened(nowMs: number): void;
  /** Meets the upstream anew, with what is known as a first guess. */
  forget(): void;
}

/** Within this a measurement confirms the rate. */
const tolerance = 0.12;
/** A rate is read from a stretch of at least this length. */
const stretchMs = 100;
/**
 * So many attempts that took so long to be too many were sent hardly faster than the rate gives new tokens: this share
 * of that is tried next.
 */
const large = { attempts: 200, ms: 200, nextShare: 0.6 };
/** In less, no rate gives a number of tokens worth counting. */
const longCrowdMs = 20;
/** From one unprovoked refusal to the next it should take longer by this factor: the error is smaller by as much. */
const spanGrowth = 2.5;
/** The lowest rate ever paced at, per ms: one turn in 20 s; and the highest. */
const leastRate = 1 / 20_000;
const highestRate = 1000;

/** What was accepted over so long a stretch, closings included, is what the upstream gives for sure. */
const lastingMs = 60_000;

/** The least part of a crowd that was the burst, however long it is thought to have been in coming. */
const leastBurstShare = { reckoned: 1 / 4, timed: 1 / 16 };
/**
 * How long a first crowd was in coming is known to such a part of it; where that is worth tokens, and another stretch
 * that began with a full bucket was not many times as long, that one tells the burst better.
 */
const coarse = { share: 0.1, tokens: 2, times: 10 };
/** So much of a token more may be an error of the times. */
const trifle = 0.1;

/** What a full bucket holds at a rate: a whole number, as buckets do. */
export function burstOf({ crowd, crowdMs, isTimed }: Limit, perMs: number): number {
  const least = crowd * (isTimed ? leastBurstShare.timed : leastBurstShare.reckoned);
  return Math.max(Math.ceil(crowd - perMs * crowdMs - trifle), least, 1);
}

/** A closing: when the attempt was sent whose refusal began it, and what went before. */
interface Closing {
  readonly sentMs: number;
  /** The gate was open since, and the bucket was empty last at this time. */
  readonly openedMs: number;
  readonly emptyMs: number;
  /** Turns beyond the known rate had been taken. */
  readonly isRisky: boolean;
  /** The upstream has just been met; `before` is then what was known at an earlier time. */
  readonly isFirst: boolean;
  readonly before: Limit | undefined;
}

/**
 * @param leastGuessPerMs no first guess is lower: one refusal of an upstream that has hardly been asked lately says
 *   next to nothing, and a guess that is too high is corrected by the next
 */
export function estimateLimit(leastGuessPerMs = 0): LimitEstimate {
  const history = rememberAccepted();
  let crowd = watchCrowd();
  let limit: Limit | undefined;
  let closing: Closing | undefined;
  /** Nothing has been refused yet. */
  let isNew = true;
  let emptyMs = Number.NEGATIVE_INFINITY;
  let openedMs = Number.NEGATIVE_INFINITY;

  const learn = (of: Closing): Limit => {
    if (of.before !== undefined && !of.isFirst) return measured(of.before, of, history);
    // Of a crowd sent at once any may be refused first: the last to be refused found the bucket empty as well.
    const size = Math.max(history.between(emptyMs - longestCrowdMs, emptyMs), 1);
    const isKnown = of.before?.certainty.kind === 'measured';
    return {
      perMs: isKnown ? (of.before?.perMs as number) : Math.max(size / longestCrowdMs, leastGuessPerMs),
      certainty: isKnown ? { kind: 'measured', confirmations: 0 } : { kind: 'guess' },
      mostPerMs: Number.POSITIVE_INFINITY,
      sample: 0,
      spanMs: 0,
      crowd: size,
      crowdMs: crowd.spanMs,
      isTimed: false,
      fallenMs: Number.NEGATIVE_INFINITY,
      fallenFrom: 0,
    };
  };

  return {
    get limit() {
      return limit;
    },
    get emptyMs() {
      return emptyMs;
    },

    acceptedRate: (nowMs) => history.between(nowMs - lastingMs, nowMs) / lastingMs,

    accepted(sentMs, nowMs) {
      history.add(sentMs);
      if (isNew || closing?.isFirst) crowd.accepted(sentMs, nowMs, sentMs <= emptyMs);
    },

    refused(sentMs, nowMs, isRisky) {
      const isFirst = isNew;
      const isNews = closing === undefined && (isFirst || sentMs >= openedMs);
      if (isNews) closing = { sentMs, openedMs, emptyMs, isRisky, isFirst, before: limit };
      if (closing?.isFirst) crowd.refused(sentMs, nowMs);
      emptyMs = Math.max(emptyMs, sentMs);
      isNew = false;
      if (isNews && closing !== undefined) limit = learn(closing);
    },

    reopened(nowMs) {
      // Told again, now that it is known who of those under way was accepted.
      if (closing !== undefined) limit = learn(closing);
      closing = undefined;
      openedMs = nowMs;
    },

    forget() {
      isNew = true;
      crowd = watchCrowd();
    },
  };
}

/**
 * The limit that the refusal which began a closing speaks for.
 *
 * Where `n` were accepted in the time `T` that ends with the refused attempt, and the bucket was full at its
 * beginning and held `b`, the rate lies between `(n - b - 1/2) / T` and `(n - b + 3/2) / T`: the bucket is empty now,
 * but for part of a token, and attempts may have arrived half a token's time sooner or later. Where the bucket was
 * empty at the beginning, it lies between `(n - 1) / T` and `(n + 1) / T`. What is told is the middle; a rate known
 * before is kept where it lies between.
 *
 * As at 50/s with a burst of 10: of a crowd ten are accepted and the next refused, so `b` = 10. After a second's
 * closing the bucket is full again. At 60/s the limit is passed by 10 a second: after 917 ms and 55 accepted
 * attempts one is refused. (55 - 10.5) / 0.917 = 48.5 and (55 - 8.5) / 0.917 = 50.7: 49.6/s, measured. Probed after
 * a minute it is told some sixty times as closely, as `T` is so much longer.
 */
function measured(before: Limit, of: Closing, history: AcceptedHistory): Limit {
  const { sentMs, openedMs, emptyMs, isRisky } = of;
  const { certainty } = before;
  const isGuess = certainty.kind === 'guess';
  const openMs = sentMs - openedMs;
  const accepted = history.between(emptyMs, sentMs);
  const burst = burstOf(before, before.perMs);

  // Before a turn's time is over, what came up short was the burst, not the rate.
  const isEarly = isGuess
    ? openMs < Math.max(2 * before.crowdMs, stretchMs)
    : (openMs < stretchMs || openMs * before.perMs < 1) && accepted < burst;
  const wasFull = isGuess ? accepted >= burst / 2 : before.perMs * (openedMs - emptyMs) >= burst;
  if (isEarly && wasFull) return toldByCrowd(before, accepted, openMs);

  const boundsWith = (holds: number): RateBounds => {
    const sinceFull = history.boundsOfRate(holds, emptyMs, sentMs, stretchMs);
    // Since it was empty, what was accepted is the rate's, to one token; some more ran over where it has been full.
    const sinceEmptyMs = Math.max(sentMs - emptyMs, 1);
    return {
      least: Math.max(sinceFull.least, (accepted - 1) / sinceEmptyMs),
      most: Math.max(sinceFull.most, (accepted + 1) / sinceEmptyMs),
    };
  };
  const rateWith = (crowd: number): number => {
    const known = before.perMs;
    let perMs = known;
    // The faster the rate, the smaller the burst was, and so again.
    for (let round = 0; round < 12; round++) {
      const { least, most } = boundsWith(burstOf({ ...before, crowd }, perMs));
      const told = (least + most) / 2;
      if (isGuess) perMs = told;
      else if (isRisky) perMs = known >= least && known <= most ? known : told;
      // Refused although nothing was risked: the rate was taken for too high, or has come down.
      else perMs = Math.min(Math.max(told, known / 2), known);
    }
    return Math.min(Math.max(perMs, leastRate), highestRate);
  };

  let { crowd } = before;
  let perMs = rateWith(crowd);
  const isUnchanged = perMs > before.perMs * (1 - tolerance);
  if (!isGuess && !isRisky && isUnchanged && openMs < spanGrowth * before.spanMs) {
    // Too soon for the error of the last measurement: the bucket holds more than thought.
    crowd += Math.max(1, burst / 4);
    perMs = rateWith(crowd);
  }
  const confirmations = isGuess ? 0 : certainty.confirmations;
  const hasFallen = confirmations > 0 && perMs < before.perMs * (1 - tolerance);
  const hasRisen = perMs > before.perMs * (1 + tolerance);
  const wasDown = before.fallenMs > Number.NEGATIVE_INFINITY;
  const isBack = perMs > before.fallenFrom * (1 - tolerance);
  // It can't have been full: all that was accepted is the rate's.
  const isBrief = perMs * (openedMs - emptyMs) < burst;
  // This stretch began with a full bucket too, and is timed better than the first crowd.
  const isCoarse = !before.isTimed && perMs * before.crowdMs * coarse.share > coarse.tokens;
  const isBetter =
    isCoarse &&
    accepted >= large.attempts &&
    !isBrief &&
    openMs >= stretchMs &&
    openMs < coarse.times * before.crowdMs;
  // Or it was full, and it is much of the first crowd that was the rate's, while it went on arriving: the next turns
  // beyond the pace will tell, and soon.
  const isDoubtful = isGuess && isBrief && openMs < stretchMs && before.crowdMs >= longCrowdMs;
  return {
    perMs,
    certainty: { kind: 'measured', confirmations: hasFallen || hasRisen || isGuess ? 0 : confirmations + 1 },
    mostPerMs: isDoubtful ? Number.POSITIVE_INFINITY : boundsWith(burstOf({ ...before, crowd }, perMs)).most,
    sample: isDoubtful ? 0 : isBrief ? accepted : Math.max(accepted - burst, 0),
    spanMs: openMs,
    ...(isBetter
      ? { crowd: accepted, crowdMs: openMs, isTimed: true }
      : { crowd, crowdMs: before.crowdMs, isTimed: before.isTimed }),
    fallenMs: hasFallen ? sentMs : isBack ? Number.NEGATIVE_INFINITY : before.fallenMs,
    fallenFrom: hasFallen ? Math.max(before.perMs, wasDown ? before.fallenFrom : 0) : before.fallenFrom,
  };
}

/**
 * What a full bucket tells that was spent too quickly to tell the rate; the time closed says nothing of it either. It
 * tells the burst, and better than a first crowd that came in drops.
 */
function toldByCrowd(before: Limit, accepted: number, openMs: number): Limit {
  const crowd = { crowd: accepted, crowdMs: openMs };
  if (before.certainty.kind === 'measured') return { ...before, ...crowd };
  if (accepted < large.attempts || openMs < large.ms) {
    // A guess that spends it more slowly will learn more.
    return { ...before, ...crowd, perMs: Math.max(before.perMs / 2, leastRate) };
  }
  // This side's processor is what keeps the attempts apart: halved again and again, the guess would be refused as
  // early each time. Taken for known it is not searched from by leaps, and the limit is passed slowly.
  const perMs = Math.min((accepted / openMs) * large.nextShare, highestRate);
  return {
    ...before,
    ...crowd,
    isTimed: true,
    perMs,
    mostPerMs: accepted / openMs,
    certainty: { kind: 'measured', confirmations: 0 },
    spanMs: openMs,
  };
}
