/**
 * When the upstream is down, says so at once instead of letting every request find out. `circuit-rules.ts` decides
 * which circuits are open; here are the requests that are refused, and the ones that are let through to try.
 *
 * Not a library's (read: cockatiel, opossum): none can count a failure for a caller, an operation or the whole, or
 * state a Retry-After.
 */

import { GatewayError, type ProblemCode } from '../errors.ts';
import type { Answer, UpstreamRequest } from '../exchange/exchange.ts';
import { toSeconds } from '../exchange/figures.ts';
import type { Layer } from '../exchange/layer.ts';
import type { Trace } from '../exchange/trace.ts';
import * as rules from './circuit-rules.ts';

export interface CircuitChange extends rules.Scope {
  readonly to: 'open' | 'closed';
  /** What the last failure was: a problem code, or a status of the upstream. */
  readonly lastFailure: ProblemCode | number | undefined;
}

export interface CircuitOptions {
  /** Called once for each change. Must not throw. */
  readonly onChange?: (change: CircuitChange) => void;
}

/** One circuit as `/status` shows it. */
export interface BreakerSnapshot {
  readonly state: 'closed' | 'open';
  readonly failuresInARow: number;
  /** When the upstream is asked again; 0 when closed or due. */
  readonly probeInSeconds: number;
  /** What its last attempt failed with, as ECONNREFUSED or 503; null where it has not failed since the last success. */
  readonly lastFailure: string | null;
}

/** The circuit's part of `/status`: of the upstream as a whole; it is open as well where each operation that was asked is. */
export interface CircuitSnapshot extends BreakerSnapshot {
  /** Of all operations that were asked: open where an operation has only failed lately, for one caller or more. */
  readonly operations: readonly (BreakerSnapshot & { readonly operation: string })[];
}

/** Remembered of one operation. People of company logins may be many more; what they ask for rarely fails. */
const mostReads = 1_000;

interface Breaker {
  readonly scope: rules.Scope;
  failures: rules.RecentFailures | undefined;
}

interface Operation extends Breaker {
  /** By caller. */
  readonly reads: Map<string, Read>;
}

/** One operation of one caller: it has trials of its own, so that one that hangs does not use up those of others. */
interface Read extends Required<rules.Scope> {
  /** The circuits that may hold it up, the widest first. */
  readonly breakers: readonly Breaker[];
  /** When it may be tried again, and how long that is after its failure; 0 where it has not failed. */
  dueMs: number;
  waitMs: number;
  /** A request tries it now. */
  isTried: boolean;
}

/**
 * Throws the last failure's problem, with the time until the next trial, for a request that an open circuit holds up.
 * `layer` belongs between `retry` and `gate`, and `atTurn` right below the gate.
 */
export class Circuit {
  readonly #onChange: CircuitOptions['onChange'];
  readonly #whole: Breaker = { scope: {}, failures: undefined };
  readonly #operations = new Map<string, Operation>();
  /** The requests that try a read now. Not looked up by caller: the flow of a shared exchange changes while it waits. */
  readonly #trials = new Set<Trace>();

  constructor({ onChange }: CircuitOptions = {}) {
    this.#onChange = onChange;
  }

  readonly layer: Layer<UpstreamRequest, Answer> = (next) => async (request, trace) => {
    const read = this.#readOf(request);
    const isTrial = openOf(read) !== undefined;
    if (isTrial && (read.isTried || performance.now() < read.dueMs)) throw refusal(read);
    if (isTrial) {
      read.isTried = true;
      this.#trials.add(trace);
    }
    const attemptsBefore = trace.attempts;
    try {
      const answer = await next(request, trace);
      this.#settle(read, isTrial, answer.status, true);
      return answer;
    } catch (error) {
      const wasSent = trace.attempts > attemptsBefore;
      if (error instanceof GatewayError) this.#settle(read, isTrial, error, wasSent);
      throw error;
    } finally {
      if (isTrial) {
        read.isTried = false;
        this.#trials.delete(trace);
      }
    }
  };

