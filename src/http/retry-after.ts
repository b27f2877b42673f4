/**
 * How long the upstream asks to wait, from the header fields of its answer. Pure: no `this`, no I/O, no clock.
 * Malformed fields are as good as absent; nothing here throws.
 */

import { dateOfAnswer, maxTimerMs, parseHttpDate } from './date.ts';
import { firstField, type HeaderFields } from './fields.ts';

/** What is read of an answer. */
interface Received {
  readonly status: number;
  readonly headers: HeaderFields;
  /** Its arrival by the wall clock, and by the monotonic one. */
  readonly receivedAt: number;
  readonly receivedMs: number;
}

/** From here on a reset is a time (seconds since 1970), below it is a number of seconds from now. */
const firstEpochSeconds = 1e9;

/**
 * The wait the upstream asks for, in ms from the receipt of its answer; `undefined` where it says nothing.
 *
 * `Retry-After` rules (RFC 9110 section 10.2.3). `RateLimit` and `X-RateLimit-Reset` count only where it is
 * absent or malformed and nothing remains of the limit: without that, a reset is no reason to wait.
 *
 * @param receivedAt wall clock at receipt, used where the answer has no `Date` of its own
 */
export function statedWaitMs(headers: HeaderFields, receivedAt: number): number | undefined {
  const answeredAt = dateOfAnswer(headers['date'], receivedAt);
  const retryAfter = firstField(headers['retry-after']);
  if (retryAfter !== undefined) {
    const waitMs = retryAfterMs(retryAfter, answeredAt);
    if (waitMs !== undefined) return waitMs;
  }
  return rateLimitMs(firstField(headers['ratelimit'])) ?? resetMs(headers, answeredAt);
}

/** The time before which the upstream asks not to be asked again, on the clock of `receivedMs`; 0 where it does not say. */
export function statedUntilMs({ headers, receivedAt, receivedMs }: Omit<Received, 'status'>): number {
  const statedMs = statedWaitMs(headers, receivedAt);
  return statedMs === undefined ? 0 : receivedMs + statedMs;
}

/** Seconds or a date. A date is measured against the answer's own `Date`, so that clocks need not agree. */
function retryAfterMs(value: string, answeredAt: number): number | undefined {
  if (/^\d+$/.test(value)) return bounded(Number(value) * 1000);
  const at = parseHttpDate(value, answeredAt);
  return at === undefined ? undefined : bounded(at - answeredAt);
}

/** `RateLimit: "policy";r=0;t=30` (draft-ietf-httpapi-ratelimit-headers): the longest reset of an empty one. */
function rateLimitMs(value: string | undefined): number | undefined {
  if (value === undefined) return undefined;
  let waitMs: number | undefined;
  for (const item of value.split(',')) {
    const remaining = /;\s*r=(\d+)\s*(?:;|$)/.exec(item)?.[1];
    const resetSeconds = /;\s*t=(\d+)\s*(?:;|$)/.exec(item)?.[1];
    if (remaining === undefined || resetSeconds === undefined || Number(remaining) > 0) continue;
    waitMs = Math.max(waitMs ?? 0, bounded(Number(resetSeconds) * 1000));
  }
  return waitMs;
}

/** The older pair: `X-RateLimit-Remaining: 0` with `X-RateLimit-Reset` in seconds or as a time since 1970. */
function resetMs(headers: HeaderFields, answeredAt: number): number | undefined {
  for (const prefix of ['x-ratelimit', 'ratelimit']) {
    const remaining = firstField(headers[`${prefix}-remaining`]);
    const reset = firstField(headers[`${prefix}-reset`]);
    if (remaining === undefined || reset === undefined) continue;
    if (!/^0+(?:\.0*)?$/.test(remaining) || !/^\d+(?:\.\d+)?$/.test(reset)) continue;
    const seconds = Number(reset);
    return bounded(seconds >= firstEpochSeconds ? seconds * 1000 - answeredAt : seconds * 1000);
  }
  return undefined;
}

/** No upstream is believed to mean more than a timer can hold: about 24 days. */
function bounded(ms: number): number {
  return Math.min(Math.max(ms, 0), maxTimerMs);
}

/** What an answer says of the limit: a 429 that there is one, with the wait that it states; a 5xx nothing. */
export function limitOutcome({
  status,
  headers,
  receivedAt,
}: Omit<Received, 'receivedMs'>): { readonly waitMs: number | undefined } | 'answered' | 'broken' {
  if (status === 429) return { waitMs: statedWaitMs(headers, receivedAt) };
  return status < 500 ? 'answered' : 'broken';
}
