/**
 * Turns at the upstream for several gateways together. No clock, no timer, no socket: times and messages come in, and
 * `outgoing` says what is to be sent.
 *
 * While no limit is known, each gateway sends freely and says nothing. From the first 429 on one gateway leads, which a
 * lease in the store decides: the requests of all wait in its scheduler, so there is one pace, one cooldown and one order
 * of turns. A gateway that has no leader uses its share of the rate that was last known.
 *
 * A leader that dies: after 500 ms of its silence each follower goes on alone, and after 1 s another gateway leads.
 */
import type { Flow } from '../exchange/request-context.ts';
import { type Queued, queuesByCaller } from '../gate/fair-queue.ts';
import {
  type GateSnapshot,
  type Next,
  type Outcome,
  type Permit,
  type Rejected,
  Scheduler,
  type SchedulerOptions,
  type Scheduling,
} from '../gate/scheduler.ts';
import { Follower } from './follower.ts';
import {
  type Announcement,
  flowKey,
  type LeaseCall,
  type LeaseState,
  type Outgoing,
  type Report,
  type SharedGateSnapshot,
} from './gate-messages.ts';
import { type DatedRecord, KnownLimit } from './known-limit.ts';
import { isRemote, Leader, Lease, leaseMs, type RemoteRequest } from './leader.ts';
import { isStale, type KnownWindows } from './shared-record.ts';

export interface SharedSchedulerOptions {
  /** This gateway's. */
  readonly id: string;
  /** How many gateways were there last, this one included. */
  gateways(): number;
  /** There may be something to send. */
  changed(): void;
}

/** A follower whose leader says nothing for so long goes on alone. */
const leaderSilentMs = 500;

export class SharedScheduler<T extends Queued> implements Scheduling<T> {
  readonly #options: SharedSchedulerOptions;
  readonly #inner: Scheduler<T | RemoteRequest>;
  #role: SharedGateSnapshot['role'] = 'alone';
  #leader: Leader<T> | undefined;
  /** Kept while its leader is silent. */
  #follower: Follower<T | RemoteRequest> | undefined;
  readonly #known: KnownLimit<T | RemoteRequest>;
  /** Since when this gateway works by itself. */
  #aloneSinceMs: number | undefined;
  #isStoreInUse = false;
  /** Where nothing is limited as far as this gateway knows, it looks once whether one leads. */
  #hasLooked = false;
  /** `throttled`: 429s of other gateways. */
  readonly #turns = { given: 0, taken: 0, throttled: 0 };
  readonly #lease = new Lease();

