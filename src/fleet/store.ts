/**
 * The shared store: a Valkey or Redis server that several gateways use. Nothing needs it: each call has a time limit
 * and gives `undefined` where the store is away, and its user then does what a gateway alone would do.
 */
import { createClient, ErrorReply, RESP_TYPES, SocketTimeoutError } from '@redis/client';
import { describeAddress, type StoreAddress } from '../config/values.ts';
import { type Availability, available, begun, failed, isAway, mayCall } from './availability.ts';
import { scripts } from './scripts.ts';
import { StoreClock } from './store-clock.ts';

export interface SharedStoreOptions {
  readonly address: StoreAddress;
  /** Asked for each connection, so that a changed password is followed; absent where the store wants none. */
  readonly readPassword?: (() => Promise<string>) | undefined;
  /** Before every name and channel, so that several fleets can use one server. */
  readonly prefix: string;
  /** The longest that anything waits for the store, in ms; 50 where left out. Longer for tests on a slow machine. */
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

export type StoreClient = ReturnType<typeof connectTo>;

const usualLimitMs = 50;
/** The oldest server that has what is used here. */
const leastVersion = 7;
const latenciesKept = 32;
/** The first wait before another connection; each one more that was of no use doubles it. */
const reconnectMs = 50;
/** The longest wait where nothing listens: a store that returns is used again within a second. */
const longestReconnectMs = 500;
/** The longest where a server takes connections and does not keep them. */
const longestHungUpMs = 10_000;
/** A connection that was of use for so long begins the waits anew. */
const ofUseMs = 5_000;
/**
 * A connection on which nothing is said for so many times the limit is given up: a store that did not greet, or was of no
 * use then, is greeted anew. On one that is of use there are heartbeats.
 */
const silentLimits = 100;
const refusalShownMs = 10_000;
const asBuffers = { [RESP_TYPES.BLOB_STRING]: Buffer };

export class SharedStore {
  readonly clock = new StoreClock();
  readonly #client: StoreClient;
  readonly #options: SharedStoreOptions;
  readonly #latenciesMs: number[] = [];
  #availability: Availability = available;
  #state: StoreChange = { state: 'away', reason: 'it was not reached yet' };
  #calls = 0;
  #failures = 0;
  #isUsable = false;
  #isClosed = false;
  readonly #channels: (readonly [channel: string, onMessage: (message: unknown) => void])[] = [];
  /** When the connection that stands now was found usable. */
  #usableSinceMs: number | undefined;
  /** Connections since the last that was of use. */
  #tries = 0;
  #reconnect: NodeJS.Timeout | undefined;
  #refusal: { readonly reason: string; readonly atMs: number } | undefined;

  constructor(options: SharedStoreOptions) {
    this.#options = options;
    this.#client = connectTo(options);
    this.#client.on('error', (error: unknown) => this.#lost(describeError(error)));
    this.#client.on('connect', () => {
      // The client goes on to connect although it was ended, and the connection would keep the process alive.
      if (this.#isClosed) this.#client.destroy();
    });
    this.#client.on('ready', () => void this.#greet());
    // The client itself would connect again at once after each connection that stood, however short.
    this.#client.on('terminated', () => this.#connectLater());
    this.#connect();
  }

  /** Whether a call made now would be sent. */
  get inUse(): boolean {
    return this.#isUsable && mayCall(this.#availability, performance.now());
  }

