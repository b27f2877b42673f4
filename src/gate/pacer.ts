/**
 * What the gate has learned of the upstream's limit, and what changes it. Pure: times come in.
 *
 * The limit is taken for a token bucket of an unknown rate R and burst B, which the pace mirrors. Between two 429s
 * nothing was sent for C ms (closed), then n requests were accepted in T ms, and the bucket was empty at both ends:
 *
 *     n = min(B, R * C) + R * T   (one more or less)      and      R = max((n - B) / T, n / (C + T))
 *
 * T may begin at any mark of the stretch: of the n sent since then at most B were the burst, and exactly B where the
 * bucket was full at that mark for the last time. A wrong mark only underestimates, so the greatest is the rate.
 */
import { tuning } from './tuning.ts';

export interface CooldownOptions {
  /** The longest one 429 may hold all requests, ms, but for the jitter. */
  readonly maxClosedMs: number;
  /** How long a 429 closes the gate where neither the upstream nor a known rate says, and at most, ms. */
  readonly baseMs: number;
  readonly capMs: number;
  /** 0 to 1, for the jitter. */
  readonly random: () => number;
}

/** How many attempts had been sent at a moment. */
export interface Mark {
  readonly atMs: number;
  readonly sent: number;
}

export type GateState = 'open' | 'closed' | 'half-open' | 'paced';

/** Plain data. Times are ms. */
export interface GateRecord {
  readonly state: GateState;
  /** Attempts per ms; 0 while no limit is known. */
  readonly perMs: number;
  /** False while the rate is a guess. */
  readonly isMeasured: boolean;
  /** What was accepted in the burst before the first 429, and how long that took. */
  readonly crowd: number;
  readonly crowdMs: number;
  /** Tokens in the mirror bucket at a moment. */
  readonly level: number;
  readonly levelMs: number;
  /** The pace rises above the rate since then; 0 while it does not. */
  readonly riseMs: number;
  /** No exploring before, and the interval that led to it. */
  readonly exploreMs: number;
  readonly exploreIntervalMs: number;
  /** The history of the stretch; the first mark is the reopening, or in an open gate a moment of the last seconds. */
  readonly marks: readonly Mark[];
  /** Nothing goes up before. Moves only forward while anything is known of a limit. */
  readonly closedUntilMs: number;
  /** What the upstream itself has asked for, however long; 0 once it has accepted an attempt again. */
  readonly statedUntilMs: number;
  /** How long a 429 without a stated wait closed the gate last, ms, `maxClosedMs` aside. */
  readonly unstatedMs: number;
  /** The upstream's bucket was empty: an attempt that was sent then was answered with 429. */
  readonly emptyMs: number;
  /** The 429s that keep the gate closed: since when, how many, the latest by its sending, and whether we provoked them. */
  readonly closedMs: number;
  readonly throttled: number;
  readonly lastThrottled: Mark;
  readonly wasProvoked: boolean;
}

export const openRecord: GateRecord = {
  state: 'open',
  ...{ perMs: 0, isMeasured: false, crowd: 0, crowdMs: 0, closedUntilMs: 0, statedUntilMs: 0, unstatedMs: 0 },
  ...{ level: 0, levelMs: 0, riseMs: 0, exploreMs: 0, exploreIntervalMs: 0, marks: [] },
  ...{ emptyMs: 0, closedMs: 0, throttled: 0, lastThrottled: { atMs: 0, sent: 0 }, wasProvoked: false },
};

/** Turns per ms. While requests wait, a guess grows by itself and what lies above a known rate is explored now and then. */
function paceOf({ perMs, isMeasured, riseMs }: GateRecord, nowMs: number): number {
  if (riseMs === 0) return perMs;
  const risingMs = Math.min(nowMs - riseMs, tuning.longestRiseMs);
  if (!isMeasured) return perMs * 2 ** (risingMs / tuning.guessDoublingMs);
  return perMs * (1 + tuning.exploreExcess * 2 ** (risingMs / tuning.exploreDoublingMs));
}

/** Burst of the bucket: the first burst, less what came in at the rate while it went on. */
export function burstOf({ crowd, crowdMs, perMs }: GateRecord): number {
  return Math.max(1, crowd - perMs * crowdMs);
}

/** The mirror uses a part of the burst: the rest is the margin for errors. */
function capacityOf(record: GateRecord): number {
  return Math.max(1, burstOf(record) * tuning.usedBurst);
}

