/**
 * Start-time fair queueing (Goyal, Vin, Cheng 1996) between callers, oldest first within one. No clock, no I/O.
 *
 * Each flow has a start tag; the lowest goes next, and each turn moves the tag on by 1 / weight. Virtual time is the
 * tag last served. Background refreshes are flows of their own, whose tags come after all others.
 */
import type { Flow } from '../request-context.ts';
import type { Queued } from './types.ts';

interface Backlog<T> {
  readonly background: boolean;
  weight: number;
  /** Start tag of the next turn. */
  start: number;
  readonly waiting: T[];
}

/** Virtual time never gets here: it starts anew with each empty backlog. */
const backgroundTag = 1e9;

export class FairQueue<T extends Queued> {
  /** At most two for each caller; all are forgotten when the last request leaves. */
  readonly #backlogs = new Map<string, Backlog<T>>();
  /** The backlog that each request is in: its context is live and may have changed since. */
  readonly #queuedIn = new Map<T, Backlog<T>>();
  #now = 0;

  get size(): number {
    return this.#queuedIn.size;
  }

  sizeOf(name: string): number {
    const lengthOf = (key: string): number => this.#backlogs.get(key)?.waiting.length ?? 0;
    return lengthOf(`+${name}`) + lengthOf(`-${name}`);
  }

  /** Within a flow the oldest goes first, so that a request that was answered with 429 returns to its old place. */
  add(request: T): void {
    const { flow } = request.context;
    const backlog = this.#backlogOf(flow);
    backlog.weight = flow.weight;
    backlog.waiting.splice(positionIn(backlog, request.arrivedMs), 0, request);
    this.#queuedIn.set(request, backlog);
  }

  /** Takes a request out; false where it was not queued. */
  remove(request: T): boolean {
    const backlog = this.#queuedIn.get(request);
    if (backlog === undefined) return false;
    this.#queuedIn.delete(request);
    backlog.waiting.splice(backlog.waiting.indexOf(request), 1);
    if (this.size === 0) {
      this.#backlogs.clear();
      this.#now = 0;
    }
    return true;
  }

  /** The next in turn of the callers that may have one, taken out. */
  take(mayGo?: (name: string) => boolean): T | undefined {
    const next = this.#leastBy(({ start }) => start, mayGo);
    const request = next?.waiting[0];
    if (next === undefined || request === undefined) return undefined;
    if (!next.background) this.#now = Math.max(this.#now, next.start);
    next.start += 1 / next.weight;
    this.remove(request);
    return request;
  }

  /** A turn that was answered with 429 is given back to its flow. */
  refund(flow: Flow): void {
    this.#backlogOf(flow).start -= 1 / flow.weight;
  }

  /** How many turns are taken before that of a request that is queued now. */
  ahead(flow: Flow, arrivedMs: number): number {
    const own = this.#backlogOf(flow);
    let count = positionIn(own, arrivedMs);
    const tag = own.start + count / own.weight;
    for (const other of this.#backlogs.values()) {
      // Less a little, which makes up for the rounding of sums.
      const turns = Math.ceil((tag - other.start) * other.weight - 1e-6);
      if (other !== own) count += Math.min(Math.max(turns, 0), other.waiting.length);
    }
    return count;
  }

  /** All requests in the order of their turns, as far as it is known now. */
  inOrder(): T[] {
    const tagged = [...this.#backlogs.values()].flatMap(({ start, weight, waiting }) =>
      waiting.map((request, i) => ({ request, tag: start + i / weight })),
    );
    return tagged.sort((a, b) => a.tag - b.tag).map(({ request }) => request);
  }

  /** The request whose turn is the last: the one to make room in a full backlog. */
  last(): T | undefined {
    const lastTag = ({ start, weight, waiting }: Backlog<T>) => start + (waiting.length - 1) / weight;
    return this.#leastBy((backlog) => -lastTag(backlog))?.waiting.at(-1);
  }

  /** The backlog with requests that has the least of a figure. */
  #leastBy(figure: (backlog: Backlog<T>) => number, mayGo = (_name: string) => true): Backlog<T> | undefined {
    let least: Backlog<T> | undefined;
    for (const backlog of this.#backlogs.values()) {
      const [first] = backlog.waiting;
      if (first === undefined || (least !== undefined && figure(backlog) >= figure(least))) continue;
      if (mayGo(first.context.flow.name)) least = backlog;
    }
    return least;
  }

  /** A flow that comes back starts up to one turn before virtual time: it does not wait behind its equals' next turns. */
  #backlogOf({ name, background, weight }: Flow): Backlog<T> {
    const key = `${background ? '-' : '+'}${name}`;
    const earliest = this.#now - 1 / weight + (background ? backgroundTag : 0);
    const backlog = this.#backlogs.get(key) ?? { background, weight, start: earliest, waiting: [] };
    if (backlog.waiting.length === 0) backlog.start = Math.max(backlog.start, earliest);
    this.#backlogs.set(key, backlog);
    return backlog;
  }
}

function positionIn<T extends Queued>({ waiting }: Backlog<T>, arrivedMs: number): number {
  return waiting.findLastIndex((other) => other.arrivedMs <= arrivedMs) + 1;
}