  /** Refuses a request that waited for its turn while a circuit opened that holds it up. */
  readonly atTurn: Layer<UpstreamRequest, Answer> = (next) => (request, trace) => {
    const read = this.#readOf(request);
    if (openOf(read) !== undefined && !this.#trials.has(trace)) throw refusal(read);
    return next(request, trace);
  };

  readonly snapshot = (): CircuitSnapshot => {
    const operations = [...this.#operations].map(([operation, { failures, reads }]) => {
      const count = failures?.count ?? 0;
      return { operation, ...shown(rules.isFailing(failures), count, failures, [...reads.values()]) };
    });
    const { scope, failures } = this.#whole;
    const isEachOpen = operations.length > 0 && operations.every(({ state }) => state === 'open');
    const counts = isEachOpen ? operations.map(({ failuresInARow }) => failuresInARow) : [];
    const count = Math.max(failures?.count ?? 0, ...counts);
    const reads = [...this.#operations.values()].flatMap((operation) => [...operation.reads.values()]);
    const isOpen = isEachOpen || rules.isOpen(failures, scope);
    const part = [...this.#operations.values()].find((one) => one.failures !== undefined)?.failures;
    return { ...shown(isOpen, count, failures ?? (isEachOpen ? part : undefined), reads), operations };
  };

  /** Reads of callers that are remembered, of all operations. */
  get remembered(): number {
    return [...this.#operations.values()].reduce((sum, { reads }) => sum + reads.size, 0);
  }

  /** Of several callers that wait: the first one that is not held up. */
  #readOf({ operation, context }: UpstreamRequest): Read {
    let first: Read | undefined;
    for (const { name } of context.flows) {
      const read = this.#readBy(name, operation);
      if (openOf(read) === undefined) return read;
      first ??= read;
    }
    return first as Read;
  }

  #readBy(caller: string, operation: string): Read {
    const known = this.#operations.get(operation)?.reads.get(caller);
    if (known !== undefined) return known;
    const shared = this.#operations.get(operation) ?? {
      scope: { operation },
      failures: undefined,
      reads: new Map(),
    };
    const own = { scope: { operation, caller }, failures: undefined };
    const breakers = [this.#whole, shared, own];
    const read = { operation, caller, breakers, dueMs: 0, waitMs: 0, isTried: false };
    this.#operations.set(operation, shared);
    const { reads } = shared;
    if (reads.size >= mostReads) {
      const known = [...reads.values()];
      reads.delete((known.find(isAsNew) ?? known[0] ?? read).caller);
    }
    reads.set(caller, read);
    return read;
  }

  /** Applies an attempt that has ended to its read and to the circuits of that read. */
  #settle(read: Read, isTrial: boolean, result: rules.Ended['result'], wasSent: boolean): void {
    const ending = rules.judgeEnding(result, wasSent);
    // Sent before the circuit opened: it says nothing of the upstream as it is now.
    if (ending === 'unknown' || (!isTrial && openOf(read) !== undefined)) return;
    const { operation, caller } = read;
    const ended = { operation, caller, ending, atMs: performance.now(), result };
    read.waitMs = ending === 'answered' ? 0 : rules.waitAfter(read.waitMs, isTrial);
    read.dueMs = read.waitMs === 0 ? 0 : ended.atMs + read.waitMs;
    // It may have been forgotten while it was under way.
    if (read.dueMs > 0) this.#operations.get(operation)?.reads.set(caller, read);
    for (const breaker of read.breakers) {
      const { scope, failures: before } = breaker;
      const after = rules.failuresAfter(before, scope, ended);
      breaker.failures = after;
      const isOpen = rules.isOpen(after, scope);
      if (isOpen === rules.isOpen(before, scope)) continue;
      const last = (isOpen ? after : before)?.last.result;
      const lastFailure = last instanceof GatewayError ? last.code : last;
      this.#onChange?.({ to: isOpen ? 'open' : 'closed', ...scope, lastFailure });
    }
  }
}

/** Whether it has not failed lately: forgotten, it begins where it is. */
function isAsNew({ dueMs, isTried, breakers }: Read): boolean {
  return dueMs === 0 && !isTried && breakers.at(-1)?.failures === undefined;
}

/** The widest open circuit that holds a read up. */
function openOf({ breakers }: Read): Breaker | undefined {
  return breakers.find(({ failures, scope }) => rules.isOpen(failures, scope));
}

/** The last failure's problem, with the time until the read's next trial. */
function refusal(read: Read): GatewayError {
  const last = openOf(read)?.failures?.last.result;
  const failure: Partial<GatewayError> = last instanceof GatewayError ? last : {};
  const { code = 'upstream-unreachable', proxyError = 'destination_unavailable', cause } = failure;
  return new GatewayError(code, {
    proxyError,
    cause,
    reason: 'the circuit is open: the upstream has only failed lately',
    ...(typeof last === 'number' && { receivedStatus: last }),
    retryAfterMs: Math.max(read.dueMs - performance.now(), 1_000),
  });
}

function shown(
  isOpen: boolean,
  failuresInARow: number,
  failures: rules.RecentFailures | undefined,
  reads: readonly Read[],
): BreakerSnapshot {
  const lastFailure = failures === undefined ? null : inAWord(failures.last.result);
  if (!isOpen) return { state: 'closed', failuresInARow, probeInSeconds: 0, lastFailure };
  // A read that has not failed is tried at once, whenever it comes.
  const due = reads.map(({ dueMs }) => dueMs).filter((dueMs) => dueMs > 0);
  const probeInMs = Math.max(Math.min(...due) - performance.now(), 0);
  return { state: 'open', failuresInARow, probeInSeconds: toSeconds(probeInMs), lastFailure };
}

/** The code of the system where there is one, else the gateway's own. */
function inAWord(result: rules.Ended['result']): string {
  if (typeof result === 'number') return String(result);
  for (let cause = result.cause; cause instanceof Error; cause = cause.cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (typeof code === 'string') return code;
  }
  return result.code;
}
