/**
 * The only place that opens connections to the upstream. One attempt: a GET built from constants, the operation's
 * path, the exact query and allow-listed fields; the answer read whole, checked, and handed up as a value.
 *
 * Nothing here follows a redirect, decodes a body, or puts the key into anything but the field it belongs in: no
 * `fetch`, no `Headers`, whose errors print the values they refuse (THREATS L1, L2).
 */
import type { IncomingHttpHeaders } from 'node:http';
import type { Dispatcher } from 'undici';
import Pool from 'undici/lib/dispatcher/pool.js';
import type { ClaimWatcher } from '../claim.ts';
import { GatewayError } from '../errors.ts';
import type { Handler } from '../layer.ts';
import type { Trace } from '../trace.ts';
import type { AttemptTally } from './attempt-tally.ts';
import { type BodyBudget, type BodyShare, limitBodies } from './body-budget.ts';
import type { Answer, HeaderFields, SignedRequest } from './exchange.ts';
import {
  acceptMediaTypes,
  endsWithConnection,
  isClosedJson,
  isJsonType,
  isWholeJson,
  type ResponseLimits,
  refusalOfHead,
  singleField,
} from './response-policy.ts';
import { transportFailure } from './transport-errors.ts';

export interface TransportOptions {
  readonly baseUrl: URL;
  /** One attempt, from its start to the last byte. */
  readonly timeoutMs: number;
  readonly maxBodyBytes: number;
  /** Connections, and so attempts, at once. */
  readonly connections: number;
  /** Media ranges of successes that pass. */
  readonly mediaTypes: readonly string[];
  readonly userAgent: string;
  /** Counts what is sent; left out, nobody does. */
  readonly tally?: AttemptTally;
}

export interface Transport {
  readonly handler: Handler<SignedRequest, Answer>;
  /** Ends all connections, those in use too. */
  close(): Promise<void>;
}

/** A pool is not used for longer than this, so that a change in DNS is followed. */
const connectionLifeMs = 60_000;

/** The bodies in flight together, unless a single one may be larger. */
const bodiesInFlightBytes = 64 * 2 ** 20;

export function sendUpstream(options: TransportOptions): Transport {
  const pools = renewPools(
    () =>
      new Pool(options.baseUrl.origin, {
        connections: options.connections,
        // One answer at a time on a connection: HTTP/1.1 has no response ids, so nothing may overlap.
        pipelining: 1,
        allowH2: false,
        keepAliveTimeout: 10_000,
        keepAliveMaxTimeout: connectionLifeMs,
        maxHeaderSize: 32 * 1024,
        // Said here, so that no environment variable can unsay it.
        connect: { timeout: options.timeoutMs, rejectUnauthorized: true },
        // One timer per attempt covers head and body; undici's own only back it up.
        headersTimeout: options.timeoutMs + 1_000,
        bodyTimeout: options.timeoutMs + 1_000,
      }),
  );
  const budget = limitBodies(Math.max(bodiesInFlightBytes, options.maxBodyBytes));
  const isAcceptedType = acceptMediaTypes(options.mediaTypes);
  const basePath = options.baseUrl.pathname.replace(/\/$/, '');

  /** What does not change from one attempt to the next. */
  const constantFields = [
    ...['accept', 'application/json', 'accept-encoding', 'identity'],
    ...['user-agent', options.userAgent, 'via', '1.1 analytics-gateway', 'x-api-key'],
  ];
  const limits = { maxBodyBytes: options.maxBodyBytes, isAcceptedType };
  const revalidationLimits = { ...limits, revalidating: true };
  const readLimits = { ...limits, revalidating: false };

  return {
    handler: (request, trace) =>
      new Promise<Answer>((resolve, reject) => {
        const attempt = new Attempt(
          request,
          trace,
          request.validators === undefined ? readLimits : revalidationLimits,
          budget,
          options.tally,
          resolve,
          reject,
        );
        if (!attempt.begin(options.timeoutMs)) return;
        pools.current().dispatch(
          {
            method: 'GET',
            path: `${basePath}${request.path}${request.query}`,
            headers: fieldsOf(request, constantFields),
            // A head that is late must not hold up another request on the same connection.
            blocking: true,
          },
          attempt,
        );
      }),
    close: () => pools.destroy(),
  };
}

