/** A follower's side of shared turns: what to report of the requests that wait here, and the turns that it got. */
import type { Flow } from '../exchange/request-context.ts';
import type { FairQueue, Queued } from '../gate/fair-queue.ts';
import type { GateRecord } from '../gate/pacer.ts';
import type { Outcome, Permit } from '../gate/scheduler.ts';
import { type Announcement, type FlowKey, flowKey, parseFlow, type Report } from './gate-messages.ts';
import type { KnownWindows, SharedWindows } from './shared-record.ts';

/** All that waits is told so often, so that a lost message is made up for; changes are told at once. */
const fullEveryMs = 100;

export class Follower<T extends Queued> {
  readonly term: number;
  readonly leader: string;
  heardMs: number;
  readonly #queue: FairQueue<T>;
  readonly #turns: (readonly [number: number, flow: FlowKey])[] = [];
  readonly #inFlight = new Map<Permit, number>();
  readonly #changed = new Set<FlowKey>();
  #ended: [number, Outcome][] = [];
  #throttled: [FlowKey, number, number][] = [];
  #sentBefore: number;
  #alone: KnownWindows | undefined;
  readonly #reported = { number: 0, fullMs: Number.NEGATIVE_INFINITY, refusal: 0, wasEmpty: false };
  #seen = 0;

  /**
   * @param queue what waits at this gateway
   * @param sentBefore attempts that this gateway has sent freely before the leader's first 429
   * @param alone what it has used of a told limit by itself
   */
  constructor(
    queue: FairQueue<T>,
    { term, from }: Pick<Announcement, 'term' | 'from'>,
    sentBefore: number,
    alone: KnownWindows | undefined,
    nowMs: number,
  ) {
    this.#queue = queue;
    this.term = term;
    this.leader = from;
    this.heardMs = nowMs;
    this.#sentBefore = sentBefore;
    this.#alone = alone;
  }

  hear({ turns, heard }: Pick<Announcement, 'turns' | 'heard'>, id: string, nowMs: number): void {
    this.heardMs = nowMs;
    if ((heard[id] ?? 0) > 0) this.#alone = undefined;
    const knowsRefusals = (heard[id] ?? 0) >= this.#reported.refusal;
    for (const turn of turns[id] ?? []) {
      if (knowsRefusals) this.#turns.push(turn);
      // It was given before the leader knew of a 429: the gate is closed.
      else this.#endUnused(turn[0]);
    }
  }

  /** The next request that has a turn. It is to be sent; `sent` takes the permit. */
  nextTurn(): { readonly request: T; readonly flow: Flow; readonly number: number } | undefined {
    for (let turn = this.#turns.shift(); turn !== undefined; turn = this.#turns.shift()) {
      const [number, key] = turn;
      const flow = parseFlow(key);
      const [request] = flow === undefined ? [] : this.#queue.waitingIn(flow);
      if (request !== undefined && flow !== undefined) {
        this.#seen = Math.max(this.#seen, number);
        return { request, flow, number };
      }
      this.#endUnused(number);
    }
    return undefined;
  }

  sent(number: number, permit: Permit): void {
    this.#inFlight.set(permit, number);
  }

  changed(keys: readonly FlowKey[]): void {
    for (const key of keys) this.#changed.add(key);
  }

  settled(permit: Permit, outcome: Outcome, nowMs: number): void {
    const number = this.#inFlight.get(permit);
    const isThrottled = typeof outcome === 'object';
    if (number !== undefined) {
      this.#inFlight.delete(permit);
      this.#ended.push([number, outcome]);
    } else if (isThrottled)
      this.throttled(flowKey(permit.flow), nowMs - permit.sent.atMs, outcome.waitMs ?? 0);
    if (isThrottled) this.#withdraw();
  }

  /** A 429 of an attempt that had no turn of this leader's. */
  throttled(key: FlowKey, agoMs: number, waitMs: number): void {
    this.#throttled.push([key, Math.max(agoMs, 0), waitMs]);
    this.#withdraw();
  }

  /** The 429s that closed this gateway before it followed. */
  tellCooldown({ state, throttled, lastThrottled, statedUntilMs }: GateRecord, nowMs: number): void {
    if (state !== 'closed') return;
    const key = flowKey({ name: '', weight: 1, background: false });
    for (let count = 0; count < throttled; count += 1) {
      this.throttled(key, nowMs - lastThrottled.atMs, Math.max(statedUntilMs - nowMs, 0));
    }
  }

  /** The leader is silent: its turns are used no longer. It may come back. */
  pause(): void {
    for (const [number] of this.#turns.splice(0)) this.#endUnused(number);
  }

  /** What is to be told now, if anything. */
  report(id: string, nowMs: number): Report | undefined {
    const isFull = nowMs - this.#reported.fullMs >= fullEveryMs && this.#hasNews();
    if (!isFull && this.#changed.size + this.#ended.length + this.#throttled.length === 0) return undefined;
    const changed = [...this.#changed].flatMap((key) => parseFlow(key) ?? []);
    const flows = isFull ? [...this.#queue.flows()] : changed;
    const waiting = flows.map((flow) => [flowKey(flow), this.#queue.waitingIn(flow).length] as const);
    if (isFull) this.#reported.fullMs = nowMs;
    this.#reported.wasEmpty = this.#isIdle();
    this.#reported.number += 1;
    const report: Report = {
      ...{ kind: 'report', term: this.term, from: id, to: this.leader },
      ...{ number: this.#reported.number, seen: this.#seen },
      ...{ isFull, waiting, inFlight: isFull ? [...this.#inFlight.values()] : [] },
      ...{ ended: this.#ended, throttled: this.#throttled, sentBefore: this.#sentBefore },
      alone: this.#alone && writtenAt(this.#alone, nowMs),
    };
    this.#ended = [];
    this.#throttled = [];
    this.#sentBefore = 0;
    this.#changed.clear();
    return report;
  }

  /** One full report more tells that nothing waits any longer. */
  #hasNews(): boolean {
    return !this.#reported.wasEmpty || !this.#isIdle() || this.#sentBefore > 0 || this.#alone !== undefined;
  }

  #isIdle(): boolean {
    return this.#queue.size === 0 && this.#inFlight.size === 0;
  }

  /** Turns that came before the 429 are given back, and those that the leader gave before it knew. */
  #withdraw(): void {
    this.pause();
    this.#reported.refusal = this.#reported.number + 1;
  }

  #endUnused(number: number): void {
    this.#seen = Math.max(this.#seen, number);
    this.#ended.push([number, 'unused']);
  }
}

function writtenAt({ windows: { ended, inFlight }, atMs }: KnownWindows, nowMs: number): SharedWindows {
  const sinceMs = nowMs - atMs;
  return { ended: ended.map((cells) => cells.map(([agoMs, count]) => [agoMs + sinceMs, count])), inFlight };
}
