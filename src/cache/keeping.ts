/**
 * What becomes of an answer that has arrived: judged by the policies, kept where it may be, shared with whom it
 * fits, compressed afterwards.
 */
import { GatewayError } from '../errors.ts';
import type { Answer, UpstreamRequest } from '../exchange.ts';
import { type AnswerStore, compact, selectVariant, type Variant } from './answer-store.ts';
import { cacheKey } from './cache-key.ts';
import { type AnswerPolicy, type CacheDefaults, isCommonCode, isTrouble, policyOf } from './cache-policy.ts';
import { createCompressor, mayCompress } from './compress.ts';
import { selection, varyNames, wholeSelection } from './vary-policy.ts';

/** How long reads whose answers fit one request each go up at once, each on its own. An answer that may be shared ends it. */
const unshareableForMs = 10_000;

/** What one exchange brought, for all who waited. */
export type Outcome =
  | {
      readonly kind: 'failed';
      readonly error: unknown;
      /** Something went up; else the gate, the circuit or the key ended it here. */
      readonly sent: boolean;
      /** Whether it is the failure of a request that waited as well. */
      fits(request: UpstreamRequest): boolean;
    }
  | {
      readonly kind: 'answered';
      /** For the request that went up. */
      readonly answer: Answer;
      /** For the others; `undefined` where the answer is for one request only. */
      readonly shared: Answer | undefined;
      readonly policy: AnswerPolicy;
      /** Whether a request that waited may have it. */
      fits(request: UpstreamRequest): boolean;
      readonly stored: boolean;
      /** 304 where a stored answer was confirmed. */
      readonly forwardStatus: number | undefined;
    };

export interface Keeping {
  /**
   * Judges an answer, keeps what may be kept, and says who may have it.
   *
   * @param forwardStatus 304 where a stored answer was confirmed
   */
  judge(
    request: UpstreamRequest,
    received: Answer,
    forwardStatus: number | undefined,
    mayStore: boolean,
  ): Outcome;
  /** The stored answer that may stand in for a failure now (RFC 5861 section 4). */
  staleFor(request: UpstreamRequest): Variant | undefined;
  /** Bodies waiting to be compressed. */
  readonly compressing: number;
  /** Drops what waits to be compressed. */
  close(): void;
}

/** @param generation the key generation that reads are made with now */
export function keepAnswers(
  store: AnswerStore,
  defaults: CacheDefaults,
  generation: () => number | undefined,
): Keeping {
  const compressor = createCompressor();

  function judge(
    request: UpstreamRequest,
    received: Answer,
    forwardStatus: number | undefined,
    mayStore: boolean,
  ): Outcome {
    const policy = policyOf(received, defaults);
    const names = varyNames(received.headers['vary'], request);
    const trouble = isTrouble(received.status);
    const isForAnyone = policy.shareable && names !== '*';
    const kept = keepable(received, policy);
    const key = cacheKey(request, received.generation);
    // No key holds what may have caused it: it is this request's alone, and says nothing about the read.
    if (policy.wholeRequest && request.hasCallerIds === true) {
      return {
        kind: 'answered',
        answer: received,
        shared: undefined,
        policy,
        fits: () => false,
        stored: false,
        forwardStatus,
      };
    }
    let stored = false;
    if (policy.wholeRequest && goodFor(request, key, trouble) !== undefined) {
      // Whatever it allows of itself, it takes the place of no answer that is better.
    } else if (mayStore && names !== '*' && policy.storable) {
      stored = store.put(key, request, kept, policy, names);
      if (stored) offerEncodings(key, kept);
    } else if (!trouble && mayStore) {
      // The upstream has said something newer about this read than what is held.
      store.drop(key, request.headers);
    }
    if (isForAnyone) store.unmark(key, request);
    else if (!trouble) store.markUnshareable(key, request, performance.now() + unshareableForMs);
    const sayingOf = ({ headers }: UpstreamRequest): string =>
      policy.wholeRequest ? wholeSelection(headers) : selection(names === '*' ? [] : names, headers);
    const said = sayingOf(request);
    return {
      kind: 'answered',
      answer: policy.withheld.length === 0 ? kept : received,
      // A failure is shared by all whom it fits, whatever it says of itself: asking again would not help them.
      shared: isForAnyone || trouble ? kept : undefined,
      policy,
      fits: (other) => received.status === 429 || said === sayingOf(other),
      stored,
      forwardStatus,
    };
  }

  /** To be made when somebody wants them: most answers are asked for once, or by programs that take no coding. */
  function offerEncodings(key: string, { encoded }: Answer): void {
    // Renewals of one answer share the place, and what was tried for it.
    if (encoded === undefined || 'want' in encoded) return;
    const want = (): void => {
      const isTaken = compressor.add(
        () => {
          const body = store.bodyOf(key, encoded);
          // Not there when its turn came; it may be kept again.
          if (body === undefined) encoded.want = want;
          return body;
        },
        (br, gzip) => store.addEncodings(key, encoded, br, gzip),
      );
      if (isTaken) encoded.want = undefined;
    };
    encoded.want = want;
  }

  /** The stored answer that a request gets rather than an error: a fresh one, or a stale one where the upstream fails. */
  function goodFor(request: UpstreamRequest, key: string, trouble: boolean): Variant | undefined {
    const resource = store.get(key);
    const variant = resource === undefined ? undefined : selectVariant(resource, request.headers);
    if (variant === undefined) return undefined;
    const { wholeRequest, freshUntilMs, staleIfErrorUntilMs } = variant.policy;
    if (trouble ? isTrouble(variant.answer.status) : wholeRequest) return undefined;
    const untilMs = trouble ? Math.max(freshUntilMs, staleIfErrorUntilMs) : freshUntilMs;
    return performance.now() < untilMs ? variant : undefined;
  }

  return {
    judge,
    staleFor: (request) => goodFor(request, cacheKey(request, generation()), true),
    get compressing() {
      return compressor.waiting;
    },
    close: () => compressor.clear(),
  };
}

/** The outcome of an exchange that brought no answer. */
export function failed(request: UpstreamRequest, error: unknown, sent: boolean): Outcome {
  const whole = wholeSelection(request.headers);
  const isCommon = error instanceof GatewayError && isCommonCode(error.code);
  const isOwn = request.hasCallerIds === true;
  return {
    kind: 'failed',
    error,
    sent,
    fits: ({ headers }) => isCommon || (!isOwn && wholeSelection(headers) === whole),
  };
}

/** The answer as others may see it and as it may be held. */
function keepable(answer: Answer, policy: AnswerPolicy): Answer {
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
