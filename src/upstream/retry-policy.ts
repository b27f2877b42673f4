/** Whether an attempt is worth another one, and after what wait. Pure: no `this`, no I/O, no clock. */

export interface BackoffOptions {
  /** The wait before the first retry, ms; it doubles with each further one. */
  readonly baseMs: number;
  /** The longest such wait, ms. */
  readonly capMs: number;
}

/** Backoff is spread by up to this share of itself, only later: never all at once, never earlier than asked. */
const jitterShare = 0.25;

/**
 * The wait before a retry, ms: exponential, never less than the upstream asks for.
 *
 * @param retry 1 for the first retry
 * @param statedMs what the upstream asks for, where it does
 * @param random 0 to 1
 */
export function backoffMs(
  retry: number,
  statedMs: number | undefined,
  { baseMs, capMs }: BackoffOptions,
  random: number,
): number {
  // The cap comes before the jitter: after it, whoever has reached the cap would come back in step.
  const backoff = Math.min(baseMs * 2 ** (retry - 1), capMs);
  return Math.max(statedMs ?? 0, backoff) + random * backoff * jitterShare;
}

/** What an attempt came to, as far as retrying goes. */
export type Failure =
  /** 429: it will pass; tried again as often as the limit of retries allows. */
  | 'refused'
  /** No connection, one that broke, or a 502, 503, 504: tried again once. */
  | 'broken'
  /** No answer in time: tried again once. */
  | 'late';

/** Statuses of an upstream in trouble that a second attempt may not meet again. All our requests are reads. */
const brokenStatuses: readonly number[] = [502, 503, 504];

export function failureOfStatus(status: number): Failure | undefined {
  if (status === 429) return 'refused';
  return brokenStatuses.includes(status) ? 'broken' : undefined;
}

/** How often a failure is tried again in one request, out of the configured limit. */
export function retriesFor(failure: Failure, limit: number): number {
  return failure === 'refused' ? limit : Math.min(1, limit);
}
