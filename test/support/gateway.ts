/** A whole gateway over real sockets, before the stand-in: what the tests of promises use. */
import { type Agent, type IncomingHttpHeaders, request } from 'node:http';
import { connect } from 'node:net';
import { beforeAll, expect, onTestFinished } from 'vitest';
import { readConfig } from '../../src/config/config.ts';
import { type Gateway, startGateway } from '../../src/gateway/gateway.ts';
import type { LogDestination } from '../../src/log/logger.ts';
import { sharedOwner } from './shared-owner.ts';
import { type StandIn, type StandInOptions, standInKey, startStandIn } from './stand-in/stand-in.ts';

export interface Came {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly rawHeaders: readonly string[];
  readonly body: Buffer;
  /** The body as JSON. */
  json(): Record<string, unknown>;
}

export interface AskOptions {
  readonly method?: string;
  readonly headers?: Record<string, string | string[]>;
  readonly body?: string;
  readonly signal?: AbortSignal;
  /** Default: a connection of its own. For loops of requests: to connect takes half of a request's work. */
  readonly agent?: Agent;
}

export interface TestGateway {
  readonly gateway: Gateway;
  readonly standIn: StandIn;
  readonly url: string;
  readonly port: number;
  ask(path: string, options?: AskOptions): Promise<Came>;
  /** Asks the admin listener: start with `ADMIN_PORT: '0'`. */
  askAdmin(path: string, options?: AskOptions): Promise<Came>;
  /**
   * Sends bytes on a connection of their own and gives back all that came until it ended or was quiet for a while.
   *
   * @param toPort another listener's than the callers' one
   */
  exchange(bytes: string | Buffer, quietMs?: number, toPort?: number): Promise<string>;
  /** What stands in the log so far. */
  logText(): string;
  logLines(): Record<string, unknown>[];
}

/** Takes what is to be done when the test has finished. */
export type AtEnd = (run: () => void | Promise<void>) => void;

export const accounts = '/api/analytics/accounts/';

/**
 * Starts both, and ends them with the test.
 *
 * @param atEnd a concurrent test's own `onTestFinished`: the global one knows only one test at a time
 * @param storeLimitMs the longest that the gateway waits for the shared store
 */
export async function startPair(
  settings: Record<string, string> = {},
  standInOptions: StandInOptions = {},
  atEnd: AtEnd = onTestFinished,
  storeLimitMs?: number,
): Promise<TestGateway> {
  const standIn = await startStandIn(standInOptions);
  let log = '';
  const logTo: LogDestination = {
    write(lines) {
      log += lines;
    },
    flush() {},
    async close() {},
  };
  const environment: Record<string, string> = {
    UPSTREAM_BASE_URL: standIn.url,
    UPSTREAM_API_KEY: standInKey,
    PORT: '0',
    // Many run side by side.
    ADMIN_PORT: 'off',
    SHUTDOWN_GRACE: '2s',
    RETRY_BASE: '20ms',
    // Most tests count what the upstream receives.
    UPSTREAM_API_KEY_CHECK: 'off',
    ...settings,
  };
  const gateway = await startGateway({
    config: readConfig(environment),
    environment,
    logTo,
    ...(storeLimitMs === undefined ? {} : { storeLimitMs }),
  });
  atEnd(async () => {
    await gateway.drain();
    await standIn.close();
  });
  const socketPath = gateway.url.startsWith('unix:') ? gateway.url.slice('unix:'.length) : undefined;
  const port = socketPath === undefined ? Number(new URL(gateway.url).port) : 0;
  const logText = (): string => {
    gateway.log.flush();
    return log;
  };
  return {
    gateway,
    standIn,
    url: gateway.url,
    port,
    ask: (path, options = {}) =>
      ask(socketPath === undefined ? { host: '127.0.0.1', port } : { socketPath }, path, options),
    askAdmin: (path, options = {}) =>
      ask({ host: '127.0.0.1', port: Number(new URL(gateway.adminUrl ?? '').port) }, path, options),
    exchange: (bytes, quietMs = 300, toPort = port) => exchange(toPort, bytes, quietMs),
    logText,
    logLines: () =>
      logText()
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => JSON.parse(line) as Record<string, unknown>),
  };
}

/**
 * Starts one pair for all tests of the calling `describe`, which ends with them.
 *
 * @param start hands `atEnd` on to what it starts
 */
export function sharedPair<T extends TestGateway>(start: (atEnd: AtEnd) => Promise<T>): () => T {
  const owner = sharedOwner();
  let pair: T | undefined;
  beforeAll(async () => {
    pair = await start(owner.onTestFinished);
  });
  return () => pair ?? expect.unreachable();
}

type Where = { host: string; port: number } | { socketPath: string };

export function ask(where: Where, path: string, options: AskOptions): Promise<Came> {
  return new Promise((resolve, reject) => {
    const { method = 'GET', body, signal, agent = false } = options;
    // As most callers do: a reply whose connection ends with it is made another way.
    const headers = { connection: 'keep-alive', ...options.headers };
    const outgoing = request(
      { ...where, path, method, headers, agent, ...(signal === undefined ? {} : { signal }) },
      (incoming) => {
        const chunks: Buffer[] = [];
        incoming.on('data', (chunk: Buffer) => chunks.push(chunk));
        incoming.on('error', reject);
        incoming.on('end', () => {
          const whole = Buffer.concat(chunks);
          resolve({
            status: incoming.statusCode ?? 0,
            headers: incoming.headers,
            rawHeaders: incoming.rawHeaders,
            body: whole,
            json: () => JSON.parse(whole.toString()) as Record<string, unknown>,
          });
        });
      },
    );
    outgoing.on('error', reject);
    outgoing.end(body);
  });
}

/** As `TestGateway.exchange`, on any port of this machine. */
export function exchange(port: number, bytes: string | Buffer, quietMs: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1');
    const chunks: Buffer[] = [];
    const finish = (): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(Buffer.concat(chunks).toString('latin1'));
    };
    let timer = setTimeout(finish, 10_000);
    socket.on('connect', () => socket.write(bytes));
    socket.on('data', (chunk: Buffer) => {
      chunks.push(chunk);
      clearTimeout(timer);
      timer = setTimeout(finish, quietMs);
    });
    socket.on('close', finish);
    socket.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code === 'ECONNRESET' || error.code === 'EPIPE') finish();
      else reject(error);
    });
  });
}
