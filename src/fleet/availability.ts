/**
 * When the shared store is asked and when the gateway goes on alone. Two failures in a row end the use of the store
 * for a second; then one trial call decides.
 */

/** What is known of the store's answers. A plain record, replaced and never changed. */
export interface Availability {
  /** Failed calls since the last good one. */
  readonly failures: number;
  /** When the last of them failed. */
  readonly failedMs: number;
  /** No call before this moment, in ms on the monotonic clock. */
  readonly awayUntilMs: number;
  /** A trial call is under way: all other calls are answered locally until it ends. */
  readonly trial: boolean;
}

/** The state after every good answer. */
export const available: Availability = {
  failures: 0,
  failedMs: -Infinity,
  awayUntilMs: -Infinity,
  trial: false,
};

/** Failures in a row after which the store counts as away. One slow reply of a busy machine is no outage. */
const failuresUntilAway = 2;

/** How long the store is left alone once it is away: a returning store is used again within this time. */
export const awayMs = 1_000;

export function isAway({ failures }: Availability): boolean {
  return failures >= failuresUntilAway;
}

/** Whether a call may be made at `nowMs`; where the store is away, only one at a time. */
export function mayCall(state: Availability, nowMs: number): boolean {
  return !state.trial && nowMs >= state.awayUntilMs;
}

/** The state once a call that `mayCall` allowed has begun. */
export function begun(state: Availability): Availability {
  return isAway(state) ? { ...state, trial: true } : state;
}

/** Calls that were under way together fail together, of one stall: that is one failure. */
export function failed(state: Availability, sentMs: number, nowMs: number): Availability {
  if (sentMs < state.failedMs) return state;
  const failures = state.failures + 1;
  const awayUntilMs = failures >= failuresUntilAway ? nowMs + awayMs : -Infinity;
  return { failures, failedMs: nowMs, awayUntilMs, trial: false };
}
