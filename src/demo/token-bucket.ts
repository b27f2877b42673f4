/** The stand-in's rate limit: a token bucket. No `this`, no I/O, no clock: times come in as arguments. */

export interface RateLimit {
  readonly perSecond: number;
  /** How many requests may come at once after a rest. */
  readonly burst: number;
  /** The first request is refused already. Default false. */
  readonly startsEmpty?: boolean;
  /** How a refusal says when to come back; `none` leaves the field out. Default `seconds`. */
  readonly retryAfter?: 'seconds' | 'date' | 'none';
  /** What refusals claim, instead of the true time until the next token. */
  readonly retryAfterSeconds?: number;
}

/** Takes a token and returns 0, or takes nothing and returns the ms until there will be one. */
export type TakeToken = (nowMs: number) => number;

/** A full bucket, unless it starts empty. A refusal takes nothing, so a storm of refused requests does not hold the limit down. */
export function fillBucket(limit: RateLimit, nowMs: number): TakeToken {
  let tokens = limit.startsEmpty === true ? 0 : limit.burst;
  let filledMs = nowMs;
  return (now) => {
    tokens = Math.min(limit.burst, tokens + ((now - filledMs) / 1000) * limit.perSecond);
    filledMs = now;
    // The sum of many small refills may fall short of a whole token by a rounding error.
    if (tokens >= 1 - 1e-9) {
      tokens = Math.max(0, tokens - 1);
      return 0;
    }
    return ((1 - tokens) / limit.perSecond) * 1000;
  };
}

/** The value of `Retry-After` (RFC 9110 section 10.2.3), rounded up so that it is never too early. */
export function retryAfterValue(limit: RateLimit, waitMs: number, nowEpochMs: number): string | undefined {
  if (limit.retryAfter === 'none') return undefined;
  const seconds = limit.retryAfterSeconds ?? Math.max(1, Math.ceil(waitMs / 1000));
  if (limit.retryAfter !== 'date') return String(seconds);
  return new Date(Math.ceil(nowEpochMs / 1000 + seconds) * 1000).toUTCString();
}
