/**
 * An upstream that behaves as workspace-analytics-api.md says, and misbehaves when asked to. The demo, the tests
 * and the benchmarks talk to it; nothing of the gateway does.
 */
import { createServer, type RequestListener, type Server, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { Behaviour } from '../../test/support/stand-in/behaviour.ts';
import { type Exchange, misbehave } from '../../test/support/stand-in/misbehave.ts';
import { defaultAccounts } from './data.ts';
import { type Counts, Received, type ReceivedRequest, remember } from './received.ts';
import { followSpecification, type PreparedAnswer } from './specification.ts';
import { fillBucket, type RateLimit, retryAfterValue, type TakeToken } from './token-bucket.ts';

/** Made up. Some of its characters look different in a URL. */
export const standInKey = 'wa_standin+4f8d/2c71~e0b9.a35d==';

export interface StandInOptions {
  /** The one key it accepts at first. Default `standInKey`. */
  readonly key?: string;
  readonly host?: string;
  readonly port?: number;
  /** Default none. */
  readonly limit?: RateLimit | undefined;
  /** Every answer waits this long. Default 0. */
  readonly latencyMs?: number;
  /** The workspace role of the keys' holder. Default `sufficient`. */
  readonly role?: 'sufficient' | 'insufficient';
  /** How many accounts the workspace has: about 220 bytes each. */
  readonly accounts?: number;
  /** Further reads, as in UPSTREAM_READS: `['/analytics/posts/', '/analytics/reports/:id/']`. */
  readonly reads?: readonly string[];
  /** Sent with every 200 and 304 of a read. */
  readonly cacheControl?: string | undefined;
  /** Sends a strong `ETag` and answers `If-None-Match` with 304. */
  readonly etag?: boolean;
  readonly tls?: { readonly key: string | Buffer; readonly cert: string | Buffer };
  /** The made-up data follow from it. */
  readonly seed?: number;
  /** How long an idle connection stays open. Default 60 s. */
  readonly keepAliveMs?: number;
  /** False: `requests` stays empty, `received` counts nothing. For benchmarks. */
  readonly recordRequests?: boolean;
}

export interface StandIn {
  /** The base address to configure; ends with `/api`. */
  readonly url: string;
  readonly origin: string;
  /** The last requests, at least 9,000 and at most 10,000 of them, oldest first. */
  readonly requests: readonly ReceivedRequest[];
  readonly counts: Readonly<Counts>;
  /** The keys it accepts now. Adding and deleting is creating and revoking. */
  readonly keys: Set<string>;
  /** Misbehaves from the next request on, for so many requests (default: until the next call); undefined: well again. */
  behave(next: Behaviour | undefined, times?: number): void;
  /** A full bucket of another size, or none. */
  setLimit(limit: RateLimit | undefined): void;
  /** Resolves when so many requests have arrived since the start or the last reset. */
  received(count: number): Promise<void>;
  /** Stops listening and drops every connection, so that connecting is refused; or listens again on the same port. */
  refuseConnections(refuse: boolean): Promise<void>;
  /** Forgets requests and counts. */
  reset(): void;
  close(): Promise<void>;
}

/** Starts it and resolves when it listens. */
export async function startStandIn(options: StandInOptions = {}): Promise<StandIn> {
  const { host = '127.0.0.1', tls } = options;
  const state = new StandInState(options);
  const listener = answerRequests(state, options);
  const server: Server = tls === undefined ? createServer(listener) : createTlsServer(tls, listener);
  server.keepAliveTimeout = options.keepAliveMs ?? 60_000;
  server.on('connection', (socket: Socket) => state.connect(socket));
  const stop = async (): Promise<void> => {
    const closed = server.listening ? new Promise((resolve) => server.close(resolve)) : undefined;
    state.dropConnections();
    await closed;
  };
  await listen(server, options.port ?? 0, host);
  const { port } = server.address() as AddressInfo;
  const origin = `${tls === undefined ? 'http' : 'https'}://${host.includes(':') ? `[${host}]` : host}:${port}`;

  return {
    url: `${origin}/api`,
    origin,
    requests: state.requests,
    counts: state.counts,
    keys: state.keys,
    behave: (next, times) => state.behave(next, times),
    setLimit: (limit) => state.setLimit(limit),
    received: (wanted) => state.received(wanted),
    async refuseConnections(refuse) {
      if (refuse) await stop();
      else if (!server.listening) await listen(server, port, host);
    },
    reset: () => state.reset(),
    close: stop,
  };
}

/** What a running stand-in knows: its keys and limit, how it is to misbehave, what has come. */
class StandInState {
  readonly keys: Set<string>;
  readonly requests: ReceivedRequest[] = [];
  readonly counts: Counts = { total: 0, byStatus: {}, connections: 0, aborted: 0 };
  readonly #sockets = new Set<Socket>();
  #waiting: { count: number; resolve: () => void }[] = [];
  #behaviour: Behaviour | undefined;
  #timesLeft = 0;
  #limit: RateLimit | undefined;
  #takeToken: TakeToken | undefined;

  constructor({ key = standInKey, limit }: StandInOptions) {
    this.keys = new Set([key]);
    this.setLimit(limit);
  }

  setLimit(limit: RateLimit | undefined): void {
    this.#limit = limit;
    this.#takeToken = limit && fillBucket(limit, performance.now());
  }

  /** The `Retry-After` of a request over the limit, `null` where the limit sends none; `undefined` within the limit. */
  refuse(): string | null | undefined {
    if (this.#limit === undefined || this.#takeToken === undefined) return undefined;
    const waitMs = this.#takeToken(performance.now());
    return waitMs === 0 ? undefined : (retryAfterValue(this.#limit, waitMs, Date.now()) ?? null);
  }

  behave(next: Behaviour | undefined, times = Number.POSITIVE_INFINITY): void {
    this.#behaviour = times > 0 ? next : undefined;
    this.#timesLeft = times;
  }

  /** The behaviour for one more request or connection; it wears off here. */
  takeBehaviour(): Behaviour | undefined {
    const taken = this.#behaviour;
    if (taken !== undefined && --this.#timesLeft <= 0) this.#behaviour = undefined;
    return taken;
  }

  /** Counts an answer, when its status line is on its way. */
  count(status: number, received: Received | undefined): void {
    this.counts.byStatus[status] = (this.counts.byStatus[status] ?? 0) + 1;
    if (received !== undefined) received.status = status;
  }

  connect(socket: Socket): void {
    this.counts.connections++;
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket));
    if (typeof this.#behaviour === 'object' && this.#behaviour.resetAt === 'connection') {
      this.takeBehaviour();
      socket.resetAndDestroy();
    }
  }

  resetConnection(socket: Socket): void {
    // A TLS socket cannot reset; the one below it can.
    const below = this.#sockets.has(socket)
      ? socket
      : [...this.#sockets].find((one) => one.remotePort === socket.remotePort);
    (below ?? socket).resetAndDestroy();
  }

  dropConnections(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  received(count: number): Promise<void> {
    if (this.counts.total >= count) return Promise.resolve();
    return new Promise((resolve) => this.#waiting.push({ count, resolve }));
  }

  /** Resolves the promises of `received` that so many requests fulfil. */
  notifyWaiting(): void {
    if (this.#waiting.length === 0) return;
    const { total } = this.counts;
    const still = this.#waiting.filter(({ count }) => count > total);
    for (const { count, resolve } of this.#waiting) if (count <= total) resolve();
    this.#waiting = still;
  }

  reset(): void {
    this.requests.length = 0;
    Object.assign(this.counts, { total: 0, byStatus: {}, connections: 0, aborted: 0 } satisfies Counts);
  }
}

/** Answers each request as specified, or as the behaviour of the moment says. */
function answerRequests(state: StandInState, options: StandInOptions): RequestListener {
  const { latencyMs = 0, recordRequests = true } = options;
  const { counts } = state;
  const answerTo = followSpecification({
    keys: state.keys,
    role: options.role ?? 'sufficient',
    reads: options.reads ?? [],
    accounts: options.accounts ?? defaultAccounts,
    seed: options.seed ?? 1,
    cacheControl: options.cacheControl,
    etag: options.etag ?? false,
    refuse: () => state.refuse(),
  });

  function answer(response: ServerResponse, specified: PreparedAnswer, received: Received | undefined): void {
    // The caller may have left during the latency.
    if (response.destroyed) {
      counts.aborted++;
      return;
    }
    state.count(specified.status, received);
    response.writeHead(specified.status, specified.fields);
    response.end(specified.body);
  }

  return (request, response) => {
    counts.total++;
    const { method = 'GET', url = '', socket } = request;
    const header = request.headers['x-api-key'];
    const key = typeof header === 'string' ? header : undefined;
    const behaviour = state.takeBehaviour();
    const specified = answerTo(method, url, key, request.headers['if-none-match']);

    let received: Received | undefined;
    if (recordRequests || behaviour !== undefined) {
      received = new Received(method, url, request.rawHeaders, key, performance.now());
      if (recordRequests) remember(state.requests, received);
    }
    if (received !== undefined && behaviour !== undefined) {
      const exchange = exchangeOf(state, socket, response, { request: received, specified, latencyMs });
      misbehave(exchange, behaviour).catch((error: unknown) => {
        // A test's own function failed, or asks for something impossible: say so, and let the test fail soon.
        process.emitWarning(error instanceof Error ? error : new Error(String(error)));
        socket.destroy();
      });
    } else if (latencyMs > 0) {
      setTimeout(answer, latencyMs, response, specified, received);
    } else {
      answer(response, specified, received);
    }
    state.notifyWaiting();
  };
}

function exchangeOf(
  state: StandInState,
  socket: Socket,
  response: ServerResponse,
  terms: { request: Received; specified: PreparedAnswer; latencyMs: number },
): Exchange {
  return {
    socket,
    ...terms,
    reset: () => state.resetConnection(socket),
    // The bytes went past Node's response. Once it has "finished", Node takes the connection's next request, and
    // has no opinion about what was sent.
    release: () => response.emit('finish'),
    onStatus: (status) => state.count(status, terms.request),
    onGone: () => state.counts.aborted++,
  };
}

function listen(server: Server, port: number, host: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, () => {
      server.off('error', reject);
      resolve();
    });
  });
}
