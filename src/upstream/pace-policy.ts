/**
 * The pace that the upstream accepts, learned from what it refuses. Pure: no I/O, no clock, times come in.
 *
 * A refusal says that the upstream's bucket is empty at that moment. What was accepted between two such moments
 * is therefore what the limit gave in between: a measurement, where additive or cubic growth would only search.
 * Between refusals two streams go up:
 *  - the *safe* stream just below the learned rate. It alone never empties the bucket.
 *  - now and then, and only while somebody waits for it, a *risky* stream on top that grows exponentially until
 *    it is refused. If the limit has not moved, it spends the burst the bucket has saved and costs one refusal;
 *    if it has, the risky stream finds the new rate within a second or two.
 * How often is a matter of `probing-policy.ts`.
 *
 * With b tokens at most in the bucket, one refusal gives b, and a second one the rate, to within one token over the
 * time from passing the limit to being refused: that is why two refusals are enough, and why none are too few.
 */
import { rememberAccepted } from './accepted-history.ts';
import { afterFallMs, doublingMsOf, firstExcessOf, type Known, pauseMsOf } from './probing-policy.ts';

/** The safe stream's share of the learned rate. */
const safety = 0.98;
/** Within this a measurement confirms the rate. */
const tolerance = 0.12;
/** A timer may be late by this much without costing any of the pace. */
const catchUpMs = 20;
/** What a turn before its time leaves in the upstream's bucket: room for attempts that arrive unevenly. */
const leastReserve = 0.5;
/** What a heavy caller's leaves, as a share of the burst: the rest is for light ones, and for a rate a bit too high. */
const reserveShare = 0.5;
/** A turn, but for the rounding of many small shares of one. */
const whole = 1 - 1e-6;
/**
 * A rate is read from a stretch of at least this length; instead of a guess, from a shorter one: an error of two or
 * three attempts then makes a tenth of it.
 */
const stretchMs = 500;
const shortStretchMs = 200;
/** Refused right after reopening, but not before so many were accepted, it was the burst that was thought too large. */
const tellingBurst = 5;
/** The lowest rate ever paced at: one turn in 20 s. */
const leastRate = 1 / 20_000;
const highestRate = 1000;

export type Stream = 'safe' | 'risky';

