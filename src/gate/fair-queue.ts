/**
 * Start-time fair queueing (Goyal, Vin, Cheng 1996) between callers, oldest first within one. No clock, no I/O.
 *
 * Each flow has a start tag; the lowest goes next, and each turn moves the tag on by 1 / weight. Virtual time is the tag
 * last served. Background refreshes are flows whose tags come after all others. A request with several flows stands in
 * each of them, and goes with the first turn that comes: that flow alone is charged.
 */
import { toSeconds } from '../exchange/figures.ts';
import { type Flow, flowNameOf, type RequestContext } from '../exchange/request-context.ts';

/** A request that waits for its turn. Its context is read live. */
export interface Queued {
  readonly context: Pick<RequestContext, 'flows' | 'deadlineMs'>;
  readonly arrivedMs: number;
}

/** What waits of one caller: requests, and background refreshes, which delay no answer. */
export interface CallerQueue {
  readonly name: string;
  readonly waiting: number;
  /** Of the requests. */
  readonly oldestWaitSeconds: number;
  readonly refreshes: number;
}

interface Backlog<T> {
  flow: Flow;
  /** Start tag of the next turn. */
  start: number;
  readonly waiting: T[];
}

/** With fewer backlogs none is looked at. */
const leastForgetAt = 1_000;

/** Virtual time never gets here: it starts anew with each empty backlog. */
const backgroundTag = 1e9;

export class FairQueue<T extends Queued> {
  /** All are forgotten when the last request leaves, and before that the empty ones that virtual time has passed. */
  readonly #backlogs = new Map<string, Backlog<T>>();
  /** The backlogs that each request is in: its context is live and may have changed since. */
  readonly #queuedIn = new Map<T, Backlog<T>[]>();
  /** Requests that are in several. */
  #shared = 0;
  #now = 0;
  #forgetAt = leastForgetAt;

  get size(): number {
    return this.#queuedIn.size;
  }

  /** Flows that are remembered, those without a request too. */
  get remembered(): number {
    return this.#backlogs.size;
  }

  /** Its requests and its background refreshes. */
  sizeOf(name: string): number {
    return [true, false].reduce((sum, background) => sum + this.waitingIn({ name, background }).length, 0);
  }

  /** The oldest first. */
  waitingIn(flow: Pick<Flow, 'name' | 'background'>): readonly T[] {
    return this.#backlogs.get(flowNameOf(flow))?.waiting ?? [];
  }

