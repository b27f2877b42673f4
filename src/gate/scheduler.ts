/**
 * When the next attempt may go up, and whose it is. No clock, timer or promise: times come in; `gate.ts` does what
 * this says.
 *
 *   open ──429──▶ closed ──time──▶ probing ──any answer but 429──▶ paced ──429──▶ closed
 *                    ▲────────────429────────┘ └──────quiet for a minute───┴──────▶ open
 */
import type { Turn } from '../claim.ts';
import * as admission from './admission.ts';
import { type Cooldown, cooledDown } from './cooldown.ts';
import { FairQueue } from './fair-queue.ts';
import { burstOf, firstGuess, type LimitEstimate, type Mark, measured } from './limit-estimate.ts';
import * as pacer from './pacer.ts';
import { tuning } from './tuning.ts';
import type {
  GateSnapshot,
  GateState,
  Next,
  Outcome,
  Permit,
  Queued,
  Rejected,
  Rejection,
  SchedulerOptions,
} from './types.ts';

/** All that the gate has learned and decided, as plain data. Times are ms. */
export interface GateRecord extends LimitEstimate, pacer.Pacer, Cooldown {
  readonly state: GateState;
  /** The upstream's bucket was empty: an attempt that was sent then was answered with 429. */
  readonly emptyMs: number;
  /** The 429s that keep the gate closed: how many, the latest by its sending, and whether we provoked them. */
  readonly refused: number;
  readonly refusedMs: number;
  readonly wasProvoked: boolean;
}

const openRecord: GateRecord = {
  state: 'open',
  ...{ perMs: 0, confirmations: 0, crowd: 0, crowdMs: 0 },
  ...{ level: 0, levelMs: 0, riseMs: 0, probeMs: 0, probeIntervalMs: 0, marks: [] },
  ...{ closedUntilMs: 0, statedUntilMs: 0, costMs: 0, unstatedMs: 0 },
  ...{ emptyMs: 0, refused: 0, refusedMs: 0, wasProvoked: false },
};

/** What the 429s of a closing tell. It is told when the closing is over: by then attempts in flight are answered. */
export function learned(record: GateRecord, sent: number): GateRecord {
  const { emptyMs, refusedMs: endMs, refused, perMs, confirmations } = record;
  const marks = record.marks as [Mark, ...Mark[]];
  const stretch = { emptyMs, marks, endMs, accepted: sent - refused };
  // Others use the same key, or the upstream refuses at random: that says nothing of the rate.
  const isProvoked = confirmations === 0 ? record.riseMs > 0 : record.wasProvoked;
  const isStray = perMs > 0 && !isProvoked && stretch.accepted - marks[0].sent >= burstOf(record, perMs);
  if (isStray) return { ...pacer.settledDown(record, sent, endMs), emptyMs: endMs };
  const limit = perMs === 0 ? firstGuess(stretch) : measured(record, stretch);
  const isSameRate = confirmations > 0 && Math.abs(limit.perMs / perMs - 1) <= tuning.sameRate;
  const next = { ...record, ...limit, emptyMs: endMs, level: 0, levelMs: endMs };
  return pacer.withNextProbe(next, isSameRate, record.costMs, record.closedUntilMs);
}

/** One more 429 of the closing that it begins or belongs to. */
function counted(record: GateRecord, { sentMs, isSpare }: Permit): GateRecord {
  const begins = record.state !== 'closed';
  const reopenedMs = record.marks[0]?.atMs ?? 0;
  return {
    ...record,
    state: 'closed',
    refused: begins ? 1 : record.refused + 1,
    refusedMs: Math.max(sentMs, reopenedMs, begins ? 0 : record.refusedMs),
    wasProvoked: (!begins && record.wasProvoked) || !isSpare,
  };
}

export class Scheduler<T extends Queued> {
  readonly #options: SchedulerOptions;
  readonly #queue = new FairQueue<T>();
  #record = openRecord;
  #trial: Permit | undefined;
  #counts = { inFlight: 0, sent: 0, throttled: 0 };
  /** How many attempts may be in flight; grows with the answers of an upstream that is met for the first time. */
  #window = { size: 0, successes: 0 };

  constructor(options: SchedulerOptions) {
    this.#options = options;
    this.#open();
  }

  get state(): GateState {
    return this.#record.state;
  }

