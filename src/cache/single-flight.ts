/**
 * Single flight: one upstream exchange that several requests share, and the flights under way by the requests that may
 * join them.
 *
 * To the layers below a flight is one context: the latest deadline and the flows of its subscribers at the moment, so it
 * goes up with the first turn that comes to one of them. It ends when the last subscriber leaves. Each subscriber keeps
 * its own context, whose deadline and flow never change and which ends at its deadline: one that leaves early, or runs
 * out of time, gets an outcome of its own and the others go on.
 */
import type { UpstreamRequest } from '../exchange/exchange.ts';
import {
  type ContextWatcher,
  type Flow,
  flowNameOf,
  type RequestContext,
  WatchedContext,
} from '../exchange/request-context.ts';
import type { Trace } from '../exchange/trace.ts';
import type { Resource } from './answer-store.ts';
import { exactRequestKey, selection } from './cache-key.ts';
import type { ExchangeOutcome } from './store-response.ts';

const flowWithoutSubscribers: Flow = { name: '', weight: 1, background: true };

/** What a request makes of its early end: the outcome that it gets instead of the shared one. */
type LeavingOutcome = (reason: Error) => ExchangeOutcome;

/** One request's part in a flight, for as long as it waits. */
class Subscriber implements ContextWatcher {
  readonly context: RequestContext;
  /** Never rejects: settles with the flight's outcome, or with the subscriber's own when it leaves before. */
  readonly outcome: Promise<ExchangeOutcome>;
  /** Position in the flight's list; -1 once it is settled. */
  index = -1;
  readonly #flight: Flight;
  readonly #makeLeavingOutcome: LeavingOutcome;
  #resolve: (outcome: ExchangeOutcome) => void = () => {};

