/**
 * Whether the upstream is down, as a whole or in part. Pure: no `this`, no I/O, no clock.
 *
 * There is a circuit for the whole upstream, for each operation, and for each operation of each caller. It is open
 * after ten failures in a row over a second or more, and the next success closes it. One caller can choose reads that are
 * slow or that fail. So an operation's circuit opens only where several callers fail, and the whole upstream's only where
 * several operations fail too, or where no connection is made.
 */
import type { GatewayError } from '../errors.ts';

const openAfterFailures = 10;
const openAfterMs = 1_000;
/** What has failed is tried again after this long; the wait doubles with each trial that fails. */
const firstWaitMs = 1_000;
const longestWaitMs = 30_000;

/** What the end of an attempt says of the whole upstream, and of its parts: an operation, or that of one caller. */
const effects = {
  /** Any answer below 500, a 429 too. */
  answered: { whole: 'success', part: 'success' },
  /** A 5xx of the application, which is alive. */
  broken: { whole: 'success', part: 'failure' },
  /** A connection, but no answer in time, or a 502, 503 or 504. */
  unanswered: { whole: 'failure', part: 'failure' },
  /** No connection: no part is to blame. */
  unreachable: { whole: 'failure', part: 'nothing' },
  unknown: { whole: 'nothing', part: 'nothing' },
} as const;

export type Ending = keyof typeof effects;

/** What a circuit is about: one caller's reads of one operation, all reads of one operation, or the whole upstream. */
export interface Scope {
  readonly operation?: string;
  readonly caller?: string;
}

/** An attempt that has ended. */
export interface Ended extends Required<Scope> {
  readonly ending: Ending;
  readonly atMs: number;
  /** The status of its answer, or what it failed with. */
  readonly result: number | GatewayError;
}

/** The failures of a circuit since its last success. */
export interface RecentFailures {
  readonly count: number;
  /** Of these, failures to connect. */
  readonly unreachable: number;
  readonly ofSeveralCallers: boolean;
  readonly ofSeveralOperations: boolean;
  readonly first: Ended;
  readonly last: Ended;
}

/** `undefined` where there are none. */
export function failuresAfter(
  before: RecentFailures | undefined,
  scope: Scope,
  attempt: Ended,
): RecentFailures | undefined {
  const effect = effects[attempt.ending][scope.operation === undefined ? 'whole' : 'part'];
  if (effect === 'nothing') return before;
  if (effect === 'success') return undefined;
  const { first = attempt, count = 0, unreachable = 0, ofSeveralCallers, ofSeveralOperations } = before ?? {};
  return {
    count: count + 1,
    unreachable: unreachable + (attempt.ending === 'unreachable' ? 1 : 0),
    ofSeveralCallers: ofSeveralCallers === true || attempt.caller !== first.caller,
    ofSeveralOperations: ofSeveralOperations === true || attempt.operation !== first.operation,
    first,
    last: attempt,
  };
}

/** Whether there are only failures lately, of one caller or of several. */
export function isFailing(failures: RecentFailures | undefined): boolean {
  if (failures === undefined || failures.count < openAfterFailures) return false;
  return failures.last.atMs - failures.first.atMs >= openAfterMs;
}

export function isOpen(failures: RecentFailures | undefined, { operation, caller }: Scope): boolean {
  if (failures === undefined || !isFailing(failures)) return false;
  if (failures.unreachable >= openAfterFailures) return true;
  const isForCaller = caller !== undefined || failures.ofSeveralCallers;
  return isForCaller && (operation !== undefined || failures.ofSeveralOperations);
}

/** How long to wait for the next trial, ms. @param beforeMs the wait before the attempt that failed; 0 for none */
export function waitAfter(beforeMs: number, isTrial: boolean): number {
  return isTrial ? Math.min(Math.max(beforeMs * 2, firstWaitMs), longestWaitMs) : firstWaitMs;
}

/** @param wasSent whether an attempt was made: a deadline that ends in a queue says nothing about the upstream */
export function judgeEnding(result: Ended['result'], wasSent: boolean): Ending {
  if (typeof result === 'number') {
    if (result < 500) return 'answered';
    return result >= 502 && result <= 504 ? 'unanswered' : 'broken';
  }
  const { code, proxyError, retryAfterMs } = result;
  // With a wait in it, it is the gateway's own refusal.
  if (!wasSent || retryAfterMs !== undefined) return 'unknown';
  // A refused key, or an answer that may not pass, is an answer all the same.
  if (code === 'upstream-key-rejected' || code === 'upstream-invalid-response') return 'answered';
  if (code !== 'upstream-unreachable' && code !== 'upstream-timeout') return 'unknown';
  // Nothing was sent: others had all connections in use.
  if (proxyError === 'connection_limit_reached') return 'unknown';
  const isConnected = [undefined, 'http_response_timeout', 'connection_terminated'].includes(proxyError);
  return isConnected ? 'unanswered' : 'unreachable';
}
