/** How many retries may be under way at once. Pure: no `this`, no I/O, no clock. */

/** Retries may make up this share of the live requests: trouble upstream is not multiplied by ours. */
const share = 0.2;
/** So few are always allowed. */
const least = 3;

/**
 * Whether one more retry fits.
 *
 * @param retrying requests under way with a retry after a failed connection, a timeout or a 5xx
 * @param live all requests under way
 */
export function mayRetry(retrying: number, live: number): boolean {
  return retrying < Math.max(least, Math.floor(live * share));
}
