/**
 * The shared store as one workspace uses it: a Valkey or Redis server on which all its names lie. Nothing needs it: each
 * call has a time limit and gives `undefined` where the store is away, and its user then does what a gateway alone
 * would do.
 */
import { ErrorReply } from '@redis/client';
import { describeAddress } from '../config/store-address.ts';
import { type Availability, available, begun, failed, isAway, mayCall } from './availability.ts';
import type { scripts } from './scripts.ts';
import { StoreClock } from './store-clock.ts';
import {
  asBuffers,
  type ConnectionWatcher,
  describeError,
  type StoreClient,
  type StoreConnection,
  usualLimitMs,
  within,
} from './store-connection.ts';
import type { ServerUser, StoreServers } from './store-servers.ts';

export interface SharedStoreOptions {
  readonly servers: StoreServers;
  /** Before every name and channel, so that several fleets and workspaces can use one server. */
  readonly prefix: string;
  readonly limitMs?: number | undefined;
  /** The store began to answer, or stopped. */
  readonly onChange: (change: StoreChange) => void;
}

export interface StoreChange {
  readonly state: 'in use' | 'away';
  /** Why it is away; no value of a password. */
  readonly reason: string | undefined;
}

export interface StoreSnapshot {
  /** As it was told: one server, or those that know where the store is. */
  readonly address: string;
  readonly inUse: boolean;
  readonly reason: string | undefined;
  readonly calls: number;
  readonly failures: number;
  /** What the store last refused although it is there (as `OOM` when it is full), within ten seconds. */
  readonly refusal: string | undefined;
  /** The median of recent round trips, in ms; `undefined` before the first. */
  readonly latencyMs: number | undefined;
}

const latenciesKept = 32;
const refusalShownMs = 10_000;
/** The server is there, and is not the one to ask, or not now. Its users go on without it, as without a server. */
const notInCharge = /^(?:READONLY|LOADING|MASTERDOWN|NOAUTH)\b/;
const ofNoUse = /^(?:CLUSTERDOWN|NOREPLICAS|MISCONF)\b/;
const movedTo = /^MOVED \d+ (.*):(\d+)$/;

