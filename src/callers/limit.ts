/**
 * Each caller's own limits, which answer without a promise, so that a cache hit stays one turn of the event loop. Several
 * gateways tell each other afterwards what they have let through.
 */
import {
  type Bucket,
  fullBucket,
  hasOne,
  refill,
  remainingIn,
  takeOne,
  untilOneMoreMs,
  writtenLimit,
} from './bucket.ts';
import { type Caller, type CallerLimit, isPerson } from './caller.ts';

/** What is left of one limit. */
export interface LimitLeft {
  readonly limit: CallerLimit;
  /** Whole requests that may still come at once. */
  readonly remaining: number;
  /** Until more than `remaining` may come, in whole seconds; at least 1. */
  readonly resetSeconds: number;
}

/** What a request took: what is left of the limit that holds it up longest, or of the scarcest. */
export interface Spent extends LimitLeft {
  readonly ok: boolean;
  /** Until a refused request may come again, in ms; 0 where this one was let through. */
  readonly retryAfterMs: number;
  /** Of each limit, where there are several. */
  readonly each?: readonly LimitLeft[];
}

/** The buckets that several gateways share. */
export interface SharedBuckets {
  /** False while the store is away, and while there is no key to name a bucket with. */
  readonly inUse: boolean;
  /**
   * Takes out what this gateway has let through, whether or not there are as many. Returns what is left, below zero
   * where the gateways together let through too many; `undefined`: the store is away. Never rejects.
   */
  take(caller: string, limit: CallerLimit, count: number): Promise<number | undefined>;
}

/**
 * The buckets of the first workspace that has them in use at the moment, so that a workspace without a key costs the
 * gateways nothing of a caller's limit.
 *
 * @param all those of each workspace, in an order that is the same at every gateway
 * @returns `undefined` where there are none
 */
export function firstInUse(all: readonly SharedBuckets[]): SharedBuckets | undefined {
  if (all.length === 0) return undefined;
  const first = (): SharedBuckets | undefined => all.find(({ inUse }) => inUse);
  return {
    get inUse() {
      return first() !== undefined;
    },
    take: async (caller, limit, count) => first()?.take(caller, limit, count),
  };
}

/**
 * How long what a gateway lets through stays unknown to the others. A request waits for none of this: it is let through
 * by what was known, and what was too much is missing from the bucket afterwards.
 */
const reportEveryMs = 40;

/** So many people of one entry have limits of their own that are remembered. */
const maxPeople = 10_000;
/** Among so many of the oldest the one is forgotten that has used least of its limits. */
const oldestLookedAt = 100;

interface Held extends Bucket {
  limit: CallerLimit;
  /** The caller, or one person. */
  readonly name: string;
  /** Requests let through that the other gateways do not know of yet. */
  unreported: number;
}

/** In the order of the caller's limits. */
interface HeldLimits {
  limits: readonly CallerLimit[];
  all: Held[];
}

/**
 * Keeps what is left of each caller's limits, and of each person's where an entry has `each`. It survives a new version of
 * the callers file, and follows its limits.
 */
export class CallerLimits {
  readonly #callers = new Map<string, HeldLimits>();
  /** By caller, then by person. */
  readonly #people = new Map<string, Map<string, HeldLimits>>();
  readonly #shared: SharedBuckets | undefined;
  #toReport: Held[] = [];
  #timer: NodeJS.Timeout | undefined;

  /** @param shared what other gateways let through of the same callers; left out where this gateway is alone */
  constructor(shared?: SharedBuckets) {
    this.#shared = shared;
  }

  /** Counts one request of the caller, where all its limits let it through; `undefined` where it has none. */
  spend(caller: Caller): Spent | undefined {
    const { limits } = caller;
    if (limits === undefined) return undefined;
    const { all } = this.#heldBy(caller, limits);
    const [only] = all;
    if (only === undefined) return undefined;
    const ok = all.length === 1 ? takeOne(only, only.limit, nowFor(only.limit)) : takeOneOfEach(all);
    if (ok && this.#shared !== undefined) for (const one of all) this.#reportSoon(one);
    if (all.length === 1) return spentOf(only, ok);
    const each = all.map((one) => spentOf(one, ok || hasOne(one)));
    const [shown = spentOf(only, ok)] = each.toSorted(
      (one, other) => other.retryAfterMs - one.retryAfterMs || one.remaining - other.remaining,
    );
    return { ...shown, ok, each };
  }

  /** What is left of each limit; takes nothing. */
  left(caller: Caller): readonly LimitLeft[] {
    const { limits } = caller;
    if (limits === undefined) return [];
    return this.#heldBy(caller, limits).all.map((one) => {
      refill(one, one.limit, nowFor(one.limit));
      return spentOf(one, true);
    });
  }

  #heldBy(caller: Caller, limits: readonly CallerLimit[]): HeldLimits {
    const { name } = caller.flow;
    let holders = this.#callers;
    if (isPerson(caller)) {
      holders = this.#people.get(caller.name) ?? new Map<string, HeldLimits>();
      this.#people.set(caller.name, holders);
    }
    let held = holders.get(name);
    if (held === undefined) {
      if (holders !== this.#callers && holders.size >= maxPeople) forgetOne(holders);
      held = { limits, all: limits.map((limit) => fullOf(name, limit)) };
      holders.set(name, held);
    } else if (held.limits !== limits) adopt(held, name, limits);
    return held;
  }

  #reportSoon(held: Held): void {
    held.unreported += 1;
    if (held.unreported === 1) this.#toReport.push(held);
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      for (const one of this.#toReport.splice(0)) void this.#report(one);
    }, reportEveryMs).unref();
  }

  async #report(held: Held): Promise<void> {
    const { name, limit, unreported } = held;
    held.unreported = 0;
    // Away: the bucket goes on as that of a gateway which is alone.
    const level = this.#shared?.inUse ? await this.#shared.take(name, limit, unreported) : undefined;
    if (level === undefined) return;
    // What was let through meanwhile is in no report yet.
    held.level = Math.min(level, limit.burst) - held.unreported;
    held.atMs = nowFor(limit);
  }
}

