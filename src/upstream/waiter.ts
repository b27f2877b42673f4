/** One who waits for its turn at the gate: its promise, its deadline, its leaving. */
import type { ClaimWatcher, Turn } from '../claim.ts';
import type { Answer, UpstreamRequest } from '../exchange.ts';
import type { Eventually } from '../layer.ts';
import type { Trace } from '../trace.ts';
import type { Attempt, GateState, Ticket } from './turnstile.ts';

export interface Waiter extends Ticket {
  readonly answer: Promise<Answer>;
  /** Its turn has come. */
  go(attempt: Attempt): void;
  /** @param state of the gate, for the trace */
  fail(failure: unknown, state: GateState): void;
}

/** What becomes of one who waits. */
export interface WaiterEvents {
  send(attempt: Attempt): Eventually<Answer>;
  /** Its claim has ended. */
  left(waiter: Waiter, reason: Error): void;
  /** Its turn or deadline has changed. */
  moved(waiter: Waiter): void;
  /** Its deadline has come. */
  expired(waiter: Waiter): void;
}

/**
 * So long before its deadline it is told why it got no turn, and when to come again: in less time no attempt would
 * be answered, and at the deadline itself it would be told nothing but that it took too long.
 */
const lastWordMs = 25;
/** `setTimeout` holds no more. */
const longestTimerMs = 2 ** 31 - 1;

/** Waits until it goes or fails; how long that took is added to the trace. */
export function waitForTurn(request: UpstreamRequest, trace: Trace, events: WaiterEvents): Waiter {
  const { claim } = request;
  const enteredMs = performance.now();
  const { promise, resolve, reject } = Promise.withResolvers<Answer>();
  let deadline: NodeJS.Timeout | undefined;

  const waiter: Waiter = {
    answer: promise,
    get turn(): Turn {
      return claim.turn;
    },
    get deadlineMs() {
      return claim.deadlineMs;
    },
    arrivedMs: trace.startedMs,
    go(attempt) {
      stopWaiting();
      try {
        resolve(events.send(attempt));
      } catch (error) {
        reject(error);
      }
    },
    fail(failure, state) {
      stopWaiting();
      trace.gate = state;
      reject(failure);
    },
  };

  const watcher: ClaimWatcher = {
    onEnd: (reason) => events.left(waiter, reason),
    onChange() {
      armDeadline();
      events.moved(waiter);
    },
  };
  const armDeadline = (): void => {
    clearTimeout(deadline);
    const leftMs = Math.ceil(claim.deadlineMs - lastWordMs - performance.now());
    deadline = setTimeout(
      () => {
        if (claim.deadlineMs - lastWordMs > performance.now()) armDeadline();
        else events.expired(waiter);
      },
      Math.min(Math.max(leftMs, 0), longestTimerMs),
    );
    deadline.unref();
  };
  const stopWaiting = (): void => {
    clearTimeout(deadline);
    claim.unwatch(watcher);
    trace.waitedMs += performance.now() - enteredMs;
  };

  claim.watch(watcher);
  armDeadline();
  return waiter;
}

/** @throws the signal's reason when it aborts */
export function pause(signal: AbortSignal, ms: number): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const onAbort = (): void => {
    clearTimeout(timer);
    reject(signal.reason);
  };
  const timer = setTimeout(() => {
    signal.removeEventListener('abort', onAbort);
    resolve();
  }, ms);
  timer.unref();
  if (signal.aborted) onAbort();
  else signal.addEventListener('abort', onAbort, { once: true });
  return promise;
}
