/**
 * The gate of several gateways: carries what `shared-scheduler.ts` says over the shared store. Messages and the record are
 * sealed with the upstream key, so gateways with another key, which has a limit of its own, take no part in it.
 */
import type { Queued } from '../gate/fair-queue.ts';
import type { MakeScheduler, Rejected, SchedulerOptions } from '../gate/scheduler.ts';
import {
  HeardMessages,
  type LeaseCall,
  type Outgoing,
  parseMessage,
  type SharedGateSnapshot,
} from './gate-messages.ts';
import { leaseMs } from './leader.ts';
import { type KeySealing, pack, type Sealing, unpack } from './sealing.ts';
import { parseRecord } from './shared-record.ts';
import { SharedScheduler } from './shared-scheduler.ts';
import type { SharedStore } from './store.ts';

export interface SharedGateOptions {
  readonly store: SharedStore;
  /** This gateway's. */
  readonly id: string;
  /** Gateways that differ in it have different upstreams. */
  readonly scope: string;
  /** How many gateways there are, as far as it is known. */
  gateways(): number;
  /** Of the key that attempts are made with now; `undefined` while there is none. */
  sealing(): KeySealing | undefined;
}

/** Messages go out no more often than this: what happens between goes with the next. */
const flushEveryMs = 2;
/** How often time alone is asked for what it brings. */
const tickMs = 50;
/** The longest cooldown, and a minute more. */
const recordKeptMs = 600_000;

/** What a scheduler shows whatever the type of its requests. */
type Shared = Pick<
  SharedScheduler<Queued>,
  'shared' | 'isBusy' | 'keptForMs' | 'outgoing' | 'storeChanged' | 'leaseTold' | 'leaveOthers' | 'farewell'
> & {
  /** Takes a message, and lets go what may go. @param isNew asked with its sender */
  tell(text: string, isNew: (from: string) => boolean, nowMs: number): void;
  wake(): void;
};

const alone: SharedGateSnapshot = { role: 'alone', leader: null, turnsGiven: 0, turnsTaken: 0 };

export class SharedGate {
  readonly #options: SharedGateOptions;
  readonly #heardMessages = new HeardMessages();
  /** Of the last message that was sent. */
  #sequence = 0;
  #scheduler: Shared | undefined;
  #sealing: Sealing | undefined;
  #timer: NodeJS.Timeout | undefined;
  #flushAtMs = Number.POSITIVE_INFINITY;
  #flushedMs = Number.NEGATIVE_INFINITY;

  constructor(options: SharedGateOptions) {
    this.#options = options;
    const { store, id } = options;
    for (const channel of ['all', id]) {
      const name = store.name('gate', channel);
      store.subscribe(name, (message) => this.#heard(name, message));
    }
  }

  /** For the gate of this gateway: one scheduler, whose turns are those of all. */
  readonly makeScheduler: MakeScheduler = <T extends Queued>(
    gate: SchedulerOptions,
    wake: (rejected: readonly Rejected<T>[]) => void,
  ) => {
    const { id, gateways } = this.#options;
    const changed = (): void => this.#flushSoon(0);
    const scheduler = new SharedScheduler<T>({ id, gateways, changed }, gate);
    this.#scheduler = Object.assign(scheduler, {
      wake: () => wake([]),
      tell(text: string, isNew: (from: string) => boolean, nowMs: number) {
        const message = parseMessage(text);
        if (message === undefined || !isNew(message.from)) return;
        const isAnnouncement = message.kind === 'announcement';
        wake(
          isAnnouncement
            ? scheduler.heardAnnouncement(message, nowMs)
            : scheduler.heardReport(message, nowMs),
        );
      },
    });
    if (this.#options.store.inUse) this.storeChanged(true);
    return scheduler;
  };

  snapshot(): SharedGateSnapshot {
    return this.#scheduler?.shared ?? alone;
  }

  storeChanged(isInUse: boolean): void {
    this.#scheduler?.storeChanged(isInUse, performance.now());
    this.#scheduler?.wake();
    this.#flushSoon(0);
  }

