/**
 * The gate: one door to the upstream for everybody. `gate-policy.ts` decides when the next attempt may go and
 * whose it is; here are the timer, the promises of those who wait, and nothing else.
 */
import type { Claim } from '../claim.ts';
import { GatewayError } from '../errors.ts';
import type { Answer, UpstreamRequest } from '../exchange.ts';
import { andThen, type Eventually, type Layer } from '../layer.ts';
import type { Trace } from '../trace.ts';
import { decideTurns } from './gate-policy.ts';
import { statedWaitMs } from './retry-after-policy.ts';
import type { Attempt, GateSnapshot, GateState, Outcome, Refusal } from './turnstile.ts';
import { pause, type Waiter, type WaiterEvents, waitForTurn } from './waiter.ts';

export type { CallerQueue, GateSnapshot } from './turnstile.ts';

/** What a change of the gate's state is about: one line in the log. */
export interface GateChange {
  readonly from: GateState;
  readonly to: GateState;
  /** How long nothing goes up from now on, ms. */
  readonly closedForMs: number;
  /** How long the upstream itself has asked to wait, ms; 0 where it didn't say. */
  readonly statedWaitMs: number;
  readonly perSecond: number | undefined;
  readonly waiting: number;
}

export interface GateOptions {
  /** The longest one 429 may hold everybody, ms. 0 switches the gate off: attempts pass as they come. */
  readonly maxClosedMs: number;
  /** How long the gate closes where nobody knows better, ms. Doubles with each refused probe, up to `capMs`. */
  readonly baseMs: number;
  readonly capMs: number;
  /** Attempts in flight at an upstream met for the first time. Default 10. */
  readonly initialWindow?: number;
  /** Attempts in flight at most. Default 64: more would wait for a connection instead. */
  readonly maxInFlight?: number;
  /** Requests that may wait, in total. Default 5000. */
  readonly maxWaiting?: number;
  /** Requests of one caller that may wait. Default 1000. */
  readonly maxWaitingPerCaller?: number;
  /** 0 to 1, for the jitter. Default `Math.random`. */
  readonly random?: () => number;
  /** Called once for each change of state. Must not throw. */
  readonly onChange?: (change: GateChange) => void;
}

export interface Gate {
  readonly layer: Layer<UpstreamRequest, Answer>;
  /** Time may have changed the state since somebody asked last; then `onChange` is called here. */
  snapshot(): GateSnapshot;
  /**
   * Waits out a closed gate, for what has passed it and goes up once more. It is no new turn: what goes again is
   * no more than was let go before. Rejects with `upstream-rate-limited` where that is beyond the claim's deadline.
   */
  outwait(claim: Claim): Promise<void>;
  /** Rejects everybody who waits, with what the function makes; attempts in flight go on. */
  dismiss(failure: () => unknown): void;
  /** Dismisses everybody with `shutting-down` and stops the timer. The layer refuses from then on. */
  close(): void;
}

const off: GateSnapshot = {
  state: 'off',
  perSecond: undefined,
  window: 0,
  inFlight: 0,
  waiting: 0,
  callers: [],
  closedForMs: 0,
  statedWaitMs: 0,
  attempts: 0,
  refusals: 0,
};

/**
 * Lets attempts go up in fair turns and at the pace that the upstream accepts.
 *
 * Any answer is a value and passes, a 429 too: it closes the gate for everybody, and whoever got it decides
 * whether to come back. Throws `upstream-rate-limited` at once where the turn cannot come before the claim's
 * deadline, `overloaded` where too many wait already, and the claim's reason when it is aborted.
 */