/**
 * A pool for a while, then another one, while the former ends when its last exchange has. (Undici's own `clientTtl`
 * looks at the clock once for every connection that is busy.)
 */
function renewPools(open: () => Dispatcher): { current(): Dispatcher; destroy(): Promise<void> } {
  let pool = open();
  let openedMs = performance.now();
  const ending = new Set<Dispatcher>();
  return {
    current() {
      const nowMs = performance.now();
      if (nowMs - openedMs >= connectionLifeMs) {
        const former = pool;
        pool = open();
        openedMs = nowMs;
        ending.add(former);
        const ended = (): boolean => ending.delete(former);
        former.close().then(ended, ended);
      }
      return pool;
    },
    async destroy() {
      await Promise.all([pool, ...ending].map((one) => one.destroy()));
    },
  };
}

/** The fields of the upstream request, names and values in turn. */
function fieldsOf(request: SignedRequest, constant: readonly string[]): string[] {
  const fields = [...constant, request.key];
  pushAll(fields, request.headers);
  pushAll(fields, request.ids);
  if (request.validators !== undefined) pushAll(fields, request.validators);
  return fields;
}

/** Nothing that somebody sent can stand beside them. */
const ours: ReadonlySet<string> = new Set(['accept', 'accept-encoding', 'user-agent', 'via', 'x-api-key']);

function pushAll(fields: string[], more: Readonly<Record<string, string>>): void {
  for (const name in more) if (!ours.has(name)) fields.push(name, more[name] as string);
}

/** One attempt as undici sees it: a handler of its events, and the timers around it. */
class Attempt implements Dispatcher.DispatchHandler, ClaimWatcher {
  readonly #request: SignedRequest;
  readonly #trace: Trace;
  readonly #limits: ResponseLimits;
  readonly #budget: BodyBudget;
  readonly #tally: AttemptTally | undefined;
  readonly #resolve: (answer: Answer) => void;
  readonly #reject: (error: unknown) => void;
  readonly #sentMs = performance.now();
  #timer: NodeJS.Timeout | undefined;
  #controller: Dispatcher.DispatchController | undefined;
  #abortedWith: unknown;
  #settled = false;
  #status = 0;
  #headers: HeaderFields = {};
  #share: BodyShare | undefined;
  #declaredBytes = 0;
  #receivedBytes = 0;
  readonly #chunks: Buffer[] = [];

  constructor(
    request: SignedRequest,
    trace: Trace,
    limits: ResponseLimits,
    budget: BodyBudget,
    tally: AttemptTally | undefined,
    resolve: (answer: Answer) => void,
    reject: (error: unknown) => void,
  ) {
    this.#request = request;
    this.#trace = trace;
    this.#limits = limits;
    this.#budget = budget;
    this.#tally = tally;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  /** Starts the clock; `false` where nobody waits any more and nothing is to be sent. */
  begin(timeoutMs: number): boolean {
    const { claim } = this.#request;
    this.#tally?.begun(this.#trace.attempts);
    this.#trace.attempts += 1;
    if (claim.ended !== undefined) {
      this.#fail(claim.ended);
      return false;
    }
    claim.watch(this);
    this.#timer = setTimeout(expire, timeoutMs, this, timeoutMs);
    return true;
  }

  /** The time of the attempt is up. */
  expire(timeoutMs: number): void {
    const proxyError =
      this.#status === 0 && this.#controller === undefined ? 'connection_timeout' : 'http_response_timeout';
    this.#abort(
      new GatewayError('upstream-timeout', { proxyError, reason: `no whole answer within ${timeoutMs} ms` }),
    );
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    // undici may still have to connect when the caller leaves; the exchange then ends before it begins.
    if (this.#settled) controller.abort(asError(this.#abortedWith));
  }

  onResponseStart(
    controller: Dispatcher.DispatchController,
    status: number,
    headers: IncomingHttpHeaders,
  ): void {
    // Interim responses (1xx) say nothing yet. Undici gives 101 only where an upgrade was asked for: never.
    if (status < 200) return;
    this.#status = status;
    // Undici makes no undefined values; only its type allows them.
    this.#headers = headers as HeaderFields;
    this.#trace.upstreamStatus = status;
    const refusal = refusalOfHead(status, this.#headers, this.#limits);
    if (refusal !== undefined) {
      this.#refuse(refusal.reason, refusal.proxyError);
      return;
    }
    const declared = Number(headers['content-length'] ?? 0);
    this.#declaredBytes = Number.isSafeInteger(declared) ? declared : 0;
    this.#share = this.#budget.reserve(this.#declaredBytes, () => {
      // Not at once: another exchange's end is what makes room, and undici's parser is still at work on that one.
      queueMicrotask(() => controller.resume());
    });
    if (!this.#share.isReady) controller.pause();
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#settled) return;
    this.#receivedBytes += chunk.length;
    if (this.#receivedBytes > this.#limits.maxBodyBytes) {
      this.#refuse('a body over UPSTREAM_MAX_BODY', 'http_response_body_size');
    } else if (this.#receivedBytes > this.#declaredBytes && this.#share?.grow(chunk.length) === false) {
      this.#abort(
        new GatewayError('overloaded', { retryAfterMs: 1_000, reason: 'too many bodies in flight' }),
      );
    } else {
      this.#chunks.push(chunk);
    }
  }

