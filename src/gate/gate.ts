/**
 * The gate: lets attempts go up in fair turns and at the pace that the upstream accepts. `scheduler.ts` decides when
 * the next attempt goes and whose it is; here are the clock, one timer, and the promises of requests that wait.
 */
import { GatewayError } from '../errors.ts';
import { type Answer, limitOutcome, type UpstreamRequest } from '../exchange/exchange.ts';
import { andThen, type Eventually, type Layer } from '../exchange/layer.ts';
import type { ContextWatcher, RequestContext } from '../exchange/request-context.ts';
import type { Trace } from '../exchange/trace.ts';
import { statedLimits } from '../http/stated-wait.ts';
import type { Queued } from './fair-queue.ts';
import type { GateState } from './pacer.ts';
import {
  type GateSnapshot,
  type MakeScheduler,
  type Outcome,
  type Permit,
  type Rejected,
  Scheduler,
  type SchedulerOptions,
  type Scheduling,
} from './scheduler.ts';
import { tuning } from './tuning.ts';

/** A change of the gate's state: one line in the log. */
export type GateChange = GateSnapshot & { readonly from: GateState; readonly to: GateState };

const defaults = {
  initialWindow: 10,
  // More would wait for a connection instead.
  maxInFlight: 64,
  maxWaiting: 5000,
  maxWaitingPerCaller: 1000,
  random: Math.random,
};

/** `maxClosedMs` of 0 switches the gate off: attempts pass as they come. */
export type GateOptions = Omit<SchedulerOptions, keyof typeof defaults> &
  Partial<SchedulerOptions> & {
    /** Called once for each change of state. Must not throw. */
    readonly onChange?: (change: GateChange) => void;
    /** Further fields that state a limit; called once for each that counts something else. Must not throw. */
    readonly limitFields?: readonly string[];
    readonly onIgnored?: (field: string) => void;
    /** For a gateway that takes turns with others. */
    readonly makeScheduler?: MakeScheduler | undefined;
  };

export type Gate = Pick<PacingGate, 'layer' | 'snapshot' | 'close'>;

export function paceAttempts(options: GateOptions): Gate {
  if (options.maxClosedMs > 0) return new PacingGate(options);
  const open = new Scheduler({ ...defaults, ...options }).snapshot(0);
  return { layer: (next) => next, snapshot: () => ({ ...open, state: 'off', window: 0 }), close() {} };
}

interface QueuedRequest extends Queued {
  go(permit: Permit): void;
  fail(failure: Error): void;
}

class PacingGate {
  readonly #scheduler: Scheduling<QueuedRequest>;
  readonly #options: Pick<GateOptions, 'onChange' | 'onIgnored' | 'limitFields'>;
  #shownState: GateState = 'open';
  #timer: NodeJS.Timeout | undefined;
  #isPumping = false;
  #isShutDown = false;

  constructor({ makeScheduler = (of) => new Scheduler(of), ...options }: GateOptions) {
    this.#options = options;
    this.#scheduler = makeScheduler<QueuedRequest>({ ...defaults, ...options }, (all) => this.#pump(all));
  }

