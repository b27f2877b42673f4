/**
 * When the upstream is down, says so at once instead of letting every request find out. `circuit-policy.ts` decides;
 * here are the clock, what is remembered, and the refusals.
 *
 * Not a library's (read: cockatiel, opossum): none can count a failure for a caller, an operation or the whole, or
 * tell a caller when to come back.
 */
import { GatewayError, type ProblemCode } from '../errors.ts';
import type { Answer, UpstreamRequest } from '../exchange.ts';
import type { Layer } from '../layer.ts';
import type { Trace } from '../trace.ts';
import * as policy from './circuit-policy.ts';

export interface CircuitChange {
  readonly to: 'open' | 'closed';
  /** The one operation that it is about; without it, the upstream as a whole. */
  readonly operation?: string;
  /** The one caller whose reads of the operation it is about; without it, all callers. */
  readonly caller?: string;
  /** What the last failure was: a problem code, or a status of the upstream. */
  readonly lastFailure: ProblemCode | number | undefined;
}

/** One circuit as it is now. */
export interface BreakerSnapshot {
  readonly state: 'closed' | 'open';
  readonly failuresInARow: number;
  /** When the upstream is asked again, in ms from now; 0 when closed or due. */
  readonly probeInMs: number;
}

/** Of the upstream as a whole; it is open as well where each operation that was asked is. */
export interface CircuitSnapshot extends BreakerSnapshot {
  /** Of all operations that were asked: open where an operation has only failed lately, for one caller or more. */
  readonly operations: readonly (BreakerSnapshot & { readonly operation: string })[];
}

export interface CircuitOptions {
  /** Called once for each change. Must not throw. */
  readonly onChange?: (change: CircuitChange) => void;
}

/** What is known of a read: the circuits that may hold it up, the widest first, and its trials. */
interface Tracked extends policy.Read {
  readonly breakers: readonly Breaker[];
  trials: policy.Trials;
}

/**
 * Throws the last failure's problem, with the time until the next trial, for a request that an open circuit holds up.
 * `layer` belongs between `retry` and `gate`, and `atTurn` right below the gate.
 */
export class Circuit {
  readonly #options: CircuitOptions;
  readonly #whole: Breaker;
  readonly #operations = new Map<string, Breaker>();
  /** As many as there are operations times callers. */
  readonly #reads = new Map<string, Tracked>();
  /** The requests that are trials now. */
  readonly #trying = new WeakSet<Trace>();

  constructor(options: CircuitOptions = {}) {
    this.#options = options;
    this.#whole = new Breaker('whole', {}, options);
  }

  readonly layer: Layer<UpstreamRequest, Answer> = (next) => async (request, trace) => {
    const read = this.#readOf(request);
    const isTrial = read.breakers.some(({ isOpen }) => isOpen);
    if (isTrial && !policy.isTrialDue(read.trials, performance.now())) throw refusal(read);
    if (isTrial) {
      read.trials = { ...read.trials, isUnderWay: true };
      this.#trying.add(trace);
    }
    const attemptsBefore = trace.attempts;
    const ended = (outcome: policy.Outcome, last: policy.LastFailure): void => {
      this.#trying.delete(trace);
      settle(read, isTrial, outcome, last);
    };
    try {
      const answer = await next(request, trace);
      ended(policy.outcomeOfStatus(answer.status), answer.status);
      return answer;
    } catch (error) {
      const failure = error instanceof GatewayError ? error : undefined;
      ended(policy.outcomeOfError(failure, trace.attempts > attemptsBefore), failure);
      throw error;
    }
  };

