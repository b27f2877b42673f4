/**
 * The leader's side of shared turns. For each request that waits at another gateway a placeholder waits in the leader's
 * scheduler; when its turn comes, the turn travels. No clock, no timer: times come in.
 */
import type { Queued } from '../gate/fair-queue.ts';
import type { Permit, Rejected, Scheduler } from '../gate/scheduler.ts';
import { type Announcement, type FlowKey, parseFlow, type Report } from './gate-messages.ts';
import type { SharedRecord } from './shared-record.ts';

/** A request that waits at another gateway. */
export interface RemoteRequest extends Queued {
  readonly gateway: string;
  readonly key: FlowKey;
}

interface Gateway {
  heardMs: number;
  /** Of its last report. */
  number: number;
  readonly waiting: Map<FlowKey, RemoteRequest[]>;
  /** Turns that it has and whose end it has not told, by their numbers. */
  readonly turns: Map<number, { readonly permit: Permit; readonly key: FlowKey }>;
  /** Of these, those that no announcement has carried yet. */
  unsent: [number, FlowKey][];
}

/** A leader that is gone is replaced after this long. Longer: fewer changes of the lead on a busy machine. */
export const leaseMs = 1_000;
const renewEveryMs = 250;
const campaignEveryMs = 100;
/** A gateway that reports nothing for so long has died, and its turns are free. Gateways report ten times a second. */
const followerDeadMs = 1_000;
const announceEveryMs = 100;

/** The lease in the store, by which a gateway leads: when to ask for it, and until when this gateway has it. */
export class Lease {
  #askedMs = Number.NEGATIVE_INFINITY;
  #heldUntilMs = 0;
  /** Since when it names a gateway of which no announcement was heard. */
  #unheardSinceMs: number | undefined;

  /** Whether it is time to ask. Then this counts as asked. */
  isDue(isHeld: boolean, nowMs: number): boolean {
    const isDue = nowMs - this.#askedMs >= (isHeld ? renewEveryMs : campaignEveryMs);
    if (isDue) this.#askedMs = nowMs;
    return isDue;
  }

  askAtOnce(): void {
    this.#askedMs = Number.NEGATIVE_INFINITY;
  }

  /** @param askedMs when it was asked for */
  held(askedMs: number): void {
    this.#heldUntilMs = askedMs + leaseMs;
  }

  /** One that was not renewed is over. */
  isOver(nowMs: number): boolean {
    return nowMs > this.#heldUntilMs;
  }

  /** @param isOther it names another gateway, of which nothing was heard since */
  named(isOther: boolean, nowMs: number): void {
    if (isOther) this.#unheardSinceMs ??= nowMs;
    else this.#unheardSinceMs = undefined;
  }

  /** It is renewed for a gateway that leads, and ends with it. One that is renewed for another is not believed. */
  take(nowMs: number): 'take' | 'seize' {
    return nowMs - (this.#unheardSinceMs ?? nowMs) > leaseMs ? 'seize' : 'take';
  }
}

export class Leader<T extends Queued> {
  readonly term: number;
  readonly #id: string;
  readonly #scheduler: Scheduler<T | RemoteRequest>;
  readonly #gateways = new Map<string, Gateway>();
  #turnsGiven = 0;
  readonly #announced = { atMs: Number.NEGATIVE_INFINITY, state: '' };

  /** @param id this gateway's */
  constructor(id: string, term: number, scheduler: Scheduler<T | RemoteRequest>) {
    this.#id = id;
    this.term = term;
    this.#scheduler = scheduler;
  }