  /**
   * An answer passes as it came, a 429 too: it closes the gate for all callers, and the layer above decides whether
   * to come back. Throws `upstream-rate-limited` at once where the turn cannot come before the context's deadline,
   * `overloaded` where too many wait, and the context's reason when it is aborted.
   * Where nothing is limited and nothing waits, it adds no timer, and no promise to an answer that is a value.
   */
  readonly layer: Layer<UpstreamRequest, Answer> = (next) => (request, trace) => {
    const { context } = request;
    if (this.#isShutDown) throw shuttingDown();
    if (context.ended !== undefined) throw context.ended;
    const attempt = (): Eventually<Answer> => next(request, trace);
    const permit = this.#scheduler.admit(context.flows, performance.now());
    return permit === undefined ? this.#queue(attempt, trace, context) : this.#send(attempt, trace, permit);
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
    for (const queued of this.#scheduler.clear()) queued.fail(shuttingDown());
    clearTimeout(this.#timer);
  };

  /** Waits for the turn, the deadline or the end of the context. */
  #queue(attempt: () => Eventually<Answer>, trace: Trace, context: RequestContext): Promise<Answer> {
    const { promise, resolve, reject } = Promise.withResolvers<Answer>();
    const enteredMs = performance.now();
    let timer: NodeJS.Timeout | undefined;
    const stopWaiting = (): void => {
      clearTimeout(timer);
      context.unwatch(watcher);
      trace.waited('gate', enteredMs);
    };
    const queued: QueuedRequest = {
      context,
      arrivedMs: trace.startedMs,
      go: (permit) => {
        stopWaiting();
        // Asynchronous, so that what is thrown at once rejects as well.
        resolve((async () => await this.#send(attempt, trace, permit))());
      },
      fail: (failure) => {
        stopWaiting();
        trace.gate = this.#scheduler.record.state;
        reject(failure);
      },
    };
    const expire = (): void => this.#pump(this.#scheduler.expired(queued, performance.now()));
    const armDeadline = (): void => {
      clearTimeout(timer);
      timer = setTimeout(expire, context.deadlineMs - tuning.lastWordMs - performance.now()).unref();
    };
    const watcher: ContextWatcher = {
      onEnd: (reason) => {
        this.#scheduler.leave(queued);
        queued.fail(reason);
        this.#pump();
      },
      onChange: () => {
        armDeadline();
        this.#scheduler.moved(queued);
        this.#pump();
      },
    };
    context.watch(watcher);
    armDeadline();
    this.#pump(this.#scheduler.enter(queued, enteredMs));
    return promise;
  }

  /** One attempt, which has its turn. */
  #send(attempt: () => Eventually<Answer>, trace: Trace, permit: Permit): Eventually<Answer> {
    trace.gate = permit.state;
    const attemptsBefore = trace.attempts;
    const settle = (end: Outcome) => this.#pump(this.#scheduler.settled(permit, end, performance.now()));
    const onAnswer = (answer: Answer): Answer => {
      const stated = statedLimits(answer, this.#options.limitFields);
      const ignored = this.#scheduler.fields.heard(stated, permit.sent.atMs, performance.now());
      for (const field of ignored) this.#options.onIgnored?.(field);
      settle(limitOutcome(answer));
      return answer;
    };
    const onFailure = (error: unknown): never => {
      settle(trace.attempts > attemptsBefore ? 'failed' : 'unused');
      throw error;
    };
    try {
      return andThen(attempt(), onAnswer, onFailure);
    } catch (error) {
      return onFailure(error);
    }
  }

  /** Fails requests without a turn, sends those that have one. Reentry would recurse as deep as the queue is long. */
  #pump(rejected: readonly Rejected<QueuedRequest>[] = []): void {
    for (const one of rejected) one.request.fail(failureOf(one, this.#scheduler.record.state));
    if (this.#isPumping) return;
    this.#isPumping = true;
    const nowMs = performance.now();
    try {
      let next = this.#scheduler.next(nowMs);
      for (; next.request !== undefined; next = this.#scheduler.next(nowMs)) next.request.go(next.permit);
      clearTimeout(this.#timer);
      if (next.untilMs !== undefined) {
        // Rounded up: a timer that fires a fraction early would find nothing to do and spin.
        const inMs = Math.max(1, Math.ceil(next.untilMs - performance.now()));
        this.#timer = setTimeout(() => this.#pump(), inMs).unref();
      }
    } finally {
      this.#isPumping = false;
    }
    this.#showChange();
  }

  #showChange(): void {
    const from = this.#shownState;
    const to = this.#scheduler.record.state;
    if (from === to) return;
    this.#shownState = to;
    this.#options.onChange?.({ ...this.#scheduler.snapshot(performance.now()), from, to });
  }
}

const shuttingDown = (): GatewayError => new GatewayError('shutting-down', { retryAfterMs: 1000 });

function failureOf({ code, retryAfterMs }: Rejected<unknown>, state: GateState): GatewayError {
  const reason =
    code === 'overloaded'
      ? 'too many requests wait for their turn at the upstream: of this caller, or of all'
      : 'the upstream limits requests, and the turn of this one would come after its time (REQUEST_TIMEOUT)';
  const isRefused = code !== 'overloaded' && state !== 'open';
  return new GatewayError(code, { retryAfterMs, reason, ...(isRefused && { receivedStatus: 429 }) });
}
