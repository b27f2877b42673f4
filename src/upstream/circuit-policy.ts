/**
 * Whether the upstream is down, as a whole or in part, and when a read may be tried again. Pure: no `this`, no I/O,
 * no clock.
 *
 * Failures in a row are counted in three scopes: for a read (one operation of one caller), for the operation, and for
 * the whole upstream. From ten on, over a second or more, the scope's circuit is open; the next success closes it. A
 * caller can choose reads that are slow or that fail, so a failure counts for what it proves:
 *
 * - No connection: the whole upstream is down.
 * - A connection, but no answer in time, or a 502, 503 or 504: the read fails. The operation is down only where it
 *   fails for different callers, and the whole upstream where different operations fail for different callers.
 * - Any other 5xx comes from the application: the same, but the whole upstream is alive.
 *
 * A read that is held up is tried again by one of its own requests: a read that hangs does not use up the trials of
 * others.
 */
import { GatewayError, type ProxyErrorType } from '../errors.ts';

const openAfterFailures = 10;
const openAfterMs = 1_000;
/** A read is tried again after this long; the wait doubles with each trial that fails. */
const firstWaitMs = 1_000;
const longestWaitMs = 30_000;

/** One operation of one caller. */
export interface Read {
  readonly caller: string;
  readonly operation: string;
}

export type Scope = 'whole' | 'operation' | 'read';

/** What an attempt came to. A 429 is `answered`; `unknown` says nothing about the upstream. */
export type Outcome = 'answered' | 'broken' | 'unanswered' | 'unreachable' | 'unknown';

/** What an attempt failed with, or the status of the upstream's answer. */
export type LastFailure = GatewayError | number | undefined;

/** An attempt that has ended. */
export interface Ended {
  readonly read: Read;
  readonly outcome: Outcome;
  readonly last: LastFailure;
}

/** The failures since the last success. */
export interface Failures {
  readonly count: number;
  /** Of these, failures to connect. */
  readonly unreachable: number;
  readonly firstMs: number;
  readonly lastMs: number;
  readonly callers: ReadonlySet<string>;
  readonly operations: ReadonlySet<string>;
  readonly last: LastFailure;
}

export const noFailures: Failures = {
  ...{ count: 0, unreachable: 0, firstMs: 0, lastMs: 0, last: undefined },
  ...{ callers: new Set<string>(), operations: new Set<string>() },
};

/** Whether there were so many failures in a row for so long. */
export function isFailing({ count, firstMs, lastMs }: Failures): boolean {
  return count >= openAfterFailures && lastMs - firstMs >= openAfterMs;
}

export function isOpen(failures: Failures, scope: Scope): boolean {
  const { unreachable, callers, operations } = failures;
  if (!isFailing(failures) || scope === 'read') return isFailing(failures);
  if (scope === 'operation') return callers.size > 1;
  return unreachable >= openAfterFailures || (callers.size > 1 && operations.size > 1);
}

const effects = {
  answered: { whole: 'success', part: 'success' },
  broken: { whole: 'success', part: 'failure' },
  unanswered: { whole: 'failure', part: 'failure' },
  unreachable: { whole: 'failure', part: 'none' },
  unknown: { whole: 'none', part: 'none' },
} as const;

/** What an attempt that has ended makes of the failures. */
export function failuresAfter(failures: Failures, scope: Scope, ended: Ended, nowMs: number): Failures {
  const { read, outcome, last } = ended;
  const effect = effects[outcome][scope === 'whole' ? 'whole' : 'part'];
  if (effect === 'none') return failures;
  if (effect === 'success') return noFailures;
  return {
    count: failures.count + 1,
    unreachable: failures.unreachable + (outcome === 'unreachable' ? 1 : 0),
    firstMs: failures.count === 0 ? nowMs : failures.firstMs,
    lastMs: nowMs,
    callers: new Set(failures.callers).add(read.caller),
    operations: new Set(failures.operations).add(read.operation),
    last,
  };
}

/** When a read that is held up may be tried again. */
export interface Trials {
  readonly dueMs: number;
  readonly waitMs: number;
  readonly isUnderWay: boolean;
}

export const noTrials: Trials = { dueMs: 0, waitMs: 0, isUnderWay: false };

export function isTrialDue({ dueMs, isUnderWay }: Trials, nowMs: number): boolean {
  return !isUnderWay && nowMs >= dueMs;
}

/** What an attempt of the read that has ended makes of its trials. */
export function trialsAfter(trials: Trials, outcome: Outcome, isTrial: boolean, nowMs: number): Trials {
  if (outcome === 'answered') return noTrials;
  const isUnderWay = trials.isUnderWay && !isTrial;
  if (outcome === 'unknown') return { ...trials, isUnderWay };
  const waitMs = isTrial ? Math.min(Math.max(trials.waitMs * 2, firstWaitMs), longestWaitMs) : firstWaitMs;
  return { dueMs: nowMs + waitMs, waitMs, isUnderWay };
}

export function outcomeOfStatus(status: number): Outcome {
  if (status < 500) return 'answered';
  return status >= 502 && status <= 504 ? 'unanswered' : 'broken';
}

/** What goes wrong once there is a connection. */
const unanswered: readonly (ProxyErrorType | undefined)[] = [
  undefined,
  'http_response_timeout',
  'connection_terminated',
];

/** @param wasSent whether an attempt was made: a deadline that ends in a queue says nothing about the upstream */
export function outcomeOfError(error: unknown, wasSent: boolean): Outcome {
  // With a wait in it, it is the gateway's own refusal.
  if (!(error instanceof GatewayError) || error.retryAfterMs !== undefined || !wasSent) return 'unknown';
  const { code, proxyError } = error;
  // A refused key, or an answer that may not pass, is an answer all the same.
  if (code === 'upstream-key-rejected' || code === 'upstream-invalid-response') return 'answered';
  if (code !== 'upstream-unreachable' && code !== 'upstream-timeout') return 'unknown';
  // Nothing was sent: others had all connections in use.
  if (proxyError === 'connection_limit_reached') return 'unknown';
  return unanswered.includes(proxyError) ? 'unanswered' : 'unreachable';
}