  constructor(options: SharedSchedulerOptions, gate: SchedulerOptions) {
    this.#options = options;
    const times = (): number => (this.#role === 'leads' ? Math.max(options.gateways(), 1) : 1);
    this.#inner = new Scheduler({
      ...gate,
      // The leader's are the limits of all.
      get maxInFlight() {
        return gate.maxInFlight * times();
      },
      get maxWaiting() {
        return gate.maxWaiting * times();
      },
      get maxWaitingPerCaller() {
        return gate.maxWaitingPerCaller * times();
      },
    });
    this.#known = new KnownLimit(this.#inner, () => options.gateways());
  }

  get record(): Scheduling<T>['record'] {
    return this.#inner.record;
  }

  get fields(): Scheduling<T>['fields'] {
    return this.#inner.fields;
  }

  admit(flows: readonly Flow[], nowMs: number): Permit | undefined {
    return this.#mayDecide(nowMs) ? this.#inner.admit(flows, nowMs) : undefined;
  }

  enter(request: T, nowMs: number): readonly Rejected<T>[] {
    const rejected = this.#keepOwn(this.#inner.enter(request, nowMs));
    this.#tell(request.context.flows);
    return rejected;
  }

  leave(request: T): boolean {
    this.#tell(this.#inner.queue.flowsOf(request));
    return this.#inner.leave(request);
  }

  moved(request: T): readonly Flow[] {
    const flows = this.#inner.moved(request);
    this.#tell(flows);
    return flows;
  }

  expired(request: T, nowMs: number): readonly Rejected<T>[] {
    return this.#keepOwn(this.#inner.expired(request, nowMs));
  }

  clear(): readonly T[] {
    const all = this.#inner.clear();
    this.#changed();
    return all.filter((request): request is T => !isRemote(request));
  }

  next(nowMs: number): Next<T> {
    this.#leaveLateRole(nowMs);
    if (this.#role === 'follows') return this.#nextOfFollower(nowMs);
    if (!this.#mayDecide(nowMs))
      return { request: undefined, untilMs: (this.#aloneSinceMs ?? nowMs) + leaseMs };
    for (;;) {
      const next = this.#inner.next(nowMs);
      if (!('permit' in next)) return next;
      const { request, permit } = next;
      if (!isRemote(request)) return { request, permit };
      this.#leader?.give(request, permit);
      this.#turns.given += 1;
      this.#changed();
    }
  }

  settled(permit: Permit, outcome: Outcome, nowMs: number): readonly Rejected<T>[] {
    this.#follower?.settled(permit, outcome, nowMs);
    const rejected = this.#keepOwn(this.#inner.settled(permit, outcome, nowMs));
    this.#changed();
    return rejected;
  }

  snapshot(nowMs: number): GateSnapshot {
    const snapshot = this.#inner.snapshot(nowMs);
    const known = this.#role === 'follows' ? this.#known.perMs : undefined;
    const given = this.#leader?.turnsOut ?? 0;
    const own = this.#inner.queue.inOrder().filter((request) => !isRemote(request));
    return {
      ...snapshot,
      attemptsPerSecond: known === undefined ? snapshot.attemptsPerSecond : known * 1_000,
      inFlight: snapshot.inFlight - given,
      waiting: own.length,
      callers: queuesByCaller(own, nowMs),
      attempts: snapshot.attempts - this.#turns.given,
      refusals: snapshot.refusals - this.#turns.throttled,
    };
  }

  get shared(): SharedGateSnapshot {
    const leader = this.#role === 'leads' ? this.#options.id : this.#follower?.leader;
    return {
      role: this.#role,
      leader: this.#role === 'alone' ? null : (leader ?? null),
      turnsGiven: this.#turns.given,
      turnsTaken: this.#turns.taken,
    };
  }

  /** Whether time alone may bring something to send. */
  get isBusy(): boolean {
    return this.#known.isTold || this.#role !== 'alone' || this.#inner.record.state !== 'open';
  }

  /** What is to be sent now. Turns may have come by it: `next` is to be asked afterwards. */
  outgoing(nowMs: number): Outgoing {
    // Time may have opened the gate.
    this.#inner.advance(nowMs);
    this.#leaveLateRole(nowMs);
    if (!this.#isStoreInUse) return {};
    if (this.#role === 'leads') return this.#outgoingOfLeader(nowMs);
    if (this.#role === 'follows') return { report: this.#follower?.report(this.#options.id, nowMs) };
    const isWanted = this.#known.isTold || this.#inner.record.state !== 'open';
    const isDue = isWanted ? this.#lease.isDue(false, nowMs) : !this.#hasLooked;
    if (!isDue) return {};
    this.#hasLooked = true;
    return { lease: { wants: isWanted ? this.#lease.take(nowMs) : 'look', record: undefined } };
  }

  /** The store answers again, or no longer. */
  storeChanged(isInUse: boolean, nowMs: number): void {
    if (isInUse && !this.#isStoreInUse) this.#aloneSinceMs = nowMs;
    this.#isStoreInUse = isInUse;
    if (isInUse) this.#known.meet();
    this.#hasLooked = false;
    if (!isInUse) this.#goAlone(nowMs);
    this.#lease.askAtOnce();
  }

  /** @param askedMs when the store was asked */
  leaseTold({ holder, term, record, ageMs }: LeaseState, askedMs: number, nowMs: number): void {
    // The store's clock was set forward in between: nothing was written later than now.
    const dated = record && { record, atMs: nowMs - Math.max(ageMs, 0) };
    const kept = dated && !isStale(dated.record, ageMs) ? dated : undefined;
    if (dated !== undefined && this.#role !== 'leads') this.#known.hearWindows(dated, false);
    this.#lease.named(holder !== undefined && holder !== this.#options.id, nowMs);
    // The store answers, and no other gateway has announced that it leads. A lease held by another makes no follower;
    // only its announcement does.
    if (holder === this.#options.id || this.#role === 'leads') {
      this.#lease.held(askedMs);
      // One that leads keeps its term, and what it measures: another call for the lease was under way.
      if (this.#role !== 'leads') this.#lead(term, kept, nowMs);
    } else if (kept !== undefined && this.#role === 'alone' && this.#inner.record.state === 'open') {
      // The gateways that knew of the limit are gone, or announce theirs in a moment.
      this.#known.adopt(kept, holder === undefined, nowMs);
    }
  }

  /** @returns requests whose turn can no longer come in time */
  heardAnnouncement(announcement: Announcement, nowMs: number): readonly Rejected<T>[] {
    const { from, term, record, resigns } = announcement;
    const knownTerm = this.#leader?.term ?? this.#follower?.term ?? 0;
    const isOld = this.#role !== 'alone' && term < knownTerm;
    if (from === this.#options.id || isOld) return [];
    this.#lease.named(false, nowMs);
    if (this.#role === 'leads' && !resigns) this.#goAlone(nowMs);
    const alone = this.#known.usedAlone(record, nowMs);
    if (this.#role !== 'leads') this.#known.hearWindows({ record, atMs: nowMs }, !resigns);
    if (resigns) return this.#leaderResigned(announcement, nowMs);
    this.#follow(announcement, alone, nowMs);
    this.#follower?.hear(announcement, this.#options.id, nowMs);
    return Object.keys(announcement.shares).length > 0 ? this.#keepOwn(this.#inner.tooLate(nowMs)) : [];
  }

  /** @returns requests whose turn can no longer come in time */
  heardReport(report: Report, nowMs: number): readonly Rejected<T>[] {
    if (this.#leader === undefined || report.term !== this.#leader.term) return [];
    const before = this.#inner.counts.throttled;
    const isNew = !this.#leader.knows(report.from);
    const rejected = this.#keepOwn(this.#leader.hear(report, nowMs));
    if (isNew) this.#known.joined(report.alone, nowMs);
    this.#turns.throttled += this.#inner.counts.throttled - before;
    this.#changed();
    return rejected;
  }

  /** Another key, another limit: nothing that the others say is meant for this gateway any more. */
  leaveOthers(nowMs: number): void {
    this.#goAlone(nowMs);
    this.#follower = undefined;
  }

  /** Messages to send on shutdown. */
  farewell(nowMs: number): Outgoing {
    return this.#role === 'leads' ? this.#resign(this.#known.write(nowMs), nowMs) : {};
  }

  #leaderResigned({ term, record }: Announcement, nowMs: number): readonly Rejected<T>[] {
    if (this.#role !== 'follows' || this.#follower?.term !== term) return [];
    this.#goAlone(nowMs);
    this.#follower = undefined;
    if (record.state === 'open') this.#known.open();
    this.#changed();
    return [];
  }

  #nextOfFollower(nowMs: number): Next<T> {
    const turn = this.#follower?.nextTurn();
    if (turn === undefined) return { request: undefined, untilMs: undefined };
    const { request, flow, number } = turn;
    const keys = this.#inner.queue.flowsOf(request).map(flowKey);
    // That it waits in this flow no longer is known to the leader.
    this.#follower?.changed(keys.filter((key) => key !== flowKey(flow)));
    this.#inner.leave(request);
    const permit = this.#inner.send(flow, nowMs);
    // The gateway that gave the turn counts it, and has said so with the turn.
    permit.isCounted = true;
    this.#follower?.sent(number, permit);
    this.#turns.taken += 1;
    this.#changed();
    // Nothing of other gateways waits at one that follows.
    return { request: request as T, permit };
  }

  #outgoingOfLeader(nowMs: number): Outgoing {
    this.#leader?.forgetSilent(nowMs);
    this.#known.releaseHeld(nowMs);
    const record = this.#known.write(nowMs);
    if (record.state === 'open' && !this.#known.isTold) {
      const outgoing = this.#resign(record, nowMs);
      this.#known.forget();
      return outgoing;
    }
    const wants = this.#lease.isDue(true, nowMs) ? this.#lease.take(nowMs) : undefined;
    return {
      announcement: this.#leader?.announcement(record, nowMs),
      lease: wants && { wants, record, term: this.#leader?.term },
    };
  }

  #resign(record: LeaseCall['record'] & object, nowMs: number): Outgoing {
    const announcement = this.#leader?.resignation(record);
    this.#goAlone(nowMs);
    return { announcement, lease: { wants: 'release', record } };
  }

  /** For how long what is known of told limits is worth keeping, ms. */
  get keptForMs(): number {
    return this.#known.keptForMs;
  }

  /** Where a limit is told, a gateway that starts, or has just met the others does not know what they have used. */
  #mayDecide(nowMs: number): boolean {
    if (this.#role !== 'alone') return this.#role === 'leads';
    const { isTold, hasMet } = this.#known;
    if (!isTold || (hasMet && !this.#isStoreInUse)) return true;
    this.#aloneSinceMs ??= nowMs;
    return nowMs - this.#aloneSinceMs >= leaseMs;
  }

  #lead(term: number, kept: DatedRecord | undefined, nowMs: number): void {
    this.#goAlone(nowMs);
    this.#known.lead(term, kept, nowMs);
    this.#role = 'leads';
    this.#follower = undefined;
    this.#leader = new Leader(this.#options.id, term, this.#inner);
    // Says so at once, and writes down what is known.
    this.#lease.askAtOnce();
    this.#changed();
  }

  #follow(leader: Announcement, alone: KnownWindows | undefined, nowMs: number): void {
    const { record } = this.#inner;
    if (this.#follower?.term !== leader.term) {
      const isFirst = record.perMs === 0 && record.marks[0] !== undefined;
      const sentBefore = isFirst ? this.#inner.counts.sent - (record.marks[0]?.sent ?? 0) : 0;
      this.#follower = new Follower(this.#inner.queue, leader, sentBefore, alone, nowMs);
      this.#follower.tellCooldown(record, nowMs);
      this.#known.told();
    }
    if (this.#role !== 'follows') this.#changed();
    this.#role = 'follows';
    const share = leader.shares[this.#options.id] ?? 1;
    this.#known.follow({ record: leader.record, atMs: nowMs }, share, nowMs);
  }

  /** A lease that was not renewed is over, and a leader that says nothing leads no longer. */
  #leaveLateRole(nowMs: number): void {
    if (this.#role === 'leads' && this.#lease.isOver(nowMs)) this.#goAlone(nowMs);
    const heardMs = this.#follower?.heardMs ?? nowMs;
    if (this.#role === 'follows' && nowMs - heardMs > leaderSilentMs) this.#goAlone(nowMs);
  }

  /** Goes on with this gateway's share of what all together may send. */
  #goAlone(nowMs: number): void {
    if (this.#role === 'alone') return;
    if (this.#role === 'leads') this.#known.keepOwn(nowMs);
    this.#leader?.resign(nowMs);
    this.#leader = undefined;
    this.#follower?.pause();
    this.#role = 'alone';
    this.#aloneSinceMs = nowMs;
    this.#known.useShare(nowMs);
    this.#lease.askAtOnce();
  }

  #keepOwn(all: readonly Rejected<T | RemoteRequest>[]): Rejected<T>[] {
    return all.flatMap(({ request, ...why }) => {
      if (isRemote(request)) {
        this.#leader?.dropped(request);
        return [];
      }
      this.#tell(request.context.flows);
      return [{ request, ...why }];
    });
  }

  /** How much waits in these flows has changed. */
  #tell(flows: readonly Flow[]): void {
    this.#follower?.changed(flows.map(flowKey));
    this.#changed();
  }

  /** Costs nothing where nothing is limited. */
  #changed(): void {
    if (this.isBusy) this.#options.changed();
  }
}
