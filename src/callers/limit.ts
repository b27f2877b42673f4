/**
 * Each caller's own limit: a token bucket that answers without a promise, so that a cache hit stays one turn of
 * the event loop. A store that several gateways share could stand behind the same function.
 */
import { type Bucket, fullBucket, takeOne, untilOneMoreMs } from './bucket-policy.ts';
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

export interface CallerLimits {
  /** Counts one request of the caller; `undefined` where the caller has no limit. */
  spend(caller: Caller): Spent | undefined;
}

/** Keeps one bucket per caller's name: it survives a new version of the callers file, and follows its limit. */
export function limitCallers(): CallerLimits {
  const buckets = new Map<string, Bucket>();
  return {
    spend(caller) {
      const { limit } = caller;
      if (limit === undefined) return undefined;
      const nowMs = performance.now();
      let bucket = buckets.get(caller.name);
      if (bucket === undefined) {
        bucket = fullBucket(limit, nowMs);
        buckets.set(caller.name, bucket);
      }
      const ok = takeOne(bucket, limit, nowMs);
      const waitMs = untilOneMoreMs(bucket, limit);
      return {
        ok,
        limit,
        remaining: Math.floor(bucket.level + 1e-9),
        resetSeconds: Math.max(1, Math.ceil(waitMs / 1000 - 1e-9)),
        retryAfterMs: ok ? 0 : Math.ceil(waitMs),
      };
    },
  };
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