export function paceAttempts(options: GateOptions): Gate {
  if (options.maxClosedMs === 0) {
    return { layer: (next) => next, snapshot: () => off, async outwait() {}, dismiss() {}, close() {} };
  }
  const turnstile = decideTurns<Waiter>({
    maxClosedMs: options.maxClosedMs,
    baseMs: options.baseMs,
    capMs: options.capMs,
    initialWindow: options.initialWindow ?? 10,
    maxInFlight: options.maxInFlight ?? 64,
    maxWaiting: options.maxWaiting ?? 5000,
    maxWaitingPerCaller: options.maxWaitingPerCaller ?? 1000,
    random: options.random ?? Math.random,
  });
  let timer: NodeJS.Timeout | undefined;
  let timerMs = Number.POSITIVE_INFINITY;
  let isPumping = false;
  let isClosed = false;
  let shownState: GateState = 'open';

  const showChange = (): void => {
    const { state } = turnstile;
    if (state === shownState) return;
    const from = shownState;
    shownState = state;
    if (options.onChange === undefined) return;
    const { closedForMs, statedWaitMs: stated, perSecond, waiting } = turnstile.snapshot(performance.now());
    options.onChange({ from, to: state, closedForMs, statedWaitMs: stated, perSecond, waiting });
  };

  const wakeAt = (untilMs: number | undefined): void => {
    if (untilMs === undefined || untilMs >= timerMs) return;
    clearTimeout(timer);
    timerMs = untilMs;
    // Rounded up: a timer that fires a fraction early would find nothing to do and spin.
    timer = setTimeout(
      () => {
        timerMs = Number.POSITIVE_INFINITY;
        pump();
      },
      Math.max(1, Math.ceil(untilMs - performance.now())),
    );
    timer.unref();
  };

  /**
   * Lets everybody go whose turn it is. What fails at once settles in here and asks for the next: the loop under way
   * answers that, as otherwise a line of thousands would be as deep a recursion.
   */
  const pump = (): void => {
    if (isPumping) return;
    isPumping = true;
    // One moment for all: a risky turn goes right after a safe one.
    const nowMs = performance.now();
    try {
      let next = turnstile.next(nowMs);
      while (next.kind === 'go') {
        next.ticket.go(next.attempt);
        next = turnstile.next(nowMs);
      }
      wakeAt(next.untilMs);
    } finally {
      isPumping = false;
    }
    showChange();
  };

  const turnAway = ({ ticket, refusal }: { ticket: Waiter; refusal: Refusal }): void => {
    ticket.fail(failure(refusal), turnstile.state);
  };

  const settle = (attempt: Attempt, outcome: Outcome): void => {
    turnstile.settled(attempt, outcome, performance.now()).forEach(turnAway);
    // Nobody waits and nothing is limited: that is how it is as a rule.
    if (shownState === 'open' && turnstile.state === 'open' && turnstile.waiting === 0) return;
    showChange();
    pump();
  };

  const layer: Layer<UpstreamRequest, Answer> = (next) => {
    const send = (attempt: Attempt, request: UpstreamRequest, trace: Trace): Eventually<Answer> => {
      trace.gate = attempt.state;
      const onFailure = (error: unknown): never => {
        settle(attempt, { kind: 'failed' });
        throw error;
      };
      let answer: Eventually<Answer>;
      try {
        answer = next(request, trace);
      } catch (error) {
        return onFailure(error);
      }
      return andThen(
        answer,
        (received) => {
          settle(attempt, outcomeOf(received));
          return received;
        },
        onFailure,
      );
    };

    return (request, trace) => {
      const { claim } = request;
      if (isClosed) throw new GatewayError('shutting-down', { retryAfterMs: 1000 });
      if (claim.ended !== undefined) throw claim.ended;
      // Where nothing is in the way, nothing is set up to wait: no promise, no timer.
      const admitted = turnstile.admit(claim.turn, performance.now());
      if (admitted !== undefined) return send(admitted, request, trace);
      return lineUp(request, trace, (attempt) => send(attempt, request, trace));
    };
  };

  const lineUp = (request: UpstreamRequest, trace: Trace, send: WaiterEvents['send']): Promise<Answer> => {
    const waiter = waitForTurn(request, trace, {
      send,
      left(who, reason) {
        turnstile.leave(who);
        who.fail(reason, turnstile.state);
        // The place may have been the last: who comes next must not wait for a timer that served this one.
        pump();
      },
      moved(who) {
        turnstile.moved(who);
        pump();
      },
      expired(who) {
        if (!turnstile.leave(who)) return;
        turnAway({ ticket: who, refusal: turnstile.expired(who, performance.now()) });
        pump();
      },
    });
    const { refusal, displaced } = turnstile.enter(waiter, performance.now());
    if (displaced !== undefined) turnAway(displaced);
    if (refusal !== undefined) turnAway({ ticket: waiter, refusal });
    pump();
    return waiter.answer;
  };

  const outwait = async (claim: Claim): Promise<void> => {
    for (;;) {
      const nowMs = performance.now();
      // Others may be refused while this waits, and the gate stay closed for longer.
      const { closedForMs } = turnstile.snapshot(nowMs);
      if (closedForMs === 0) return;
      if (nowMs + closedForMs >= claim.deadlineMs) throw failure(turnstile.closed(nowMs));
      await pause(claim.signal, Math.ceil(closedForMs));
    }
  };

  const dismiss = (makeFailure: () => unknown): void => {
    for (const waiter of turnstile.clear()) waiter.fail(makeFailure(), turnstile.state);
    pump();
  };

  return {
    layer,
    snapshot() {
      const snapshot = turnstile.snapshot(performance.now());
      showChange();
      return snapshot;
    },
    outwait,
    dismiss,
    close() {
      isClosed = true;
      clearTimeout(timer);
      dismiss(() => new GatewayError('shutting-down', { retryAfterMs: 1000 }));
    },
  };
}

const healthy: Outcome = { kind: 'answered', isHealthy: true };

function outcomeOf({ status, headers, receivedAt }: Answer): Outcome {
  if (status < 429) return healthy;
  if (status === 429) return { kind: 'refused', waitMs: statedWaitMs(headers, receivedAt) };
  return { kind: 'answered', isHealthy: status < 500 };
}

function failure({ code, retryAfterMs }: Refusal): GatewayError {
  return code === 'overloaded'
    ? new GatewayError(code, { retryAfterMs, reason: 'too many requests wait at the gate' })
    : new GatewayError(code, {
        retryAfterMs,
        receivedStatus: 429,
        reason: 'the turn comes after the deadline',
      });
}
