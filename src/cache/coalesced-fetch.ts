/** Exchanges under way, by the requests that may join them. */
import type { UpstreamRequest } from '../exchange/exchange.ts';
import type { Trace } from '../exchange/trace.ts';
import type { Resource } from './answer-store.ts';
import { SingleFlight } from './single-flight.ts';
import type { Outcome } from './store-response.ts';
import { exactRequestKey, selection } from './vary.ts';

/** An exchange under way that other requests may join. */
export class CoalescedFetch extends SingleFlight<Outcome> {
  readonly operation: string;
  /** Of the request that started it. */
  readonly trace: Trace;
  /** A subscriber has not said `no-store`. */
  mayStore: boolean;

  constructor(operation: string, trace: Trace, mayStore: boolean, onAbandoned: () => void) {
    super(onAbandoned);
    this.operation = operation;
    this.trace = trace;
    this.mayStore = mayStore;
  }
}

/** Drops its flight when the flight is removed. */
interface Entry {
  flight: CoalescedFetch | undefined;
}

export class Flights {
  /**
   * V8 rebuilds a map every few requests. The former tables keep their values alive until the next full collection, so
   * the values are entries, and an entry drops its flight.
   */
  readonly #byKey = new Map<string, Entry>();

  get size(): number {
    return this.#byKey.size;
  }

  get(flightKey: string): CoalescedFetch | undefined {
    return this.#byKey.get(flightKey)?.flight;
  }

  /** Opens a flight. It is no longer joined once it is removed, or its last subscriber has left. */
  open(flightKey: string, operation: string, trace: Trace, mayStore: boolean): CoalescedFetch {
    const flight = new CoalescedFetch(operation, trace, mayStore, () => this.remove(flightKey, flight));
    this.#byKey.set(flightKey, { flight });
    return flight;
  }

  remove(flightKey: string, flight: CoalescedFetch): void {
    const entry = this.#byKey.get(flightKey);
    if (entry?.flight !== flight) return;
    entry.flight = undefined;
    this.#byKey.delete(flightKey);
  }

  /** Later requests start a flight of their own; those under way go on for their subscribers. */
  removeAll(operation?: string): void {
    for (const [flightKey, { flight }] of this.#byKey) {
      if (flight !== undefined && (operation ?? flight.operation) === flight.operation) {
        this.remove(flightKey, flight);
      }
    }
  }
}

/** One flight for each key, and for each variant as far as its Vary is known. */
export function flightKeyOf(key: string, resource: Resource | undefined, request: UpstreamRequest): string {
  const names = resource?.variants.find((one) => !one.policy.exactRequestOnly)?.names ?? [];
  return names.length === 0 ? key : `${key}\n${selection(names, request.headers)}`;
}

/** One flight for the very same request, whatever Vary says. */
export function exactFlightKeyOf(key: string, request: UpstreamRequest): string {
  return `${key}\n\n${exactRequestKey(request.headers)}`;
}
