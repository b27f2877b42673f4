/**
 * Single flight: one upstream exchange that several requests share.
 *
 * To the layers below it is one context: the latest deadline and the best flow of its subscribers at the moment. It
 * ends when the last subscriber leaves. Each subscriber keeps its own context: one that leaves early, or runs out of
 * time, gets an outcome of its own and the others go on.
 */
import { maxTimerMs } from '../deadline.ts';
import { GatewayError } from '../errors.ts';
import {
  type ContextWatcher,
  FixedContext,
  type Flow,
  type RequestContext,
  WatchedContext,
} from '../request-context.ts';

const flowWithoutSubscribers: Flow = { name: '', weight: 1, background: true };

/** What a request makes of its early end: the outcome that it gets instead of the shared one. */
export type LeavingOutcome<Outcome> = (reason: Error) => Outcome;

/** One request's part in a flight, for as long as it waits. */
export class Subscriber<Outcome> implements ContextWatcher {
  readonly context: RequestContext;
  /** Nothing else ends this context, so the flight does at its deadline. */
  readonly enforcesDeadline: boolean;
  /** Never rejects: settles with the flight's outcome, or with the subscriber's own when it leaves before. */
  readonly outcome: Promise<Outcome>;
  /** Position in the flight's list; -1 once it is settled. */
  index = -1;
  readonly #flight: SingleFlight<Outcome>;
  readonly #outcomeOfLeaving: LeavingOutcome<Outcome>;
  #resolve: (outcome: Outcome) => void = () => {};