  /** Asks the store; `undefined` where it is away, fails, or takes longer than the limit. */
  async call<T>(command: (client: StoreClient) => Promise<T>): Promise<T | undefined> {
    const sentMs = performance.now();
    if (!this.#isUsable || !mayCall(this.#availability, sentMs)) return undefined;
    this.#availability = begun(this.#availability);
    this.#calls += 1;
    try {
      const reply = await within(this.#options.limitMs ?? usualLimitMs, command(this.#client));
      this.#answered(performance.now() - sentMs);
      return reply;
    } catch (error) {
      this.#failures += 1;
      if (error instanceof ErrorReply) {
        // A refusal is an answer (full, another's data under our name): the store is there.
        this.#answered(performance.now() - sentMs);
        this.#refusal = { reason: describeError(error), atMs: performance.now() };
        return undefined;
      }
      this.#availability = failed(this.#availability, sentMs, performance.now());
      if (isAway(this.#availability)) this.#change({ state: 'away', reason: describeError(error) });
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
    return [this.#options.prefix, ...parts].join(':');
  }

  /** Calls back for each message of a channel, also after the store has been away; messages sent meanwhile are lost. */
  subscribe(channel: string, listener: (message: Buffer) => void): void {
    const onMessage = (message: unknown): void => {
      if (Buffer.isBuffer(message)) listener(message);
    };
    this.#channels.push([channel, onMessage]);
    this.#listen();
  }

  /** Reads the store's clock; the answer is in `clock`. */
  async readClock(): Promise<void> {
    const sentMs = performance.now();
    const time = await this.call(async (client) => {
      const reply = await client.sendCommand<string[]>(['TIME']);
      return readWith((parts) => parts.map(Number), reply);
    });
    if (time !== undefined) this.clock.sample(sentMs, performance.now(), time);
  }

  snapshot(): StoreSnapshot {
    const sorted = this.#latenciesMs.toSorted((a, b) => a - b);
    const isRecent = (this.#refusal?.atMs ?? -Infinity) > performance.now() - refusalShownMs;
    return {
      address: describeAddress(this.#options.address),
      inUse: this.#state.state === 'in use',
      reason: this.#state.reason,
      calls: this.#calls,
      failures: this.#failures,
      refusal: isRecent ? this.#refusal?.reason : undefined,
      latencyMs: sorted[sorted.length >> 1],
    };
  }

  close(): void {
    this.#isClosed = true;
    this.#isUsable = false;
    clearTimeout(this.#reconnect);
    this.#client.destroy();
  }

  #connect(): void {
    // How it ends is told by events.
    this.#client.connect().catch(() => undefined);
  }

  #connectLater(): void {
    if (this.#isClosed) return;
    const sinceMs = this.#usableSinceMs;
    this.#usableSinceMs = undefined;
    if (sinceMs !== undefined && performance.now() - sinceMs >= ofUseMs) this.#tries = 0;
    const longestMs = sinceMs === undefined ? longestReconnectMs : longestHungUpMs;
    const waitMs = Math.min(reconnectMs * 2 ** this.#tries, longestMs);
    this.#tries += 1;
    this.#reconnect = setTimeout(() => this.#connect(), waitMs).unref();
  }

  /** The client keeps what it is subscribed to, but not what it could not subscribe to: asked for twice is once. */
  #listen(): void {
    for (const [channel, onMessage] of this.#channels) {
      this.#client.subscribe(channel, onMessage, true).catch(() => undefined);
    }
  }

  /** Asks a server that has just been reached whether it is one that can be used. */
  async #greet(): Promise<void> {
    try {
      const info = String(await within(1_000, this.#client.info('server')));
      const version = Number(/^(?:valkey|redis)_version:(\d+)/m.exec(info)?.[1]);
      if (!(version >= leastVersion)) {
        this.#lost(
          `its version is ${Number.isNaN(version) ? 'not known' : version}; ${leastVersion} or later is needed`,
        );
        return;
      }
    } catch (error) {
      this.#lost(describeError(error));
      return;
    }
    this.#isUsable = true;
    this.#usableSinceMs = performance.now();
    this.#listen();
    this.#availability = available;
    await this.readClock();
    if (this.#isUsable) this.#change({ state: 'in use', reason: undefined });
  }

  #answered(latencyMs: number): void {
    this.#latenciesMs.push(latencyMs);
    if (this.#latenciesMs.length > latenciesKept) this.#latenciesMs.shift();
    this.#availability = available;
    this.#change({ state: 'in use', reason: undefined });
  }

  #lost(reason: string): void {
    if (this.#isClosed) return;
    this.#isUsable = false;
    this.#change({ state: 'away', reason });
  }

  #change(next: StoreChange): void {
    const isSame = next.state === this.#state.state && next.reason === this.#state.reason;
    const changed = next.state !== this.#state.state || this.#calls === 0;
    this.#state = next;
    if (changed && !isSame) this.#options.onChange(next);
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

function connectTo({ address, readPassword, limitMs = usualLimitMs }: SharedStoreOptions) {
  const username = address.kind === 'tcp' ? address.username : undefined;
  const named = username === undefined ? {} : { username };
  return createClient({
    ...(readPassword === undefined
      ? named
      : {
          credentialsProvider: {
            type: 'async-credentials-provider' as const,
            credentials: async () => ({ ...named, password: await readPassword() }),
          },
        }),
    ...(address.kind === 'tcp' ? { database: address.database } : {}),
    socket: {
      ...(address.kind === 'unix'
        ? { path: address.path, tls: false as const }
        : { host: address.host, port: address.port, ...(address.tls ? { tls: true as const } : {}) }),
      connectTimeout: 2_000,
      socketTimeout: silentLimits * limitMs,
      reconnectStrategy: false as const,
    },
    // A command never waits for a connection: its user goes on without the store.
    disableOfflineQueue: true,
    scripts,
    maintNotifications: 'disabled',
    disableClientInfo: true,
    RESP: 3,
  });
}

/**
 * The limit is counted in two halves, and what lies in the socket is read before it is over: a stall of this process,
 * in which the command was perhaps not even written, uses up one half at most.
 *
 * @throws Error when the time is over; the promise's own outcome is then of no interest
 */
async function within<T>(limitMs: number, promise: Promise<T>): Promise<T> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const isOver = (): void => reject(new Error(`it did not answer within ${limitMs} ms`));
  let timer = setTimeout(() => {
    timer = setTimeout(() => setImmediate(isOver), limitMs / 2);
  }, limitMs / 2);
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** What went wrong, in a few words: a server's error has its code first and no value of ours in it. */
function describeError(error: unknown): string {
  if (!(error instanceof Error)) return 'it failed';
  if (error instanceof SocketTimeoutError) return 'it was silent';
  const code = 'code' in error ? String(error.code) : /^[A-Z]{3,}(?= )/.exec(error.message)?.[0];
  return code ?? error.message.slice(0, 120);
}
