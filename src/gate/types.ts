/** The seam between the scheduler's rules and the layer that acts on them: types only. */
import type { Turn } from '../claim.ts';

export type GateState = 'open' | 'closed' | 'probing' | 'paced';

/** A request that waits for its turn. Flow and deadline are read live. */
export interface Queued {
  readonly turn: Turn;
  readonly deadlineMs: number;
  readonly arrivedMs: number;
}

export interface CooldownOptions {
  /** The longest one 429 may hold all requests, ms. */
  readonly maxClosedMs: number;
  /** How long a 429 closes the gate where neither the upstream nor a known rate says, and at most, ms. */
  readonly baseMs: number;
  readonly capMs: number;
}

export interface QueueOptions {
  /** Attempts in flight: at an upstream met for the first time, and ever. */
  readonly initialWindow: number;
  readonly maxInFlight: number;
  /** How many requests may wait, in total and for one caller. */
  readonly maxWaiting: number;
  readonly maxWaitingPerCaller: number;
  /** 0 to 1, for the jitter. */
  readonly random: () => number;
}

export interface SchedulerOptions extends CooldownOptions, QueueOptions {}

/** Why a request gets no turn, and in how many ms it makes sense to come again. */
export interface Rejection {
  readonly code: 'upstream-rate-limited' | 'overloaded';
  readonly retryAfterMs: number;
}

/** A queued request that was taken out of the queue without a turn. */
export interface Rejected<T> {
  readonly request: T;
  readonly rejection: Rejection;
}

/** An attempt under way. */
export interface Permit {
  readonly turn: Turn;
  readonly sentMs: number;
  readonly state: 'open' | 'paced' | 'probe';
  /** The pacer had turns to spare when it let this attempt go: a 429 for it was provoked by others. */
  readonly isSpare: boolean;
}

export type Outcome =
  /** Any answer but a 429; `isHealthy` where it is not a 5xx either. */
  | { readonly kind: 'answered'; readonly isHealthy: boolean }
  /** A 429, and the wait that it states. */
  | { readonly kind: 'throttled'; readonly waitMs: number | undefined }
  /** Nothing that says anything about the limit: no connection, a timeout, an abort. */
  | { readonly kind: 'failed' };

export type Next<T> =
  | { readonly kind: 'go'; readonly request: T; readonly permit: Permit }
  /** Nothing may go now; ask again then (`undefined`: only after something else has happened). */
  | { readonly kind: 'wait'; readonly untilMs: number | undefined };

/** What waits of one caller. */
export interface CallerQueue {
  readonly name: string;
  /** Requests that wait for their answer, and the longest wait among them. */
  readonly length: number;
  readonly oldestWaitMs: number;
  /** Background refreshes, which delay no answer. */
  readonly refreshes: number;
}

export interface GateSnapshot {
  readonly state: GateState | 'off';
  /** Learned rate in attempts per second; undefined while none is known. */
  readonly perSecond: number | undefined;
  readonly window: number;
  readonly inFlight: number;
  readonly waiting: number;
  readonly callers: readonly CallerQueue[];
  /** How much longer nothing goes up, ms; 0 when the gate is not closed. */
  readonly closedForMs: number;
  /** How much longer the upstream itself has asked to wait, ms. */
  readonly statedWaitMs: number;
  /** Attempts let go and 429s received since the start. */
  readonly attempts: number;
  readonly refusals: number;
}
