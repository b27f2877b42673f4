/** What the gate's rules and the layer that acts on them say to each other: types only. */
import type { Turn } from '../claim.ts';
import type { ClosingOptions } from './closing-policy.ts';
import type { Waiting } from './fair-queue.ts';

export type GateState = 'open' | 'closed' | 'probing' | 'paced';

/** Something that waits for its turn. Turn and deadline are read live. */
export interface Ticket extends Waiting {
  readonly turn: Turn;
  readonly deadlineMs: number;
  readonly arrivedMs: number;
}

export interface TurnstileOptions extends ClosingOptions {
  /** Attempts in flight: at an upstream met for the first time, and ever. */
  readonly initialWindow: number;
  readonly maxInFlight: number;
  /** How many may wait, in total and for one caller. */
  readonly maxWaiting: number;
  readonly maxWaitingPerCaller: number;
}

/** Why a ticket gets no turn, and after how many ms it would make sense to come again. */
export interface Refusal {
  readonly code: 'upstream-rate-limited' | 'overloaded';
  readonly retryAfterMs: number;
}

/** An attempt under way. */
export interface Attempt {
  readonly turn: Turn;
  readonly sentMs: number;
  /** What the gate was doing when it let the attempt go. */
  readonly state: 'open' | 'paced' | 'probe';
}

export type Outcome =
  /** Any answer that is no 429; `isHealthy` when it is no 5xx either. */
  | { readonly kind: 'answered'; readonly isHealthy: boolean }
  /** A 429, and the wait it asks for. */
  | { readonly kind: 'refused'; readonly waitMs: number | undefined }
  /** Nothing that says anything about the limit: no connection, a timeout, an abort. */
  | { readonly kind: 'failed' };

export type Next<T> =
  | { readonly kind: 'go'; readonly ticket: T; readonly attempt: Attempt }
  /** Nothing may go now; ask again then (`undefined`: only after something else has happened). */
  | { readonly kind: 'wait'; readonly untilMs: number | undefined };

export interface CallerQueue {
  readonly name: string;
  readonly length: number;
  readonly oldestWaitMs: number;
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

export interface Turnstile<T extends Ticket> {
  readonly state: GateState;
  readonly waiting: number;
  /** A turn at once, where nobody waits and nothing has been limited: no ticket, no line. */
  admit(turn: Turn, nowMs: number): Attempt | undefined;
  /** Lines a ticket up. A refusal says why not; `displaced` is who had to leave for it. */
  enter(ticket: T, nowMs: number): { refusal?: Refusal; displaced?: { ticket: T; refusal: Refusal } };
  /** Takes a ticket out of the line; false when it does not stand there. */
  leave(ticket: T): boolean;
  /** The ticket's turn has changed: lines it up anew. */
  moved(ticket: T): void;
  next(nowMs: number): Next<T>;
  /** An attempt has ended. Returns the tickets whose turn can no longer come in time, taken out of the line. */
  settled(attempt: Attempt, outcome: Outcome, nowMs: number): readonly { ticket: T; refusal: Refusal }[];
  /** What a ticket is told whose deadline has come, and what one is told that can't wait until the gate opens. */
  expired(ticket: T, nowMs: number): Refusal;
  closed(nowMs: number): Refusal;
  /** Everybody who waits, taken out of the line. */
  clear(): readonly T[];
  snapshot(nowMs: number): GateSnapshot;
}
