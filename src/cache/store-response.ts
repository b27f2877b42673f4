/**
 * Stores the response of an exchange where the policies allow it, and says which requests may share it. Stored bodies are
 * compressed in the background, one at a time.
 */
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import { GatewayError } from '../errors.ts';
import type { Answer, UpstreamRequest } from '../exchange/exchange.ts';
import { fieldValue } from '../http/fields.ts';
import { bufferOf, ownBytes, type Payload } from '../http/payload.ts';
import { type AnswerStore, compact, selectVariant, type Variant } from './answer-store.ts';
import { hasDirective, parseCacheControl } from './cache-control.ts';
import { cacheKey, exactRequestKey, repeatsIds, selection, type VaryNames, varyNames } from './cache-key.ts';
import {
  type AnswerPolicy,
  type CacheDefaults,
  isCommonCode,
  isServerFailure,
  judgeAnswer,
} from './cache-rules.ts';

/** How long requests are not coalesced after an answer for one request alone. An answer that may be shared ends it. */
export const hitForMissMs = 10_000;

/** What one exchange brought, for all requests that shared it. */
export type ExchangeOutcome = FailedOutcome | AnsweredOutcome;

interface FailedOutcome {
  readonly kind: 'failed';
  readonly error: unknown;
  /** A request was sent; otherwise the gate, the circuit or the key ended the exchange in the gateway. */
  readonly sent: boolean;
  /** Whether the failure is also that of another request which shared the exchange. */
  fits(request: UpstreamRequest): boolean;
}

interface AnsweredOutcome {
  readonly kind: 'answered';
  /** For the request that was sent. */
  readonly answer: Answer;
  /** For the other requests; `undefined` where the answer is for one request only. */
  readonly shared: Answer | undefined;
  readonly policy: AnswerPolicy;
  /** Whether another request which shared the exchange may have the answer. */
  fits(request: UpstreamRequest): boolean;
  readonly stored: boolean;
  /** The ids of its caller may have made it what it is: it tells other requests nothing. */
  readonly isDueToIds: boolean;
  /** 304 where a stored answer was confirmed. */
  readonly forwardStatus: number | undefined;
  /** Another gateway fetched it: it lay in the shared `store`, or came from an exchange that this `gateway` waited for. */
  readonly via?: 'store' | 'gateway';
}

export interface AdmissionOptions extends CacheDefaults {
  /** The key generation that reads are made with now; `undefined` while there is no key. */
  generation(): number | undefined;
  /** Whether callers see this field of an answer; all of them where it is left out. */
  readonly passesDown?: ((field: string) => boolean) | undefined;
}

export class ResponseAdmission {
  readonly defaults: CacheDefaults;
  readonly #store: AnswerStore;
  readonly #generation: () => number | undefined;
  readonly #passesDown: (field: string) => boolean;
  readonly #compressor = createCompressor();

  constructor(store: AnswerStore, options: AdmissionOptions) {
    this.#store = store;
    this.defaults = options;
    this.#generation = options.generation;
    this.#passesDown = options.passesDown ?? (() => true);
  }

  /** Bodies waiting to be compressed. */
  get compressing(): number {
    return this.#compressor.waiting;
  }

  /** Drops the bodies that wait to be compressed. */
  close(): void {
    this.#compressor.clear();
  }

  /**
   * Stores a response where that is allowed, and decides which requests may have it.
   *
   * @param forwardStatus 304 where a stored answer was confirmed
   * @param mayStore false where every request that shared the exchange said `no-store`
   */
  admit(
    request: UpstreamRequest,
    answer: Answer,
    forwardStatus: number | undefined,
    mayStore: boolean,
  ): ExchangeOutcome {
    // A 304 may forbid the encodings of the answer that it confirmed.
    const received =
      answer.encoded === undefined || mayCompress(answer) ? answer : { ...answer, encoded: undefined };
    const policy = judgeAnswer(received, this.defaults);
    // No key holds the ids that may have caused the error, or stand in the answer: it says nothing about the read.
    if (request.callerIds !== undefined && this.#mayBeDueTo(request.callerIds, received, policy)) {
      const unshared = { shared: undefined, fits: () => false, stored: false, isDueToIds: true };
      return { kind: 'answered', answer: received, policy, forwardStatus, ...unshared };
    }
    const names = varyNames(received.headers['vary']);
    const isFailure = isServerFailure(received.status);
    const isShareable = policy.shareable && names !== '*';
    const kept = storableAnswer(received, policy);
    const key = cacheKey(request, received.generation);
    const stored = mayStore && this.#storeOrDrop(key, request, kept, policy, names);
    if (isShareable) this.#store.clearHitForMiss(key, request);
    else if (!isFailure) this.#store.markHitForMiss(key, request, performance.now() + hitForMissMs);
    const select = ({ headers }: UpstreamRequest): string =>
      policy.exactRequestOnly ? exactRequestKey(headers) : selection(names === '*' ? [] : names, headers);
    const selected = select(request);
    return {
      kind: 'answered',
      answer: policy.withheld.length === 0 ? kept : received,
      // A server failure is shared whatever it says of itself: asking again would not help the other requests.
      shared: isShareable || isFailure ? kept : undefined,
      policy,
      fits: (other) => received.status === 429 || selected === select(other),
      stored,
      isDueToIds: false,
      forwardStatus,
    };
  }

