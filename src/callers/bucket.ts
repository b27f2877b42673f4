/**
 * How much of a limit is left, as arithmetic. What was taken comes back evenly (a token bucket), or all at once when the
 * next window begins. Pure: no `this`, no I/O, no clock.
 */
import type { CallerLimit } from './caller.ts';

export interface Bucket {
  /**
   * Requests that may come now; a fraction is one on its way back. Below zero where several gateways have together let
   * through more than the limit: then so many have to come back first.
   */
  level: number;
  /** When the level was right, in ms: wall clock for a limit with windows, else monotonic. */
  atMs: number;
}

export function fullBucket(limit: CallerLimit, nowMs: number): Bucket {
  return { level: limit.burst, atMs: nowMs };
}

/** Puts in what has come back since. Writes to the bucket, so that a request allocates nothing. */
export function refill(bucket: Bucket, limit: CallerLimit, nowMs: number): void {
  const { windowMs, burst, perSecond } = limit;
  if (windowMs === undefined) {
    const elapsedMs = Math.max(0, nowMs - bucket.atMs);
    bucket.level = Math.min(burst, bucket.level + (elapsedMs * perSecond) / 1000);
  } else if (Math.floor(nowMs / windowMs) !== Math.floor(bucket.atMs / windowMs)) bucket.level = burst;
  bucket.atMs = nowMs;
}

/** Whether one may be taken. Fractions do not add up exactly: what is one but for a rounding error is one. */
export function hasOne(bucket: Bucket): boolean {
  return bucket.level >= 1 - 1e-9;
}

/** Takes one from the bucket where there is one. */
export function takeOne(bucket: Bucket, limit: CallerLimit, nowMs: number): boolean {
  refill(bucket, limit, nowMs);
  if (!hasOne(bucket)) return false;
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
  const { windowMs, perSecond } = limit;
  if (windowMs !== undefined) return windowMs - (bucket.atMs % windowMs);
  return ((remainingIn(bucket) + 1 - bucket.level) * 1000) / perSecond;
}

/** Until it is full where no more is taken, in ms. */
export function untilFullMs(bucket: Bucket, limit: CallerLimit): number {
  if (limit.windowMs !== undefined) return untilOneMoreMs(bucket, limit);
  return ((limit.burst - bucket.level) * 1_000) / limit.perSecond;
}

/** A limit as it is written: `5000/1d`. One by `perSecond` and `burst`: the burst in the time in which it comes back. */
export function writtenLimit({ burst, perSecond, windowMs }: CallerLimit): string {
  if (windowMs === undefined) return `${burst}/${Math.max(1, Math.ceil(burst / perSecond))}s`;
  const [unit, unitMs] = windowUnits.find(([, ms]) => windowMs % ms === 0) ?? ['s', 1_000];
  return `${burst}/${windowMs / unitMs}${unit}`;
}

const windowUnits = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
] as const;
