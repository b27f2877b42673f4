/**
 * One connection to one Valkey or Redis server: greeted before it is used, and made anew for as long as it is wanted.
 * All workspaces whose names lie on that server use it, for commands and for messages.
 */
import {
  createClient,
  ErrorReply,
  RESP_TYPES,
  type RedisClientOptions,
  SocketTimeoutError,
} from '@redis/client';
import type { StoreServer } from '../config/store-address.ts';
import { scripts } from './scripts.ts';
import { StoreClock } from './store-clock.ts';

/** What all connections of a store have in common. */
export interface ConnectionOptions {
  /** The longest that anything waits for the store, in ms; 50 where left out. Longer for tests on a slow machine. */
  readonly limitMs?: number | undefined;
  readonly tls: boolean;
  readonly username: string | undefined;
  readonly database: number;
  /** Whether the server is to be the node of a cluster. */
  readonly isCluster: boolean;
  /** Asked for each connection, so that a changed password is followed; absent where the store wants none. */
  readonly readPassword?: (() => Promise<string>) | undefined;
}

/** Who asks, and over which way. */
export type ServerAccess = Pick<ConnectionOptions, 'tls' | 'username' | 'readPassword'>;

export type ServerPlace = StoreServer | { readonly path: string };

export interface ConnectionWatcher {
  /** It was greeted, and can be used from now on. */
  onUsable(): void;
  onLost(reason: string): void;
}

export type StoreClient = ReturnType<typeof connectTo>;
type OnMessage = (message: unknown) => void;

export const usualLimitMs = 50;
/** The oldest server that has what is used here. */
const leastVersion = 7;
/** The first wait before another connection; each one more that was of no use doubles it. */
const reconnectMs = 50;
/** The longest wait where nothing listens: a store that returns is used again within a second. */
const longestReconnectMs = 500;
/** The longest where a server takes connections and does not keep them. */
const longestHungUpMs = 10_000;
/** A connection that was of use for so long begins the waits anew. */
const ofUseMs = 5_000;
/** How often a server is greeted anew that is there and cannot be used yet, as while it loads its data. */
const greetAgainMs = 250;
/** The clocks of server and gateway are compared so often; it is also the sign of life of a connection that is of use. */
const readClockEveryMs = 1_000;
/** A connection on which nothing is said for so many times the limit is given up. */
const silentLimits = 100;
export const asBuffers = { [RESP_TYPES.BLOB_STRING]: Buffer };

export class StoreConnection {
  readonly clock = new StoreClock();
  readonly client: StoreClient;
  readonly #limitMs: number;
  readonly #isCluster: boolean;
  readonly #watchers = new Set<ConnectionWatcher>();
  readonly #channels = new Map<OnMessage, string>();
  /** Why it cannot be used; `undefined` while it can. */
  #reason: string | undefined = 'it was not reached yet';
  #isClosed = false;
  /** When the connection that stands now was found usable. */
  #usableSinceMs: number | undefined;
  /** Connections since the last that was of use. */
  #tries = 0;
  #next: NodeJS.Timeout | undefined;
  readonly #clockTimer: NodeJS.Timeout;