  onResponseEnd(): void {
    if (this.#settled) return;
    const body = ownBytes(this.#chunks, this.#receivedBytes);
    if (!isWhole(this.#status, this.#headers, body)) {
      this.#refuse('a success whose body is not whole', 'http_response_incomplete');
      return;
    }
    this.#settle(this.#status);
    this.#resolve({
      status: this.#status,
      headers: this.#headers,
      body,
      sentMs: this.#sentMs,
      receivedMs: performance.now(),
      receivedAt: Date.now(),
      generation: this.#request.generation,
      encoded: undefined,
      derived: undefined,
    });
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.#fail(transportFailure(error, this.#status !== 0));
  }

  /** Nobody waits any more. */
  onEnd(reason: Error): void {
    this.#abort(reason);
  }

  #refuse(reason: string, proxyError: GatewayError['proxyError'] & string): void {
    this.#abort(
      new GatewayError('upstream-invalid-response', { reason, proxyError, receivedStatus: this.#status }),
    );
  }

  #abort(error: unknown): void {
    this.#abortedWith = error;
    this.#fail(error);
    this.#controller?.abort(asError(error));
  }

  #fail(error: unknown): void {
    if (this.#settled) return;
    this.#settle(error);
    this.#reject(error);
  }

  #settle(outcome: unknown): void {
    this.#settled = true;
    clearTimeout(this.#timer);
    this.#request.claim.unwatch(this);
    this.#share?.release();
    const ms = performance.now() - this.#sentMs;
    this.#trace.upstreamMs += ms;
    this.#tally?.ended(this.#request.operation, outcome, ms);
  }
}

function expire(attempt: Attempt, timeoutMs: number): void {
  attempt.expire(timeoutMs);
}

/** Whether a success is all there. Errors pass with whatever body they have. */
function isWhole(status: number, headers: HeaderFields, body: Buffer): boolean {
  if (status >= 300 || status === 204) return true;
  if (endsWithConnection(status, headers)) return isWholeJson(body);
  return !isJsonType(singleField(headers, 'content-type')) || isClosedJson(body);
}

/** A read from a socket may be a small window on a large buffer, which a stored answer would keep alive. */
const sharedBytesTolerated = 1_024;

/** The chunks as one buffer that holds (nearly) nothing else. */
function ownBytes(chunks: readonly Buffer[], length: number): Buffer {
  const [first] = chunks;
  if (
    chunks.length === 1 &&
    first !== undefined &&
    first.buffer.byteLength - length <= sharedBytesTolerated
  ) {
    return first;
  }
  // Not from the pool: a pooled buffer keeps its whole slab alive.
  const whole = Buffer.allocUnsafeSlow(length);
  let offset = 0;
  for (const chunk of chunks) offset += chunk.copy(whole, offset);
  return whole;
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error('the exchange was given up');
}
