/**
 * When the next attempt may go up, and whose it is. No clock, timer or promise: times come in; `gate.ts` does what
 * this says.
 *
 *   open ──429──▶ closed ──time──▶ probing ──any answer but 429──▶ paced ──429──▶ closed
 *                    ▲────────────429────────┘ └──────quiet for a minute───┴──────▶ open
 */
import type { Turn } from '../claim.ts';
import { closedRejection, isLate, lateRejection, type Outlook, overloadedRejection } from './admission.ts';
import { type Cooldown, cooledDown, noCooldown } from './cooldown.ts';
import { FairQueue } from './fair-queue.ts';
import { burstOf, firstGuess, type LimitEstimate, measured, type Stretch } from './limit-estimate.ts';
import {
  dueMs,
  filled,
  hasSpare,
  idlePacer,
  marked,
  type Pacer,
  risen,
  settledDown,
  taken,
  withNextProbe,
} from './pacer.ts';
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

/** All that the gate has learned and decided, as plain data. Times are ms; 0 means never. */
export interface GateRecord extends LimitEstimate, Pacer, Cooldown {
  readonly state: GateState;
  /** The upstream's bucket was empty: the last attempt that was answered with 429 was sent then. */
  readonly emptyMs: number;
  /** The 429s that keep the gate closed: how many, the latest by its sending, and whether we provoked them. */
  readonly refused: number;
  readonly refusedMs: number;
  readonly wasProvoked: boolean;
}

const openRecord: GateRecord = {
  ...idlePacer,
  ...noCooldown,
  state: 'open',
  perMs: 0,
  confirmations: 0,
  crowd: 0,
  crowdMs: 0,
  emptyMs: 0,
  refused: 0,
  refusedMs: 0,
  wasProvoked: false,
};

/** What the 429s of a closing tell, once it is over: then all answers are known. */
export function learned(record: GateRecord, sent: number): GateRecord {
  const { emptyMs, marks, refusedMs: endMs, refused, riseMs, costMs, closedUntilMs } = record;
  const stretch: Stretch = { emptyMs, marks, endMs, accepted: sent - refused, isRising: riseMs > 0 };
  const accepted = stretch.accepted - (marks[0]?.sent ?? 0);
  const isFirst = record.perMs === 0;
  // The bucket was not empty for our sake: others use the same key, or the upstream refuses at random.
  const isFree = record.confirmations === 0 ? !stretch.isRising : !record.wasProvoked;
  if (!isFirst && isFree && accepted >= burstOf(record, record.perMs)) {
    return { ...settledDown(record, sent, endMs), emptyMs: endMs };
  }
  const limit = isFirst ? firstGuess(stretch) : measured(record, stretch);
  const isSame = Math.abs(limit.perMs / record.perMs - 1) <= tuning.sameRate && record.confirmations > 0;
  const next = { ...record, ...limit, emptyMs: endMs, level: 0, levelMs: endMs };
  return withNextProbe(next, isSame, costMs, closedUntilMs);
}

export class Scheduler<T extends Queued> {
  readonly #options: SchedulerOptions;
  readonly #queue = new FairQueue<T>();
  #record: GateRecord = openRecord;
  #trial: Permit | undefined;
  #inFlight = 0;
  #sent = 0;
  #throttled = 0;
  #window: number;
  #successes = 0;

  constructor(options: SchedulerOptions) {
    this.#options = options;
    this.#window = Math.min(options.initialWindow, options.maxInFlight);
  }

  get state(): GateState {
    return this.#record.state;
  }

  get waiting(): number {
    return this.#queue.size;
  }

