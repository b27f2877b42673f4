/** Whether a failed attempt is worth another one, and when. Pure: no `this`, no I/O, no clock. */
import { GatewayError } from '../errors.ts';
import type { Answer } from '../exchange.ts';
import { statedWaitMs } from './retry-after-policy.ts';

/**
 * What an attempt failed with, as far as retrying goes. `throttled` (429) is tried again up to the limit of retries;
 * `failed` (no connection, no answer in time, a 502, 503 or 504) once. All our requests are reads.
 */
export type Failure = 'throttled' | 'failed';

const failedStatuses: readonly number[] = [502, 503, 504];

/** `undefined` where no other attempt is worth while. */
export function failureOfStatus(status: number): Failure | undefined {
  if (status === 429) return 'throttled';
  return failedStatuses.includes(status) ? 'failed' : undefined;
}

/** The same for what was thrown. With a wait in it, it comes from the circuit or the gate, which know better. */
export function failureOfError(error: unknown): Failure | undefined {
  if (!(error instanceof GatewayError) || error.retryAfterMs !== undefined) return undefined;
  return error.code === 'upstream-timeout' || error.code === 'upstream-unreachable' ? 'failed' : undefined;
}

/** The time before which the upstream asks not to be asked again, on the clock of `receivedMs`; 0 where it does not say. */
export function statedUntilMs({ headers, receivedAt, receivedMs }: Answer): number {
  const statedMs = statedWaitMs(headers, receivedAt);
  return statedMs === undefined ? 0 : receivedMs + statedMs;
}

/** One request, and all requests, at the moment an attempt has failed. */
export interface RetryFacts {
  readonly failure: Failure;
  /** The request has been tried again after a failure that was no 429. */
  readonly hasRetriedFailure: boolean;
  /** When the next attempt could go, and when the request must be answered. */
  readonly nextMs: number;
  readonly deadlineMs: number;
  /** Requests under way, and those of them that are tried again after a failure that was no 429. */
  readonly live: number;
  readonly retrying: number;
}

/** Retries of failures may make up this share of the live requests: trouble upstream is not multiplied by ours. */
const budgetShare = 0.2;
/** So few are always allowed. */
const leastBudget = 3;

/** Whether the attempt is followed by another one, the limit of retries aside. */
export function mayRetry(facts: RetryFacts): boolean {
  if (facts.nextMs >= facts.deadlineMs) return false;
  if (facts.failure === 'throttled') return true;
  const budget = Math.max(leastBudget, Math.floor(facts.live * budgetShare));
  return !facts.hasRetriedFailure && facts.retrying < budget;
}
