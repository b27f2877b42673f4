/**
 * One attempt: what undici reports of an exchange, made into an answer or a failure. The body is read whole, within its
 * bounds, and checked before it is handed up.
 */
import type { IncomingHttpHeaders } from 'node:http';
import type { Dispatcher } from 'undici';
import { connectionFault, GatewayError, type ProblemCode, type ProxyErrorType } from '../errors.ts';
import { type Answer, hasNoContent, type SignedRequest } from '../exchange/exchange.ts';
import { ProxyError } from '../exchange/proxy.ts';
import type { ContextWatcher } from '../exchange/request-context.ts';
import type { AttemptSpan, AttemptSpans, Trace } from '../exchange/trace.ts';
import { type HeaderFields, trimFields } from '../http/fields.ts';
import { GatheredBytes, payloadOf } from '../http/payload.ts';
import { statedWait } from '../http/stated-wait.ts';
import { type AttemptTally, outcomeLabel } from './attempt-tally.ts';
import type { BodyBudget, BodyShare } from './budgets.ts';
import { asAskedAbout, asIdentity, codingOf, decode, type UpstreamCoding } from './content-coding.ts';
import { invalidHead, isWhole, type ResponseLimits } from './response.ts';

/** What attempts have in common. */
export interface AttemptTerms {
  readonly limits: ResponseLimits;
  readonly budget: BodyBudget;
  readonly tally: AttemptTally | undefined;
  readonly spans: AttemptSpans | undefined;
  /** Further fields that say how long to wait. Lower-case names. */
  readonly limitFields: readonly string[];
  /** When a request was last written to a connection. */
  readonly connections: { lastUsedMs: number };
}

/** One attempt as undici sees it: a handler of its events, and the timers around it. */
export class Attempt implements Dispatcher.DispatchHandler, ContextWatcher {
  readonly #request: SignedRequest;
  readonly #trace: Trace;
  readonly #terms: AttemptTerms;
  readonly #result = Promise.withResolvers<Answer>();
  readonly #sentMs = performance.now();
  #span: AttemptSpan | undefined;
  #timer: NodeJS.Timeout | undefined;
  #timeoutMs = 0;
  #controller: Dispatcher.DispatchController | undefined;
  #abortedWith: unknown;
  #settled = false;
  #status = 0;
  #headers: HeaderFields = {};
  #share: BodyShare | undefined;
  #hasWaitedForRoom = false;
  #declaredBytes = 0;
  readonly #body = new GatheredBytes();

  constructor(request: SignedRequest, trace: Trace, terms: AttemptTerms) {
    this.#request = request;
    this.#trace = trace;
    this.#terms = terms;
  }

  /** The answer, whole and checked. Rejects with the gateway's failure, or the reason of a context that has ended. */
  get answer(): Promise<Answer> {
    return this.#result.promise;
  }

