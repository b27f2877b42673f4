/**
 * The gate: lets attempts go up in fair turns and at the pace that the upstream accepts. `scheduler.ts` decides when
 * the next attempt goes and whose it is; here are the clock, one timer, the promises and deadlines of requests that wait.
 */
import type { Claim, ClaimWatcher, Turn } from '../claim.ts';
import { GatewayError } from '../errors.ts';
import type { Answer, UpstreamRequest } from '../exchange.ts';
import { andThen, type Eventually, type Handler, type Layer } from '../layer.ts';
import type { Trace } from '../trace.ts';
import { statedWaitMs } from '../upstream/retry-after-policy.ts';
import { Scheduler } from './scheduler.ts';
import { tuning } from './tuning.ts';
import type {
  CooldownOptions,
  GateSnapshot,
  GateState,
  Outcome,
  Permit,
  Queued,
  QueueOptions,
  Rejected,
  Rejection,
} from './types.ts';

/** A change of the gate's state: one line in the log. */
export interface GateChange {
  readonly from: GateState;
  readonly to: GateState;
  /** How long nothing goes up from now on, ms. */
  readonly closedForMs: number;
  /** How long the upstream itself has asked to wait, ms; 0 where it stated nothing. */
  readonly statedWaitMs: number;
  readonly perSecond: number | undefined;
  readonly waiting: number;
}

/**
 * `maxClosedMs` of 0 switches the gate off: attempts pass as they come. The defaults of the bounds: 10 attempts in
 * flight at first, 64 at most (more would wait for a connection instead), 5,000 requests waiting, 1,000 of one caller.
 */
export interface GateOptions extends CooldownOptions, Partial<QueueOptions> {
  /** Called once for each change of state. Must not throw. */
  readonly onChange?: (change: GateChange) => void;
}

export interface Gate {
  /**
   * An answer passes as it came, a 429 too: it closes the gate for all callers, and the layer above decides whether
   * to come back. Throws `upstream-rate-limited` at once where the turn cannot come before the claim's deadline,
   * `overloaded` where too many wait, and the claim's reason when it is aborted.
   */
  readonly layer: Layer<UpstreamRequest, Answer>;
  /** Time may have changed the state since the last call; then `onChange` is called here. */
  snapshot(): GateSnapshot;
  /**
   * Waits out a closed gate, for an attempt that has had its turn and goes up once more. Rejects with
   * `upstream-rate-limited` where that is beyond the claim's deadline.
   */
  outwait(claim: Claim): Promise<void>;
  /** Rejects all requests that wait, each with a new failure; attempts in flight go on. */
  dismiss(failure: () => unknown): void;
  /** Dismisses with `shutting-down` and stops the timer. The layer refuses from then on. */
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

export function paceAttempts(options: GateOptions): Gate {
  if (options.maxClosedMs === 0) {
    return { layer: (next) => next, snapshot: () => off, async outwait() {}, dismiss() {}, close() {} };
  }
  const gate = new PacingGate(options);
  return {
    layer: (next) => (request, trace) => gate.pass(next, request, trace),
    snapshot: () => gate.snapshot(),
    outwait: (claim) => gate.outwait(claim),
    dismiss: (failure) => gate.dismiss(failure),
    close: () => gate.close(),
  };
}

type Next = Handler<UpstreamRequest, Answer>;

class PacingGate {
  readonly #scheduler: Scheduler<QueuedRequest>;
  readonly #onChange: GateOptions['onChange'];
  readonly #wake = new WakeTimer(() => this.#pump());
  #shownState: GateState = 'open';
  #isPumping = false;
  #isShutDown = false;