function levelAt(record: GateRecord, nowMs: number, capacity = capacityOf(record)): number {
  return Math.min(record.level + Math.max(nowMs - record.levelMs, 0) * paceOf(record, nowMs), capacity);
}

/** When the next turn is due; not later than `nowMs` where one is due now. */
export function dueMs(record: GateRecord, nowMs: number): number {
  const level = levelAt(record, nowMs);
  return level >= 1 - 1e-9 ? nowMs : nowMs + (1 - level) / paceOf(record, nowMs);
}

/** Puts in what has come until now; before the pace changes. */
function fill(record: GateRecord, nowMs: number): GateRecord {
  return { ...record, level: levelAt(record, nowMs), levelMs: nowMs };
}

export function takeTurn(record: GateRecord, nowMs: number): GateRecord {
  return { ...record, level: levelAt(record, nowMs) - 1, levelMs: nowMs };
}

/** Requests wait: lets the pace rise where exploring is due, and marks how many had been sent as it does. */
export function rise(record: GateRecord, sent: number, nowMs: number): GateRecord {
  const { riseMs, exploreMs, isMeasured } = record;
  if (riseMs === 0 && isMeasured && nowMs < exploreMs) return record;
  const [reopening, ...later] = record.marks as [Mark, ...Mark[]];
  const markedMs = later.at(-1)?.atMs ?? 0;
  if (riseMs > 0 && paceOf(record, nowMs) < tuning.markGrowth * paceOf(record, markedMs)) return record;
  // Older ones are dropped, but for the first.
  const marks = [reopening, ...later.slice(-64), { atMs: nowMs, sent }];
  return riseMs > 0 ? { ...record, marks } : { ...fill(record, nowMs), marks, riseMs: nowMs };
}

/** No request waits: the pace is enough. A guess that has grown is kept; exploring ends without a result. */
export function settleDown(record: GateRecord, nowMs: number): GateRecord {
  if (record.riseMs === 0) return record;
  const perMs = record.isMeasured ? record.perMs : paceOf(record, nowMs);
  return { ...fill(record, nowMs), perMs, riseMs: 0 };
}

/**
 * What the 429s of a cooldown tell, once it is over. Only what was sent up to the last of them counts: of the attempts
 * after it, answers may be under way.
 */
export function learnRate(record: GateRecord, sent: number): GateRecord {
  const { closedMs, closedUntilMs, throttled, lastThrottled, perMs, isMeasured, marks } = record;
  const first = marks[0] as Mark;
  const reopened = { emptyMs: closedMs, marks: [{ atMs: closedUntilMs, sent }] };
  // Others use the same key, the upstream refuses at random, or the 429 comes late: that says nothing of the rate.
  const isProvoked = isMeasured ? record.wasProvoked : record.riseMs > 0;
  const hasRefilled = acceptedSince(first, record) >= Math.max(burstOf(record), throttled);
  const isStray = lastThrottled.atMs < first.atMs || (!isProvoked && hasRefilled);
  if (perMs > 0 && isStray) return { ...settleDown(record, closedMs), ...reopened };
  const limit = perMs === 0 ? guessLimit(record) : measureLimit(record);
  const isSameRate = isMeasured && Math.abs(limit.perMs / perMs - 1) <= tuning.sameRate;
  // A first guess knows nothing of what comes in while the gate is closed.
  const levelMs = perMs === 0 ? closedUntilMs : closedMs;
  return exploreLater({ ...limit, ...reopened, level: 0, levelMs }, isSameRate, closedUntilMs);
}

/** Up to the last 429, without those that this cooldown has had. */
function acceptedSince({ sent }: Mark, { lastThrottled, throttled }: GateRecord): number {
  return lastThrottled.sent + 1 - throttled - sent;
}

/** After the first 429: all that was accepted lately is taken for the burst; the rate is a guess. */
export function guessLimit(record: GateRecord): GateRecord {
  const first = record.marks[0] as Mark;
  const crowd = Math.max(acceptedSince(first, record), 1);
  const crowdMs = Math.max(record.lastThrottled.atMs - first.atMs, 0);
  const perMs = Math.max(tuning.guessPerSecond, crowd) / 1000;
  return { ...record, perMs, isMeasured: false, crowd, crowdMs };
}

