/**
 * Single flight: one upstream exchange that several requests share.
 *
 * To the layers below it is one context: the latest deadline and the best flow of its subscribers at the moment. It
 * ends when the last subscriber leaves. Each subscriber keeps its own context, whose deadline and flow never change and
 * which ends at its deadline: one that leaves early, or runs out of time, gets an outcome of its own and the others go on.
 */
import { type ContextWatcher, type Flow, type RequestContext, WatchedContext } from '../request-context.ts';

const flowWithoutSubscribers: Flow = { name: '', weight: 1, background: true };

/** What a request makes of its early end: the outcome that it gets instead of the shared one. */
type LeavingOutcome<Outcome> = (reason: Error) => Outcome;

/** One request's part in a flight, for as long as it waits. */
class Subscriber<Outcome> implements ContextWatcher {
  readonly context: RequestContext;
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
  ) {
    this.#flight = flight;
    this.context = context;
    this.#outcomeOfLeaving = outcomeOfLeaving;
    this.outcome = new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  settle(outcome: Outcome): void {
    this.context.unwatch(this);
    this.#resolve(outcome);
  }

  /** Leaves before the flight is complete; a second time has no effect. */
  onEnd(reason: Error): void {
    if (this.index === -1) return;
    this.settle(this.#outcomeOfLeaving(reason));
    this.#flight.remove(this, reason);
  }
}

/** A shared exchange and, for the layers below, the context of all its subscribers. */
export class SingleFlight<Outcome> extends WatchedContext implements RequestContext {
  #deadlineMs = -Infinity;
  #flow: Flow | undefined;
  #subscribers: Subscriber<Outcome>[] = [];
  #onAbandoned: (() => void) | undefined;

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
   * Adds a request. O(1): the other subscribers are not scanned. Never rejects.
   *
   * @param outcomeOfLeaving makes the outcome of this subscriber alone when it leaves before completion
   */
  subscribe(context: RequestContext, outcomeOfLeaving: LeavingOutcome<Outcome>): Promise<Outcome> {
    const subscriber = new Subscriber(this, context, outcomeOfLeaving);
    subscriber.index = this.#subscribers.push(subscriber) - 1;
    context.watch(subscriber);
    const former = this.#flow;
    this.#adopt(
      Math.max(context.deadlineMs, this.#deadlineMs),
      former === undefined || isBetter(context.flow, former) ? context.flow : former,
    );
    if (context.ended !== undefined) subscriber.onEnd(context.ended);
    return subscriber.outcome;
  }

  /** Gives the outcome to all subscribers and lets go of them. */
  complete(outcome: Outcome): void {
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
      if (deadlineMs >= this.#deadlineMs || flow === this.#flow) this.#recompute();
      return;
    }
    this.#onAbandoned?.();
    this.end(reason);
  }

  /** Scans all subscribers: the one that has left had the latest deadline or the best flow. */
  #recompute(): void {
    let latestMs = -Infinity;
    let best: Flow | undefined;
    for (const { context } of this.#subscribers) {
      latestMs = Math.max(latestMs, context.deadlineMs);
      if (best === undefined || isBetter(context.flow, best)) best = context.flow;
    }
    this.#adopt(latestMs, best);
  }

  #adopt(latestMs: number, best: Flow | undefined): void {
    if (latestMs === this.#deadlineMs && best === this.#flow) return;
    this.#deadlineMs = latestMs;
    this.#flow = best;
    this.changed();
  }
}

/** A flow of a caller is better than that of a background refresh; then the greater weight. Which of equal flows a flight has makes no difference. */
function isBetter(flow: Flow, than: Flow): boolean {
  if (flow.background !== than.background) return than.background;
  return flow.weight > than.weight;
}