  constructor({ onChange, ...options }: GateOptions) {
    this.#onChange = onChange;
    this.#scheduler = new Scheduler({
      initialWindow: 10,
      maxInFlight: 64,
      maxWaiting: 5000,
      maxWaitingPerCaller: 1000,
      random: Math.random,
      ...options,
    });
  }

  /** Where nothing is limited and nothing waits, the gate adds no timer, and no promise to an answer that is a value. */
  pass(next: Next, request: UpstreamRequest, trace: Trace): Eventually<Answer> {
    if (this.#isShutDown) throw new GatewayError('shutting-down', { retryAfterMs: 1000 });
    const { claim } = request;
    if (claim.ended !== undefined) throw claim.ended;
    const permit = this.#scheduler.admit(claim.turn, performance.now());
    if (permit !== undefined) return this.#send(next, request, trace, permit);
    return this.#queue(next, request, trace);
  }

  snapshot(): GateSnapshot {
    const snapshot = this.#scheduler.snapshot(performance.now());
    this.#showChange();
    return snapshot;
  }

  async outwait(claim: Claim): Promise<void> {
    for (;;) {
      const nowMs = performance.now();
      // A later 429 may have closed the gate for longer meanwhile.
      const { closedForMs } = this.#scheduler.snapshot(nowMs);
      if (closedForMs === 0) return;
      if (nowMs + closedForMs >= claim.deadlineMs) throw failureOf(this.#scheduler.closed(nowMs));
      await pause(claim.signal, Math.ceil(closedForMs));
    }
  }

  dismiss(failure: () => unknown): void {
    for (const queued of this.#scheduler.clear()) queued.fail(failure(), this.#scheduler.state);
    this.#pump();
  }

  close(): void {
    this.#isShutDown = true;
    this.dismiss(() => new GatewayError('shutting-down', { retryAfterMs: 1000 }));
    this.#wake.stop();
  }

  #send(next: Next, request: UpstreamRequest, trace: Trace, permit: Permit): Eventually<Answer> {
    trace.gate = permit.state;
    const onFailure = (error: unknown): never => {
      this.#settle(permit, { kind: 'failed' });
      throw error;
    };
    let answer: Eventually<Answer>;
    try {
      answer = next(request, trace);
    } catch (error) {
      return onFailure(error);
    }
    const onAnswer = (received: Answer): Answer => {
      this.#settle(permit, outcomeOf(received));
      return received;
    };
    return andThen(answer, onAnswer, onFailure);
  }

  #queue(next: Next, request: UpstreamRequest, trace: Trace): Promise<Answer> {
    const scheduler = this.#scheduler;
    const queued: QueuedRequest = new QueuedRequest(request.claim, trace, {
      send: (permit) => this.#send(next, request, trace, permit),
      onEnd: (reason) => {
        scheduler.leave(queued);
        queued.fail(reason, scheduler.state);
        this.#pump();
      },
      onMove: () => {
        scheduler.moved(queued);
        this.#pump();
      },
      onDeadline: () => {
        if (!scheduler.leave(queued)) return;
        this.#reject({ request: queued, rejection: scheduler.expired(queued, performance.now()) });
        this.#pump();
      },
    });
    const { rejection, displaced } = scheduler.enter(queued, performance.now());
    if (displaced !== undefined) this.#reject(displaced);
    if (rejection !== undefined) this.#reject({ request: queued, rejection });
    this.#pump();
    return queued.answer;
  }

  #settle(permit: Permit, outcome: Outcome): void {
    for (const one of this.#scheduler.settled(permit, outcome, performance.now())) this.#reject(one);
    if (this.#shownState === 'open' && this.#scheduler.state === 'open' && this.#scheduler.waiting === 0)
      return;
    this.#showChange();
    this.#pump();
  }

  #reject({ request, rejection }: Rejected<QueuedRequest>): void {
    request.fail(failureOf(rejection), this.#scheduler.state);
  }

  /**
   * Sends every request whose turn it is. An attempt that fails at once settles in here: the loop under way goes on
   * with the next, or a queue of thousands would be a recursion as deep.
   */
  #pump(): void {
    if (this.#isPumping) return;
    this.#isPumping = true;
    const nowMs = performance.now();
    try {
      let next = this.#scheduler.next(nowMs);
      for (; next.kind === 'go'; next = this.#scheduler.next(nowMs)) next.request.go(next.permit);
      this.#wake.at(next.untilMs);
    } finally {
      this.#isPumping = false;
    }
    this.#showChange();
  }

  #showChange(): void {
    const from = this.#shownState;
    const to = this.#scheduler.state;
    if (from === to) return;
    this.#shownState = to;
    const {
      closedForMs,
      statedWaitMs: stated,
      perSecond,
      waiting,
    } = this.#scheduler.snapshot(performance.now());
    this.#onChange?.({ from, to, closedForMs, statedWaitMs: stated, perSecond, waiting });
  }
}

/** One timer that fires at the earliest time it was asked for. */
class WakeTimer {
  readonly #act: () => void;
  #timer: NodeJS.Timeout | undefined;
  #untilMs = Number.POSITIVE_INFINITY;

  constructor(act: () => void) {
    this.#act = act;
  }

  at(untilMs: number | undefined): void {
    if (untilMs === undefined || untilMs >= this.#untilMs) return;
    this.stop();
    this.#untilMs = untilMs;
    const fire = (): void => {
      this.#untilMs = Number.POSITIVE_INFINITY;
      this.#act();
    };
    // Rounded up: a timer that fires a fraction early would find nothing to do and spin.
    this.#timer = setTimeout(fire, Math.max(1, Math.ceil(untilMs - performance.now())));
    this.#timer.unref();
  }

  stop(): void {
    clearTimeout(this.#timer);
  }
}

/** What becomes of a queued request. */
interface QueuedEvents {
  send(permit: Permit): Eventually<Answer>;
  /** Its claim has ended. */
  onEnd(reason: Error): void;
  /** Its flow or deadline has changed. */
  onMove(): void;
  onDeadline(): void;
}

/** `setTimeout` holds no more. */
const longestTimerMs = 2 ** 31 - 1;

/** A request that waits for its turn: its promise, its deadline, its leaving. */
class QueuedRequest implements Queued, ClaimWatcher {
  readonly arrivedMs: number;
  readonly answer: Promise<Answer>;
  readonly #claim: Claim;
  readonly #trace: Trace;
  readonly #events: QueuedEvents;
  readonly #resolve: (answer: Eventually<Answer>) => void;
  readonly #reject: (failure: unknown) => void;
  readonly #enteredMs = performance.now();
  #timer: NodeJS.Timeout | undefined;

  constructor(claim: Claim, trace: Trace, events: QueuedEvents) {
    const { promise, resolve, reject } = Promise.withResolvers<Answer>();
    this.answer = promise;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#claim = claim;
    this.#trace = trace;
    this.#events = events;
    this.arrivedMs = trace.startedMs;
    claim.watch(this);
    this.#armDeadline();
  }

  get turn(): Turn {
    return this.#claim.turn;
  }

  get deadlineMs(): number {
    return this.#claim.deadlineMs;
  }

  go(permit: Permit): void {
    this.#stopWaiting();
    try {
      this.#resolve(this.#events.send(permit));
    } catch (error) {
      this.#reject(error);
    }
  }

  /** @param state of the gate, for the trace */
  fail(failure: unknown, state: GateState): void {
    this.#stopWaiting();
    this.#trace.gate = state;
    this.#reject(failure);
  }

  onEnd(reason: Error): void {
    this.#events.onEnd(reason);
  }

  onChange(): void {
    this.#armDeadline();
    this.#events.onMove();
  }

  #armDeadline(): void {
    clearTimeout(this.#timer);
    const leftMs = this.#leftMs();
    this.#timer = setTimeout(
      () => (this.#leftMs() > 0 ? this.#armDeadline() : this.#events.onDeadline()),
      Math.min(Math.max(leftMs, 0), longestTimerMs),
    );
    this.#timer.unref();
  }

  #leftMs(): number {
    return Math.ceil(this.#claim.deadlineMs - tuning.lastWordMs - performance.now());
  }

  #stopWaiting(): void {
    clearTimeout(this.#timer);
    this.#claim.unwatch(this);
    this.#trace.waitedMs += performance.now() - this.#enteredMs;
  }
}

/** @throws the signal's reason when it aborts */
function pause(signal: AbortSignal, ms: number): Promise<void> {
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

const healthy: Outcome = { kind: 'answered', isHealthy: true };

function outcomeOf({ status, headers, receivedAt }: Answer): Outcome {
  if (status < 429) return healthy;
  if (status === 429) return { kind: 'throttled', waitMs: statedWaitMs(headers, receivedAt) };
  return { kind: 'answered', isHealthy: status < 500 };
}

function failureOf({ code, retryAfterMs }: Rejection): GatewayError {
  return code === 'overloaded'
    ? new GatewayError(code, { retryAfterMs, reason: 'too many requests wait at the gate' })
    : new GatewayError(code, {
        retryAfterMs,
        receivedStatus: 429,
        reason: 'the turn comes after the deadline',
      });
}