/** After each later 429 that our own sending explains. */
export function measureLimit(record: GateRecord): GateRecord {
  const { perMs, isMeasured } = record;
  const [least, middle, most] = [rateOf(record, -1), rateOf(record, 0), rateOf(record, 1)];
  // The trial request was throttled: not one token has come since.
  if (acceptedSince(record.marks[0] as Mark, record) <= 0)
    return { ...record, perMs: Math.min(perMs, Math.max(perMs / 2, most)) };
  if (isMeasured && perMs >= least && perMs <= most) return record;
  // The stretch was too short to tell rate from burst.
  if (most > tuning.usefulRange * least)
    return { ...record, perMs: Math.min(Math.max(perMs / 2, least), most), isMeasured: false };
  return { ...record, perMs: middle, isMeasured: true };
}

/** @param error -1 and 1 for the bounds: one accepted less or more, and a bucket known less closely */
function rateOf(record: GateRecord, error: number): number {
  const { emptyMs, lastThrottled, marks } = record;
  const [first, ...later] = marks as [Mark, ...Mark[]];
  const burst = burstOf(record);
  const beyondBurst = error * (1 + tuning.burstError * burst) - burst;
  const msSince = (atMs: number): number => Math.max(lastThrottled.atMs - atMs, 1);
  const rates = [first, ...later.filter(({ atMs }) => atMs < lastThrottled.atMs)].map(
    (mark) => (acceptedSince(mark, record) + beyondBurst) / msSince(mark.atMs),
  );
  return Math.max((acceptedSince(first, record) + error) / msSince(emptyMs), ...rates, 1e-6);
}

/** When to explore next after a cooldown: later each time the same rate is found, and the longer the cooldown was. */
function exploreLater(record: GateRecord, isSameRate: boolean, closedUntilMs: number): GateRecord {
  const knownMs = isSameRate ? record.exploreIntervalMs * tuning.exploreBackoff : 0;
  const grownMs = Math.min(knownMs, tuning.longestExploreIntervalMs);
  const costMs = tuning.exploreCosts * (closedUntilMs - record.levelMs);
  const exploreIntervalMs = Math.max(tuning.firstExploreIntervalMs, grownMs, costMs);
  return { ...record, exploreIntervalMs, exploreMs: closedUntilMs + exploreIntervalMs, riseMs: 0 };
}

/**
 * A 429. The gate closes until the stated time; where none is stated, briefly once a rate is known, and twice as long
 * after each trial request that is answered with 429; `maxClosedMs` at most. The jitter only adds.
 *
 * @param sent when the attempt was sent, and how many before it
 * @param statedMs 0 where no wait is stated
 */
export function throttle(
  record: GateRecord,
  sent: Mark,
  statedMs: number,
  isTrial: boolean,
  { baseMs, capMs, maxClosedMs, random }: CooldownOptions,
  nowMs: number,
): GateRecord {
  const isClosed = record.state === 'closed';
  // Sent before the last reopening: that cooldown has been learned from. A stated wait counts all the same.
  if (statedMs === 0 && record.perMs > 0 && sent.atMs < (record.marks[0]?.atMs ?? 0)) return record;
  const begun = isClosed ? record : beginCooldown(record, sent, nowMs);
  const lastThrottled = sent.atMs > begun.lastThrottled.atMs ? sent : begun.lastThrottled;
  const counted = { ...begun, throttled: begun.throttled + 1, lastThrottled };
  if (statedMs === 0 && isClosed) return counted;
  const briefMs = record.perMs > 0 ? Math.min(tuning.briefClosedMs, baseMs) : baseMs;
  const unstatedMs = Math.min(isTrial ? Math.max(record.unstatedMs * 2, briefMs) : briefMs, capMs);
  const closedMs = Math.min(statedMs || unstatedMs, maxClosedMs) * (1 + random() * tuning.jitter);
  const statedUntilMs = Math.max(record.statedUntilMs, statedMs && nowMs + statedMs);
  const closedUntilMs = Math.max(record.closedUntilMs, nowMs + closedMs);
  return { ...counted, unstatedMs, statedUntilMs, closedUntilMs };
}

function beginCooldown(record: GateRecord, sent: Mark, nowMs: number): GateRecord {
  // There is no mark where the limit was forgotten while the attempt was under way.
  const marks = record.marks.length > 0 ? record.marks : [sent];
  // Where half of the mirror is to spare, our own pace does not explain it.
  const wasProvoked = levelAt(record, nowMs, Number.POSITIVE_INFINITY) < 1 + capacityOf(record) / 2;
  return {
    ...record,
    state: 'closed',
    closedMs: nowMs,
    throttled: 0,
    lastThrottled: sent,
    marks,
    wasProvoked,
  };
}