  /** Those that the request waits in: its context may name others by now. */
  flowsOf(request: T): readonly Flow[] {
    return (this.#queuedIn.get(request) ?? []).map(({ flow }) => flow);
  }

  /** Within a flow the oldest goes first, so that a request that was answered with 429 returns to its old place. */
  add(request: T, flows = request.context.flows): void {
    const backlogs = flows.map((flow) => this.#addTo(flow, request));
    this.#queuedIn.set(request, backlogs);
    if (backlogs.length > 1) this.#shared++;
  }

  /**
   * The request's flows have changed. Mostly one has come or gone, and thousands stay: these are not touched.
   *
   * @returns those that have come or gone
   */
  move(request: T): readonly Flow[] {
    const backlogs = this.#queuedIn.get(request);
    if (backlogs === undefined) return [];
    const { flows } = request.context;
    const most = Math.min(backlogs.length, flows.length);
    const stays = (at: number, ofFlows: number) => isOf(backlogs[at] as Backlog<T>, flows[ofFlows] as Flow);
    let first = 0;
    while (first < most && stays(first, first)) first++;
    let last = 0;
    while (last < most - first && stays(backlogs.length - 1 - last, flows.length - 1 - last)) last++;
    const come = flows.slice(first, flows.length - last).map((flow) => this.#addTo(flow, request));
    if (backlogs.length > 1) this.#shared--;
    const gone = backlogs.splice(first, backlogs.length - last - first, ...come);
    if (backlogs.length > 1) this.#shared++;
    for (const { waiting } of gone) waiting.splice(waiting.indexOf(request), 1);
    return [...come, ...gone].map(({ flow }) => flow);
  }

  /** Takes a request out; false where it was not queued. */
  remove(request: T): boolean {
    const backlogs = this.#queuedIn.get(request);
    if (backlogs === undefined) return false;
    this.#queuedIn.delete(request);
    if (backlogs.length > 1) this.#shared--;
    for (const { waiting } of backlogs) waiting.splice(waiting.indexOf(request), 1);
    if (this.size === 0) {
      this.#backlogs.clear();
      this.#now = 0;
    }
    return true;
  }

  /** Those of which requests wait. */
  *flows(): Generator<Flow> {
    for (const { flow, waiting } of this.#backlogs.values()) if (waiting.length > 0) yield flow;
  }

  /** The next in turn of the callers that may have one, taken out, and the flow whose turn it is. */
  take(mayGo = (_flow: Flow) => true): { readonly request: T; readonly flow: Flow } | undefined {
    let next: Backlog<T> | undefined;
    for (const backlog of this.#backlogs.values()) {
      const isSooner = backlog.waiting.length > 0 && !(next && next.start <= backlog.start);
      if (isSooner && mayGo(backlog.flow)) next = backlog;
    }
    const request = next?.waiting[0];
    if (next === undefined || request === undefined) return undefined;
    if (!next.flow.background) this.#now = Math.max(this.#now, next.start);
    next.start += 1 / next.flow.weight;
    this.remove(request);
    return { request, flow: next.flow };
  }

  /** A turn that was answered with 429, or not needed, is given back to its flow. */
  refund(flow: Flow): void {
    this.#backlogOf(flow).start -= 1 / flow.weight;
  }

  /** How many turns are taken before the first one of a request that is queued now. */
  ahead(flows: readonly Flow[], arrivedMs: number): number {
    const owns = flows.map((flow) => this.#backlogOf(flow));
    const tag = Math.min(...owns.map((own) => own.start + positionIn(own, arrivedMs) / own.flow.weight));
    const isUnshared = (one: T) => this.#queuedIn.get(one)?.length === 1;
    let [count, unshared] = [0, 0];
    for (const { start, flow, waiting } of this.#backlogs.values()) {
      // Less a little, which makes up for the rounding of sums.
      const turns = Math.max(Math.ceil((tag - start) * flow.weight - 1e-6), 0);
      count += Math.min(turns, waiting.length);
      if (this.#shared > 0) unshared += Math.min(turns, waiting.filter(isUnshared).length);
    }
    // A request takes one turn, whatever the number of its flows.
    return this.#shared > 0 ? Math.min(count, unshared + this.#shared) : count;
  }

  /** All requests in the order of their turns, as far as it is known now. */
  inOrder(): T[] {
    const tagged = [...this.#backlogs.values()].flatMap(({ start, flow, waiting }) =>
      waiting.map((request, i) => ({ request, tag: start + i / flow.weight })),
    );
    return [...new Set(tagged.sort((a, b) => a.tag - b.tag).map(({ request }) => request))];
  }

  /** Takes out the last turn of all until a request has none left, which makes room in a full queue. */
  removeLast(): T {
    const lastTag = ({ start, flow, waiting }: Backlog<T>) => start + (waiting.length - 1) / flow.weight;
    for (;;) {
      const busy = [...this.#backlogs.values()].filter(({ waiting }) => waiting.length > 0);
      const { flow, waiting } = busy.reduce((last, one) => (lastTag(one) > lastTag(last) ? one : last));
      const request = waiting.at(-1) as T;
      const others = this.flowsOf(request).filter((one) => one !== flow);
      this.remove(request);
      if (others.length === 0) return request;
      this.add(request, others);
    }
  }

  #addTo(flow: Flow, request: T): Backlog<T> {
    const backlog = this.#backlogOf(flow);
    backlog.waiting.splice(positionIn(backlog, request.arrivedMs), 0, request);
    return backlog;
  }

  #backlogOf(flow: Flow): Backlog<T> {
    const key = flowNameOf(flow);
    const backlog = this.#backlogs.get(key) ?? { flow, start: Number.NEGATIVE_INFINITY, waiting: [] };
    if (backlog.waiting.length === 0) backlog.start = Math.max(backlog.start, this.#earliest(flow));
    backlog.flow = flow;
    this.#backlogs.set(key, backlog);
    if (this.#backlogs.size >= this.#forgetAt) this.#forgetPassed(backlog);
    return backlog;
  }

  /** A flow that comes back starts up to one turn before virtual time: it does not wait behind its equals' next turns. */
  #earliest({ weight, background }: Flow): number {
    return this.#now - 1 / weight + (background ? backgroundTag : 0);
  }

  /** Without these a flow begins where it would with them. People of company logins can be many. */
  #forgetPassed(own: Backlog<T>): void {
    for (const [key, one] of this.#backlogs) {
      const hasPassed = one.waiting.length === 0 && one.start <= this.#earliest(one.flow);
      if (hasPassed && one !== own) this.#backlogs.delete(key);
    }
    this.#forgetAt = Math.max(leastForgetAt, 2 * this.#backlogs.size);
  }
}

function isOf({ flow }: Pick<Backlog<unknown>, 'flow'>, { name, background }: Flow): boolean {
  return flow.name === name && flow.background === background;
}

function positionIn<T extends Queued>({ waiting }: Backlog<T>, arrivedMs: number): number {
  return waiting.findLastIndex((other) => other.arrivedMs <= arrivedMs) + 1;
}

/** What waits, by caller. */
export function queuesByCaller(all: readonly Queued[], nowMs: number): CallerQueue[] {
  const places = all.flatMap(({ arrivedMs, context }) =>
    context.flows.map((flow) => ({ arrivedMs, ...flow })),
  );
  return [...Map.groupBy(places, ({ name }) => name)].map(([name, queued]) => {
    const waitsMs = queued.flatMap(({ arrivedMs, background }) => (background ? [] : [nowMs - arrivedMs]));
    const oldestWaitSeconds = toSeconds(Math.max(0, ...waitsMs));
    return { name, waiting: waitsMs.length, oldestWaitSeconds, refreshes: queued.length - waitsMs.length };
  });
}