  constructor(flight: Flight, context: RequestContext, makeLeavingOutcome: LeavingOutcome) {
    this.#flight = flight;
    this.context = context;
    this.#makeLeavingOutcome = makeLeavingOutcome;
    this.outcome = new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  settle(outcome: ExchangeOutcome): void {
    this.context.unwatch(this);
    this.#resolve(outcome);
  }

  /** Leaves before the flight is complete; a second time has no effect. */
  onEnd(reason: Error): void {
    if (this.index === -1) return;
    this.settle(this.#makeLeavingOutcome(reason));
    this.#flight.remove(this, reason);
  }
}

/** A shared exchange and, for the layers below, the context of all its subscribers. */
export class Flight extends WatchedContext implements RequestContext {
  readonly operation: string;
  /** Of the request that started it. */
  readonly trace: Trace;
  /** A subscriber has not said `no-store`. */
  mayStore: boolean;
  #deadlineMs = -Infinity;
  #flows: readonly Flow[] = [];
  /** How many subscribers each flow has. */
  readonly #counts = new Map<string, number>();
  #subscribers: Subscriber[] = [];
  #onAbandoned: (() => void) | undefined;

  /** @param onAbandoned called when the last subscriber has left: from then on no request may subscribe */
  constructor(operation: string, trace: Trace, mayStore: boolean, onAbandoned: () => void) {
    super();
    this.operation = operation;
    this.trace = trace;
    this.mayStore = mayStore;
    this.#onAbandoned = onAbandoned;
  }

  get deadlineMs(): number {
    return this.#deadlineMs;
  }

  get flows(): readonly Flow[] {
    return this.#flows;
  }

  get flow(): Flow {
    const [first = flowWithoutSubscribers, ...others] = this.#flows;
    return others.reduce((best, flow) => (isBetter(flow, best) ? flow : best), first);
  }

  /**
   * Adds a request. O(1): the other subscribers are not scanned. Never rejects.
   *
   * @param makeLeavingOutcome makes the outcome of this subscriber alone when it leaves before completion
   */
  subscribe(context: RequestContext, makeLeavingOutcome: LeavingOutcome): Promise<ExchangeOutcome> {
    const subscriber = new Subscriber(this, context, makeLeavingOutcome);
    subscriber.index = this.#subscribers.push(subscriber) - 1;
    context.watch(subscriber);
    const isNew = this.#count(context.flow, 1) === 1;
    const flows = isNew ? [...this.#flows, context.flow] : this.#flows;
    this.#adopt(Math.max(context.deadlineMs, this.#deadlineMs), flows);
    if (context.ended !== undefined) subscriber.onEnd(context.ended);
    return subscriber.outcome;
  }

  /** Gives the outcome to all subscribers and lets go of them. */
  complete(outcome: ExchangeOutcome): void {
    const subscribers = this.#subscribers;
    this.#subscribers = [];
    this.#onAbandoned = undefined;
    for (const subscriber of subscribers) {
      subscriber.index = -1;
      subscriber.settle(outcome);
    }
  }

  /** For subscribers alone: this one has left. */
  remove(subscriber: Subscriber, reason: Error): void {
    const last = this.#subscribers.pop();
    if (last !== undefined && last !== subscriber) {
      this.#subscribers[subscriber.index] = last;
      last.index = subscriber.index;
    }
    subscriber.index = -1;
    if (this.#subscribers.length > 0) {
      const { deadlineMs, flow } = subscriber.context;
      const isGone = this.#count(flow, -1) === 0;
      const isOther = ({ name, background }: Flow) => name !== flow.name || background !== flow.background;
      const flows = isGone ? this.#flows.filter(isOther) : this.#flows;
      // Most leave without having had the latest deadline.
      this.#adopt(deadlineMs >= this.#deadlineMs ? this.#latestMs() : this.#deadlineMs, flows);
      return;
    }
    this.#onAbandoned?.();
    this.end(reason);
  }

  /** @returns how many subscribers the flow has now */
  #count(flow: Flow, more: 1 | -1): number {
    const name = flowNameOf(flow);
    const count = (this.#counts.get(name) ?? 0) + more;
    this.#counts.set(name, count);
    return count;
  }

  #latestMs(): number {
    let latestMs = -Infinity;
    for (const { context } of this.#subscribers) latestMs = Math.max(latestMs, context.deadlineMs);
    return latestMs;
  }

  #adopt(latestMs: number, flows: readonly Flow[]): void {
    if (latestMs === this.#deadlineMs && flows === this.#flows) return;
    this.#deadlineMs = latestMs;
    this.#flows = flows;
    this.changed();
  }
}

/** A flow of a caller is better than that of a background refresh; then the greater weight. Ties keep either. */
function isBetter(flow: Flow, than: Flow): boolean {
  if (flow.background !== than.background) return than.background;
  return flow.weight > than.weight;
}

export class Flights {
  /**
   * No `Map`: V8 makes the table of one that turns over anew every few entries, and a former table in the old generation
   * keeps all later ones alive until the next full collection. What they hold then seems to live long, so V8 makes it and
   * all that hangs on it in the old generation at once: whole reads, and a full collection after every thousand.
   */
  readonly #byKey: Record<string, Flight> = Object.create(null);

  get size(): number {
    return Object.keys(this.#byKey).length;
  }

  get(flightKey: string): Flight | undefined {
    return this.#byKey[flightKey];
  }

  /** Opens a flight. It is no longer joined once it is removed, or its last subscriber has left. */
  open(flightKey: string, operation: string, trace: Trace, mayStore: boolean): Flight {
    const flight = new Flight(operation, trace, mayStore, () => this.remove(flightKey, flight));
    this.#byKey[flightKey] = flight;
    return flight;
  }

  remove(flightKey: string, flight: Flight): void {
    if (this.#byKey[flightKey] === flight) delete this.#byKey[flightKey];
  }

  /** Later requests start a flight of their own; those under way go on for their subscribers. */
  removeAll(operation?: string): void {
    for (const [flightKey, flight] of Object.entries(this.#byKey)) {
      if ((operation ?? flight.operation) === flight.operation) this.remove(flightKey, flight);
    }
  }
}

/** One flight for each key, and for each variant as far as its Vary is known. */
export function makeFlightKey(key: string, resource: Resource | undefined, request: UpstreamRequest): string {
  const names = resource?.variants.find((one) => !one.policy.exactRequestOnly)?.names ?? [];
  return names.length === 0 ? key : `${key}\n${selection(names, request.headers)}`;
}

/** One flight for the very same request, whatever Vary says. */
export function makeExactFlightKey(key: string, request: UpstreamRequest): string {
  return `${key}\n\n${exactRequestKey(request.headers)}`;
}
