/**
 * Start-time fair queueing (Goyal, Vin, Cheng 1996) between callers, oldest first within one. No clock, no I/O.
 *
 * Each flow has a start tag; the lowest goes next, and each turn moves the tag on by 1 / weight. Virtual time is the
 * tag last served. Background refreshes are flows of their own and go after all others.
 */
import type { Turn } from '../claim.ts';
import type { CallerQueue, Queued } from './types.ts';

interface Flow<T> {
  readonly name: string;
  readonly background: boolean;
  weight: number;
  /** Start tag of the next turn. */
  start: number;
  readonly waiting: T[];
}

const keyOf = ({ name, background }: Turn): string => `${background ? '-' : '+'}${name}`;

export class FairQueue<T extends Queued> {
  readonly #flows = new Map<string, Flow<T>>();
  /** The flow's key that each request was queued under: its turn is live and may have changed since. */
  readonly #keys = new Map<T, string>();
  #now = 0;

  get size(): number {
    return this.#keys.size;
  }

  sizeOf(name: string): number {
    return (
      (this.#flows.get(`+${name}`)?.waiting.length ?? 0) + (this.#flows.get(`-${name}`)?.waiting.length ?? 0)
    );
  }

  add(request: T): void {
    const key = keyOf(request.turn);
    const flow = this.#flowOf(request.turn);
    flow.weight = request.turn.weight;
    flow.waiting.splice(positionIn(flow, request), 0, request);
    this.#flows.set(key, flow);
    this.#keys.set(request, key);
  }

  /** Takes a request out; false where it was not queued. */
  remove(request: T): boolean {
    const flow = this.#flows.get(this.#keys.get(request) ?? '');
    if (flow === undefined || !this.#keys.delete(request)) return false;
    flow.waiting.splice(flow.waiting.indexOf(request), 1);
    this.#forget();
    return true;
  }

  /** The next in turn, taken out. */
  take(): T | undefined {
    let next: Flow<T> | undefined;
    for (const flow of this.#flows.values()) {
      if (flow.waiting.length > 0 && (next === undefined || isBefore(flow, next))) next = flow;
    }
    const request = next?.waiting.shift();
    if (next === undefined || request === undefined) return undefined;
    this.#keys.delete(request);
    if (!next.background) this.#now = Math.max(this.#now, next.start);
    next.start += 1 / next.weight;
    this.#forget();
    return request;
  }

  /** A turn that was answered with 429 is given back to its flow. */
  refund(turn: Turn): void {
    const flow = this.#flowOf(turn);
    flow.start = Math.max(this.#now - 1 / turn.weight, flow.start - 1 / turn.weight);
    this.#flows.set(keyOf(turn), flow);
  }

  /** How many turns are taken before this request's, if it were queued now. */
  ahead(request: Queued): number {
    const flow = this.#flowOf(request.turn);
    const own = positionIn(flow, request);
    const tag = flow.start + own / request.turn.weight;
    let count = own;
    for (const other of this.#flows.values()) {
      if (other.name === flow.name && other.background === flow.background) continue;
      if (other.background && !flow.background) continue;
      const isFirst = flow.background && !other.background;
      const turns = isFirst ? other.waiting.length : Math.ceil((tag - other.start) * other.weight - 1e-9);
      count += Math.min(Math.max(turns, 0), other.waiting.length);
    }
    return count;
  }

  /** All requests in the order of their turns, as far as it is known now. */
  inOrder(): T[] {
    const tagged: { request: T; tag: number; background: boolean }[] = [];
    for (const { background, start, weight, waiting } of this.#flows.values()) {
      waiting.forEach((request, i) => {
        tagged.push({ request, tag: start + i / weight, background });
      });
    }
    tagged.sort((a, b) => Number(a.background) - Number(b.background) || a.tag - b.tag);
    return tagged.map(({ request }) => request);
  }

  /** The request that makes room for this one in a full queue: the last of the longest flow, background first. */
  displacedBy({ turn }: Queued): T | undefined {
    const rank = (length: number, background: boolean): number =>
      length + (background && length > 0 ? 1e6 : 0);
    let longest = {
      rank: rank(this.#flowOf(turn).waiting.length + 1, turn.background),
      last: undefined as T | undefined,
    };
    for (const { waiting, background } of this.#flows.values()) {
      const flowRank = rank(waiting.length, background);
      if (flowRank > longest.rank) longest = { rank: flowRank, last: waiting.at(-1) };
    }
    return longest.last;
  }

  callers(nowMs: number): CallerQueue[] {
    const all = new Map<string, CallerQueue>();
    for (const { name, background, waiting } of this.#flows.values()) {
      const [oldest] = waiting;
      if (oldest === undefined) continue;
      const known = all.get(name) ?? { name, length: 0, oldestWaitMs: 0, refreshes: 0 };
      all.set(
        name,
        background
          ? { ...known, refreshes: waiting.length }
          : { ...known, length: waiting.length, oldestWaitMs: nowMs - oldest.arrivedMs },
      );
    }
    return [...all.values()];
  }

  /** A flow that comes back starts up to one turn before virtual time: it does not wait behind its equals' next turns. */
  #flowOf(turn: Turn): Flow<T> {
    const { name, background, weight } = turn;
    const known = this.#flows.get(keyOf(turn));
    const earliest = this.#now - 1 / weight;
    if (known === undefined) return { name, background, weight, start: earliest, waiting: [] };
    if (known.waiting.length === 0) known.start = Math.max(known.start, earliest);
    return known;
  }

  /** Drops flows whose tag says nothing any more. */
  #forget(): void {
    if (this.size === 0) {
      this.#flows.clear();
      this.#now = 0;
    } else if (this.#flows.size > 2 * this.size + 64) {
      for (const [key, { waiting, start, weight }] of this.#flows) {
        if (waiting.length === 0 && start <= this.#now - 1 / weight) this.#flows.delete(key);
      }
    }
  }
}

/** Within a flow the oldest goes first, so that a request that was answered with 429 returns to its old place. */
function positionIn<T extends Queued>({ waiting }: Flow<T>, { arrivedMs }: Queued): number {
  let position = waiting.length;
  while (position > 0 && (waiting[position - 1] as T).arrivedMs > arrivedMs) position--;
  return position;
}

function isBefore<T extends Queued>(one: Flow<T>, other: Flow<T>): boolean {
  if (one.background !== other.background) return other.background;
  if (one.start !== other.start) return one.start < other.start;
  return (one.waiting[0] as T).arrivedMs < (other.waiting[0] as T).arrivedMs;
}
