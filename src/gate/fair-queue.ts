/**
 * Start-time fair queueing (Goyal, Vin, Cheng 1996) between callers, oldest first within one. No clock, no I/O.
 *
 * Each flow has a start tag; the lowest goes next, and each turn moves the tag on by 1 / weight. Virtual time is the
 * tag last served. Background refreshes are flows of their own, whose tags come after all others.
 */
import type { Turn } from '../claim.ts';
import type { CallerQueue, Queued } from './types.ts';

interface Flow<T> {
  readonly background: boolean;
  weight: number;
  /** Start tag of the next turn. */
  start: number;
  readonly waiting: T[];
}

/** Virtual time never gets here: it starts anew with each empty queue. */
const backgroundTag = 1e9;

export class FairQueue<T extends Queued> {
  /** At most two for each caller; none while the queue is empty. */
  readonly #flows = new Map<string, Flow<T>>();
  /** The flow that each request was queued in: its claim is live and may have changed since. */
  readonly #queuedIn = new Map<T, Flow<T>>();
  #now = 0;

  get size(): number {
    return this.#queuedIn.size;
  }

  sizeOf(name: string): number {
    const lengthOf = (key: string): number => this.#flows.get(key)?.waiting.length ?? 0;
    return lengthOf(`+${name}`) + lengthOf(`-${name}`);
  }

  /** Within a flow the oldest goes first, so that a request that was answered with 429 returns to its old place. */
  add(request: T): void {
    const flow = this.#flowOf(request.claim.turn);
    flow.weight = request.claim.turn.weight;
    flow.waiting.splice(positionIn(flow, request.arrivedMs), 0, request);
    this.#queuedIn.set(request, flow);
  }

  /** Takes a request out; false where it was not queued. */
  remove(request: T): boolean {
    const flow = this.#queuedIn.get(request);
    if (flow === undefined) return false;
    this.#queuedIn.delete(request);
    flow.waiting.splice(flow.waiting.indexOf(request), 1);
    if (this.size === 0) {
      this.#flows.clear();
      this.#now = 0;
    }
    return true;
  }

  /** The next in turn, taken out. */
  take(): T | undefined {
    const next = this.#leastBy(({ start }) => start);
    const request = next?.waiting[0];
    if (next === undefined || request === undefined) return undefined;
    if (!next.background) this.#now = Math.max(this.#now, next.start);
    next.start += 1 / next.weight;
    this.remove(request);
    return request;
  }

  /** A turn that was answered with 429 is given back to its flow. */
  refund(turn: Turn): void {
    this.#flowOf(turn).start -= 1 / turn.weight;
  }

  /** How many turns are taken before that of a request that is queued now. */
  ahead(turn: Turn, arrivedMs: number): number {
    const flow = this.#flowOf(turn);
    let count = positionIn(flow, arrivedMs);
    const tag = flow.start + count / turn.weight;
    for (const other of this.#flows.values()) {
      // Less a little, which makes up for the rounding of sums.
      const turns = Math.ceil((tag - other.start) * other.weight - 1e-6);
      if (other !== flow) count += Math.min(Math.max(turns, 0), other.waiting.length);
    }
    return count;
  }

  /** All requests in the order of their turns, as far as it is known now. */
  inOrder(): T[] {
    const tagged = [...this.#flows.values()].flatMap(({ start, weight, waiting }) =>
      waiting.map((request, i) => ({ request, tag: start + i / weight })),
    );
    return tagged.sort((a, b) => a.tag - b.tag).map(({ request }) => request);
  }

  /** The request whose turn is the last: the one to make room in a full queue. */
  last(): T | undefined {
    const lastTag = ({ start, weight, waiting }: Flow<T>): number => start + (waiting.length - 1) / weight;
    return this.#leastBy((flow) => -lastTag(flow))?.waiting.at(-1);
  }

  callers(nowMs: number): CallerQueue[] {
    const byName = Map.groupBy(this.#queuedIn.keys(), ({ claim }) => claim.turn.name);
    return [...byName].map(([name, all]) => {
      const requests = all.filter(({ claim }) => !claim.turn.background);
      const oldestWaitMs = Math.max(0, ...requests.map(({ arrivedMs }) => nowMs - arrivedMs));
      return { name, length: requests.length, oldestWaitMs, refreshes: all.length - requests.length };
    });
  }

  /** The flow with requests that has the least of a figure. */
  #leastBy(figure: (flow: Flow<T>) => number): Flow<T> | undefined {
    let least: Flow<T> | undefined;
    for (const flow of this.#flows.values()) {
      if (flow.waiting.length > 0 && (least === undefined || figure(flow) < figure(least))) least = flow;
    }
    return least;
  }

  /** A flow that comes back starts up to one turn before virtual time: it does not wait behind its equals' next turns. */
  #flowOf({ name, background, weight }: Turn): Flow<T> {
    const key = `${background ? '-' : '+'}${name}`;
    const earliest = this.#now - 1 / weight + (background ? backgroundTag : 0);
    const flow = this.#flows.get(key) ?? { background, weight, start: earliest, waiting: [] };
    if (flow.waiting.length === 0) flow.start = Math.max(flow.start, earliest);
    this.#flows.set(key, flow);
    return flow;
  }
}

function positionIn<T extends Queued>({ waiting }: Flow<T>, arrivedMs: number): number {
  return waiting.findLastIndex((other) => other.arrivedMs <= arrivedMs) + 1;
}
