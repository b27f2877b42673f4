/**
 * Turns at the upstream for several gateways together. No clock, no timer, no socket: times and messages come in, and
 * `outgoing` says what is to be sent.
 *
 * While no limit is known, each gateway sends freely and says nothing. From the first 429 on one gateway leads, which a
 * lease in the store decides: the requests of all wait in its scheduler, so there is one pace, one cooldown and one order
 * of turns. A gateway that has no leader uses its share of the rate that was last known.
 */

import type { Flow } from '../exchange/request-context.ts';
import { queuesByCaller } from '../gate/fair-queue.ts';
import {
  type GateRecord,
  type Next,
  type Outcome,
  openRecord,
  type Permit,
  type Rejected,
  Scheduler,
  type Scheduling,
} from '../gate/scheduler.ts';
import type { GateSnapshot, Queued, SchedulerOptions } from '../gate/types.ts';
import type { LimitFields } from '../http/limit-fields.ts';
import { Follower } from './follower.ts';
import { type Announcement, keyOf, type Report } from './gate-messages.ts';
import { isRemote, Leader, type RemoteRequest } from './leader.ts';
import { OwnRequests } from './own-requests.ts';
import {
  isStale,
  readRecord,
  type SharedRecord,
  shareOf,
  withCooldown,
  writeRecord,
} from './shared-record.ts';
import { addWindows, type KnownWindows, keptForMs, readWindows, writeWindows } from './shared-windows.ts';

export interface SharedSchedulerOptions {
  /** This gateway's. */
  readonly id: string;
  /** How many gateways were there last, this one included. */
  gateways(): number;
  /** There may be something to send. */
  changed(): void;
}

/** Who decides on this gateway's turns. */
export type GateRole = 'alone' | 'leads' | 'follows';

export interface SharedGateSnapshot {
  readonly role: GateRole;
  /** The id of the gateway that leads; null while none does, as where nothing is limited. */
  readonly leader: string | null;
  /** Turns that this gateway gave to others, and got from others, since the start. */
  readonly turnsGiven: number;
  readonly turnsTaken: number;
}

/** What is to be done with the lease in the store. */
export interface LeaseCall {
  /**
   * `take`: it is wanted, or held and renewed. `seize`: whichever gateway it names says nothing. `release`: given back,
   * what is known goes with it.
   */
  readonly wants: 'take' | 'seize' | 'look' | 'release';
  /** In which this gateway leads already: a lease that was lost is taken again in the same term. */
  readonly term?: number | undefined;
  /** For gateways that come later. */
  readonly record: SharedRecord | undefined;
}

export interface Outgoing {
  readonly announcement?: Announcement | undefined;
  readonly report?: Report | undefined;
  readonly lease?: LeaseCall | undefined;
}

/** What the store says of the lease. */
export interface LeaseState {
  /** `undefined` where no gateway has it. */
  readonly holder: string | undefined;
  readonly term: number;
  readonly record: SharedRecord | undefined;
  /** How long ago the record was written. */
  readonly ageMs: number;
}

/** A leader that is gone is replaced after this long. Longer: fewer changes of the lead on a busy machine. */
export const leaseMs = 1_000;
const renewEveryMs = 250;
const campaignEveryMs = 100;
const announceEveryMs = 100;
/**
 * For so long a new leader holds the part of a told limit that another gateway may have used by itself, until that one
 * tells. Longer: more safety where it finds the store late; less use of the part of one that has died.
 */
const heldForMs = 5_000;
/** A follower whose leader says nothing for so long goes on alone. */
const silentMs = 500;