  constructor(place: ServerPlace, options: ConnectionOptions) {
    this.#limitMs = options.limitMs ?? usualLimitMs;
    this.#isCluster = options.isCluster;
    this.client = connectTo(place, options);
    this.client.on('error', (error: unknown) => this.#lost(describeError(error)));
    this.client.on('connect', () => {
      // The client goes on to connect although it was ended, and the connection would keep the process alive.
      if (this.#isClosed) this.client.destroy();
    });
    this.client.on('ready', () => void this.#greet());
    // The client itself would connect again at once after each connection that stood, however short.
    this.client.on('terminated', () => this.#connectLater());
    this.#clockTimer = setInterval(() => void this.readClock(), readClockEveryMs).unref();
    this.#connect();
  }

  get reason(): string | undefined {
    return this.#reason;
  }

  watch(watcher: ConnectionWatcher): void {
    this.#watchers.add(watcher);
  }

  unwatch(watcher: ConnectionWatcher): void {
    this.#watchers.delete(watcher);
  }

  subscribe(channel: string, onMessage: OnMessage): void {
    this.#channels.set(onMessage, channel);
    this.client.subscribe(channel, onMessage, true).catch(() => undefined);
  }

  unsubscribe(channel: string, onMessage: OnMessage): void {
    this.#channels.delete(onMessage);
    this.client.unsubscribe(channel, onMessage, true).catch(() => undefined);
  }

  /** The server is not in charge any more, and the name may lead to another one now. */
  renew(reason: string): void {
    if (this.#isClosed || this.#reason !== undefined) return;
    this.#lost(reason);
    this.#connectAnew();
  }

  /** Reads the server's clock; the answer is in `clock`. */
  async readClock(): Promise<void> {
    if (this.#reason !== undefined && this.#usableSinceMs === undefined) return;
    const sentMs = performance.now();
    try {
      const time = await within(this.#limitMs, this.client.sendCommand<unknown[]>(['TIME']));
      this.clock.sample(sentMs, performance.now(), time.map(Number));
    } catch {
      // The next one may be in time.
    }
  }

  close(): void {
    this.#isClosed = true;
    this.#reason = 'it was closed';
    clearTimeout(this.#next);
    clearInterval(this.#clockTimer);
    this.client.destroy();
  }

  #connect(): void {
    // How it ends is told by events.
    this.client.connect().catch(() => undefined);
  }

  #connectAnew(): void {
    if (this.client.isOpen) this.client.destroy();
    this.#connectLater();
  }

  #connectLater(): void {
    if (this.#isClosed) return;
    clearTimeout(this.#next);
    const sinceMs = this.#usableSinceMs;
    this.#usableSinceMs = undefined;
    if (sinceMs !== undefined && performance.now() - sinceMs >= ofUseMs) this.#tries = 0;
    const longestMs = sinceMs === undefined ? longestReconnectMs : longestHungUpMs;
    const waitMs = Math.min(reconnectMs * 2 ** this.#tries, longestMs);
    this.#tries += 1;
    this.#next = setTimeout(() => this.#connect(), waitMs).unref();
  }

  /** Asks a server that has just been reached whether it is one that can be used. */
  async #greet(): Promise<void> {
    const problem = await this.#findProblem();
    if (this.#isClosed) return;
    if (problem !== undefined) {
      this.#lost(problem);
      clearTimeout(this.#next);
      this.#next = setTimeout(() => this.#connectAnew(), greetAgainMs).unref();
      return;
    }
    this.#usableSinceMs = performance.now();
    await this.readClock();
    // Lost again meanwhile.
    if (this.#usableSinceMs === undefined) return;
    this.#reason = undefined;
    for (const { onUsable } of [...this.#watchers]) onUsable();
  }

  async #findProblem(): Promise<string | undefined> {
    try {
      const asked = this.client.sendCommand(['INFO', 'server', 'replication', 'persistence']);
      const info = String(await within(1_000, asked));
      const version = Number(/^(?:valkey|redis)_version:(\d+)/m.exec(info)?.[1]);
      if (!(version >= leastVersion)) {
        const found = Number.isNaN(version) ? 'not known' : version;
        return `its version is ${found}; ${leastVersion} or later is needed`;
      }
      if (/^(?:redis|server)_mode:cluster/m.test(info) && !this.#isCluster) {
        return 'it is the node of a cluster: SHARED_STORE is to begin with redis+cluster://';
      }
      if (/^(?:redis|server)_mode:sentinel/m.test(info)) {
        return 'it is a sentinel: SHARED_STORE is to begin with redis+sentinel://';
      }
      if (/^loading:1/m.test(info)) return 'LOADING';
      // A replica answers with what was true a moment ago, and takes nothing.
      if (/^role:slave/m.test(info)) return 'it is a replica';
      // The client keeps what it is subscribed to, but not what it could not subscribe to: asked for twice is once.
      const asks = [...this.#channels].map(([onMessage, channel]) =>
        this.client.subscribe(channel, onMessage, true),
      );
      // Gateways that do not hear each other would all lead, unnoticed.
      await within(1_000, Promise.all(asks));
      return undefined;
    } catch (error) {
      return describeError(error);
    }
  }

  #lost(reason: string): void {
    if (this.#isClosed) return;
    this.#reason = reason;
    for (const { onLost } of [...this.#watchers]) onLost(reason);
  }
}

/** What every connection to a server needs, short ones too. */
export function clientOptions(place: ServerPlace, options: ServerAccess) {
  const { tls, username, readPassword } = options;
  const named = username === undefined ? {} : { username };
  return {
    ...(readPassword === undefined
      ? named
      : {
          credentialsProvider: {
            type: 'async-credentials-provider' as const,
            credentials: async () => ({ ...named, password: await readPassword() }),
          },
        }),
    socket: {
      ...('path' in place
        ? { path: place.path, tls: false as const }
        : { host: place.host, port: place.port, ...(tls ? { tls: true as const } : {}) }),
      connectTimeout: 2_000,
      reconnectStrategy: false as const,
    },
    maintNotifications: 'disabled',
    disableClientInfo: true,
    RESP: 3,
  } satisfies RedisClientOptions;
}

function connectTo(place: ServerPlace, options: ConnectionOptions) {
  const { socket, ...common } = clientOptions(place, options);
  return createClient({
    ...common,
    socket: { ...socket, socketTimeout: silentLimits * (options.limitMs ?? usualLimitMs) },
    database: options.database,
    // A command never waits for a connection: its user goes on without the store.
    disableOfflineQueue: true,
    scripts,
  });
}

/**
 * The limit is counted in two halves, and what lies in the socket is read before it is over: a stall of this process,
 * in which the command was perhaps not even written, uses up one half at most.
 *
 * @throws Error when the time is over; the promise's own outcome is then of no interest
 */
export async function within<T>(limitMs: number, promise: Promise<T>): Promise<T> {
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

/** Errors whose code alone does not tell what is wrong. Nothing else of their text is shown: servers quote arguments. */
const tellingErrors: readonly (readonly [RegExp, string])[] = [
  [/^ERR No such master with that name/, 'no master has that name'],
  [/^ERR unknown command ['`](\w{1,40})['`]/, 'it does not know the command $1'],
  [/^ERR This instance has cluster support disabled/, 'it is no node of a cluster'],
  [/^ERR DB index is out of range/, 'it has no database of that number'],
  [/ permissions to run the '([\w|]{1,40})' command/, 'its user may not run $1'],
  [/ script can't run this command/, 'its user may not run a command of a script'],
  [/ (?:permissions to|script can't) access .* keys /, 'its user may not use these names'],
  [/ (?:permissions to access|script can't publish to) .*channel/, 'its user may not use these channels'],
];

/** What went wrong, in a few words: a server's error has its code first and no value of ours in it. */
export function describeError(error: unknown): string {
  if (!(error instanceof Error)) return 'it failed';
  if (error instanceof SocketTimeoutError) return 'it was silent';
  if (error instanceof ErrorReply) {
    for (const [shape, told] of tellingErrors) {
      const found = shape.exec(error.message.slice(0, 300));
      if (found !== null) return told.replace('$1', found[1] ?? '');
    }
  }
  const code = 'code' in error ? String(error.code) : /^[A-Z]{3,}(?= )/.exec(error.message)?.[0];
  return code ?? error.message.slice(0, 120);
}