  /** A turn at once, where nothing waits and nothing is limited: no queue. */
  admit(turn: Turn, nowMs: number): Permit | undefined {
    this.#advance(nowMs);
    if (this.#record.state !== 'open' || this.#queue.size > 0 || this.#inFlight >= this.#window)
      return undefined;
    return this.#sendOpen(turn, nowMs);
  }

  /** Queues a request. A rejection says why not; `displaced` had to leave for it. */
  enter(request: T, nowMs: number): { rejection?: Rejection; displaced?: Rejected<T> } {
    this.#advance(nowMs);
    const outlook = this.#outlook(nowMs);
    const ahead = this.#queue.ahead(request);
    if (isLate(request.deadlineMs, ahead, outlook, nowMs)) {
      return { rejection: lateRejection(request, ahead, outlook, nowMs) };
    }
    const { maxWaiting, maxWaitingPerCaller } = this.#options;
    const { size } = this.#queue;
    if (this.#queue.sizeOf(request.turn.name) >= maxWaitingPerCaller) {
      return { rejection: overloadedRejection(size, outlook, nowMs) };
    }
    if (size < maxWaiting) {
      this.#queue.add(request);
      return {};
    }
    const displaced = this.#queue.displacedBy(request);
    const rejection = overloadedRejection(size, outlook, nowMs);
    if (displaced === undefined) return { rejection };
    this.#queue.remove(displaced);
    this.#queue.add(request);
    return { displaced: { request: displaced, rejection } };
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
    const { state } = this.#record;
    if (state === 'paced') {
      this.#record =
        this.#queue.size === 0
          ? settledDown(this.#record, this.#sent, nowMs)
          : risen(this.#record, this.#sent, nowMs);
    }
    if (this.#queue.size === 0 || this.#inFlight >= this.#window) return { kind: 'wait', untilMs: undefined };
    if (state === 'closed') return { kind: 'wait', untilMs: this.#record.closedUntilMs };
    if (state === 'probing' && this.#trial !== undefined) return { kind: 'wait', untilMs: undefined };
    const dueAtMs = state === 'paced' ? dueMs(this.#record, nowMs) : nowMs;
    if (dueAtMs > nowMs) return { kind: 'wait', untilMs: dueAtMs };
    const request = this.#queue.take() as T;
    return { kind: 'go', request, permit: this.#send(request.turn, nowMs) };
  }

  /** An attempt has ended. Returns the requests whose turn can no longer come in time, taken out of the queue. */
  settled(permit: Permit, outcome: Outcome, nowMs: number): readonly Rejected<T>[] {
    this.#advance(nowMs);
    const wasFull = this.#inFlight >= this.#window;
    const isTrial = permit === this.#trial;
    this.#inFlight--;
    if (isTrial) this.#trial = undefined;
    if (outcome.kind === 'failed') return [];
    if (outcome.kind === 'throttled') {
      this.#close(permit, outcome.waitMs, isTrial, nowMs);
      return this.#rejectLate(nowMs);
    }
    if (outcome.isHealthy) this.#growWindow(wasFull);
    if (!isTrial || this.#record.state !== 'probing') return [];
    this.#record = { ...this.#record, state: 'paced', statedUntilMs: 0 };
    return this.#rejectLate(nowMs);
  }

  /** What a request is told whose deadline has come: when one like it, come anew, would be served in time. */
  expired(request: T, nowMs: number): Rejection {
    const anew = { turn: request.turn, deadlineMs: request.deadlineMs, arrivedMs: nowMs };
    const patienceMs = request.deadlineMs - request.arrivedMs;
    const again = { ...anew, deadlineMs: nowMs + patienceMs };
    return lateRejection(again, this.#queue.ahead(again), this.#outlook(nowMs), nowMs);
  }

  /** What a request is told that cannot wait until the gate opens. */
  closed(nowMs: number): Rejection {
    return closedRejection(this.#outlook(nowMs), nowMs);
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
      window: this.#window,
      inFlight: this.#inFlight,
      waiting: this.#queue.size,
      callers: this.#queue.callers(nowMs),
      closedForMs: state === 'closed' ? Math.max(closedUntilMs - nowMs, 0) : 0,
      statedWaitMs: Math.max(statedUntilMs - nowMs, 0),
      attempts: this.#sent,
      refusals: this.#throttled,
    };
  }

  /** What time alone changes. Every question and every event begins with it. */
  #advance(nowMs: number): void {
    const { state, closedUntilMs, statedUntilMs } = this.#record;
    if (state === 'open') return;
    if (state === 'closed') {
      if (nowMs < closedUntilMs) return;
      this.#record = { ...learned(this.#record, this.#sent), state: 'probing' };
    }
    if (this.#queue.size > 0 || this.#trial !== undefined) return;
    if (nowMs - Math.max(closedUntilMs, statedUntilMs) <= tuning.quietMs) return;
    this.#record = openRecord;
    this.#window = Math.min(this.#options.initialWindow, this.#options.maxInFlight);
    this.#successes = 0;
  }

  #sendOpen(turn: Turn, nowMs: number): Permit {
    const { marks } = this.#record;
    const last = marks.at(-1);
    if (last === undefined || nowMs - last.atMs >= tuning.historyMs / 8) {
      const recent = marks.filter(({ atMs }) => nowMs - atMs < tuning.historyMs);
      this.#record = { ...this.#record, marks: [...recent, { atMs: nowMs, sent: this.#sent }] };
    }
    return this.#count(turn, nowMs, 'open', false);
  }

  #send(turn: Turn, nowMs: number): Permit {
    const { state } = this.#record;
    if (state === 'open') return this.#sendOpen(turn, nowMs);
    if (state === 'probing') {
      const marks = marked([], this.#sent, nowMs);
      this.#record = taken({ ...filled(this.#record, nowMs), marks }, nowMs);
      this.#trial = this.#count(turn, nowMs, 'probe', false);
      return this.#trial;
    }
    const isSpare = hasSpare(this.#record, nowMs);
    this.#record = taken(this.#record, nowMs);
    return this.#count(turn, nowMs, 'paced', isSpare);
  }

  #count(turn: Turn, sentMs: number, state: Permit['state'], isSpare: boolean): Permit {
    this.#inFlight++;
    this.#sent++;
    return { turn, sentMs, state, isSpare };
  }

  #close(permit: Permit, waitMs: number | undefined, isTrial: boolean, nowMs: number): void {
    this.#throttled++;
    const record = this.#record;
    const isClosed = record.state === 'closed';
    const isStated = waitMs !== undefined && waitMs > 0;
    const isOld = record.perMs > 0 && permit.sentMs < (record.marks[0]?.atMs ?? 0);
    this.#queue.refund(permit.turn);
    // Sent before the gate closed last: what it tells is known already.
    if (!isStated && (isClosed || isOld)) {
      if (isClosed && !isOld) this.#record = counted(record, permit, false);
      return;
    }
    const refused = { waitMs, perMs: record.perMs, isTrial };
    const cooled = cooledDown(record, refused, this.#options, this.#options.random(), nowMs);
    this.#record = { ...counted(cooled, permit, !isClosed), state: 'closed' };
  }

  #growWindow(wasFull: boolean): void {
    this.#successes++;
    const { initialWindow, maxInFlight } = this.#options;
    // The first window is waited for: its answers tell whether the upstream takes as many.
    if (wasFull && this.#successes > initialWindow && this.#window < maxInFlight) this.#window++;
  }

  #outlook(nowMs: number): Outlook {
    const { state, closedUntilMs, statedUntilMs, perMs, confirmations } = this.#record;
    return {
      opensMs: state === 'closed' ? Math.max(closedUntilMs, nowMs) : nowMs,
      statedUntilMs,
      perMs: confirmations > 0 ? perMs : 0,
    };
  }

  #rejectLate(nowMs: number): Rejected<T>[] {
    const outlook = this.#outlook(nowMs);
    const rejected: Rejected<T>[] = [];
    let ahead = 0;
    for (const request of this.#queue.inOrder()) {
      if (isLate(request.deadlineMs, ahead, outlook, nowMs)) {
        this.#queue.remove(request);
        rejected.push({ request, rejection: lateRejection(request, ahead, outlook, nowMs) });
      } else ahead++;
    }
    return rejected;
  }
}

/** One more 429 of the closing that it begins or belongs to. */
function counted(record: GateRecord, { sentMs, isSpare }: Permit, begins: boolean): GateRecord {
  return {
    ...record,
    refused: begins ? 1 : record.refused + 1,
    refusedMs: begins ? sentMs : Math.max(record.refusedMs, sentMs),
    wasProvoked: (begins ? false : record.wasProvoked) || !isSpare,
  };
}