  /** Turns that other gateways have now. */
  get turnsOut(): number {
    return [...this.#gateways.values()].reduce((sum, { turns }) => sum + turns.size, 0);
  }

  /** Whether it has reported already. */
  knows(id: string): boolean {
    return (this.#gateways.get(id)?.number ?? 0) > 0;
  }

  give(request: RemoteRequest, permit: Permit): void {
    this.dropped(request);
    const gateway = this.#gateways.get(request.gateway);
    if (gateway === undefined) return;
    this.#turnsGiven += 1;
    gateway.turns.set(this.#turnsGiven, { permit, key: request.key });
    gateway.unsent.push([this.#turnsGiven, request.key]);
  }

  /** The placeholder is in the queue no longer. */
  dropped(request: RemoteRequest): void {
    const waiting = this.#gateways.get(request.gateway)?.waiting.get(request.key) ?? [];
    const at = waiting.indexOf(request);
    if (at !== -1) waiting.splice(at, 1);
  }

  /** What a gateway tells. @returns requests whose turn can no longer come in time */
  hear(report: Report, nowMs: number): Rejected<T | RemoteRequest>[] {
    const gateway = this.#gateway(report.from, nowMs);
    if (report.number <= gateway.number) return [];
    gateway.number = report.number;
    gateway.heardMs = nowMs;
    this.#countSent(report.sentBefore);
    const rejected: Rejected<T | RemoteRequest>[] = [];
    for (const [key, agoMs, waitMs] of report.throttled) {
      const flow = parseFlow(key);
      if (flow === undefined) continue;
      const sent = { atMs: nowMs - agoMs, sent: this.#scheduler.counts.sent - 1 };
      const permit: Permit = { flow, sent, state: 'open' };
      rejected.push(...this.#scheduler.settled(permit, { waitMs: waitMs || undefined }, nowMs));
    }
    const ended = new Map(report.ended);
    const inFlight = new Set(report.inFlight);
    for (const [number, { permit }] of gateway.turns) {
      // The report of its end was lost where a full report does not name it any more.
      const isLost = report.isFull && number <= report.seen && !inFlight.has(number);
      const outcome = ended.get(number) ?? (isLost ? 'failed' : undefined);
      if (outcome === undefined) continue;
      gateway.turns.delete(number);
      rejected.push(...this.#scheduler.settled(permit, outcome, nowMs));
    }
    this.#hearWaiting(gateway, report, nowMs);
    return rejected;
  }

  /** Takes back the turns of gateways that have died. */
  forgetSilent(nowMs: number): void {
    for (const [id, gateway] of this.#gateways) {
      if (nowMs - gateway.heardMs <= followerDeadMs) continue;
      this.#release(gateway, nowMs);
      this.#gateways.delete(id);
    }
  }

  /** Takes back all: it leads no longer. */
  resign(nowMs: number): void {
    for (const gateway of this.#gateways.values()) this.#release(gateway, nowMs);
    this.#gateways.clear();
  }

  /** What the others are to know now; `undefined` where they know it. */
  announcement(record: SharedRecord, nowMs: number): Announcement | undefined {
    const { state, perMs, isMeasured, unstatedMs } = record;
    const told = [state, perMs, isMeasured, unstatedMs, this.#scheduler.record.throttled].join();
    const isFull = nowMs - this.#announced.atMs >= announceEveryMs || told !== this.#announced.state;
    this.#announced.state = told;
    if (isFull) {
      this.#announced.atMs = nowMs;
      return this.#announce(record, true, false);
    }
    const hasTurns = [...this.#gateways.values()].some(({ unsent }) => unsent.length > 0);
    return hasTurns ? this.#announce(record, false, false) : undefined;
  }

  /** It leads no longer. */
  resignation(record: SharedRecord): Announcement {
    return this.#announce(record, true, true);
  }

  #announce(record: SharedRecord, withShares: boolean, resigns: boolean): Announcement {
    const turns: Record<string, [number, FlowKey][]> = {};
    const heard: Record<string, number> = {};
    for (const [id, gateway] of this.#gateways) {
      heard[id] = gateway.number;
      if (gateway.unsent.length > 0) turns[id] = gateway.unsent.splice(0);
    }
    const shares = withShares ? waitingShares(this.#scheduler.queue.inOrder()) : {};
    return {
      kind: 'announcement',
      term: this.term,
      from: this.#id,
      record,
      resigns,
      turns,
      heard,
      shares,
    };
  }

  /** The first 429 of all tells the burst: what every gateway sent before it belongs to that. */
  #countSent(sentBefore: number): void {
    const { perMs, marks } = this.#scheduler.record;
    const [first, ...later] = marks;
    if (perMs > 0 || first === undefined || sentBefore === 0) return;
    const earlier = { ...first, sent: first.sent - sentBefore };
    this.#scheduler.record = { ...this.#scheduler.record, marks: [earlier, ...later] };
  }

  #hearWaiting(gateway: Gateway, { from, isFull, waiting, seen }: Report, nowMs: number): void {
    const counts = new Map(waiting);
    if (isFull) for (const key of gateway.waiting.keys()) if (!counts.has(key)) counts.set(key, 0);
    for (const [key, count] of counts) {
      const onTheWay = [...gateway.turns].filter(([number, turn]) => number > seen && turn.key === key);
      this.#setWaiting(gateway, from, key, Math.max(count - onTheWay.length, 0), nowMs);
    }
  }

  #setWaiting(gateway: Gateway, id: string, key: FlowKey, count: number, nowMs: number): void {
    const flow = parseFlow(key);
    if (flow === undefined) return;
    const waiting = gateway.waiting.get(key) ?? [];
    gateway.waiting.set(key, waiting);
    while (waiting.length > count) this.#scheduler.leave(waiting.pop() as RemoteRequest);
    while (waiting.length < count) {
      const context = { flows: [flow], deadlineMs: Number.POSITIVE_INFINITY };
      const request: RemoteRequest = { context, arrivedMs: nowMs, gateway: id, key };
      // The other gateway itself tells requests that too many wait.
      if (this.#scheduler.enter(request, nowMs).length > 0) break;
      waiting.push(request);
    }
    if (waiting.length === 0) gateway.waiting.delete(key);
  }

  #gateway(id: string, nowMs: number): Gateway {
    let gateway = this.#gateways.get(id);
    if (gateway === undefined) {
      gateway = { heardMs: nowMs, number: 0, waiting: new Map(), turns: new Map(), unsent: [] };
      this.#gateways.set(id, gateway);
    }
    return gateway;
  }

  #release(gateway: Gateway, nowMs: number): void {
    for (const request of [...gateway.waiting.values()].flat()) this.#scheduler.leave(request);
    for (const { permit } of gateway.turns.values()) this.#scheduler.settled(permit, 'failed', nowMs);
  }
}

export function isRemote(request: Queued): request is RemoteRequest {
  return 'gateway' in request;
}

/** Of each gateway: how many wait there, as a share of all up to the last of them. */
function waitingShares(inOrder: readonly Queued[]): Record<string, number> {
  const counts: Record<string, number> = {};
  const shares: Record<string, number> = {};
  for (const [at, request] of inOrder.entries()) {
    if (!isRemote(request)) continue;
    counts[request.gateway] = (counts[request.gateway] ?? 0) + 1;
    shares[request.gateway] = (counts[request.gateway] as number) / (at + 1);
  }
  return shares;
}