  #mayBeDueTo(
    ids: NonNullable<UpstreamRequest['callerIds']>,
    answer: Answer,
    { exactRequestOnly, shareable, storable }: AnswerPolicy,
  ): boolean {
    return exactRequestOnly || ((shareable || storable) && repeatsIds(answer, ids, this.#passesDown));
  }

  /** The stored answer that fits a request, of any age. */
  variantFor(request: UpstreamRequest): Variant | undefined {
    return this.#select(cacheKey(request, this.#generation()), request);
  }

  /** The stored answer that a request gets now if the upstream fails (RFC 5861 section 4). */
  staleIfErrorFor(request: UpstreamRequest): Variant | undefined {
    return this.#insteadOfFailure(cacheKey(request, this.#generation()), request);
  }

  /** Returns whether the answer is stored. */
  #storeOrDrop(
    key: string,
    request: UpstreamRequest,
    kept: Answer,
    policy: AnswerPolicy,
    names: VaryNames,
  ): boolean {
    const isFailure = isServerFailure(kept.status);
    // An error is not stored in front of an answer that requests get rather than the error.
    if (policy.exactRequestOnly) {
      const other = isFailure ? this.#insteadOfFailure(key, request) : this.#freshAnswer(key, request);
      if (other !== undefined) return false;
    }
    if (policy.storable && names !== '*') {
      const stored = this.#store.put(key, request, kept, policy, names);
      if (stored) this.#offerEncodings(key, kept);
      return stored;
    }
    // The upstream's latest word about the read is not what is stored.
    if (!isFailure) this.#store.drop(key, request.headers);
    return false;
  }

  #select(key: string, request: UpstreamRequest): Variant | undefined {
    const resource = this.#store.get(key, request.context.flow.name, performance.now());
    return resource === undefined ? undefined : selectVariant(resource, request.headers);
  }

  /** A stored answer that is no error and is fresh: requests get it rather than a 404. */
  #freshAnswer(key: string, request: UpstreamRequest): Variant | undefined {
    const variant = this.#select(key, request);
    if (variant === undefined || variant.policy.exactRequestOnly) return undefined;
    return performance.now() < variant.policy.freshUntilMs ? variant : undefined;
  }

  /** A stored answer that is fresh, or may be served stale because the upstream fails. */
  #insteadOfFailure(key: string, request: UpstreamRequest): Variant | undefined {
    const variant = this.#select(key, request);
    if (variant === undefined || isServerFailure(variant.answer.status)) return undefined;
    const { freshUntilMs, staleIfErrorUntilMs } = variant.policy;
    return performance.now() < Math.max(freshUntilMs, staleIfErrorUntilMs) ? variant : undefined;
  }

  /** Compresses on demand: most answers are read once, or by programs that accept no coding. */
  #offerEncodings(key: string, { encoded }: Answer): void {
    // Renewals of one answer share its encodings, and what was tried for them.
    if (encoded === undefined || 'want' in encoded) return;
    const want = (): void => {
      const isQueued = this.#compressor.add(
        () => {
          const body = this.#store.findBody(key, encoded);
          // Evicted meanwhile; the answer may be stored again.
          if (body === undefined) encoded.want = want;
          return body;
        },
        (br, gzip) => this.#store.addEncodings(key, encoded, br, gzip),
      );
      if (isQueued) encoded.want = undefined;
    };
    encoded.want = want;
  }
}

/** The outcome of an exchange that brought no answer. */
export function failedOutcome(request: UpstreamRequest, error: unknown, sent: boolean): ExchangeOutcome {
  const exactRequest = exactRequestKey(request.headers);
  const isCommon = error instanceof GatewayError && isCommonCode(error.code);
  const mayBeDueToIds = request.callerIds !== undefined;
  return {
    kind: 'failed',
    error,
    sent,
    fits: ({ headers }) => isCommon || (!mayBeDueToIds && exactRequestKey(headers) === exactRequest),
  };
}