export interface Pace {
  /** A refusal has been seen: attempts are paced. */
  readonly limited: boolean;
  /** The learned rate per second, or undefined while nothing is known. */
  readonly perSecond: number | undefined;
  /** Turns per ms to be counted on, the cost of probing included; undefined while the rate is a guess. */
  readonly reliableRate: number | undefined;
  /** Attempts may be refused at any time: the rate is being searched for, and risk cannot be put on one caller. */
  readonly searching: boolean;
  /**
   * Spends one turn, if there is one.
   *
   * @param isLight the turn is one of a caller that asks for less than its share: it may have one before its time
   *   if the upstream's bucket should hold it. Others may only where the bucket holds plenty.
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
  letGo(): void;
}

/** What was known when the gate closed, for the measurement that its first refusal is. */
interface Episode {
  readonly sentMs: number;
  /** The refusal before, and how many were accepted since: of those under way, some are answered later. */
  readonly emptyMs: number;
  accepted: number;
  /** Nothing was paced before it. */
  readonly isFirst: boolean;
  /** The bucket should have held a burst, and was empty a moment later. */
  readonly isShortBurst: boolean;
  readonly isProbing: boolean;
  readonly probeStartMs: number;
  acceptedInProbe: number;
  readonly before: {
    readonly rate: number | undefined;
    readonly burst: number;
    readonly confirmations: number;
    readonly fallenMs: number;
  };
}

export function learnPace(): Pace {
  const history = rememberAccepted();
  let limited = false;
  /** The learned rate, turns per ms. */
  let rate: number | undefined;
  /** What the upstream gives at once at most: how many it accepted before its first refusal. */
  let burst = 0;
  /** How long it took to accept them, ms: in that time the rate gave some of them. */
  let burstSpanMs = 0;
  /** -1: the rate is a guess; 0: measured; then how often it was confirmed. */
  let confirmations = -1;
  /** How many accepted attempts, beyond a burst, the last measurement rests on. */
  let sample = 0;
  /** Attempts refused in the last episode. */
  let refusedAtOnce = 1;
  /** What the upstream's bucket should hold at least. */
  let level = 0;
  /** When the limit came down last. */
  let fallenMs = Number.NEGATIVE_INFINITY;
  /** When the refused attempt was sent that last showed the bucket empty, and what was accepted since. */
  let emptyMs = 0;
  /**
   * When the upstream met the first attempt of this acquaintance, and when it refused last: halfway between sending
   * and answer, for both are slow at first.
   */
  let firstAtMs = Number.POSITIVE_INFINITY;
  let emptyAtMs = Number.NEGATIVE_INFINITY;
  let acceptedSinceEmpty = 0;
  /** The refusals since the last time the gate was open, while it is not. */
  let episode: Episode | undefined;
  let resumedMs = 0;
  let costMs = 0;
  /** Smoothed time from sending to answer. */
  let roundTripMs = 0;
  let safe = 0;
  let risky = 0;
  /** How long the risky stream has been on, ms; 0 while it is off. */
  let probingMs = 0;
  let probeStartMs = 0;
  /** The upstream's bucket should have been full when the gate reopened last. */
  let reopenedFull = false;
  let acceptedSinceProbe = 0;
  let isWaitedFor = false;
  let lastMs = 0;

  const isGuess = (): boolean => confirmations < 0;
  const known = (): Known => ({
    perMs: rate ?? 0,
    confirmations,
    sample,
    hasFallen: lastMs - fallenMs < afterFallMs,
    costMs,
    refusedAtOnce,
    roundTripMs,
  });
  const pause = (): number => (rate === undefined ? 0 : pauseMsOf(known()));
  const firstShare = (): number => firstExcessOf(known());
  const doubling = (): number => (rate === undefined ? 0 : doublingMsOf(known()));
  /** Risky turns that come with a doubling time of excess; the scale of the integral below. */
  const scale = (): number => ((rate ?? 0) * firstShare() * doubling()) / Math.LN2;
  /** A whole number, as buckets are: less what the rate gave while the first burst was sent. */
  const burstAt = (perMs: number): number => Math.max(Math.ceil(burst - perMs * burstSpanMs), burst / 4);
  const burstLeft = (): number => burstAt(rate ?? 0);
  /** The upstream takes no two at once: then what is risked goes between the safe turns, not right after one. */
  const isEven = (): boolean => limited && burstLeft() < 2;
  /** What the upstream's bucket should hold for a turn before its time. */
  const early = (isLight: boolean): number =>
    1 + (isLight ? leastReserve : Math.max(leastReserve, burstLeft() * reserveShare));
  const probeAtMs = (): number => resumedMs + pause();

  const advance = (nowMs: number): void => {
    const elapsed = Math.max(0, nowMs - lastMs);
    if (rate !== undefined) {
      const even = isEven();
      safe = Math.min(safe + elapsed * rate * safety, even ? 1 : 1 + catchUpMs * rate);
      // What is due by the safe stream and not yet taken is in the same bucket, and what was taken early is not.
      level = Math.min(level + elapsed * rate * (1 - safety), burstLeft() - safe);
      const on = isWaitedFor ? Math.min(elapsed, nowMs - probeAtMs()) : 0;
      if (on > 0) {
        if (probingMs === 0) {
          probeStartMs = nowMs - on;
          acceptedSinceProbe = 0;
        }
        const before = 2 ** (probingMs / doubling());
        probingMs = Math.min(probingMs + on, 40 * doubling());
        const excess = (2 ** (probingMs / doubling()) - before) * scale();
        const cap = 4 + catchUpMs * Math.min((on > 0 ? excess / on : 0) + rate, highestRate);
        if (even) safe = Math.min(safe + excess, 1);
        else risky = Math.min(risky + excess, cap);
      }
    }
    lastMs = Math.max(lastMs, nowMs);
  };

  /** The rate that the refusal which began an episode speaks for. */
  const measure = (of: Episode, known: number): number => {
    const { sentMs } = of;
    const anchored = of.accepted / Math.max(sentMs - of.emptyMs, 1);
    const shortestMs = isGuess() ? shortStretchMs : stretchMs;
    const leastAt = (perMs: number): number =>
      Math.max(anchored, history.leastRate(burstAt(perMs), of.emptyMs, sentMs, shortestMs));
    // The faster the rate, the smaller the burst was, and so again.
    let least = known;
    for (let round = 0; round < 5; round++) least = leastAt(least);
    if (of.isProbing) {
      const most = (of.acceptedInProbe + 1) / Math.max(sentMs - of.probeStartMs, 1);
      return Math.min(Math.max(known, least), Math.max(least, most));
    }
    if (of.isShortBurst && of.accepted >= tellingBurst && of.accepted < burstAt(known)) {
      burst = of.accepted + 1;
      burstSpanMs = 0;
      return known;
    }
    // Refused although nothing was risked: the limit has come down, or was never as high. If the measurement
    // denies it, it was the burst that was larger than thought.
    if (least >= known) burst = burst * 1.5 + 1;
    return Math.min(Math.max(least, known * 0.5), known * 0.97);
  };

  /** What the episode tells. Told again once all who were under way have been answered: some were accepted. */
  const learn = (of: Episode): void => {
    ({ rate, burst, confirmations, fallenMs } = of.before);
    if (of.isFirst || rate === undefined) {
      // Of a crowd sent at once any may be refused first: the last to be refused found the bucket empty as well.
      const untilMs = Math.max(of.sentMs, emptyMs);
      const lately = Math.max(history.within(1000, untilMs), 1);
      burst = lately;
      burstSpanMs = Math.min(Math.max(emptyAtMs - firstAtMs, 0), 1000);
      confirmations = rate === undefined ? -1 : 0;
      rate ??= lately / 1000;
      return;
    }
    const known = rate;
    sample = Math.max(of.accepted - burstLeft(), 0);
    const measured = Math.min(Math.max(measure(of, known), leastRate), highestRate);
    if (confirmations > 0 && measured < known * (1 - tolerance)) fallenMs = of.sentMs;
    else if (measured > known * (1 + tolerance)) fallenMs = Number.NEGATIVE_INFINITY;
    confirmations = Math.abs(measured / known - 1) <= tolerance ? confirmations + 1 : 0;
    rate = measured;
  };

  const isSearching = (): boolean =>
    isGuess() || acceptedSinceProbe > probingMs * (rate ?? 0) + 1.2 * burstLeft() + 2;

  return {
    get limited() {
      return limited;
    },
    get perSecond() {
      return rate === undefined ? undefined : rate * 1000;
    },
    get reliableRate() {
      if (rate === undefined || confirmations < 1) return undefined;
      const period = pause() + costMs;
      return rate * safety * (pause() / period);
    },
    get searching() {
      return isSearching();
    },

    take(nowMs, isLight, riskAt) {
      advance(nowMs);
      // Not while the risky stream draws on the same bucket.
      if (safe >= whole || (probingMs === 0 && safe + level >= early(isLight))) {
        safe -= 1;
        return 'safe';
      }
      if (risky >= riskAt * whole) {
        risky -= 1;
        level = Math.max(level - 1, 0);
        return 'risky';
      }
      return undefined;
    },

    nextAtMs(nowMs, isLight) {
      if (rate === undefined) return nowMs;
      const earlyIn =
        probingMs === 0 ? Math.max(early(isLight) - safe - level, 0) / rate : Number.POSITIVE_INFINITY;
      const isProbing = isWaitedFor && nowMs >= probeAtMs();
      const excess = isEven() && isProbing ? rate * firstShare() * 2 ** (probingMs / doubling()) : 0;
      const safeAt = nowMs + Math.min((1 - safe) / (rate * safety + excess), earlyIn);
      if (isEven()) return safeAt;
      // A known rate is probed right after safe turns, so there is nothing to wake up for in between.
      if (!isWaitedFor || !isSearching()) return safeAt;
      const from = Math.max(nowMs, probeAtMs());
      const needed = 2 ** (probingMs / doubling()) + (1 - risky) / scale();
      return Math.min(safeAt, from + Math.log2(needed) * doubling() - probingMs);
    },

    waitedFor(waited, nowMs) {
      advance(nowMs);
      isWaitedFor = waited;
    },

    accepted(sentMs, nowMs) {
      history.add(sentMs);
      firstAtMs = Math.min(firstAtMs, (sentMs + nowMs) / 2);
      roundTripMs += (nowMs - sentMs - roundTripMs) / 8;
      if (sentMs > emptyMs) acceptedSinceEmpty++;
      if (probingMs > 0 && sentMs >= probeStartMs) acceptedSinceProbe++;
      if (episode === undefined || sentMs > episode.sentMs) return;
      if (sentMs > episode.emptyMs) episode.accepted++;
      if (episode.isProbing && sentMs >= episode.probeStartMs) episode.acceptedInProbe++;
    },

    refused(sentMs, nowMs, cost) {
      advance(nowMs);
      costMs = cost;
      emptyAtMs = Math.max(emptyAtMs, (sentMs + nowMs) / 2);
      if (!limited || sentMs >= resumedMs) {
        episode = {
          sentMs,
          emptyMs,
          accepted: acceptedSinceEmpty,
          isFirst: !limited,
          isShortBurst: reopenedFull && sentMs - resumedMs < stretchMs,
          isProbing: probingMs > 0,
          probeStartMs,
          acceptedInProbe: acceptedSinceProbe,
          before: { rate, burst, confirmations, fallenMs },
        };
        learn(episode);
        limited = true;
        refusedAtOnce = 1;
      } else refusedAtOnce = Math.min(refusedAtOnce + 1, 10);
      if (sentMs > emptyMs) {
        emptyMs = sentMs;
        acceptedSinceEmpty = 0;
      }
      resumedMs = Number.POSITIVE_INFINITY;
      probingMs = 0;
      acceptedSinceProbe = 0;
      risky = 0;
      safe = 0;
      level = 0;
    },

    resumed(nowMs) {
      advance(nowMs);
      if (episode !== undefined) learn(episode);
      episode = undefined;
      resumedMs = nowMs;
      probingMs = 0;
      risky = 0;
      safe = 0;
      // Filled since it was empty; the probe has taken one.
      const filled = (nowMs - emptyMs) * (rate ?? 0);
      reopenedFull = filled >= burstLeft();
      level = Math.max(Math.min(filled, burstLeft()) - 1, 0);
    },

    letGo() {
      limited = false;
      firstAtMs = Number.POSITIVE_INFINITY;
      confirmations = 0;
      probingMs = 0;
      risky = 0;
      safe = 0;
    },
  };
}
