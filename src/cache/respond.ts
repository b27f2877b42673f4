/** Makes the response to a request: from the store, where a hit builds nothing but the facts for the trace, or from an exchange. */
import { GatewayError } from '../errors.ts';
import type { Answer, UpstreamRequest } from '../exchange/exchange.ts';
import type { CacheOutcome, Trace } from '../exchange/trace.ts';
import type { Variant } from './answer-store.ts';
import { isServerFailure, isServerFailureCode, type RequestDirectives } from './cache-rules.ts';
import type { ExchangeOutcome, ResponseAdmission } from './store-response.ts';

/** The facts of a request that was forwarded and is served a stored answer all the same. */
type Forward = Pick<CacheOutcome, 'forwarded' | 'forwardStatus' | 'collapsed'>;

/**
 * Returns the stored answer: the same object every time.
 *
 * @param nowMs monotonic
 * @param detail the token of `Cache-Status` that says why the answer was served, where it was not simply fresh
 */
export function serveStored(
  variant: Variant,
  trace: Trace,
  nowMs: number,
  detail: string | undefined,
  forward?: Forward,
): Answer {
  const { answer, policy } = variant;
  const token = detail ?? (policy.exactRequestOnly ? 'negative' : undefined);
  const ttlSeconds = Math.floor((policy.freshUntilMs - nowMs) / 1000);
  trace.cache =
    token === undefined && forward === undefined
      ? { hit: true, ttlSeconds }
      : {
          hit: forward === undefined,
          ...forward,
          // A number always: an answer that must be validated each time is never served from the store.
          ttlSeconds,
          ...(token === undefined ? undefined : { detail: token }),
        };
  variant.usedMs = nowMs;
  trace.ageSeconds = wholeSeconds(nowMs - policy.ageZeroMs);
  trace.generation = answer.generation;
  return answer;
}

function wholeSeconds(ms: number): number {
  return Math.max(0, Math.floor(ms / 1000));
}

export type Forwarded = NonNullable<CacheOutcome['forwarded']>;

/** A request that is not served from the store, and why. */
export interface Miss {
  readonly request: UpstreamRequest;
  readonly trace: Trace;
  readonly directives: RequestDirectives | undefined;
  readonly forwarded: Forwarded;
  /** It shared the exchange of another request (`true`), or tried to and could not (`false`). */
  readonly collapsed: boolean | undefined;
}

/** Writes on the trace how the answer came about. Throws what the exchange failed with, unless a stale answer serves. */
export type Respond = (outcome: ExchangeOutcome, miss: Miss) => Answer;

export function respondToMisses(admission: Pick<ResponseAdmission, 'staleIfErrorFor'>): Respond {
  return (outcome, miss) => {
    const { request, trace, forwarded, collapsed } = miss;
    const answered = outcome.kind === 'answered';
    const isForwarded = answered || outcome.sent;
    const stale = isFailure(outcome) ? admission.staleIfErrorFor(request) : undefined;
    if (stale !== undefined) {
      // A hit is what was not forwarded (RFC 9211 section 2.1): here, where nothing was sent.
      const forward = isForwarded ? describeForward(outcome, miss) : undefined;
      return serveStored(stale, trace, performance.now(), 'stale-if-error', forward);
    }
    if (answered && outcome.via === 'store') {
      const { answer, policy } = outcome;
      const nowMs = performance.now();
      // Not forwarded, so a hit (RFC 9211 section 2.1), although not one of this gateway's memory.
      const ttlSeconds = Math.floor((policy.freshUntilMs - nowMs) / 1_000);
      trace.cache = { hit: true, ttlSeconds, detail: 'shared-store' };
      trace.ageSeconds = wholeSeconds(nowMs - policy.ageZeroMs);
      trace.generation = answer.generation;
      return answer;
    }
    const stored = answered && outcome.stored;
    const isCollapsed = answered && outcome.via === 'gateway' ? true : collapsed;
    const forwardStatus = answered ? outcome.forwardStatus : statusBehind(outcome.error);
    trace.cache = {
      hit: false,
      // Nothing went forward where the gateway itself ended the exchange (RFC 9211 section 2.2).
      ...(isForwarded ? { forwarded } : undefined),
      ...(isCollapsed === undefined ? undefined : { collapsed: isCollapsed }),
      ...(stored ? { stored } : undefined),
      ...(isForwarded && forwardStatus !== undefined ? { forwardStatus } : undefined),
    };
    if (!answered) throw outcome.error;
    const { answer, policy } = outcome;
    trace.generation = answer.generation;
    // An answer from another cache in between brings its age along (RFC 9111 section 5.1).
    const ageSeconds = wholeSeconds(performance.now() - policy.ageZeroMs);
    if (ageSeconds > 0) trace.ageSeconds = ageSeconds;
    return answer;
  };
}

function describeForward(outcome: ExchangeOutcome, { forwarded, collapsed }: Miss): Forward {
  const status = outcome.kind === 'answered' ? outcome.answer.status : statusBehind(outcome.error);
  return {
    forwarded,
    ...(collapsed === undefined ? undefined : { collapsed }),
    ...(status === undefined ? undefined : { forwardStatus: status }),
  };
}

function isFailure(outcome: ExchangeOutcome): boolean {
  if (outcome.kind === 'answered') return isServerFailure(outcome.answer.status);
  return outcome.error instanceof GatewayError && isServerFailureCode(outcome.error.code);
}

function statusBehind(error: unknown): number | undefined {
  return error instanceof GatewayError ? error.receivedStatus : undefined;
}
