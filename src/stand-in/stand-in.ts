/**
 * An upstream that behaves as workspace-analytics-api.md says, and misbehaves when asked to. The demo, the tests
 * and the benchmarks talk to it; nothing of the gateway does.
 */
import { createServer, type RequestListener, type Server, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { Behaviour } from './behaviour.ts';
import { defaultAccounts } from './data.ts';
import { type Exchange, misbehave } from './misbehave.ts';
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
  const { latencyMs = 0, recordRequests = true, host = '127.0.0.1', tls } = options;
  const keys = new Set([options.key ?? standInKey]);
  const requests: ReceivedRequest[] = [];
  const counts: Counts = { total: 0, byStatus: {}, connections: 0, aborted: 0 };
  const sockets = new Set<Socket>();
  let waiting: { count: number; resolve: () => void }[] = [];
  let behaviour: Behaviour | undefined;
  let timesLeft = 0;
  let limit: RateLimit | undefined;
  let takeToken: TakeToken | undefined;

  const setLimit = (next: RateLimit | undefined): void => {
    limit = next;
    takeToken = next && fillBucket(next, performance.now());
  };
  setLimit(options.limit);

  const answerTo = followSpecification({
    keys,
    role: options.role ?? 'sufficient',
    reads: options.reads ?? [],
    accounts: options.accounts ?? defaultAccounts,
    seed: options.seed ?? 1,
    cacheControl: options.cacheControl,
    etag: options.etag ?? false,
    refuse: () => {
      if (limit === undefined || takeToken === undefined) return undefined;
      const waitMs = takeToken(performance.now());
      return waitMs === 0 ? undefined : (retryAfterValue(limit, waitMs, Date.now()) ?? null);
    },
  });

  /** The behaviour for one more request or connection; it wears off here. */
  const takeBehaviour = (): Behaviour | undefined => {
    const taken = behaviour;
    if (taken !== undefined && --timesLeft <= 0) behaviour = undefined;
    return taken;
  };

  const count = (status: number, received: Received | undefined): void => {
    counts.byStatus[status] = (counts.byStatus[status] ?? 0) + 1;
    if (received !== undefined) received.status = status;
  };

  const resetConnection = (socket: Socket): void => {
    // A TLS socket cannot reset; the one below it can.
    const below = sockets.has(socket)
      ? socket
      : [...sockets].find((one) => one.remotePort === socket.remotePort);
    (below ?? socket).resetAndDestroy();
  };

  const answer = (
    response: ServerResponse,
    specified: PreparedAnswer,
    received: Received | undefined,
  ): void => {
    // The caller may have left during the latency.
    if (response.destroyed) {
      counts.aborted++;
      return;
    }
    count(specified.status, received);
    response.writeHead(specified.status, specified.fields);
    response.end(specified.body);
  };

  const listener: RequestListener = (request, response) => {
    counts.total++;
    const { method = 'GET', url = '', socket } = request;
    const header = request.headers['x-api-key'];
    const key = typeof header === 'string' ? header : undefined;
    const misbehaviour = behaviour === undefined ? undefined : takeBehaviour();
    const specified = answerTo(method, url, key, request.headers['if-none-match']);

    let received: Received | undefined;
    if (recordRequests || misbehaviour !== undefined) {
      received = new Received(method, url, request.rawHeaders, key, performance.now());
      if (recordRequests) remember(requests, received);
    }
    if (received !== undefined && misbehaviour !== undefined) {
      const exchange: Exchange = {
        socket,
        request: received,
        specified,
        latencyMs,
        reset: () => resetConnection(socket),
        // The bytes went past Node's response. Told that it has finished, Node takes the connection's next
        // request, and has no opinion about what was sent.
        release: () => response.emit('finish'),
        onStatus: (status) => count(status, received),
        onGone: () => counts.aborted++,
      };
      misbehave(exchange, misbehaviour).catch((error: unknown) => {
        // A test's own function failed, or something impossible: say so, and let the test fail soon.
        process.emitWarning(error instanceof Error ? error : new Error(String(error)));
        socket.destroy();
      });
    } else if (latencyMs > 0) {
      setTimeout(answer, latencyMs, response, specified, received);
    } else {
      answer(response, specified, received);
    }
    if (waiting.length > 0) resolveWaiting();
  };

  const resolveWaiting = (): void => {
    const still = waiting.filter((one) => one.count > counts.total);
    for (const one of waiting) if (one.count <= counts.total) one.resolve();
    waiting = still;
  };

  const server: Server = tls === undefined ? createServer(listener) : createTlsServer(tls, listener);
  server.keepAliveTimeout = options.keepAliveMs ?? 60_000;
  server.on('connection', (socket: Socket) => {
    counts.connections++;
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
    if (typeof behaviour === 'object' && behaviour.resetAt === 'connection') {
      takeBehaviour();
      socket.resetAndDestroy();
    }
  });
  const stop = async (): Promise<void> => {
    const closed = server.listening ? new Promise((resolve) => server.close(resolve)) : undefined;
    for (const socket of sockets) socket.destroy();
    await closed;
  };
  await listen(server, options.port ?? 0, host);
  const { port } = server.address() as AddressInfo;
  const origin = `${tls === undefined ? 'http' : 'https'}://${host.includes(':') ? `[${host}]` : host}:${port}`;

  return {
    url: `${origin}/api`,
    origin,
    requests,
    counts,
    keys,
    behave(next, times = Number.POSITIVE_INFINITY) {
      behaviour = times > 0 ? next : undefined;
      timesLeft = times;
    },
    setLimit,
    received(wanted) {
      if (counts.total >= wanted) return Promise.resolve();
      return new Promise((resolve) => waiting.push({ count: wanted, resolve }));
    },
    async refuseConnections(refuse) {
      if (refuse) await stop();
      else if (!server.listening) await listen(server, port, host);
    },
    reset() {
      requests.length = 0;
      Object.assign(counts, { total: 0, byStatus: {}, connections: 0, aborted: 0 } satisfies Counts);
    },
    close: stop,
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
