/** What this gateway knows of the limit that all share: the last record of a leader, and what was used of told windows. */

import type { Queued } from '../gate/fair-queue.ts';
import { type GateRecord, openRecord } from '../gate/pacer.ts';
import type { Scheduler } from '../gate/scheduler.ts';
import {
  addWindows,
  isStale,
  type KnownWindows,
  keptForMs,
  readRecord,
  readWindows,
  type SharedRecord,
  type SharedWindows,
  scaleRecord,
  type TermCount,
  withCooldown,
  writeRecord,
  writeWindows,
} from './shared-record.ts';

export interface DatedRecord {
  readonly record: SharedRecord;
  /** When it was written. */
  readonly atMs: number;
}

const nothingUsed: KnownWindows = { windows: { ended: [], inFlight: 0 }, atMs: Number.NEGATIVE_INFINITY };

/**
 * For so long a new leader holds the part of a told limit that another gateway may have used by itself, until that one
 * tells. Longer: more safety where it finds the store late; less use of the part of one that has died.
 */
const heldForMs = 5_000;

export class KnownLimit<T extends Queued> {
  readonly #scheduler: Scheduler<T>;
  readonly #gateways: () => number;
  #known: DatedRecord | undefined;
  #windows: KnownWindows | undefined;
  /** This gateway's part of a told limit when it last worked by itself. */
  #part = 1;
  /** As a new leader: until when others may still work by themselves, the places held for each, and the rate that was known. */
  #held:
    | {
        readonly untilMs: number;
        readonly places: readonly number[];
        readonly estimate: Pick<GateRecord, 'perMs' | 'isMeasured' | 'crowd' | 'crowdMs'> | undefined;
      }
    | undefined;
  #hasMet = false;
  /** Of the term in which it leads, or led last: attempts before it and, once it is over, in it. */
  #term:
    | { readonly term: number; readonly before: number; readonly from: TermCount; total?: number }
    | undefined;

  /** @param gateways how many there are, this one included */
  constructor(scheduler: Scheduler<T>, gateways: () => number) {
    this.#scheduler = scheduler;
    this.#gateways = gateways;
    this.#takePart();
  }

  /** Whether the store has been in use. */
  get hasMet(): boolean {
    return this.#hasMet;
  }

  meet(): void {
    this.#hasMet = true;
  }

  /** Whether the operator has told a limit. */
  get isTold(): boolean {
    return this.#scheduler.windows.length > 0;
  }