/** The answer as it may be stored and as other requests may see it. */
function storableAnswer(answer: Answer, policy: AnswerPolicy): Answer {
  let { headers } = answer;
  if (policy.withheld.length > 0) {
    const withheld = new Set(policy.withheld);
    headers = Object.fromEntries(Object.entries(headers).filter(([name]) => !withheld.has(name)));
  }
  if (!policy.storable && headers === answer.headers) return answer;
  const { status, sentMs, receivedMs, receivedAt, generation } = answer;
  const body = policy.storable ? compact(answer.body) : answer.body;
  const encoded = policy.storable && mayCompress(answer) ? (answer.encoded ?? {}) : undefined;
  return { status, headers, body, sentMs, receivedMs, receivedAt, generation, encoded, derived: undefined };
}

const gzipBody = promisify(gzip);
const brotliBody = promisify(brotliCompress);

/** Below this a coding saves less than its fields cost. */
const minBytes = 1024;

/** With this many queued, further bodies stay uncompressed until they are asked for again. */
const maxQueued = 256;

const compressible =
  /^(?:text\/[^;]+|[^;]*[/+](?:json|xml)|application\/(?:x-ndjson|javascript))[\t ]*(?:;|$)/i;

/** Whether an answer may be given in codings at all: such an answer says `Vary: Accept-Encoding`. */
export function mayCompress({ status, headers, body }: Pick<Answer, 'status' | 'headers' | 'body'>): boolean {
  return (
    status >= 200 &&
    body.length >= minBytes &&
    headers['content-encoding'] === undefined &&
    compressible.test(fieldValue(headers['content-type']) ?? '') &&
    // RFC 9110 section 7.7: no-transform forbids it, however it is spelled.
    !hasDirective(parseCacheControl(headers['cache-control']), 'no-transform')
  );
}

/** Gets the compressed bodies; a coding that saves nothing is left out. */
export type OnCompressed = (br: Buffer | undefined, gzip: Buffer | undefined) => void;

/** A queued job holds no body: it fetches its own when its turn comes. */
interface Job {
  /** `undefined` where the body is no longer stored: there is nothing to do. */
  readonly body: () => Payload | undefined;
  readonly done: OnCompressed;
}

/** The last job of any queue: the next begins after it. Queues take turns, each with one job. */
let lastJob: Promise<unknown> = Promise.resolve();

function inTurn<T>(job: () => Promise<T>): Promise<T> {
  const own = lastJob.then(job);
  lastJob = own.catch(() => undefined);
  return own;
}

/** A queue of bodies to compress. One at a time of all queues: DNS and files share the same few threads. */
export function createCompressor() {
  const waiting: Job[] = [];
  let running = false;

  async function compress(job: Job): Promise<void> {
    const held = job.body();
    if (held === undefined) return;
    const body = bufferOf(held);
    const params = {
      [constants.BROTLI_PARAM_QUALITY]: 5,
      [constants.BROTLI_PARAM_SIZE_HINT]: body.byteLength,
      [constants.BROTLI_PARAM_MODE]: constants.BROTLI_MODE_TEXT,
    };
    try {
      const br = await brotliBody(body, { params });
      const zipped = await gzipBody(body);
      job.done(worthwhile(br, body), worthwhile(zipped, body));
    } catch {
      // No memory for it: the answer stays uncompressed.
    }
  }

  async function run(): Promise<void> {
    running = true;
    for (let job = waiting.shift(); job !== undefined; job = waiting.shift()) {
      const next = job;
      await inTurn(() => compress(next));
    }
    running = false;
  }

  return {
    /**
     * Queues a body; `false` where the queue is full.
     *
     * @param body returns it when its turn comes: a body held here after its eviction would be counted nowhere
     */
    add(body: Job['body'], done: OnCompressed): boolean {
      if (waiting.length >= maxQueued) return false;
      waiting.push({ body, done });
      if (!running) void run();
      return true;
    },
    /** Bodies queued, and the one under way. */
    get waiting(): number {
      return waiting.length + (running ? 1 : 0);
    },
    clear(): void {
      waiting.length = 0;
    },
  };
}

// zlib returns parts of larger buffers; stored for long they must hold no more than their own bytes.
function worthwhile(coded: Buffer, body: Buffer): Buffer | undefined {
  return coded.byteLength >= body.byteLength ? undefined : ownBytes(coded);
}
