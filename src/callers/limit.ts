/**
 * Each caller's own limit: a token bucket that answers without a promise, so that a cache hit stays one turn of
 * the event loop. Several gateways tell each other afterwards what they have let through.
 */
import { type Bucket, fullBucket, remainingIn, takeOne, untilOneMoreMs } from './bucket.ts';
import type { Caller, CallerLimit } from './caller.ts';

export interface Spent {
  readonly ok: boolean;
  readonly limit: CallerLimit;
  /** Whole requests that may still come at once. */
  readonly remaining: number;
  /** Until more than `remaining` may come, in whole seconds; at least 1. */
  readonly resetSeconds: number;
  /** Until a refused request may come again, in ms; 0 where this one was let through. */
  readonly retryAfterMs: number;
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

interface CallerBucket extends Bucket {
  readonly caller: string;
  limit: CallerLimit;
  /** Requests let through that the other gateways do not know of yet. */
  unreported: number;
}

/** Keeps one bucket per caller's name: it survives a new version of the callers file, and follows its limit. */
export class CallerLimits {
  readonly #buckets = new Map<string, CallerBucket>();
  readonly #shared: SharedBuckets | undefined;
  #toReport: CallerBucket[] = [];
  #timer: NodeJS.Timeout | undefined;

  /** @param shared what other gateways let through of the same callers; left out where this gateway is alone */
  constructor(shared?: SharedBuckets) {
    this.#shared = shared;
  }

  /** Counts one request of the caller; `undefined` where the caller has no limit. */
  spend({ name, limit }: Caller): Spent | undefined {
    if (limit === undefined) return undefined;
    const nowMs = performance.now();
    let bucket = this.#buckets.get(name);
    if (bucket === undefined) {
      bucket = { ...fullBucket(limit, nowMs), caller: name, limit, unreported: 0 };
      this.#buckets.set(name, bucket);
    }
    bucket.limit = limit;
    const ok = takeOne(bucket, limit, nowMs);
    if (ok && this.#shared !== undefined) this.#reportSoon(bucket);
    const waitMs = untilOneMoreMs(bucket, limit);
    return {
      ok,
      limit,
      remaining: remainingIn(bucket),
      resetSeconds: Math.max(1, Math.ceil(waitMs / 1000 - 1e-9)),
      retryAfterMs: ok ? 0 : Math.ceil(waitMs),
    };
  }

  #reportSoon(bucket: CallerBucket): void {
    bucket.unreported += 1;
    if (bucket.unreported === 1) this.#toReport.push(bucket);
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      for (const one of this.#toReport.splice(0)) void this.#report(one);
    }, reportEveryMs).unref();
  }

  async #report(bucket: CallerBucket): Promise<void> {
    const { caller, limit, unreported } = bucket;
    bucket.unreported = 0;
    // Away: the bucket goes on as that of a gateway which is alone.
    const level = this.#shared?.inUse ? await this.#shared.take(caller, limit, unreported) : undefined;
    if (level === undefined) return;
    // What was let through meanwhile is in no report yet.
    bucket.level = Math.min(level, limit.burst) - bucket.unreported;
    bucket.atMs = performance.now();
  }
}

/**
 * `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers, sections 3 and 4). The window is the
 * time in which an empty bucket fills; `t` is never later than `Retry-After`, which is the same number rounded up.
 */
export function rateLimitFields(spent: Spent): { ratelimit: string; 'ratelimit-policy': string } {
  const { burst, perSecond } = spent.limit;
  const windowSeconds = Math.max(1, Math.ceil(burst / perSecond));
  return {
    ratelimit: `"caller";r=${spent.remaining};t=${spent.resetSeconds}`,
    'ratelimit-policy': `"caller";q=${burst};w=${windowSeconds}`,
  };
}