  /** For how long what is known of told limits is worth keeping, ms. */
  get keptForMs(): number {
    return keptForMs(this.#scheduler.windows);
  }

  get perMs(): number | undefined {
    return this.#known?.record.perMs;
  }

  forget(): void {
    this.#known = undefined;
  }

  /** What this gateway's scheduler knows, for the others. */
  write(nowMs: number): SharedRecord {
    const { record, counts, windows, uncounted } = this.#scheduler;
    const { term = 0, before = 0, from } = this.#term ?? {};
    const shared = writeWindows(windows, uncounted.length, nowMs);
    const told = shared && { windows: { ...shared, upTo: [term, counts.sent - before] as const, from } };
    return { ...writeRecord(record, counts.sent, nowMs), ...told };
  }

  /** A leader was heard, or its record was found where no gateway leads: later windows than those known count. */
  hearWindows({ record: { windows }, atMs }: DatedRecord, isFollower: boolean): void {
    if (windows === undefined || atMs <= (this.#windows ?? nothingUsed).atMs) return;
    this.#windows = { windows, atMs };
    if (isFollower) this.#useWindows(1);
    else this.#takePart();
  }

  /**
   * What this gateway has used of a told limit since it last heard of all, and what it has counted as their leader that
   * the next one did not hear of any more.
   */
  usedAlone({ windows: theirs }: SharedRecord, nowMs: number): KnownWindows | undefined {
    const { windows: own, uncounted } = this.#scheduler;
    const inFlight = uncounted.length + this.#unheard(theirs?.from);
    const windows = writeWindows(own, inFlight, nowMs, (this.#windows ?? nothingUsed).atMs);
    return windows && { windows, atMs: nowMs };
  }

  #unheard(from: TermCount | undefined): number {
    const { term = 0, total = 0 } = this.#term ?? {};
    if (from === undefined || from[0] > term) return 0;
    return from[0] === term ? Math.max(total - from[1], 0) : total;
  }

  /** All of it was told to a leader: what is under way is not counted once more when it ends. */
  told(): void {
    this.#term = undefined;
    this.#countUnderWay();
  }

  #countUnderWay(): void {
    for (const permit of this.#scheduler.uncounted) permit.isCounted = true;
  }

  /**
   * As a leader: another gateway follows, and tells what it has used of a told limit by itself. What it sent explains the
   * 429s until now: the rate is the one that was known before.
   */
  joined(used: SharedWindows | undefined, nowMs: number): void {
    const { places = [], estimate } = this.#held ?? {};
    if (used !== undefined) addWindows(this.#scheduler.windows, used, places, nowMs);
    if (estimate !== undefined) this.#scheduler.record = { ...this.#scheduler.record, ...estimate };
  }

  /** Those that have told nothing for so long have used nothing, or are gone. */
  releaseHeld(nowMs: number): void {
    if (this.#held === undefined || nowMs < this.#held.untilMs) return;
    this.#held = undefined;
    for (const window of this.#scheduler.windows) window.most = window.limit.most;
  }

  /** Until they tell what they have used by themselves, the parts of the others are not this leader's. */
  #holdParts(nowMs: number): void {
    const { windows, counts } = this.#scheduler;
    const part = counts.sent === 0 ? this.#share : this.#part;
    this.#useWindows(1);
    const places = windows.map((window) => part * window.leftBy((this.#windows ?? nothingUsed).atMs, nowMs));
    for (const [at, window] of windows.entries()) {
      window.most -= (places[at] as number) * (Math.round(1 / part) - 1);
    }
    const { perMs, isMeasured, crowd, crowdMs } = this.#scheduler.record;
    const estimate = this.#known && perMs > 0 ? { perMs, isMeasured, crowd, crowdMs } : undefined;
    this.#held = { places, untilMs: nowMs + heldForMs, estimate };
  }

  /** The store is for several gateways: one that has never met it counts with one more. */
  #takePart(): void {
    this.#held = undefined;
    this.#part = this.#hasMet ? this.#share : Math.min(this.#share, 1 / 2);
    this.#useWindows(this.#part);
  }

  /** @param part this gateway's, of one */
  #useWindows(part: number): void {
    readWindows(this.#scheduler.windows, this.#windows ?? nothingUsed, part);
  }

  /** Another gateway's record. @param isForAll no gateway leads: this one may use it whole, and not its share alone */
  adopt(known: DatedRecord, isForAll: boolean, nowMs: number): void {
    this.#known = known;
    const record = this.#read(known, nowMs);
    this.#scheduler.record = isForAll ? record : scaleRecord(record, this.#share);
  }

  /** @param kept what the store has of it */
  lead(term: number, kept: DatedRecord | undefined, nowMs: number): void {
    if (this.#known !== undefined && isStale(this.#known.record, nowMs - this.#known.atMs)) this.forget();
    if (kept !== undefined && kept.atMs > (this.#known?.atMs ?? 0)) this.#known = kept;
    if (this.#known !== undefined) this.#scheduler.record = this.#readClosed(this.#known, nowMs);
    this.#term = { term, before: this.#scheduler.counts.sent, from: this.#windows?.windows.upTo ?? [0, 0] };
    this.#holdParts(nowMs);
  }

  /** @param share this gateway's, of the rate */
  follow(known: DatedRecord, share: number, nowMs: number): void {
    this.#known = known;
    const record = this.#readClosed(known, nowMs);
    // Never quiet for long by itself: the leader tells when nothing is limited any more.
    const closedUntilMs = Math.max(record.closedUntilMs, nowMs);
    this.#scheduler.record = { ...record, perMs: record.perMs * share, closedUntilMs };
  }

  /** This gateway led: what it knows is the last that is known. */
  keepOwn(nowMs: number): void {
    const record = this.write(nowMs);
    this.#known = { record, atMs: nowMs };
    if (record.windows !== undefined) this.#windows = { windows: record.windows, atMs: nowMs };
    if (this.#term !== undefined) this.#term.total = this.#scheduler.counts.sent - this.#term.before;
    this.#countUnderWay();
  }

  /** Goes on with this gateway's share of what all together may send. */
  useShare(nowMs: number): void {
    this.#takePart();
    if (this.#known === undefined || this.#known.record.state === 'open') return;
    this.#scheduler.record = scaleRecord(this.#readClosed(this.#known, nowMs), this.#share);
  }

  /** The limit is gone. */
  open(): void {
    this.forget();
    this.#scheduler.record = openRecord;
  }

  /** Of each gateway, where each works by itself. */
  get #share(): number {
    return 1 / Math.max(this.#gateways(), 1);
  }

  #read({ record, atMs }: DatedRecord, nowMs: number): GateRecord {
    return readRecord(record, this.#scheduler.counts.sent, atMs, nowMs);
  }

  /** Closed for as long as this gateway was told to wait. */
  #readClosed(known: DatedRecord, nowMs: number): GateRecord {
    return withCooldown(this.#read(known, nowMs), this.#scheduler.record, nowMs);
  }
}
