/** A shared store on the virtual clock, and the gates that share turns through it. */
import {
  type Announcement,
  type LeaseCall,
  parseMessage,
  type Report,
} from '../../src/fleet/gate-messages.ts';
import { leaseMs } from '../../src/fleet/leader.ts';
import type { SharedRecord } from '../../src/fleet/shared-record.ts';
import { SharedScheduler } from '../../src/fleet/shared-scheduler.ts';
import type { Queued } from '../../src/gate/fair-queue.ts';
import type { Rejected, SchedulerOptions } from '../../src/gate/scheduler.ts';
import type { VirtualClock } from './virtual-clock.ts';

export interface SimulatedStoreOptions {
  /** From a gate to the store, and from there to a gate. */
  readonly latencyMs: number;
  /** The store is away, and comes back empty. */
  readonly away?: {
    readonly fromMs: number;
    readonly toMs: number;
    /** Again and again. */
    readonly everyMs?: number;
    /** Each gate finds it so much later than the gate before it. */
    readonly unevenMs?: number;
  };
  /** From then on another program writes ten times a second that a gateway which does not exist has the lease. */
  readonly ghostFromMs?: number;
}

interface Member {
  readonly id: string;
  readonly tell: (message: Announcement | Report) => void;
  readonly storeChanged: (isInUse: boolean) => void;
}

/** As the driver has them. */
const flushEveryMs = 2;
const tickMs = 50;
/** Two calls that time out. */
const noticedAfterMs = 100;

export class SimulatedStore {
  readonly #options: SimulatedStoreOptions;
  readonly #clock: VirtualClock;
  readonly #gates: number;
  readonly #members: Member[] = [];
  #lease: { holder: string; term: number; untilMs: number } | undefined;
  #record: { text: string; atMs: number } | undefined;
  readonly #dead = new Set<string>();
  #isAway = false;
  /** Messages so far. */
  messages = 0;

  constructor(options: SimulatedStoreOptions, clock: VirtualClock, gates: number) {
    this.#options = options;
    this.#clock = clock;
    this.#gates = gates;
    const { away, ghostFromMs } = options;
    if (ghostFromMs !== undefined) clock.at(ghostFromMs, () => this.haunt());
    if (away !== undefined) this.#leave(away);
  }