export class SharedScheduler<T extends Queued> implements Scheduling<T> {
  readonly #options: SharedSchedulerOptions;
  readonly #inner: Scheduler<T | RemoteRequest>;
  readonly #own = new OwnRequests<T>();
  #role: GateRole = 'alone';
  #leader: Leader<T> | undefined;
  /** Kept while its leader is silent. */
  #follower: Follower<T> | undefined;
  /** What was last known of all gateways together. */
  #known: { readonly record: SharedRecord; readonly atMs: number } | undefined;
  /** What was last known of the windows of a told limit. */
  #knownWindows: KnownWindows | undefined;
  /** This gateway's part of a told limit when it last worked by itself. */
  #part = 1;
  /** As a leader: places that are held for each other gateway until it tells what it has used, and until when. */
  #held: { readonly each: readonly number[]; readonly untilMs: number } | undefined;
  /** Since when this gateway works by itself. */
  #aloneSinceMs: number | undefined;
  #isStoreInUse = false;
  #hasMetStore = false;
  /** Where nothing is limited as far as this gateway knows, it looks once whether one leads. */
  #hasLooked = false;
  /** `throttled`: 429s of other gateways. */
  readonly #turns = { given: 0, taken: 0, throttled: 0 };
  /** Since when the lease names a gateway of which no announcement was heard. */
  #unheardSinceMs: number | undefined;
  /** Of the last announcement and the last call for the lease. */
  readonly #last = {
    announcedMs: Number.NEGATIVE_INFINITY,
    leaseMs: Number.NEGATIVE_INFINITY,
    leadsUntilMs: 0,
    told: '',
  };

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
    this.#takePart();
  }

  get record(): GateRecord {
    return this.#inner.record;
  }

  get fields(): LimitFields {
    return this.#inner.fields;
  }

  admit(flows: readonly Flow[], nowMs: number): Permit | undefined {
    return this.#mayDecide(nowMs) ? this.#inner.admit(flows, nowMs) : undefined;
  }

  enter(request: T, nowMs: number): readonly Rejected<T>[] {
    const keys = this.#own.add(request);
    const rejected = this.#ownOf(this.#inner.enter(request, nowMs));
    this.#follower?.changed(keys);
    this.#changed();
    return rejected;
  }

  leave(request: T): boolean {
    this.#forget(request);
    return this.#inner.leave(request);
  }

  moved(request: T): void {
    if (!this.#forget(request)) return;
    this.#follower?.changed(this.#own.add(request));
    this.#inner.moved(request);
  }

  expired(request: T, nowMs: number): readonly Rejected<T>[] {
    return this.#ownOf(this.#inner.expired(request, nowMs));
  }

  clear(): readonly T[] {
    const all = this.#inner.clear();
    this.#own.clear();
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
      if (!isRemote(request)) {
        this.#own.remove(request);
        return { request, permit };
      }
      this.#leader?.give(request, permit);
      this.#turns.given += 1;
      this.#changed();
    }
  }

  settled(permit: Permit, outcome: Outcome, nowMs: number): readonly Rejected<T>[] {
    this.#follower?.settled(permit, outcome, nowMs);
    const rejected = this.#ownOf(this.#inner.settled(permit, outcome, nowMs));
    this.#changed();
    return rejected;
  }

  snapshot(nowMs: number): GateSnapshot {
    const snapshot = this.#inner.snapshot(nowMs);
    const known = this.#role === 'follows' ? this.#known?.record.perMs : undefined;
    const given = this.#leader?.turnsOut ?? 0;
    return {
      ...snapshot,
      attemptsPerSecond: known === undefined ? snapshot.attemptsPerSecond : known * 1_000,
      inFlight: snapshot.inFlight - given,
      waiting: this.#own.size,
      callers: queuesByCaller([...this.#own.all], nowMs),
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
    return this.#isTold || this.#role !== 'alone' || this.#inner.record.state !== 'open';
  }

  /** What is to be sent now. Turns may have come by it: `next` is to be asked afterwards. */
  outgoing(nowMs: number): Outgoing {
    // Time may have opened the gate.
    this.#inner.advance(nowMs);
    this.#leaveLateRole(nowMs);
    if (!this.#isStoreInUse) return {};
    if (this.#role === 'leads') return this.#outgoingOfLeader(nowMs);
    if (this.#role === 'follows') return { report: this.#follower?.report(this.#options.id, nowMs) };
    const isWanted = this.#isTold || this.#inner.record.state !== 'open';
    const isDue = isWanted ? nowMs - this.#last.leaseMs >= campaignEveryMs : !this.#hasLooked;
    if (!isDue) return {};
    this.#hasLooked = true;
    if (isWanted) this.#last.leaseMs = nowMs;
    return { lease: { wants: isWanted ? this.#take(nowMs) : 'look', record: undefined } };
  }

  /** The store answers again, or no longer. */
  storeChanged(isInUse: boolean, nowMs: number): void {
    if (isInUse && !this.#isStoreInUse) this.#aloneSinceMs = nowMs;
    this.#isStoreInUse = isInUse;
    this.#hasMetStore ||= isInUse;
    this.#hasLooked = false;
    if (!isInUse) this.#goAlone(nowMs);
    this.#last.leaseMs = Number.NEGATIVE_INFINITY;
  }

  /** @param askedMs when the store was asked */
  leaseTold({ holder, term, record, ageMs }: LeaseState, askedMs: number, nowMs: number): void {
    const kept =
      record !== undefined && !isStale(record, ageMs) ? { record, atMs: nowMs - ageMs } : undefined;
    this.#hearWindows(record, nowMs - ageMs, false);
    if (holder !== undefined && holder !== this.#options.id) this.#unheardSinceMs ??= nowMs;
    else this.#unheardSinceMs = undefined;
    // The store answers, and no other gateway has announced that it leads: what the lease says is not followed.
    if (holder === this.#options.id || this.#role === 'leads') {
      this.#last.leadsUntilMs = askedMs + leaseMs;
      if (holder === this.#options.id && this.#leader?.term !== term) this.#lead(term, kept, nowMs);
    } else if (kept !== undefined && this.#role === 'alone' && this.#inner.record.state === 'open') {
      // The gateways that knew of the limit are gone, or announce theirs in a moment.
      this.#known = kept;
      const known = this.#readKnown(nowMs);
      this.#inner.record = holder === undefined ? known : shareOf(known, this.#share);
    }
  }

  /** @returns requests whose turn can no longer come in time */
  heardAnnouncement(announcement: Announcement, nowMs: number): readonly Rejected<T>[] {
    const { from, term, record, resigns } = announcement;
    const knownTerm = this.#leader?.term ?? this.#follower?.term ?? 0;
    const isOld = this.#role !== 'alone' && term < knownTerm;
    if (from === this.#options.id || isOld) return [];
    this.#unheardSinceMs = undefined;
    const alone = resigns ? undefined : this.#sentAlone(nowMs);
    this.#hearWindows(record, nowMs, !resigns);
    if (resigns) return this.#leaderResigned(announcement, nowMs);
    if (this.#role === 'leads') this.#goAlone(nowMs);
    const share = announcement.shares[this.#options.id];
    this.#follow(announcement, { record, atMs: nowMs }, nowMs, share, alone);
    this.#follower?.hear(announcement, this.#options.id, nowMs);
    return Object.keys(announcement.shares).length > 0 ? this.#ownOf(this.#inner.tooLate(nowMs)) : [];
  }

  /** @returns requests whose turn can no longer come in time */
  heardReport(report: Report, nowMs: number): readonly Rejected<T>[] {
    if (this.#leader === undefined || report.term !== this.#leader.term) return [];
    const { throttled: before } = this.#inner.counts;
    if (report.alone !== undefined && !this.#leader.knows(report.from))
      addWindows(this.#inner.windows, report.alone, this.#held?.each ?? [], nowMs);
    const rejected = this.#ownOf(this.#leader.hear(report, nowMs));
    this.#turns.throttled += this.#inner.counts.throttled - before;
    this.#changed();
    return rejected;
  }

  /** Another key, another limit: nothing that the others say is meant for this gateway any more. */
  leaveOthers(nowMs: number): void {
    this.#goAlone(nowMs);
    this.#follower = undefined;
  }

  /** What it tells when it ends. */
  farewell(nowMs: number): Outgoing {
    if (this.#role !== 'leads') return {};
    const record = this.#write(nowMs);
    const announcement = this.#announcement(record, nowMs, true);
    this.#goAlone(nowMs);
    return { announcement, lease: { wants: 'release', record } };
  }

  #leaderResigned({ term, record }: Announcement, nowMs: number): readonly Rejected<T>[] {
    if (this.#role !== 'follows' || this.#follower?.term !== term) return [];
    this.#goAlone(nowMs);
    this.#follower = undefined;
    if (record.state === 'open') {
      this.#known = undefined;
      this.#inner.record = openRecord;
    }
    this.#changed();
    return [];
  }

  #nextOfFollower(nowMs: number): Next<T> {
    const turn = this.#follower?.nextTurn();
    if (turn === undefined) return { request: undefined, untilMs: undefined };
    const { request, flow, number } = turn;
    const keys = this.#own.remove(request) ?? [];
    // That it waits in this flow no longer is known to the leader.
    this.#follower?.changed(keys.filter((key) => key !== keyOf(flow)));
    this.#inner.leave(request);
    const permit = this.#inner.send(flow, nowMs);
    this.#follower?.sent(number, permit);
    this.#turns.taken += 1;
    this.#changed();
    return { request, permit };
  }

  #outgoingOfLeader(nowMs: number): Outgoing {
    this.#leader?.forgetSilent(nowMs);
    if (this.#held !== undefined && nowMs >= this.#held.untilMs) {
      this.#held = undefined;
      for (const window of this.#inner.windows) window.most = window.limit.most;
    }
    const record = this.#write(nowMs);
    if (record.state === 'open' && !this.#isTold) {
      const announcement = this.#announcement(record, nowMs, true);
      this.#goAlone(nowMs);
      this.#known = undefined;
      return { announcement, lease: { wants: 'release', record } };
    }
    const { state, perMs, isMeasured, unstatedMs } = record;
    const told = [state, perMs, isMeasured, unstatedMs, this.#inner.record.throttled].join();
    const isDue = nowMs - this.#last.announcedMs >= announceEveryMs || told !== this.#last.told;
    this.#last.told = told;
    const isAnnouncementDue = isDue || this.#leader?.hasTurns;
    const isLeaseDue = nowMs - this.#last.leaseMs >= renewEveryMs;
    if (isLeaseDue) this.#last.leaseMs = nowMs;
    return {
      announcement: isAnnouncementDue ? this.#announcement(record, nowMs, false, isDue) : undefined,
      lease: isLeaseDue ? { wants: this.#take(nowMs), record, term: this.#leader?.term } : undefined,
    };
  }

  #announcement(
    record: SharedRecord,
    nowMs: number,
    resigns: boolean,
    withShares = true,
  ): Announcement | undefined {
    if (this.#leader === undefined) return undefined;
    if (withShares) this.#last.announcedMs = nowMs;
    const { windows: _, ...brief } = record;
    const told = this.#leader.announcement(withShares ? this.#inner.queue.inOrder() : undefined);
    return {
      kind: 'announcement',
      term: this.#leader.term,
      from: this.#options.id,
      record: withShares || resigns ? record : brief,
      resigns,
      ...told,
    };
  }

  /** A lease is renewed for a gateway that leads, and ends with it. One that is renewed for another is not believed. */
  #take(nowMs: number): 'take' | 'seize' {
    return nowMs - (this.#unheardSinceMs ?? nowMs) > leaseMs ? 'seize' : 'take';
  }

  /** Of each gateway, where each works by itself. */
  get #share(): number {
    return 1 / Math.max(this.#options.gateways(), 1);
  }

  #write(nowMs: number): SharedRecord {
    const { record, counts, windows, underWay } = this.#inner;
    const shared = writeWindows(windows, underWay.length, nowMs);
    return { ...writeRecord(record, counts.sent, nowMs), ...(shared && { windows: shared }) };
  }

  get #isTold(): boolean {
    return this.#inner.windows.length > 0;
  }

  /** For how long what is known of told limits is worth keeping, ms. */
  get keptForMs(): number {
    return keptForMs(this.#inner.windows);
  }

  /** Where a limit is told, a gateway that starts, or has just met the others, does not know what they have used. */
  #mayDecide(nowMs: number): boolean {
    if (this.#role !== 'alone') return this.#role === 'leads';
    if (!this.#isTold || (this.#hasMetStore && !this.#isStoreInUse)) return true;
    this.#aloneSinceMs ??= nowMs;
    return nowMs - this.#aloneSinceMs >= leaseMs;
  }

  #hearWindows(record: SharedRecord | undefined, atMs: number, isFollower: boolean): void {
    if (record?.windows === undefined || this.#role === 'leads') return;
    if (atMs <= (this.#knownWindows?.atMs ?? Number.NEGATIVE_INFINITY)) return;
    this.#knownWindows = { windows: record.windows, atMs };
    if (isFollower) this.#useWindows(1, true);
    else this.#takePart();
  }

  /** @param part this gateway's, of one */
  #useWindows(part: number, isFollower = false): void {
    const none = { windows: { ended: [], inFlight: 0 }, atMs: Number.NEGATIVE_INFINITY };
    readWindows(this.#inner.windows, this.#knownWindows ?? none, part, isFollower);
  }

  /** Of a told limit. The store is for several gateways: one that has never met it counts with one more. */
  #takePart(): void {
    this.#part = this.#hasMetStore ? this.#share : Math.min(this.#share, 1 / 2);
    this.#useWindows(this.#part);
  }

  /** What this gateway has used of a told limit since it last heard of all. */
  #sentAlone(nowMs: number): KnownWindows | undefined {
    const { windows: own, underWay } = this.#inner;
    const windows = writeWindows(own, underWay.length, nowMs, this.#knownWindows?.atMs);
    return windows && { windows, atMs: nowMs };
  }

  /** Until they tell what they have used by themselves, the parts of the others are not this leader's. */
  #holdParts(nowMs: number): void {
    const { windows, counts } = this.#inner;
    const part = counts.sent === 0 ? this.#share : this.#part;
    this.#useWindows(1);
    const atMs = this.#knownWindows?.atMs ?? Number.NEGATIVE_INFINITY;
    const each = windows.map((window) => part * window.leftBy(atMs, nowMs));
    for (const [place, window] of windows.entries()) {
      window.most -= (each[place] as number) * (Math.round(1 / part) - 1);
    }
    this.#held = { each, untilMs: nowMs + heldForMs };
  }

  #readKnown(nowMs: number): GateRecord {
    const { record, atMs } = this.#known as { record: SharedRecord; atMs: number };
    return readRecord(record, this.#inner.counts.sent, atMs, nowMs);
  }

  #lead(term: number, kept: { record: SharedRecord; atMs: number } | undefined, nowMs: number): void {
    if (this.#role !== 'alone') this.#goAlone(nowMs);
    const { record } = this.#inner;
    if (this.#known !== undefined && isStale(this.#known.record, nowMs - this.#known.atMs))
      this.#known = undefined;
    if (kept !== undefined && kept.atMs > (this.#known?.atMs ?? 0)) this.#known = kept;
    if (this.#known !== undefined) this.#inner.record = withCooldown(this.#readKnown(nowMs), record, nowMs);
    this.#role = 'leads';
    this.#holdParts(nowMs);
    this.#follower = undefined;
    this.#leader = new Leader(term, this.#inner);
    // Says so at once, and writes down what is known.
    this.#last.announcedMs = Number.NEGATIVE_INFINITY;
    this.#last.leaseMs = Number.NEGATIVE_INFINITY;
    this.#changed();
  }

  #follow(
    leader: Pick<Announcement, 'term' | 'from'>,
    known: { record: SharedRecord; atMs: number },
    nowMs: number,
    share = 1,
    alone?: KnownWindows,
  ): void {
    const before = this.#inner.record;
    if (this.#follower?.term !== leader.term) {
      const isFirst = before.perMs === 0 && before.marks[0] !== undefined;
      const sentBefore = isFirst ? this.#inner.counts.sent - (before.marks[0]?.sent ?? 0) : 0;
      this.#follower = new Follower(this.#own, leader, sentBefore, alone, nowMs);
      this.#tellCooldown(before, nowMs);
    }
    if (this.#role !== 'follows') this.#changed();
    this.#role = 'follows';
    this.#known = known;
    const record = withCooldown(this.#readKnown(nowMs), before, nowMs);
    // Never quiet for long by itself: the leader tells when nothing is limited any more.
    const closedUntilMs = Math.max(record.closedUntilMs, nowMs);
    this.#inner.record = { ...record, perMs: record.perMs * share, closedUntilMs };
  }

  /** The 429s that closed this gateway before it followed. */
  #tellCooldown({ state, throttled, lastThrottled, statedUntilMs }: GateRecord, nowMs: number): void {
    if (state !== 'closed') return;
    const key = keyOf({ name: '', weight: 1, background: false });
    for (let count = 0; count < throttled; count += 1) {
      this.#follower?.throttled(key, nowMs - lastThrottled.atMs, Math.max(statedUntilMs - nowMs, 0));
    }
  }

  /** A lease that was not renewed is over, and a leader that says nothing leads no longer. */
  #leaveLateRole(nowMs: number): void {
    if (this.#role === 'leads' && nowMs > this.#last.leadsUntilMs) this.#goAlone(nowMs);
    const heardMs = this.#follower?.heardMs ?? nowMs;
    if (this.#role === 'follows' && nowMs - heardMs > silentMs) this.#goAlone(nowMs);
  }

  /** Goes on with this gateway's share of what all together may send. */
  #goAlone(nowMs: number): void {
    if (this.#role === 'alone') return;
    if (this.#role === 'leads') {
      const record = this.#write(nowMs);
      this.#known = { record, atMs: nowMs };
      if (record.windows !== undefined) this.#knownWindows = { windows: record.windows, atMs: nowMs };
    }
    this.#leader?.resign(nowMs);
    this.#leader = undefined;
    this.#follower?.pause();
    this.#role = 'alone';
    this.#aloneSinceMs = nowMs;
    this.#held = undefined;
    this.#takePart();
    const isLimited = this.#known !== undefined && this.#known.record.state !== 'open';
    if (isLimited) {
      const record = withCooldown(this.#readKnown(nowMs), this.#inner.record, nowMs);
      this.#inner.record = shareOf(record, this.#share);
    }
    this.#last.leaseMs = Number.NEGATIVE_INFINITY;
  }

  #ownOf(all: readonly Rejected<T | RemoteRequest>[]): Rejected<T>[] {
    return all.flatMap(({ request, ...why }) => {
      if (isRemote(request)) {
        this.#leader?.dropped(request);
        return [];
      }
      this.#forget(request);
      return [{ request, ...why }];
    });
  }

  /** @returns whether it waited */
  #forget(request: T): boolean {
    const keys = this.#own.remove(request);
    if (keys === undefined) return false;
    this.#follower?.changed(keys);
    this.#changed();
    return true;
  }

  /** Costs nothing where nothing is limited. */
  #changed(): void {
    if (this.isBusy) this.#options.changed();
  }
}
