/**
 * Whether the upstream is down, as a whole or in one operation, and which request may try it again. Pure: no `this`,
 * no I/O, no clock.
 *
 * A circuit opens after ten failures in a row over a second or more, and closes with the next success. What a failure
 * counts for follows from what it proves, because a caller can choose reads that are slow or that fail:
 *
 * - No connection: the whole upstream is down.
 * - A connection, but no answer in time, or a 502, 503 or 504: the operation fails. The whole upstream is down only
 *   where different callers and different operations have failed.
 * - Any other 5xx comes from the application: the operation fails, the upstream is alive.
 *
 * An operation's circuit that one caller opened holds up that caller alone. While a circuit is open, each caller and
 * operation has a trial request of its own, so that a read that hangs does not use up the trials of the others.
 */

const openAfterFailures = 10;
const openAfterMs = 1_000;
/** The first trial is due after this long; the wait doubles with each round of trials that fails. */
const firstWaitMs = 1_000;
const longestWaitMs = 30_000;

/** Where an attempt comes from. */
export interface Origin {
  readonly caller: string;
  readonly operation: string;
}

/** What an attempt came to. A 429 is `answered`; `unknown` says nothing about the upstream. */
export type Outcome = 'answered' | 'broken' | 'unanswered' | 'unreachable' | 'unknown';

export type Permit = 'pass' | 'trial' | 'refuse';

/** An attempt that has ended. */
export interface Attempted {
  readonly origin: Origin;
  readonly permit: Permit;
  readonly outcome: Outcome;
}

export interface CircuitState {
  readonly scope: 'whole' | 'operation';
  readonly isOpen: boolean;
  /** It holds up every caller, not only those that have failed. */
  readonly isForAll: boolean;
  /** Since the last success, */
  readonly failures: number;
  /** of these, failures to connect, */
  readonly unreachable: number;
  readonly firstFailureMs: number;
  /** and who failed; in an open circuit, since trials were last due. */
  readonly callers: ReadonlySet<string>;
  readonly operations: ReadonlySet<string>;
  readonly trialAtMs: number;
  readonly waitMs: number;
  /** The trials under way. */
  readonly trials: ReadonlySet<string>;
}

export function closedCircuit(scope: CircuitState['scope']): CircuitState {
  const none = new Set<string>();
  return {
    ...{ scope, isOpen: false, isForAll: false, failures: 0, unreachable: 0, firstFailureMs: 0 },
    ...{ callers: none, operations: none, trialAtMs: 0, waitMs: firstWaitMs, trials: none },
  };
}

export function outcomeOfStatus(status: number): Outcome {
  if (status < 500) return 'answered';
  return status >= 502 && status <= 504 ? 'unanswered' : 'broken';
}

const effects = {
  answered: { whole: 'success', operation: 'success' },
  broken: { whole: 'success', operation: 'failure' },
  unanswered: { whole: 'failure', operation: 'failure' },
  unreachable: { whole: 'failure', operation: 'none' },
  unknown: { whole: 'none', operation: 'none' },
} as const;

/** Whether the circuit stands in the way of requests from there, trials aside. */
export function holdsUp(state: CircuitState, origin: Origin): boolean {
  return state.isOpen && (state.isForAll || hasFailed(state, origin));
}

/** Whether a request may go up. */
export function permitFor(state: CircuitState, origin: Origin, nowMs: number): Permit {
  if (!state.isOpen) return 'pass';
  if (!holdsUp(state, origin)) return 'trial';
  const isDue = nowMs >= state.trialAtMs || !hasFailed(state, origin);
  return isDue && !state.trials.has(keyOf(origin)) ? 'trial' : 'refuse';
}

/** The state with a trial under way. */
export function withTrial(state: CircuitState, origin: Origin): CircuitState {
  return { ...state, trials: withOne(state.trials, keyOf(origin)) };
}

/** What an attempt that has ended makes of the state. */
export function after(state: CircuitState, attempt: Attempted, nowMs: number): CircuitState {
  const { origin, permit, outcome } = attempt;
  const effect = effects[outcome][state.scope];
  const isTrial = permit === 'trial';
  // A success that was sent before the circuit opened is old news.
  if (effect === 'success' && (state.isOpen ? !isTrial : state.failures === 0)) return state;
  if (effect === 'success') return closedCircuit(state.scope);
  const trials = isTrial ? withoutOne(state.trials, keyOf(origin)) : state.trials;
  if (effect === 'none') return { ...state, trials };
  const failures = state.failures + 1;
  const unreachable = state.unreachable + (outcome === 'unreachable' ? 1 : 0);
  const firstFailureMs = state.failures === 0 ? nowMs : state.firstFailureMs;
  const callers = withOne(state.callers, origin.caller);
  const operations = withOne(state.operations, origin.operation);
  const isSpread = callers.size > 1 && (state.scope === 'operation' || operations.size > 1);
  const isForAll = state.isForAll || isSpread || unreachable >= openAfterFailures;
  const failed = { ...state, isForAll, failures, unreachable, firstFailureMs, callers, operations, trials };
  if (!state.isOpen) {
    const isLong = failures >= openAfterFailures && nowMs - firstFailureMs >= openAfterMs;
    const isOpen = isLong && (isForAll || state.scope === 'operation');
    return { ...failed, isOpen, trialAtMs: nowMs + firstWaitMs };
  }
  if (!isTrial || nowMs < state.trialAtMs) return failed;
  // The next round: each of the others has a trial of its own again.
  const waitMs = Math.min(state.waitMs * 2, longestWaitMs);
  const alone = { callers: new Set([origin.caller]), operations: new Set([origin.operation]) };
  return { ...failed, ...alone, waitMs, trialAtMs: nowMs + waitMs };
}

function hasFailed({ callers, operations }: CircuitState, { caller, operation }: Origin): boolean {
  return callers.has(caller) && operations.has(operation);
}

function keyOf({ caller, operation }: Origin): string {
  return `${operation} ${caller}`;
}

function withOne(all: ReadonlySet<string>, one: string): ReadonlySet<string> {
  return all.has(one) ? all : new Set([...all, one]);
}

function withoutOne(all: ReadonlySet<string>, one: string): ReadonlySet<string> {
  return new Set([...all].filter((other) => other !== one));
}