  get waiting(): number {
    return this.#queue.size;
  }

  /** A turn at once, where nothing waits and nothing is limited. */
  admit(turn: Turn, nowMs: number): Permit | undefined {
    this.#advance(nowMs);
    const isFree = this.#record.state === 'open' && this.#queue.size === 0 && !this.#isFull();
    return isFree ? this.#send(turn, nowMs) : undefined;
  }

  /** Queues a request. A rejection says why not; `displaced` had to leave for it. */
  enter(request: T, nowMs: number): { rejection?: Rejection; displaced?: Rejected<T> } {
    this.#advance(nowMs);
    const outlook = this.#outlook(nowMs);
    const late = admission.lateRejection(request, this.#queue.ahead(request), outlook, nowMs);
    if (late !== undefined) return { rejection: late };
    const { maxWaiting, maxWaitingPerCaller } = this.#options;
    const rejection = admission.overloadedRejection(this.#queue.size, outlook, nowMs);
    if (this.#queue.sizeOf(request.turn.name) >= maxWaitingPerCaller) return { rejection };
    const displaced = this.#queue.size < maxWaiting ? undefined : this.#queue.displacedBy(request);
    if (displaced === undefined && this.#queue.size >= maxWaiting) return { rejection };
    if (displaced !== undefined) this.#queue.remove(displaced);
    this.#queue.add(request);
    return displaced === undefined ? {} : { displaced: { request: displaced, rejection } };
  }

  /** Takes a request out of the queue; false when it is not there. */
  leave(request: T): boolean {
    return this.#queue.remove(request);
  }

  /** The request's flow has changed: queues it anew. */
  moved(request: T): void {
    if (this.#queue.remove(request)) this.#queue.add(request);
  }

  next(nowMs: number): Next<T> {
    this.#advance(nowMs);
    const { state, closedUntilMs } = this.#record;
    const isEmpty = this.#queue.size === 0;
    if (state === 'paced') {
      const change = isEmpty ? pacer.settledDown : pacer.risen;
      this.#record = change(this.#record, this.#counts.sent, nowMs);
    }
    if (isEmpty || this.#isFull() || this.#trial !== undefined) return { kind: 'wait', untilMs: undefined };
    if (state === 'closed') return { kind: 'wait', untilMs: closedUntilMs };
    const untilMs = state === 'paced' ? pacer.dueMs(this.#record, nowMs) : nowMs;
    if (untilMs > nowMs) return { kind: 'wait', untilMs };
    const request = this.#queue.take() as T;
    return { kind: 'go', request, permit: this.#send(request.turn, nowMs) };
  }

  /** An attempt has ended. Returns the requests whose turn can no longer come in time, taken out of the queue. */
  settled(permit: Permit, outcome: Outcome, nowMs: number): readonly Rejected<T>[] {
    this.#advance(nowMs);
    const wasFull = this.#isFull();
    const isTrial = permit === this.#trial;
    this.#counts.inFlight--;
    if (isTrial) this.#trial = undefined;
    if (outcome.kind === 'failed') return [];
    if (outcome.kind === 'throttled') this.#throttle(permit, outcome.waitMs, isTrial, nowMs);
    else {
      if (outcome.isHealthy) this.#growWindow(wasFull);
      if (!isTrial || this.#record.state !== 'probing') return [];
      this.#record = { ...this.#record, state: 'paced', statedUntilMs: 0 };
    }
    return this.#rejectLate(nowMs);
  }

  /** What a request is told whose deadline has come: when one like it, come anew, would be served in time. */
  expired({ turn, deadlineMs, arrivedMs }: T, nowMs: number): Rejection {
    const ahead = this.#queue.ahead({ turn, deadlineMs, arrivedMs: nowMs });
    return admission.comeBack(deadlineMs - arrivedMs, ahead, this.#outlook(nowMs), nowMs);
  }

  /** All queued requests, taken out of the queue. */
  clear(): readonly T[] {
    const all = this.#queue.inOrder();
    for (const request of all) this.#queue.remove(request);
    return all;
  }

  snapshot(nowMs: number): GateSnapshot {
    this.#advance(nowMs);
    const { state, perMs, closedUntilMs, statedUntilMs } = this.#record;
    return {
      state,
      perSecond: perMs > 0 ? perMs * 1000 : undefined,
      window: this.#window.size,
      inFlight: this.#counts.inFlight,
      waiting: this.#queue.size,
      callers: this.#queue.callers(nowMs),
      closedForMs: state === 'closed' ? Math.max(closedUntilMs - nowMs, 0) : 0,
      statedWaitMs: Math.max(statedUntilMs - nowMs, 0),
      attempts: this.#counts.sent,
      refusals: this.#counts.throttled,
    };
  }

  /** What time alone changes. Every question and every event begins with it. */
  #advance(nowMs: number): void {
    const { state, closedUntilMs, statedUntilMs } = this.#record;
    if (state === 'open') return;
    if (state === 'closed') {
      if (nowMs < closedUntilMs) return;
      this.#record = { ...learned(this.#record, this.#counts.sent), state: 'probing' };
    }
    if (this.#queue.size > 0 || this.#trial !== undefined) return;
    if (nowMs - Math.max(closedUntilMs, statedUntilMs) > tuning.quietMs) this.#open();
  }

  /** Nothing is limited: the upstream is met as for the first time. */
  #open(): void {
    this.#record = openRecord;
    this.#window = { size: Math.min(this.#options.initialWindow, this.#options.maxInFlight), successes: 0 };
  }

  #isFull(): boolean {
    return this.#counts.inFlight >= this.#window.size;
  }

  #growWindow(wasFull: boolean): void {
    const { initialWindow, maxInFlight } = this.#options;
    this.#window.successes++;
    // The first window is waited for: its answers tell whether the upstream takes as many.
    if (!wasFull || this.#window.successes <= initialWindow || this.#window.size >= maxInFlight) return;
    this.#window.size++;
  }

  #send(turn: Turn, nowMs: number): Permit {
    const record = this.#record;
    const { state, marks } = record;
    const mark = { atMs: nowMs, sent: this.#counts.sent };
    const permit: Permit = {
      turn,
      sentMs: nowMs,
      state: state === 'open' || state === 'paced' ? state : 'probe',
      isSpare: state === 'paced' && pacer.hasSpare(record, nowMs),
    };
    this.#counts.inFlight++;
    this.#counts.sent++;
    if (state === 'probing') {
      this.#trial = permit;
      this.#record = pacer.taken({ ...record, marks: [mark] }, nowMs);
    } else if (state === 'paced') this.#record = pacer.taken(record, nowMs);
    else if (nowMs - (marks.at(-1)?.atMs ?? Number.NEGATIVE_INFINITY) >= tuning.historyMs / 8) {
      const recent = marks.filter(({ atMs }) => nowMs - atMs < tuning.historyMs);
      this.#record = { ...record, marks: [...recent, mark] };
    }
    return permit;
  }

  #throttle(permit: Permit, waitMs: number | undefined, isTrial: boolean, nowMs: number): void {
    const { state, perMs, marks } = this.#record;
    const isStated = waitMs !== undefined && waitMs > 0;
    this.#counts.throttled++;
    this.#queue.refund(permit.turn);
    // Sent before the gate closed last: what it tells is known already.
    if (!isStated && perMs > 0 && permit.sentMs < (marks[0]?.atMs ?? 0)) return;
    this.#record = counted(this.#record, permit);
    if (!isStated && state === 'closed') return;
    const { random } = this.#options;
    this.#record = cooledDown(this.#record, { waitMs, perMs, isTrial }, this.#options, random(), nowMs);
  }

  #outlook(nowMs: number): admission.Outlook {
    const { state, closedUntilMs, statedUntilMs, perMs, confirmations } = this.#record;
    const opensMs = state === 'closed' ? Math.max(closedUntilMs, nowMs) : nowMs;
    return { opensMs, statedUntilMs, perMs: confirmations > 0 ? perMs : 0 };
  }

  #rejectLate(nowMs: number): Rejected<T>[] {
    const outlook = this.#outlook(nowMs);
    const rejected: Rejected<T>[] = [];
    for (const [i, request] of this.#queue.inOrder().entries()) {
      const rejection = admission.lateRejection(request, i - rejected.length, outlook, nowMs);
      if (rejection === undefined) continue;
      this.#queue.remove(request);
      rejected.push({ request, rejection });
    }
    return rejected;
  }
}