  /** Another gateway may lead at once. */
  async close(): Promise<void> {
    clearTimeout(this.#timer);
    const scheduler = this.#scheduler;
    this.#scheduler = undefined;
    if (scheduler === undefined || this.#sealing === undefined) return;
    await this.#send(scheduler, scheduler.farewell(performance.now()));
  }

  #flushSoon(inMs: number): void {
    const nowMs = performance.now();
    const atMs = Math.max(nowMs + inMs, this.#flushedMs + flushEveryMs);
    if (atMs >= this.#flushAtMs || this.#scheduler === undefined) return;
    this.#flushAtMs = atMs;
    clearTimeout(this.#timer);
    // A timer would wait for a millisecond at least.
    if (atMs <= nowMs) setImmediate(() => this.#flush());
    else
      this.#timer = setTimeout(() => this.#flush(), Math.max(Math.ceil(atMs - performance.now()), 0)).unref();
  }

  #flush(): void {
    const scheduler = this.#scheduler;
    this.#flushAtMs = Number.POSITIVE_INFINITY;
    if (scheduler === undefined) return;
    const nowMs = performance.now();
    this.#flushedMs = nowMs;
    this.#followKey(scheduler, nowMs);
    if (this.#sealing !== undefined) void this.#send(scheduler, scheduler.outgoing(nowMs));
    scheduler.wake();
    if (scheduler.isBusy) this.#flushSoon(tickMs);
  }

  #followKey(scheduler: Shared, nowMs: number): void {
    const sealing = this.#options.sealing()?.sealing;
    if (sealing === this.#sealing) return;
    if (this.#sealing !== undefined) scheduler.leaveOthers(nowMs);
    this.#sealing = sealing;
  }

  async #send(scheduler: Shared, { announcement, report, lease }: Outgoing): Promise<void> {
    const { store } = this.#options;
    const publish = (channel: string, message: object): Promise<unknown> => {
      const name = store.name('gate', channel);
      this.#sequence += 1;
      const facts = { sentMs: this.#storeMs(), sequence: this.#sequence };
      const packed = pack(facts, Buffer.from(JSON.stringify(message)));
      const sealed = this.#sealing?.seal(this.#label(name), packed);
      return store.call(async (client) => await client.publish(name, sealed ?? ''));
    };
    await Promise.all([
      announcement === undefined ? undefined : publish('all', announcement),
      report === undefined ? undefined : publish(report.to, report),
      lease === undefined ? undefined : this.#callLease(scheduler, lease),
    ]);
  }

  async #callLease(scheduler: Shared, { wants, record: known, term: ownTerm }: LeaseCall): Promise<void> {
    const { store, id, scope } = this.#options;
    const sealing = this.#sealing;
    if (sealing === undefined) return;
    const name = sealing.nameOf(`gate ${scope}`);
    const keys = [store.name('gate', 'lease', name), store.name('gate', 'known', name)];
    const label = this.#label(keys[1] ?? '');
    const record =
      known === undefined || (known.state === 'open' && known.windows === undefined)
        ? ''
        : sealing.seal(label, Buffer.from(JSON.stringify({ ...known, writtenMs: this.#storeMs() })));
    const askedMs = performance.now();
    const values = [
      id,
      String(leaseMs),
      wants,
      record,
      String(Math.max(recordKeptMs, scheduler.keptForMs)),
      String(ownTerm ?? ''),
    ];
    const told = await store.run('lease', keys, values, (reply: (Buffer | null)[]) => {
      const [holderAndTerm, sealed] = reply;
      const [holder, term] = holderAndTerm?.toString().split(' ') ?? [];
      const plain = sealed ? sealing.unseal(label, sealed) : undefined;
      const kept = plain && (JSON.parse(plain.toString()) as { writtenMs?: unknown });
      return {
        holder,
        term: Number(term ?? 0),
        record: kept && parseRecord(kept),
        // Sealed with it: another program could put an old record back.
        ageMs: (this.#storeMs() ?? Number.NaN) - Number(kept?.writtenMs),
      };
    });
    if (told === undefined || sealing !== this.#sealing || wants === 'release') return;
    scheduler.leaseTold(told, askedMs, performance.now());
    scheduler.wake();
  }

  #heard(channel: string, message: Buffer): void {
    const plain = this.#sealing?.unseal(this.#label(channel), message);
    const { facts, body } = (plain && unpack(plain)) ?? {};
    if (facts === undefined || body === undefined) return;
    const isNew = (from: string): boolean =>
      this.#heardMessages.isNew(from, facts['sentMs'], facts['sequence'], this.#storeMs());
    this.#scheduler?.tell(body.toString(), isNew, performance.now());
  }

  #storeMs(): number | undefined {
    return this.#options.store.clock.at(performance.now());
  }

  /** What a message is sealed for: gateways before another upstream cannot read it. */
  #label(channel: string): string {
    return `${channel} ${this.#options.scope}`;
  }
}