/** Windows begin by the wall clock, which may be set; what comes back evenly is measured by the one that may not. */
function nowFor({ windowMs }: CallerLimit): number {
  return windowMs === undefined ? performance.now() : Date.now();
}

function fullOf(name: string, limit: CallerLimit): Held {
  return { ...fullBucket(limit, nowFor(limit)), name, limit, unreported: 0 };
}

/** A request that one limit refuses takes nothing of the others. */
function takeOneOfEach(all: readonly Held[]): boolean {
  for (const one of all) refill(one, one.limit, nowFor(one.limit));
  if (!all.every(hasOne)) return false;
  for (const one of all) one.level = Math.max(0, one.level - 1);
  return true;
}

function spentOf(held: Held, ok: boolean): Spent {
  const waitMs = untilOneMoreMs(held, held.limit);
  return {
    ok,
    limit: held.limit,
    remaining: remainingIn(held),
    resetSeconds: Math.max(1, Math.ceil(waitMs / 1000 - 1e-9)),
    retryAfterMs: ok ? 0 : Math.ceil(waitMs),
  };
}

/** Takes the limits of a new version of the file. What was used of a window that it still has stays used. */
function adopt(held: HeldLimits, name: string, limits: readonly CallerLimit[]): void {
  const before = held.all;
  held.limits = limits;
  held.all = limits.map((limit) => {
    const same = before.find((one) => one.limit.windowMs === limit.windowMs);
    if (same === undefined) return fullOf(name, limit);
    if (limit.windowMs !== undefined) same.level += limit.burst - same.limit.burst;
    same.limit = limit;
    return same;
  });
}

/**
 * Makes room for one more person. Of the oldest the one goes that has used least, at best nothing; the others become the
 * youngest. So new people, invented ones too, never reset a person who has used more of a limit than most of them.
 */
function forgetOne(people: Map<string, HeldLimits>): void {
  const oldest: { readonly name: string; readonly held: HeldLimits; readonly used: number }[] = [];
  for (const [name, held] of people) {
    oldest.push({ name, held, used: usedOf(held) });
    if (oldest.length === oldestLookedAt) break;
  }
  for (const { name } of oldest) people.delete(name);
  const [, ...kept] = oldest.toSorted((one, other) => one.used - other.used);
  for (const { name, held } of kept) people.set(name, held);
}

/** The part of the limit that is used most. */
function usedOf({ all }: HeldLimits): number {
  for (const one of all) refill(one, one.limit, nowFor(one.limit));
  return Math.max(...all.map(({ level, limit }) => 1 - level / limit.burst));
}

/**
 * `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers, sections 3 and 4). The window is the
 * time in which an empty bucket fills; `t` is never later than `Retry-After`, which is the same number rounded up.
 */
export function rateLimitFields(spent: Spent): { ratelimit: string; 'ratelimit-policy': string } {
  if (spent.each === undefined) return fieldsOf('caller', spent);
  const fields = spent.each.map((one) => fieldsOf(writtenLimit(one.limit), one));
  return {
    ratelimit: fields.map(({ ratelimit }) => ratelimit).join(', '),
    'ratelimit-policy': fields.map((one) => one['ratelimit-policy']).join(', '),
  };
}

function fieldsOf(name: string, { limit, remaining, resetSeconds }: LimitLeft) {
  const { burst, perSecond, windowMs } = limit;
  const windowSeconds = Math.max(1, Math.ceil(windowMs === undefined ? burst / perSecond : windowMs / 1_000));
  return {
    ratelimit: `"${name}";r=${remaining};t=${resetSeconds}`,
    'ratelimit-policy': `"${name}";q=${burst};w=${windowSeconds}`,
  };
}
