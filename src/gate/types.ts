/** What the gate's rules are given, and what it shows of itself: types only. */
import type { RequestContext } from '../exchange/request-context.ts';
import type { AttemptLimit } from '../http/limit-fields.ts';

export type GateState = 'open' | 'closed' | 'half-open' | 'paced';

/** A request that waits for its turn. Its context is read live. */
export interface Queued {
  readonly context: Pick<RequestContext, 'flows' | 'deadlineMs'>;
  readonly arrivedMs: number;
}

export interface SchedulerOptions {
  /** The longest one 429 may hold all requests, ms, but for the jitter. */
  readonly maxClosedMs: number;
  /** How long a 429 closes the gate where neither the upstream nor a known rate says, and at most, ms. */
  readonly baseMs: number;
  readonly capMs: number;
  /** Attempts in flight: at an upstream met for the first time, and ever. */
  readonly initialWindow: number;
  readonly maxInFlight: number;
  /** How many requests may wait, in total and for one caller. */
  readonly maxWaiting: number;
  readonly maxWaitingPerCaller: number;
  /** What the operator tells of the upstream's limit. */
  readonly limits?: readonly AttemptLimit[];
  /** 0 to 1, for the jitter. */
  readonly random: () => number;
}

/** What waits of one caller: requests, and background refreshes, which delay no answer. */
export interface CallerQueue {
  readonly name: string;
  readonly waiting: number;
  /** Of the requests. */
  readonly oldestWaitSeconds: number;
  readonly refreshes: number;
}

/** A limit that was told, less the reserve, and what is left of it. */
export interface ToldLimit {
  /** The window's length as it was told. */
  readonly window: string;
  readonly limit: number;
  readonly used: number;
  readonly remaining: number;
  /** Until the first of the used places come back; 0 where none is used. */
  readonly resetsInSeconds: number;
  readonly beside: { readonly windowSeconds: number };
}

/** The gate's part of `/status`. */
export interface GateSnapshot {
  readonly state: GateState | 'off';
  readonly closedForSeconds: number;
  readonly statedWaitSeconds: number;
  /** Null while no rate is known. */
  readonly attemptsPerSecond: number | null;
  readonly window: number;
  /** The limits that were told, the shortest window first. */
  readonly limits: readonly ToldLimit[];
  readonly inFlight: number;
  readonly waiting: number;
  readonly attempts: number;
  readonly refusals: number;
  /** All that wait, in the order of their first turns. */
  readonly callers: readonly CallerQueue[];
}
