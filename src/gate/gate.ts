/**
 * The gate: lets attempts go up in fair turns and at the pace that the upstream accepts. `scheduler.ts` decides when
 * the next attempt goes and whose it is; here are the clock, one timer, and the promises of requests that wait.
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
export interface GateChange
  extends Pick<GateSnapshot, 'closedForMs' | 'statedWaitMs' | 'perSecond' | 'waiting'> {
  readonly from: GateState;
  readonly to: GateState;
}

/** `maxClosedMs` of 0 switches the gate off: attempts pass as they come. */
export interface GateOptions extends CooldownOptions, Partial<QueueOptions> {
  /** Called once for each change of state. Must not throw. */
  readonly onChange?: (change: GateChange) => void;
}

const defaults: QueueOptions = {
  initialWindow: 10,
  // More would wait for a connection instead.
  maxInFlight: 64,
  maxWaiting: 5000,
  maxWaitingPerCaller: 1000,
  random: Math.random,
};

export type Gate = Pick<PacingGate, 'layer' | 'snapshot' | 'close'>;

const off: GateSnapshot = {
  ...{ state: 'off', perSecond: undefined, window: 0, inFlight: 0, waiting: 0, callers: [] },
  ...{ closedForMs: 0, statedWaitMs: 0, attempts: 0, refusals: 0 },
};

export function paceAttempts(options: GateOptions): Gate {
  if (options.maxClosedMs > 0) return new PacingGate(options);
  return { layer: (next) => next, snapshot: () => off, close() {} };
}

class PacingGate {
  readonly #scheduler: Scheduler<QueuedRequest>;
  readonly #onChange: GateOptions['onChange'];
  #shownState: GateState = 'open';
  #timer: NodeJS.Timeout | undefined;
  #wakeMs = Number.POSITIVE_INFINITY;
  #isPumping = false;
  #isShutDown = false;

  constructor({ onChange, ...options }: GateOptions) {
    this.#onChange = onChange;
    this.#scheduler = new Scheduler({ ...defaults, ...options });
  }

