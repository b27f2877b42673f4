/**
 * When the next attempt may go up, and whose it is. No clock, timer or promise: times come in; `gate.ts` does what
 * this says.
 *
 *   open ──429──▶ closed ──time──▶ half-open ──any answer but 429──▶ paced ──429──▶ closed
 *                    ▲─────────────429────────┘ └──────quiet for a minute───┴──────▶ open
 */
import { toSeconds } from '../exchange/figures.ts';
import type { Flow } from '../exchange/request-context.ts';
import { type AttemptLimit, LimitFields } from '../http/limit-fields.ts';
import { type CallerQueue, FairQueue, type Queued, queuesByCaller } from './fair-queue.ts';
import {
  type CooldownOptions,
  dueMs,
  type GateState,
  learnRate,
  type Mark,
  openRecord,
  rise,
  settleDown,
  takeTurn,
  throttle,
} from './pacer.ts';
import { tuning } from './tuning.ts';
import { type ToldLimit, ToldWindow } from './window-limits.ts';

export interface SchedulerOptions extends CooldownOptions {
  /** Attempts in flight: at an upstream met for the first time, and ever. */
  readonly initialWindow: number;
  readonly maxInFlight: number;
  /** How many requests may wait, in total and for one caller. */
  readonly maxWaiting: number;
  readonly maxWaitingPerCaller: number;
  /** What the operator tells of the upstream's limit. */
  readonly limits?: readonly AttemptLimit[];
}

/** The gate's part of `/status`. */
export interface GateSnapshot {
  readonly state: GateState | 'off';
  readonly closedForSeconds: number;
  readonly statedWaitSeconds: number;
  /** Null while no rate is known. */
  readonly attemptsPerSecond: number | null;
  readonly window: number;
  /** The limits that were told, the shortest window first. */
  readonly limits: readonly ToldLimit[];
  readonly inFlight: number;
  readonly waiting: number;
  readonly attempts: number;
  readonly refusals: number;
  /** All that wait, in the order of their first turns. */
  readonly callers: readonly CallerQueue[];
}

/** An attempt under way; `sent`: when, and how many before it. */
export interface Permit {
  readonly flow: Flow;
  readonly sent: Mark;
  readonly state: 'open' | 'paced' | 'trial';
  /** The windows of told limits have it already, for another gateway knows of it. */
  isCounted?: boolean;
}

/** How an attempt ended: with a 429 and the wait that it states, a 5xx, another answer, none (timeout, abort), or unsent. */
export type Outcome = { readonly waitMs: number | undefined } | 'broken' | 'answered' | 'failed' | 'unused';

/** Whose turn it is; otherwise when to ask again (`undefined`: only after something else has happened). */
export type Next<T> =
  | { readonly request: T; readonly permit: Permit }
  | { readonly request: undefined; readonly untilMs: number | undefined };

/** A request that gets no turn, why, and in how many ms it makes sense to come again. It is not queued any more. */
export interface Rejected<T> {
  readonly request: T;
  readonly code: 'upstream-rate-limited' | 'overloaded';
  readonly retryAfterMs: number;
}

/** One that has used nothing. */
const newFlow: Flow = { name: '', weight: 1, background: false };

const isTrial = ({ state }: Permit): boolean => state === 'trial';

export class Scheduler<T extends Queued> {
  readonly #options: SchedulerOptions;
  readonly queue = new FairQueue<T>();
  /** What the operator has told. What is learned beside it may only be lower. */
  readonly windows: readonly ToldWindow[];
  /** What its answers tell, where they can be believed. */
  readonly fields: LimitFields;
  /** Replaced and never changed. Several gateways share it (fleet/): then others replace it too. */
  record = openRecord;
  /** Not a set: V8 keeps the members of its former tables until the next full collection. */
  readonly underWay: Permit[] = [];
  /** `answered` counts from when the gate opened: the more answers, the more attempts may be in flight. */
  readonly counts = { sent: 0, throttled: 0, answered: 0 };

  constructor(options: SchedulerOptions) {
    this.#options = options;
    this.windows = (options.limits ?? []).map((limit) => new ToldWindow(limit));
    this.fields = new LimitFields(tuning.keptForLight, options.maxClosedMs);
  }

