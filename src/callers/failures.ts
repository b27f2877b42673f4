/**
 * Limits failed authentications per address. Asked after a credential failed, and before a signature is verified, which
 * costs more than a refusal; what was counted for a good signature is given back.
 */
import { LRUCache } from 'lru-cache';
import { failureScope } from '../address-policy.ts';
import { type Bucket, fullBucket, putOne, takeOne, untilOneMoreMs } from './bucket-policy.ts';

export interface Failures {
  /** Counts a failure. How long the address should wait, in ms; 0 while it is within the limit. */
  count(remoteAddress: string | undefined): number;
  /** Takes a failure back that was counted before its check, and was none. */
  giveBack(remoteAddress: string | undefined): void;
}

/** Addresses remembered. An attacker with more of them than this could not be counted by address anyway. */
const maxAddresses = 10_000;

/** @param perMinute failures from one address before it has to wait; 0 for no limit */
export function limitFailures(perMinute: number): Failures {
  if (perMinute <= 0) return { count: () => 0, giveBack: () => {} };
  const limit = { perSecond: perMinute / 60, burst: perMinute };
  // Not by `max`: that reserves the memory of all at once, a quarter of a megabyte.
  const buckets = new LRUCache<string, Bucket>({ maxSize: maxAddresses, sizeCalculation: () => 1 });
  return {
    count(remoteAddress) {
      const nowMs = performance.now();
      const scope = failureScope(remoteAddress);
      let bucket = buckets.get(scope);
      if (bucket === undefined) {
        bucket = fullBucket(limit, nowMs);
        buckets.set(scope, bucket);
      }
      return takeOne(bucket, limit, nowMs) ? 0 : Math.ceil(untilOneMoreMs(bucket, limit));
    },
    giveBack(remoteAddress) {
      const bucket = buckets.get(failureScope(remoteAddress));
      if (bucket !== undefined) putOne(bucket, limit);
    },
  };
}