  /**
   * Request and trace ids to send. Where spans are exported, the attempt's own is the upstream's parent, unless the
   * caller chose the trace and this exchange leaves out what callers choose.
   */
  get ids(): Readonly<Record<string, string>> {
    const { ids } = this.#request;
    if (this.#span === undefined) return ids;
    if (this.#trace.traceParent !== undefined && ids['traceparent'] === undefined) return ids;
    return { ...ids, traceparent: this.#span.traceParent };
  }

  /** Starts the clock; `false` where the context has ended and nothing is to be sent. */
  begin(timeoutMs: number): boolean {
    const { context, operation } = this.#request;
    const background = context.flows.every((flow) => flow.background);
    this.#terms.tally?.begun(this.#trace.attempts, background);
    this.#span = this.#terms.spans?.beginAttempt(this.#trace, operation, background);
    this.#trace.attempts += 1;
    if (context.ended !== undefined) {
      this.#fail(context.ended);
      return false;
    }
    context.watch(this);
    this.#timeoutMs = timeoutMs;
    this.#startTimer();
    return true;
  }

  #startTimer(): void {
    this.#timer = setTimeout(expire, this.#timeoutMs, this, this.#timeoutMs);
  }

  /** The time of the attempt is up. */
  expire(timeoutMs: number): void {
    const reason = `no whole answer within ${timeoutMs} ms`;
    this.#abort(new GatewayError('upstream-timeout', { proxyError: this.#timeoutKind(), reason }));
  }

  #timeoutKind(): ProxyErrorType {
    if (this.#controller !== undefined) return 'http_response_timeout';
    // Others got a connection meanwhile: this attempt waited for a free one.
    const { lastUsedMs } = this.#terms.connections;
    return lastUsedMs >= this.#sentMs ? 'connection_limit_reached' : 'connection_timeout';
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    this.#terms.connections.lastUsedMs = performance.now();
    // undici may still have to connect when the caller leaves; the exchange then ends before it begins.
    if (this.#settled) controller.abort(asError(this.#abortedWith));
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: IncomingHttpHeaders,
  ): void {
    // Interim responses (1xx) say nothing yet. Undici gives 101 only where an upgrade was asked for: never.
    if (status < 200) return;
    this.#status = status;
    // Undici makes no undefined values; only its type allows them.
    this.#headers = trimFields(headers as HeaderFields);
    this.#trace.upstreamStatus = status;
    const invalid = invalidHead(status, this.#headers, this.#terms.limits);
    if (invalid !== undefined) {
      this.#refuse(invalid.reason, invalid.proxyError);
      return;
    }
    const declared = Number(this.#headers['content-length'] ?? 0);
    this.#declaredBytes = Number.isSafeInteger(declared) ? declared : 0;
    const { context } = this.#request;
    const callers = (): string[] => context.flows.map(({ name }) => name);
    this.#share = this.#terms.budget.reserve(callers, this.#declaredBytes, () => this.#resume());
    if (!this.#share.isReady) this.#pause();
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#settled) return;
    const receivedBytes = this.#body.length + chunk.length;
    if (receivedBytes > this.#terms.limits.maxBodyBytes) {
      this.#refuse(tooLarge, 'http_response_body_size');
      return;
    }
    this.#body.add(chunk, this.#declaredBytes);
    const isMore = receivedBytes > this.#declaredBytes;
    if (isMore && this.#share?.extend(chunk.length, () => this.#resume()) === false) this.#pause();
  }

  #pause(): void {
    this.#controller?.pause();
    this.#waitForRoom();
  }

  #waitForRoom(): void {
    this.#hasWaitedForRoom = true;
    // It is not the upstream that is late while others hold all room.
    clearTimeout(this.#timer);
  }

  #resume(): void {
    clearTimeout(this.#timer);
    this.#startTimer();
    // Not at once: another exchange's end is what makes room, and undici's parser is still at work on that one.
    queueMicrotask(() => this.#controller?.resume());
  }

  onResponseEnd(): void {
    if (this.#settled) return;
    const coding = codingOf(this.#headers) ?? 'identity';
    if (coding === 'identity') this.#finish(this.#body.whole(), this.#headers);
    else if (this.#status === 304) this.#finish(Buffer.alloc(0), this.#headers);
    // An error without a body has nothing to decode; a success has to show a whole one.
    else if (this.#body.length === 0 && (hasNoContent(this.#status) || this.#status >= 300)) {
      this.#finish(Buffer.alloc(0), asIdentity(this.#headers, 0));
    } else void this.#decode(coding);
  }

  async #decode(coding: UpstreamCoding): Promise<void> {
    let bytes = 0;
    const take = async (more: number): Promise<void> => {
      if (this.#settled) throw asError(this.#abortedWith);
      bytes += more;
      if (bytes > this.#terms.limits.maxBodyBytes) throw this.#invalid(tooLarge, 'http_response_body_size');
      await this.#roomFor(more);
    };
    try {
      const decoded = await decode(coding, this.#body.parts, take);
      if (!this.#settled) this.#finish(decoded.whole(), asIdentity(this.#headers, bytes));
    } catch (error) {
      const reason = `a body that is not whole in its content coding: ${asError(error).message}`;
      this.#abort(
        error instanceof GatewayError ? error : this.#invalid(reason, 'http_response_content_coding'),
      );
    }
  }

  /** Where the attempt ends before there is room, this waits for ever, and is collected with the attempt. */
  #roomFor(decodedBytes: number): Promise<void> | undefined {
    const { promise, resolve } = Promise.withResolvers<void>();
    const resume = (): void => {
      this.#startTimer();
      resolve();
    };
    if (this.#share?.extend(decodedBytes, resume) !== false) return undefined;
    this.#waitForRoom();
    return promise;
  }

  #finish(bytes: Buffer, headers: HeaderFields): void {
    if (!isWhole(this.#status, this.#headers, bytes)) {
      this.#refuse('a success whose body is not whole', 'http_response_incomplete');
      return;
    }
    const askedAbout = this.#status === 304 ? this.#request.validators?.['if-none-match'] : undefined;
    const receivedAt = Date.now();
    // Of the fields as received: the wait is read here once, for all who wait.
    const stated = statedWait(
      { status: this.#status, headers: this.#headers, receivedAt },
      this.#terms.limitFields,
    );
    this.#terms.tally?.unreadable(stated.unreadable);
    this.#settle(this.#status);
    const give = (): void => this.#share?.release();
    if (this.#request.keepRoom === undefined) give();
    else this.#request.keepRoom(give);
    this.#result.resolve({
      status: this.#status,
      headers: asAskedAbout(headers, askedAbout),
      body: payloadOf(bytes),
      sentMs: this.#sentMs,
      receivedMs: performance.now(),
      receivedAt,
      generation: this.#request.generation,
      statedWaitMs: stated.waitMs,
      encoded: undefined,
      derived: undefined,
    });
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    const progress = this.#controller === undefined ? 'connecting' : this.#status === 0 ? 'sent' : 'begun';
    this.#fail(transportFailure(error, progress));
  }

  /** The context has ended. */
  onEnd(reason: Error): void {
    // The deadline of one that has waited for room says nothing of the upstream, and must not open the circuit, also where
    // the room came at last: it comes when those before it end, whose deadlines were just as far away.
    this.#abort(this.#hasWaitedForRoom && reason instanceof GatewayError ? noRoom() : reason);
  }

  #refuse(reason: string, proxyError: ProxyErrorType): void {
    this.#abort(this.#invalid(reason, proxyError));
  }

  #invalid(reason: string, proxyError: ProxyErrorType): GatewayError {
    return new GatewayError('upstream-invalid-response', {
      reason,
      proxyError,
      receivedStatus: this.#status,
    });
  }

  #abort(error: unknown): void {
    this.#abortedWith = error;
    this.#fail(error);
    this.#controller?.abort(asError(error));
  }

  #fail(error: unknown): void {
    if (this.#settled) return;
    this.#settle(error);
    this.#share?.release();
    this.#result.reject(error);
  }

  #settle(outcome: unknown): void {
    this.#settled = true;
    clearTimeout(this.#timer);
    this.#request.context.unwatch(this);
    const ms = performance.now() - this.#sentMs;
    this.#trace.upstreamMs += ms;
    this.#terms.tally?.ended(this.#request.operation, outcome, ms);
    this.#span?.end(String(outcomeLabel(outcome)));
  }
}

const tooLarge = 'a body over UPSTREAM_MAX_BODY';

function noRoom(): GatewayError {
  return new GatewayError('overloaded', { retryAfterMs: 1_000, reason: 'too many bodies in flight' });
}

function expire(attempt: Attempt, timeoutMs: number): void {
  attempt.expire(timeoutMs);
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error('the exchange was given up');
}

type Sorted = readonly [code: ProblemCode, proxyError: ProxyErrorType];

/** What undici finds wrong with an answer. */
const invalidAnswers: Readonly<Record<string, ProxyErrorType>> = {
  UND_ERR_HEADERS_OVERFLOW: 'http_response_header_section_size',
  UND_ERR_RES_EXCEEDED_MAX_SIZE: 'http_response_body_size',
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: 'http_response_incomplete',
};

/** How far an exchange had come when it failed. */
type Progress = 'connecting' | 'sent' | 'begun';

function sortFailure(code: string, progress: Progress): Sorted {
  const invalid = code.startsWith('HPE_') ? 'http_protocol_error' : invalidAnswers[code];
  if (invalid !== undefined) return ['upstream-invalid-response', invalid];
  const [type] = connectionFault(code) ?? [];
  if (type !== undefined && type !== 'connection_terminated')
    return [type.endsWith('_timeout') ? 'upstream-timeout' : 'upstream-unreachable', type];
  if (progress === 'connecting') return ['upstream-unreachable', 'connection_refused'];
  // A connection that breaks off before the answer has begun may be tried again; one that breaks off during it leaves an
  // incomplete answer.
  return progress === 'begun'
    ? ['upstream-invalid-response', 'http_response_incomplete']
    : ['upstream-unreachable', 'connection_terminated'];
}

/**
 * The gateway's failure for an error of undici, Node or OpenSSL.
 *
 * @param error what was reported; a `GatewayError` (our own abort) is handed back as it is
 * @param progress `connecting` until the request is written, `begun` from the head of the answer on
 */
function transportFailure(error: unknown, progress: Progress): GatewayError {
  if (error instanceof GatewayError) return error;
  if (error instanceof ProxyError) {
    const { message: reason, type: proxyError } = error;
    return new GatewayError('upstream-unreachable', { cause: error, proxyError, reason });
  }
  const code = codeOf(error);
  const [problem, proxyError] = sortFailure(code, progress);
  const reason = `the exchange failed${code === '' ? '' : `: ${code}`}`;
  return new GatewayError(problem, { cause: error, proxyError, reason });
}

/** The code of an error, or of the first that an `AggregateError` (several addresses tried) or a cause holds. */
function codeOf(error: unknown): string {
  if (typeof error !== 'object' || error === null) return '';
  // Undici's parser has no codes, but a name of its own.
  if ('name' in error && error.name === 'HTTPParserError') return 'HPE_PARSER';
  // Its word for an answer to nothing we asked, such as a 100 without an Expect.
  if ('message' in error && error.message === 'bad response') return 'HPE_PARSER';
  if ('code' in error && typeof error.code === 'string' && error.code !== 'UND_ERR_SOCKET') return error.code;
  if (error instanceof AggregateError) return codeOf(error.errors[0]);
  return 'cause' in error ? codeOf(error.cause) : '';
}