  #leave(away: NonNullable<SimulatedStoreOptions['away']>): void {
    const { fromMs, toMs, everyMs } = away;
    this.#clock.at(fromMs, () => this.goAway());
    this.#clock.at(toMs, () => {
      this.comeBack();
      if (everyMs !== undefined) this.#leave({ ...away, fromMs: fromMs + everyMs, toMs: toMs + everyMs });
    });
  }

  /** It answers nothing any more, and loses what it has. */
  goAway(): void {
    this.#isAway = true;
    this.flush();
    this.#clock.at(this.#clock.nowMs + noticedAfterMs, () => {
      if (this.#isAway) this.#allToldOf(false);
    });
  }

  /** Another program holds the lease from now on. */
  haunt(): void {
    const { nowMs } = this.#clock;
    this.#lease = { holder: 'ghost', term: nowMs, untilMs: nowMs + leaseMs };
    this.#clock.at(nowMs + 100, () => this.haunt());
  }

  comeBack(): void {
    if (!this.#isAway) return;
    this.#isAway = false;
    this.#allToldOf(true);
  }

  flush(): void {
    this.#lease = undefined;
    this.#record = undefined;
  }

  /** A gate hears nothing any more, and says nothing. */
  die(id: string): void {
    this.#dead.add(id);
  }

  join<T extends Queued>(
    options: SchedulerOptions,
    wake: (rejected: readonly Rejected<T>[]) => void,
    meets = true,
  ): SharedScheduler<T> {
    const clock = this.#clock;
    const id = `gate${this.#members.length}`;
    let isDue = false;
    let flushedMs = Number.NEGATIVE_INFINITY;
    const flushSoon = (inMs: number): void => {
      if (isDue) return;
      isDue = true;
      clock.at(Math.max(clock.nowMs + inMs, flushedMs + flushEveryMs), () => {
        isDue = false;
        flushedMs = clock.nowMs;
        flush();
      });
    };
    const scheduler = new SharedScheduler<T>(
      { id, gateways: () => this.#gates, changed: () => flushSoon(0) },
      options,
    );
    const flush = (): void => {
      if (this.#dead.has(id)) return;
      const { announcement, report, lease } = scheduler.outgoing(clock.nowMs);
      if (announcement !== undefined) this.#publish(id, announcement);
      if (report !== undefined) this.#publish(id, report);
      if (lease !== undefined) this.#callLease(scheduler, lease, id, () => wake([]));
      wake([]);
    };
    const tick = (): void => {
      if (this.#dead.has(id)) return;
      if (scheduler.isBusy) flushSoon(0);
      clock.at(clock.nowMs + tickMs, tick);
    };
    this.#members.push({
      id,
      tell(message) {
        const { nowMs } = clock;
        wake(
          message.kind === 'announcement'
            ? scheduler.heardAnnouncement(message, nowMs)
            : scheduler.heardReport(message, nowMs),
        );
      },
      storeChanged(isInUse) {
        scheduler.storeChanged(isInUse, clock.nowMs);
        flushSoon(0);
      },
    });
    if (meets) scheduler.storeChanged(true, clock.nowMs);
    flushSoon(0);
    clock.at(clock.nowMs, tick);
    return scheduler;
  }

  /** It ends properly. */
  farewell<T extends Queued>(scheduler: SharedScheduler<T>, id: string): void {
    const { announcement, lease } = scheduler.farewell(this.#clock.nowMs);
    if (announcement !== undefined) this.#publish(id, announcement);
    if (lease !== undefined) this.#callLease(scheduler, lease, id, () => undefined);
    this.die(id);
  }

  #allToldOf(isInUse: boolean): void {
    const { away: { unevenMs = 0 } = {} } = this.#options;
    for (const [place, { storeChanged }] of this.#members.entries()) {
      const lateMs = isInUse ? place * unevenMs : 0;
      if (lateMs === 0) storeChanged(isInUse);
      else this.#clock.at(this.#clock.nowMs + lateMs, () => storeChanged(isInUse && !this.#isAway));
    }
  }

  #publish(from: string, message: Announcement | Report): void {
    const text = JSON.stringify(message);
    this.messages += 1;
    if (this.#isAway) return;
    for (const { id, tell } of this.#members) {
      if (id === from) continue;
      this.#clock.at(this.#clock.nowMs + 2 * this.#options.latencyMs, () => {
        const read = parseMessage(text);
        if (read === undefined) throw new Error(`a message cannot be read: ${text}`);
        if (!this.#isAway && !this.#dead.has(id)) tell(read);
      });
    }
  }

  /** What the script of the store does. */
  #callLease<T extends Queued>(
    scheduler: SharedScheduler<T>,
    { wants, record, term }: LeaseCall,
    id: string,
    wake: () => void,
  ): void {
    const clock = this.#clock;
    const askedMs = clock.nowMs;
    const { latencyMs } = this.#options;
    clock.at(askedMs + latencyMs, () => {
      if (this.#isAway) return;
      const { nowMs } = clock;
      if ((this.#lease?.untilMs ?? 0) < nowMs) this.#lease = undefined;
      if (wants === 'seize') this.#lease = undefined;
      const isMine = this.#lease === undefined || this.#lease.holder === id;
      if (isMine && (wants === 'take' || wants === 'seize')) {
        this.#lease = { holder: id, term: term ?? nowMs + 1, untilMs: nowMs + leaseMs };
      }
      if (isMine && wants === 'release') this.#lease = undefined;
      if (isMine && record !== undefined) {
        const isEmpty = record.state === 'open' && record.windows === undefined;
        this.#record = isEmpty ? undefined : { text: JSON.stringify(record), atMs: nowMs };
      }
      const told = {
        holder: this.#lease?.holder,
        term: this.#lease?.term ?? 0,
        record: this.#record && (JSON.parse(this.#record.text) as SharedRecord),
        ageMs: nowMs - (this.#record?.atMs ?? 0),
      };
      clock.at(nowMs + latencyMs, () => {
        if (this.#isAway || this.#dead.has(id)) return;
        scheduler.leaseTold(told, askedMs, clock.nowMs);
        wake();
      });
    });
  }
}