export class SharedStore {
  readonly #options: SharedStoreOptions;
  readonly #prefix: string;
  readonly #latenciesMs: number[] = [];
  readonly #noClock = new StoreClock();
  #connection: StoreConnection | undefined;
  #availability: Availability = available;
  #state: StoreChange = { state: 'away', reason: 'it was not reached yet' };
  #wasInUse = false;
  #calls = 0;
  #failures = 0;
  readonly #channels: (readonly [channel: string, onMessage: (message: unknown) => void])[] = [];
  #refusal: { readonly reason: string; readonly atMs: number } | undefined;
  readonly #user: ServerUser;
  readonly #watcher: ConnectionWatcher = {
    onUsable: () => {
      this.#availability = available;
      this.#change({ state: 'in use', reason: undefined });
    },
    onLost: (reason) => this.#change({ state: 'away', reason }),
  };

  constructor(options: SharedStoreOptions) {
    const { servers, prefix } = options;
    this.#options = options;
    // The hash tag keeps all names of a workspace on one node of a cluster.
    this.#prefix = servers.kind === 'cluster' ? `{${prefix}}` : prefix;
    this.#user = {
      anyName: this.#prefix,
      use: (connection) => this.#use(connection),
      onNowhere: (reason) => this.#change({ state: 'away', reason }),
    };
    servers.attach(this.#user);
  }

  /** The clock of its server. */
  get clock(): StoreClock {
    return this.#connection?.clock ?? this.#noClock;
  }

  /** Whether a call made now would be sent. */
  get inUse(): boolean {
    const connection = this.#connection;
    if (connection === undefined || connection.reason !== undefined) return false;
    return mayCall(this.#availability, performance.now());
  }

  /** Asks the store; `undefined` where it is away, fails, or takes longer than the limit. */
  async call<T>(command: (client: StoreClient) => Promise<T>): Promise<T | undefined> {
    const connection = this.#connection;
    const sentMs = performance.now();
    if (connection === undefined || !this.inUse) return undefined;
    this.#availability = begun(this.#availability);
    this.#calls += 1;
    try {
      const reply = await within(this.#options.limitMs ?? usualLimitMs, command(connection.client));
      this.#answered(performance.now() - sentMs);
      return reply;
    } catch (error) {
      this.#failures += 1;
      // What was asked of a server before is of no interest any more.
      if (connection === this.#connection) this.#failed(connection, error, sentMs);
      return undefined;
    }
  }

  /**
   * Runs a script in the store: what it does happens at one moment. Strings in the reply are buffers.
   *
   * @param keys the full names that it works on
   * @param read makes a value of the reply, and no more: it may come too late. A reply of another form than the script
   * gives, of which `read` throws, is a failure of the store
   */
  run<Reply, T = Reply>(
    script: keyof typeof scripts,
    keys: readonly string[],
    values: readonly (string | Buffer)[],
    read?: (reply: Reply) => T,
  ): Promise<T | undefined> {
    return this.call(async (client) => {
      const reply = (await client.withTypeMapping(asBuffers)[script](keys, values)) as Reply;
      return read === undefined ? (reply as unknown as T) : readWith(read, reply);
    });
  }

  /** The full name of a record or channel. */
  name(...parts: readonly string[]): string {
    return [this.#prefix, ...parts].join(':');
  }

  /** Calls back for each message of a channel, also after the store has been away; messages sent meanwhile are lost. */
  subscribe(channel: string, listener: (message: Buffer) => void): void {
    const onMessage = (message: unknown): void => {
      if (Buffer.isBuffer(message)) listener(message);
    };
    this.#channels.push([channel, onMessage]);
    this.#connection?.subscribe(channel, onMessage);
  }

  /** Asks a store that did not answer once more, where nothing else does. */
  async tryAgain(): Promise<void> {
    if (this.#state.state === 'away') await this.call((client) => client.get(this.name('purges', 'none')));
  }

  snapshot(): StoreSnapshot {
    const sorted = this.#latenciesMs.toSorted((a, b) => a - b);
    const isRecent = (this.#refusal?.atMs ?? -Infinity) > performance.now() - refusalShownMs;
    return {
      address: describeAddress(this.#options.servers.address),
      inUse: this.#state.state === 'in use',
      reason: this.#state.reason,
      calls: this.#calls,
      failures: this.#failures,
      refusal: isRecent ? this.#refusal?.reason : undefined,
      latencyMs: sorted[sorted.length >> 1],
    };
  }

  close(): void {
    this.#leave();
    this.#options.servers.detach(this.#user);
  }

  #use(connection: StoreConnection): void {
    this.#leave();
    this.#connection = connection;
    connection.watch(this.#watcher);
    for (const [channel, onMessage] of this.#channels) connection.subscribe(channel, onMessage);
    if (connection.reason === undefined) this.#watcher.onUsable();
    else this.#watcher.onLost(connection.reason);
  }

  #leave(): void {
    const connection = this.#connection;
    this.#connection = undefined;
    connection?.unwatch(this.#watcher);
    for (const [channel, onMessage] of this.#channels) connection?.unsubscribe(channel, onMessage);
  }

  #failed(connection: StoreConnection, error: unknown, sentMs: number): void {
    const nowMs = performance.now();
    if (error instanceof ErrorReply) {
      const { servers } = this.#options;
      const [, host, port] = movedTo.exec(error.message) ?? [];
      if (host !== undefined) servers.lookAgain(host === '' ? undefined : { host, port: Number(port) });
      else if (notInCharge.test(error.message)) connection.renew(describeError(error));
      else if (!ofNoUse.test(error.message)) {
        // A refusal is an answer (full, another's data under our name): the store is there.
        this.#answered(nowMs - sentMs);
        this.#refusal = { reason: describeError(error), atMs: nowMs };
        return;
      }
    }
    this.#availability = failed(this.#availability, sentMs, nowMs);
    if (isAway(this.#availability)) this.#change({ state: 'away', reason: describeError(error) });
  }

  #answered(latencyMs: number): void {
    this.#latenciesMs.push(latencyMs);
    if (this.#latenciesMs.length > latenciesKept) this.#latenciesMs.shift();
    this.#availability = available;
    if (this.#connection?.reason === undefined) this.#change({ state: 'in use', reason: undefined });
  }

  #change(next: StoreChange): void {
    const isSame = next.state === this.#state.state && next.reason === this.#state.reason;
    // Until it is reached for the first time, each reason is news.
    const isNews = next.state !== this.#state.state || !this.#wasInUse;
    this.#state = next;
    if (next.state === 'in use') this.#wasInUse = true;
    if (isNews && !isSame) this.#options.onChange(next);
  }
}

/** @throws Error where the reply has another form than `read` expects; nothing of the reply is in its message */
function readWith<Reply, T>(read: (reply: Reply) => T, reply: Reply): T {
  try {
    return read(reply);
  } catch {
    throw new Error('it answers in another form than Valkey and Redis do');
  }
}