  constructor(
    flight: SingleFlight<Outcome>,
    context: RequestContext,
    outcomeOfLeaving: LeavingOutcome<Outcome>,
    enforcesDeadline: boolean,
  ) {
    this.#flight = flight;
    this.context = context;
    this.#outcomeOfLeaving = outcomeOfLeaving;
    this.enforcesDeadline = enforcesDeadline;
    this.outcome = new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  settle(outcome: Outcome): void {
    this.context.unwatch(this);
    this.#resolve(outcome);
  }

  /** Leaves before the flight is complete; a second time has no effect. */
  leave(reason: Error): void {
    if (this.index === -1) return;
    this.settle(this.#outcomeOfLeaving(reason));
    this.#flight.remove(this, reason);
  }

  onEnd(reason: Error): void {
    this.leave(reason);
  }

  onChange(): void {
    this.#flight.recompute();
  }
}

/** A shared exchange and, for the layers below, the context of all its subscribers. */
export class SingleFlight<Outcome> extends WatchedContext implements RequestContext {
  #deadlineMs = -Infinity;
  #flow: Flow | undefined;
  #subscribers: Subscriber<Outcome>[] = [];
  #onAbandoned: (() => void) | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** When the timer fires. */
  #timerMs = Infinity;

  /** @param onAbandoned called when the last subscriber has left: from then on no request may subscribe */
  constructor(onAbandoned: () => void) {
    super();
    this.#onAbandoned = onAbandoned;
  }

  get deadlineMs(): number {
    return this.#deadlineMs;
  }

  get flow(): Flow {
    return this.#flow ?? flowWithoutSubscribers;
  }

  /**
   * Adds a request. O(1): the other subscribers are not scanned.
   *
   * @param outcomeOfLeaving makes the outcome of this subscriber alone when it leaves before completion
   * @param enforcesDeadline nothing but this flight ends the context
   */
  subscribe(
    context: RequestContext,
    outcomeOfLeaving: LeavingOutcome<Outcome>,
    enforcesDeadline = false,
  ): Subscriber<Outcome> {
    const subscriber = new Subscriber(this, context, outcomeOfLeaving, enforcesDeadline);
    subscriber.index = this.#subscribers.push(subscriber) - 1;
    context.watch(subscriber);
    const formerMs = this.#deadlineMs;
    const { flow: former } = this;
    this.#adopt(
      Math.max(context.deadlineMs, formerMs),
      this.#flow === undefined || isBetter(context.flow, former) ? context.flow : former,
    );
    if (enforcesDeadline || context.deadlineMs < formerMs) this.#setTimer(context.deadlineMs);
    else if (context.deadlineMs > formerMs && this.#subscribers.length > 1) this.#setTimer(formerMs);
    if (context.ended !== undefined) subscriber.leave(context.ended);
    return subscriber;
  }

  /** Gives the outcome to all subscribers and lets go of them. */
  complete(outcome: Outcome): void {
    clearTimeout(this.#timer);
    const subscribers = this.#subscribers;
    this.#subscribers = [];
    this.#onAbandoned = undefined;
    for (const subscriber of subscribers) {
      subscriber.index = -1;
      subscriber.settle(outcome);
    }
  }

  /** For subscribers alone: this one has left. */
  remove(subscriber: Subscriber<Outcome>, reason: Error): void {
    const last = this.#subscribers.pop();
    if (last !== undefined && last !== subscriber) {
      this.#subscribers[subscriber.index] = last;
      last.index = subscriber.index;
    }
    subscriber.index = -1;
    if (this.#subscribers.length > 0) {
      // Most leave without having had the latest deadline or the best flow: then neither changes.
      const { deadlineMs, flow } = subscriber.context;
      if (deadlineMs >= this.#deadlineMs || flow === this.#flow) this.recompute();
      return;
    }
    clearTimeout(this.#timer);
    this.#onAbandoned?.();
    this.end(reason);
  }

  /** For subscribers alone: scans all of them, because one has left or its context has changed. */
  recompute(): void {
    let latestMs = -Infinity;
    let best: Flow | undefined;
    for (const { context } of this.#subscribers) {
      latestMs = Math.max(latestMs, context.deadlineMs);
      if (best === undefined || isBetter(context.flow, best)) best = context.flow;
    }
    this.#adopt(latestMs, best);
    this.#watchDeadlines();
  }

  #adopt(latestMs: number, best: Flow | undefined): void {
    if (latestMs === this.#deadlineMs && best === this.#flow) return;
    this.#deadlineMs = latestMs;
    this.#flow = best;
    this.changed();
  }

  /** The layers below keep the latest deadline; the flight keeps the earlier ones. */
  #watchDeadlines(): void {
    this.#timerMs = Infinity;
    let firstMs = Infinity;
    for (const { context, enforcesDeadline } of this.#subscribers) {
      const { deadlineMs } = context;
      if ((enforcesDeadline || deadlineMs < this.#deadlineMs) && deadlineMs < firstMs) firstMs = deadlineMs;
    }
    this.#setTimer(firstMs);
  }

  /** Only ever brings the timer forward. */
  #setTimer(timeMs: number): void {
    if (timeMs >= this.#timerMs) return;
    this.#timerMs = timeMs;
    clearTimeout(this.#timer);
    const delayMs = Math.min(Math.max(0, Math.ceil(timeMs - performance.now())), maxTimerMs);
    this.#timer = setTimeout(() => this.#expire(), delayMs);
    this.#timer.unref();
  }

  #expire(): void {
    const nowMs = performance.now();
    for (const subscriber of [...this.#subscribers]) {
      const { deadlineMs } = subscriber.context;
      if (deadlineMs > nowMs || (!subscriber.enforcesDeadline && deadlineMs === this.#deadlineMs)) continue;
      subscriber.leave(
        new GatewayError('upstream-timeout', { reason: 'its time was up before the shared exchange' }),
      );
    }
    this.#watchDeadlines();
  }
}

/** A flow of a caller is better than that of a background refresh; then the greater weight, then the earlier subscriber. */
function isBetter(flow: Flow, than: Flow): boolean {
  if (flow.background !== than.background) return than.background;
  return flow.weight > than.weight;
}

/** The context of a background refresh: in the name of the caller whose request found the answer stale. */
export function backgroundContext(of: RequestContext, deadlineMs: number): RequestContext {
  return new FixedContext(deadlineMs, { ...of.flow, background: true });
}
