/** A token bucket as arithmetic: what is in it after some time. Pure: no `this`, no I/O, no clock. */
import type { CallerLimit } from './caller.ts';

export interface Bucket {
  /**
   * Requests that may come now; a fraction is one on its way back. Below zero where several gateways have together let
   * through more than the limit: then so many have to come back first.
   */
  level: number;
  /** When the level was right, monotonic ms. */
  atMs: number;
}

export function fullBucket(limit: CallerLimit, nowMs: number): Bucket {
  return { level: limit.burst, atMs: nowMs };
}

/** Takes one from the bucket where there is one. Writes to the bucket, so that a request allocates nothing. */
export function takeOne(bucket: Bucket, limit: CallerLimit, nowMs: number): boolean {
  const elapsedMs = Math.max(0, nowMs - bucket.atMs);
  bucket.level = Math.min(limit.burst, bucket.level + (elapsedMs * limit.perSecond) / 1000);
  bucket.atMs = nowMs;
  // Fractions do not add up exactly: what is one but for a rounding error is one.
  if (bucket.level < 1 - 1e-9) return false;
  bucket.level = Math.max(0, bucket.level - 1);
  return true;
}

/** Puts one back that was taken and not used. */
export function putOne(bucket: Bucket, limit: CallerLimit): void {
  bucket.level = Math.min(limit.burst, bucket.level + 1);
}

/** Whole requests that may come now. */
export function remainingIn(bucket: Bucket): number {
  return Math.max(0, Math.floor(bucket.level + 1e-9));
}

/** Until one more request may come than may now, in ms, of a bucket that is not full. */
export function untilOneMoreMs(bucket: Bucket, limit: CallerLimit): number {
  return ((remainingIn(bucket) + 1 - bucket.level) * 1000) / limit.perSecond;
}