  /** A turn at once, where nothing waits and nothing is limited. */
  admit(flows: readonly Flow[], nowMs: number): Permit | undefined {
    this.advance(nowMs);
    const isFree = this.record.state === 'open' && this.queue.size === 0;
    const flow = isFree ? flows.find((one) => this.#mayGo(one, nowMs)) : undefined;
    return flow && this.send(flow, nowMs);
  }

  /** Queues a request. Returns what is rejected: the request itself, or in a full queue the one whose turn is last. */
  enter(request: T, nowMs: number): readonly Rejected<T>[] {
    this.advance(nowMs);
    const { maxWaiting, maxWaitingPerCaller } = this.#options;
    const { flows, deadlineMs } = request.context;
    const ahead = this.queue.ahead(flows, request.arrivedMs);
    if (this.#turnMs(ahead, nowMs, flows) >= deadlineMs) return [this.#late(request, ahead, nowMs)];
    const isFull = flows.every(({ name }) => this.queue.sizeOf(name) >= maxWaitingPerCaller);
    if (!isFull) this.queue.add(request);
    if (!isFull && this.queue.size <= maxWaiting) return [];
    const tooMany = isFull ? request : this.queue.removeLast();
    // Told to come back when a tenth of the queue is served.
    return [this.#rejected(tooMany, 'overloaded', this.#turnMs(this.queue.size / 10, nowMs, flows), nowMs)];
  }

  leave(request: T): boolean {
    return this.queue.remove(request);
  }

  moved(request: T): readonly Flow[] {
    return this.queue.move(request);
  }

  /** The request's deadline has come. Its `Retry-After` says when an equal request would be served in time. */
  expired(request: T, nowMs: number): readonly Rejected<T>[] {
    if (!this.queue.remove(request)) return [];
    return [this.#late(request, this.queue.ahead(request.context.flows, nowMs), nowMs)];
  }

  clear(): readonly T[] {
    return this.queue.inOrder().filter((request) => this.queue.remove(request));
  }

  next(nowMs: number): Next<T> {
    this.advance(nowMs);
    const isEmpty = this.queue.size === 0;
    const heldMs = isEmpty ? Number.POSITIVE_INFINITY : this.#statedMs(this.queue.flows(), 0, nowMs);
    // The pace rises only while requests wait for it.
    if (this.record.state === 'paced')
      this.record =
        heldMs > nowMs ? settleDown(this.record, nowMs) : rise(this.record, this.counts.sent, nowMs);
    const isFull = this.underWay.length >= this.#window();
    if (isEmpty || isFull || this.underWay.some(isTrial)) return { request: undefined, untilMs: undefined };
    const { state, closedUntilMs } = this.record;
    const untilMs = Math.max(state === 'paced' ? dueMs(this.record, nowMs) : closedUntilMs, heldMs);
    if (untilMs > nowMs) return { request: undefined, untilMs };
    const turn = this.queue.take((flow) => this.#mayGo(flow, nowMs));
    if (turn === undefined) return { request: undefined, untilMs: undefined };
    return { request: turn.request, permit: this.send(turn.flow, nowMs) };
  }

  /** An attempt has ended. */
  settled(permit: Permit, outcome: Outcome, nowMs: number): readonly Rejected<T>[] {
    this.advance(nowMs);
    const at = this.underWay.indexOf(permit);
    if (at !== -1) this.underWay.splice(at, 1);
    if (outcome === 'unused') this.#giveBack(permit);
    else if (at !== -1 && !permit.isCounted)
      for (const window of this.windows) window.ended(permit.flow, nowMs);
    if (outcome === 'answered') this.counts.answered++;
    const isAnswer = outcome === 'answered' || outcome === 'broken';
    if (typeof outcome === 'object') {
      this.counts.throttled++;
      if (permit.state !== 'open') this.queue.refund(permit.flow);
      const statedMs = outcome.waitMs ?? 0;
      this.record = throttle(this.record, permit.sent, statedMs, isTrial(permit), this.#options, nowMs);
    } else if (isAnswer && isTrial(permit) && this.record.state === 'half-open')
      this.record = { ...this.record, state: 'paced', statedUntilMs: 0 };
    else return [];
    return this.tooLate(nowMs);
  }

  /** The requests whose turn can no longer come in time, taken out of the queue. */
  tooLate(nowMs: number): readonly Rejected<T>[] {
    const rejected: Rejected<T>[] = [];
    for (const [i, request] of this.queue.inOrder().entries()) {
      const ahead = i - rejected.length;
      const { flows, deadlineMs } = request.context;
      const isLate = this.#turnMs(ahead, nowMs, flows) >= deadlineMs;
      if (isLate && this.queue.remove(request)) rejected.push(this.#late(request, ahead, nowMs));
    }
    return rejected;
  }

  snapshot(nowMs: number): GateSnapshot {
    this.advance(nowMs);
    const { state, perMs, closedUntilMs, statedUntilMs } = this.record;
    const inFlight = this.underWay.length;
    const heldUntilMs = Math.max(closedUntilMs, this.fields.turnMs(inFlight, nowMs));
    return {
      state,
      attemptsPerSecond: perMs > 0 ? perMs * 1000 : null,
      window: this.#window(),
      limits: this.windows.map((window) => window.snapshot(this.uncounted.length, nowMs)),
      inFlight,
      waiting: this.queue.size,
      closedForSeconds: toSeconds(heldUntilMs - nowMs),
      statedWaitSeconds: toSeconds(Math.max(statedUntilMs - nowMs, 0)),
      attempts: this.counts.sent,
      refusals: this.counts.throttled,
      callers: queuesByCaller(this.queue.inOrder(), nowMs),
    };
  }

  /** What time alone changes. */
  advance(nowMs: number): void {
    const { state, closedUntilMs, statedUntilMs } = this.record;
    if (state === 'open' || nowMs < closedUntilMs) return;
    if (state === 'closed') this.record = { ...learnRate(this.record, this.counts.sent), state: 'half-open' };
    if (this.queue.size > 0 || this.underWay.some(isTrial)) return;
    if (nowMs - Math.max(closedUntilMs, statedUntilMs) <= tuning.quietMs) return;
    // Nothing is limited: the upstream is met as for the first time.
    this.record = openRecord;
    this.counts.answered = 0;
  }

  /** An upstream that is met for the first time gets few attempts at once, and one more with each further answer. */
  #window(): number {
    const { initialWindow, maxInFlight } = this.#options;
    return Math.min(Math.max(initialWindow, this.counts.answered), maxInFlight);
  }

  /** A caller may hold three slots for each one it leaves free: reads that hang never take all from the others. */
  #hasRoom(name: string): boolean {
    const held = this.underWay.filter(({ flow }) => flow.name === name).length;
    return held < 3 * (this.#window() - this.underWay.length);
  }

  /** Attempts under way that take a place of each window beside what it counts. */
  get uncounted(): readonly Permit[] {
    return this.windows.length === 0 ? [] : this.underWay.filter(({ isCounted }) => !isCounted);
  }

  /** When stated limits let an attempt of the first of these flows go, behind so many others. */
  #statedMs(flows: Iterable<Flow>, ahead: number, nowMs: number): number {
    const others = ahead + this.uncounted.length;
    const turnMs = (flow: Flow) =>
      Math.max(nowMs, ...this.windows.map((one) => one.turnMs(flow, others, nowMs)));
    // None goes sooner, so thousands of flows that wait equally long are not all looked at.
    const leastMs = turnMs(newFlow);
    let firstMs = Number.POSITIVE_INFINITY;
    for (const flow of flows) {
      firstMs = Math.min(firstMs, turnMs(flow));
      if (firstMs <= leastMs) break;
    }
    return Math.max(firstMs, this.fields.turnMs(ahead + this.underWay.length, nowMs));
  }

  #mayGo(flow: Flow, nowMs: number): boolean {
    return this.#hasRoom(flow.name) && this.#statedMs([flow], 0, nowMs) <= nowMs;
  }

  /** Takes a turn. */
  send(flow: Flow, nowMs: number): Permit {
    const { state, marks } = this.record;
    const mark = { atMs: nowMs, sent: this.counts.sent };
    const isTrusted = state === 'open' || state === 'paced';
    const permit: Permit = { flow, sent: mark, state: isTrusted ? state : 'trial' };
    this.underWay.push(permit);
    this.counts.sent++;
    const isStale = marks[0] === undefined || nowMs - marks[0].atMs >= tuning.historyMs;
    if (state === 'half-open' || (state !== 'paced' && isStale))
      this.record = { ...this.record, marks: [mark] };
    if (state === 'half-open' || state === 'paced') this.record = takeTurn(this.record, nowMs);
    return permit;
  }

  /** Nothing was sent: the turn is another's, and there is one accepted attempt less. */
  #giveBack({ flow, state, sent: { sent } }: Permit): void {
    if (state !== 'open') this.queue.refund(flow);
    const marks = this.record.marks.map((one) => (one.sent > sent ? one : { ...one, sent: one.sent + 1 }));
    this.record = { ...this.record, marks, level: this.record.level + Number(state !== 'open') };
  }

  /** When the turn comes behind so many others. While the rate is a guess, they cost no time. */
  #turnMs(ahead: number, nowMs: number, flows: readonly Flow[]): number {
    const { closedUntilMs, perMs, isMeasured } = this.record;
    const learnedMs = Math.max(closedUntilMs, nowMs) + (isMeasured ? ahead / perMs : 0);
    return Math.max(learnedMs, this.#statedMs(flows, Math.ceil(ahead), nowMs));
  }

  /** Told to come back in the time to its turn less its patience. */
  #late(request: T, ahead: number, nowMs: number): Rejected<T> {
    const { deadlineMs, flows } = request.context;
    const backMs = this.#turnMs(ahead, nowMs, flows) - (deadlineMs - request.arrivedMs);
    return this.#rejected(request, 'upstream-rate-limited', backMs, nowMs);
  }

  #rejected(request: T, code: Rejected<T>['code'], backMs: number, nowMs: number): Rejected<T> {
    // The upstream's own time, also where one attempt goes before it.
    const inMs = Math.max(backMs, this.record.statedUntilMs, this.fields.turnMs(1, nowMs)) - nowMs;
    return { request, code, retryAfterMs: Math.max(inMs, tuning.leastRetryAfterMs) };
  }
}

/** What the gate asks: a scheduler of its own, or one that takes turns with those of other gateways (fleet/). */
type Asked = 'admit' | 'enter' | 'leave' | 'moved' | 'expired' | 'clear' | 'next' | 'settled' | 'snapshot';
export type Scheduling<T extends Queued> = Pick<Scheduler<T>, Asked | 'record' | 'fields'>;

/** @param wake to be called when turns have come by themselves, with the requests that get none */
export type MakeScheduler = <T extends Queued>(
  options: SchedulerOptions,
  wake: (rejected: readonly Rejected<T>[]) => void,
) => Scheduling<T>;