  /** Refuses a request that waited for its turn while a circuit opened that holds it up. */
  readonly atTurn: Layer<UpstreamRequest, Answer> = (next) => async (request, trace) => {
    const read = this.#readOf(request);
    if (read.breakers.some(({ isOpen }) => isOpen) && !this.#trying.has(trace)) throw refusal(read);
    return await next(request, trace);
  };

  readonly snapshot = (): CircuitSnapshot => {
    const reads = [...this.#reads.values()];
    const operations = [...this.#operations].map(([operation, { failures }]) => {
      const own = reads.filter((read) => read.operation === operation);
      return { operation, ...shown(failures, policy.isFailing(failures), own) };
    });
    const whole = shown(this.#whole.failures, this.#whole.isOpen, reads);
    if (this.#whole.isOpen || operations.some(({ state }) => state === 'closed'))
      return { ...whole, operations };
    const [soonest = whole] = operations.toSorted((one, other) => one.probeInMs - other.probeInMs);
    const { state, failuresInARow, probeInMs } = soonest;
    return { state, failuresInARow, probeInMs, operations };
  };

  #readOf({ operation, context }: UpstreamRequest): Tracked {
    const caller = context.flow.name;
    const key = `${operation} ${caller}`;
    let read = this.#reads.get(key);
    if (read === undefined) {
      const shared =
        this.#operations.get(operation) ?? new Breaker('operation', { operation }, this.#options);
      this.#operations.set(operation, shared);
      const own = new Breaker('read', { operation, caller }, this.#options);
      read = { operation, caller, breakers: [this.#whole, shared, own], trials: policy.noTrials };
      this.#reads.set(key, read);
    }
    return read;
  }
}

/** The circuit of one scope. */
class Breaker {
  readonly #scope: policy.Scope;
  readonly #about: Partial<policy.Read>;
  readonly #onChange: CircuitOptions['onChange'];
  failures = policy.noFailures;
  isOpen = false;

  constructor(scope: policy.Scope, about: Partial<policy.Read>, { onChange }: CircuitOptions) {
    this.#scope = scope;
    this.#about = about;
    this.#onChange = onChange;
  }

  count(ended: policy.Ended, nowMs: number): void {
    const { last: before } = this.failures;
    this.failures = policy.failuresAfter(this.failures, this.#scope, ended, nowMs);
    const isOpen = policy.isOpen(this.failures, this.#scope);
    if (isOpen === this.isOpen) return;
    this.isOpen = isOpen;
    const last = isOpen ? this.failures.last : before;
    const lastFailure = last instanceof GatewayError ? last.code : last;
    this.#onChange?.({ to: isOpen ? 'open' : 'closed', ...this.#about, lastFailure });
  }
}

/** Makes of an attempt that has ended what follows for the read and its circuits. */
function settle(read: Tracked, isTrial: boolean, outcome: policy.Outcome, last: policy.LastFailure): void {
  // Sent before the circuit opened: what it tells is old news.
  if (!isTrial && read.breakers.some(({ isOpen }) => isOpen)) return;
  const nowMs = performance.now();
  read.trials = policy.trialsAfter(read.trials, outcome, isTrial, nowMs);
  for (const breaker of read.breakers) breaker.count({ read, outcome, last }, nowMs);
}

/** The last failure's problem, with the time until the read's next trial. */
function refusal({ breakers, trials }: Tracked): GatewayError {
  const last = breakers.find(({ isOpen }) => isOpen)?.failures.last;
  const failure: Partial<GatewayError> = last instanceof GatewayError ? last : {};
  const { code = 'upstream-unreachable', proxyError = 'destination_unavailable', cause } = failure;
  return new GatewayError(code, {
    ...{ proxyError, cause, reason: 'the circuit is open: the upstream has only failed lately' },
    ...(typeof last === 'number' && { receivedStatus: last }),
    retryAfterMs: Math.max(trials.dueMs - performance.now(), 1_000),
  });
}

function shown({ count }: policy.Failures, isOpen: boolean, reads: readonly Tracked[]): BreakerSnapshot {
  if (!isOpen) return { state: 'closed', failuresInARow: count, probeInMs: 0 };
  // A read that has not failed is tried at once, whenever it comes.
  const due = reads.map(({ trials }) => trials.dueMs).filter((dueMs) => dueMs > 0);
  const probeInMs = Math.max(Math.min(...due) - performance.now(), 0);
  return { state: 'open', failuresInARow: count, probeInMs };
}