  /**
   * An answer passes as it came, a 429 too: it closes the gate for all callers, and the layer above decides whether
   * to come back. Throws `upstream-rate-limited` at once where the turn cannot come before the claim's deadline,
   * `overloaded` where too many wait, and the claim's reason when it is aborted.
   *
   * Where nothing is limited and nothing waits, it adds no timer, and no promise to an answer that is a value.
   */
  readonly layer: Layer<UpstreamRequest, Answer> = (next) => (request, trace) => {
    const { claim } = request;
    if (this.#isShutDown) throw shuttingDown();
    if (claim.ended !== undefined) throw claim.ended;
    const permit = this.#scheduler.admit(claim.turn, performance.now());
    if (permit !== undefined) return this.#send(next, request, trace, permit);
    const queued = new QueuedRequest(this, claim, trace, (turn) => this.#send(next, request, trace, turn));
    const { rejection, displaced } = this.#scheduler.enter(queued, performance.now());
    if (displaced !== undefined) this.#reject(displaced);
    if (rejection !== undefined) this.#reject({ request: queued, rejection });
    this.#pump();
    return queued.answer;
  };

  /** Time may have changed the state since the last call; then `onChange` is called here. */
  readonly snapshot = (): GateSnapshot => {
    const snapshot = this.#scheduler.snapshot(performance.now());
    this.#showChange();
    return snapshot;
  };

  /** Rejects all requests that wait with `shutting-down`; attempts in flight go on. The layer refuses from then on. */
  readonly close = (): void => {
    this.#isShutDown = true;
    const { state } = this.#scheduler;
    for (const queued of this.#scheduler.clear()) queued.fail(shuttingDown(), state);
    clearTimeout(this.#timer);
  };

  /** The claim of a queued request has ended. */
  leave(queued: QueuedRequest, reason: Error): void {
    this.#scheduler.leave(queued);
    queued.fail(reason, this.#scheduler.state);
    this.#pump();
  }

  /** The flow or deadline of a queued request has changed. */
  move(queued: QueuedRequest): void {
    this.#scheduler.moved(queued);
    this.#pump();
  }

  /** The deadline of a queued request has come. */
  expire(queued: QueuedRequest): void {
    if (!this.#scheduler.leave(queued)) return;
    this.#reject({ request: queued, rejection: this.#scheduler.expired(queued, performance.now()) });
    this.#pump();
  }

  #send(
    next: Handler<UpstreamRequest, Answer>,
    request: UpstreamRequest,
    trace: Trace,
    permit: Permit,
  ): Eventually<Answer> {
    trace.gate = permit.state;
    const onAnswer = (answer: Answer): Answer => {
      this.#settle(permit, outcomeOf(answer));
      return answer;
    };
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
    return andThen(answer, onAnswer, onFailure);
  }

  #settle(permit: Permit, outcome: Outcome): void {
    const scheduler = this.#scheduler;
    for (const rejected of scheduler.settled(permit, outcome, performance.now())) this.#reject(rejected);
    if (scheduler.waiting > 0 || scheduler.state !== 'open' || this.#shownState !== 'open') this.#pump();
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
      if (next.untilMs !== undefined) this.#wakeAt(next.untilMs);
    } finally {
      this.#isPumping = false;
    }
    this.#showChange();
  }

  #wakeAt(wakeMs: number): void {
    if (wakeMs >= this.#wakeMs) return;
    clearTimeout(this.#timer);
    this.#wakeMs = wakeMs;
    const wake = (): void => {
      this.#wakeMs = Number.POSITIVE_INFINITY;
      this.#pump();
    };
    // Rounded up: a timer that fires a fraction early would find nothing to do and spin.
    this.#timer = setTimeout(wake, Math.max(1, Math.ceil(wakeMs - performance.now())));
    this.#timer.unref();
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

/** A request that waits for its turn: its promise, its deadline, its leaving. */
class QueuedRequest implements Queued, ClaimWatcher {
  readonly arrivedMs: number;
  readonly #gate: PacingGate;
  readonly #claim: Claim;
  readonly #trace: Trace;
  readonly #send: (permit: Permit) => Eventually<Answer>;
  readonly #outcome = Promise.withResolvers<Answer>();
  readonly #enteredMs = performance.now();
  #timer: NodeJS.Timeout | undefined;

  constructor(gate: PacingGate, claim: Claim, trace: Trace, send: (permit: Permit) => Eventually<Answer>) {
    this.arrivedMs = trace.startedMs;
    this.#gate = gate;
    this.#claim = claim;
    this.#trace = trace;
    this.#send = send;
    claim.watch(this);
    this.#armDeadline();
  }

  get answer(): Promise<Answer> {
    return this.#outcome.promise;
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
      this.#outcome.resolve(this.#send(permit));
    } catch (error) {
      this.#outcome.reject(error);
    }
  }

  /** @param state of the gate, for the trace */
  fail(failure: unknown, state: GateState): void {
    this.#stopWaiting();
    this.#trace.gate = state;
    this.#outcome.reject(failure);
  }

  onEnd(reason: Error): void {
    this.#gate.leave(this, reason);
  }

  onChange(): void {
    this.#armDeadline();
    this.#gate.move(this);
  }

  #armDeadline(): void {
    clearTimeout(this.#timer);
    const leftMs = (): number => Math.ceil(this.deadlineMs - tuning.lastWordMs - performance.now());
    const onTime = (): void => (leftMs() > 0 ? this.#armDeadline() : this.#gate.expire(this));
    // A timer holds no more than 31 bits.
    this.#timer = setTimeout(onTime, Math.min(Math.max(leftMs(), 0), 2 ** 31 - 1));
    this.#timer.unref();
  }

  #stopWaiting(): void {
    clearTimeout(this.#timer);
    this.#claim.unwatch(this);
    this.#trace.waitedMs += performance.now() - this.#enteredMs;
  }
}

const healthy: Outcome = { kind: 'answered', isHealthy: true };

function outcomeOf({ status, headers, receivedAt }: Answer): Outcome {
  if (status < 429) return healthy;
  if (status === 429) return { kind: 'throttled', waitMs: statedWaitMs(headers, receivedAt) };
  return { kind: 'answered', isHealthy: status < 500 };
}

function shuttingDown(): GatewayError {
  return new GatewayError('shutting-down', { retryAfterMs: 1000 });
}

function failureOf({ code, retryAfterMs }: Rejection): GatewayError {
  if (code === 'overloaded') {
    return new GatewayError(code, { retryAfterMs, reason: 'too many requests wait at the gate' });
  }
  return new GatewayError(code, {
    retryAfterMs,
    receivedStatus: 429,
    reason: 'the turn comes after the deadline',
  });
}
