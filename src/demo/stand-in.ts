/**
 * An upstream that behaves as workspace-analytics-api.md says. The demo talks to it; the tests' stand-in makes it
 * misbehave. Nothing of the gateway knows it.
 */
import { createServer, type RequestListener, type Server, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import {
  defaultAccounts,
  fillBucket,
  followSpecification,
  type PreparedAnswer,
  type RateLimit,
  retryAfterValue,
  type TakeToken,
} from './specification.ts';

/** Made up. Some of its characters look different in a URL. */
export const standInKey = 'wa_standin+4f8d/2c71~e0b9.a35d==';

/** One request as it arrived, and what became of it. */
export interface ReceivedRequest {
  readonly method: string;
  /** The request target in its exact bytes. */
  readonly target: string;
  /** Lower-case names; a field that came on several lines is a list. */
  readonly headers: Readonly<Record<string, string | string[]>>;
  /** Names and values in turn, as they came. */
  readonly rawHeaders: readonly string[];
  /** When it arrived, monotonic ms. */
  readonly at: number;
  /** The value of `X-API-Key`; several lines are joined by a comma, which makes them no valid key. */
  readonly key: string | undefined;
  /** The status it was answered with; undefined before that, and where no status was sent. */
  readonly status: number | undefined;
}

export interface Counts {
  /** Requests received. */
  total: number;
  /** Requests by the status they were answered with. */
  byStatus: Record<number, number>;
  /** Connections accepted. */
  connections: number;
  /** Requests whose sender left before the answer was out. */
  aborted: number;
}

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
  /** False: `requests` stays empty, `received` counts nothing. For benchmarks. */
  readonly recordRequests?: boolean;
  /** Asked before each connection and answer; what it takes over is not answered as specified. */
  readonly intercept?: Interceptor;
}

/** Takes over exchanges, for an upstream that misbehaves. */
export interface Interceptor {
  /** Returns true to reset the new connection. */
  connect(): boolean;
  /** Returns what answers the next request in place of the specification; `undefined` where nothing does. */
  next(): ((exchange: Exchange) => void) | undefined;
}

/** One exchange that does not go as specified. */
export interface Exchange {
  readonly socket: Socket;
  readonly request: ReceivedRequest;
  /** What a well-behaved upstream would answer. */
  readonly specified: PreparedAnswer;
  /** How long an answer waits as specified, in ms. */
  readonly latencyMs: number;
  /** Ends the connection with RST. */
  reset(): void;
  /** Lets the connection take its next request. */
  release(): void;
  /** The status line and all fields are on their way. */
  onStatus(status: number): void;
  /** The other side left before the answer was out. */
  onGone(): void;
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
  server.keepAliveTimeout = 60_000;
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

/** What a running stand-in knows: its keys and limit, what has come. */
class StandInState {
  readonly keys: Set<string>;
  readonly requests: ReceivedRequest[] = [];
  readonly counts: Counts = { total: 0, byStatus: {}, connections: 0, aborted: 0 };
  readonly #sockets = new Set<Socket>();
  #waiting: { count: number; resolve: () => void }[] = [];
  readonly #intercept: Interceptor | undefined;
  #limit: RateLimit | undefined;
  #takeToken: TakeToken | undefined;

  constructor({ key = standInKey, limit, intercept }: StandInOptions) {
    this.#intercept = intercept;
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

  /** Counts an answer, when its status line is on its way. */
  count(status: number, received: Received | undefined): void {
    this.counts.byStatus[status] = (this.counts.byStatus[status] ?? 0) + 1;
    if (received !== undefined) received.status = status;
  }

  connect(socket: Socket): void {
    this.counts.connections++;
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket));
    if (this.#intercept?.connect()) socket.resetAndDestroy();
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

/** Answers each request as specified, or lets the interceptor do it. */
function answerRequests(state: StandInState, options: StandInOptions): RequestListener {
  const { latencyMs = 0, recordRequests = true, intercept } = options;
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
    const takeOver = intercept?.next();
    const specified = answerTo(method, url, key, request.headers['if-none-match']);

    let received: Received | undefined;
    if (recordRequests || takeOver !== undefined) {
      received = new Received(method, url, request.rawHeaders, key, performance.now());
      if (recordRequests) remember(state.requests, received);
    }
    if (received !== undefined && takeOver !== undefined) {
      takeOver(exchangeOf(state, socket, response, { request: received, specified, latencyMs }));
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

/** The most requests that are remembered; the oldest go, a thousand at a time. */
const maxRequests = 10_000;

export class Received implements ReceivedRequest {
  readonly method: string;
  readonly target: string;
  readonly rawHeaders: readonly string[];
  readonly at: number;
  readonly key: string | undefined;
  status: number | undefined = undefined;
  #headers: Record<string, string | string[]> | undefined = undefined;

  constructor(
    method: string,
    target: string,
    rawHeaders: readonly string[],
    key: string | undefined,
    at: number,
  ) {
    this.method = method;
    this.target = target;
    this.rawHeaders = rawHeaders;
    this.key = key;
    this.at = at;
  }

  /** Made when first read: a benchmark that looks at no header does not pay for them. */
  get headers(): Readonly<Record<string, string | string[]>> {
    this.#headers ??= collect(this.rawHeaders);
    return this.#headers;
  }
}

/** Adds one, and forgets the oldest beyond the bound. The list stays the same object. */
function remember(requests: ReceivedRequest[], request: ReceivedRequest): void {
  if (requests.push(request) > maxRequests) requests.splice(0, 1_000);
}

function collect(rawHeaders: readonly string[]): Record<string, string | string[]> {
  // Without a prototype: a field may be called `__proto__`.
  const headers: Record<string, string | string[]> = Object.create(null);
  for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
    const name = rawHeaders[index]?.toLowerCase() ?? '';
    const value = rawHeaders[index + 1] ?? '';
    const before = headers[name];
    if (before === undefined) headers[name] = value;
    else if (typeof before === 'string') headers[name] = [before, value];
    else before.push(value);
  }
  return headers;
}
