/**
 * The exchanges that the cache makes: a plain read, or a revalidation where an answer with validators is stored; and
 * refreshes in the background, where the request that found the answer stale is served and does not wait. The response
 * is admitted to the store before it is returned.
 */
import { GatewayError } from '../errors.ts';
import type { Answer, UpstreamRequest } from '../exchange/exchange.ts';
import type { Handler } from '../exchange/layer.ts';
import { type FixedContext, timedContext } from '../exchange/request-context.ts';
import type { Trace } from '../exchange/trace.ts';
import type { Variant } from './answer-store.ts';
import { confirms, mayBeDueToValidators, readValidators, renew } from './cache-rules.ts';
import type { Flight } from './single-flight.ts';
import { type ExchangeOutcome, failedOutcome, type ResponseAdmission } from './store-response.ts';

/** Whether the answer may be stored. Read when the answer has come: requests that joined meanwhile may have changed it. */
export interface Storing {
  readonly mayStore: boolean;
}

export interface FetchAnswerOptions {
  readonly next: Handler<UpstreamRequest, Answer>;
  readonly admission: Pick<ResponseAdmission, 'admit'>;
  /** How often an operation's answers were purged: an exchange that began before a purge is not stored. */
  countPurges(operation: string): number;
}

/**
 * Never fails: a failure is an outcome.
 *
 * @param variant the stored answer to revalidate
 */
export type FetchAnswer = (
  request: UpstreamRequest,
  trace: Trace,
  variant: Variant | undefined,
  storing: Storing,
) => Promise<ExchangeOutcome>;

export function fetchOrRevalidate({ next, admission, countPurges }: FetchAnswerOptions): FetchAnswer {
  return async (request, trace, variant, storing) => {
    // Only a 200 is worth asking about: the same error again would not tell whether it is about the validators.
    const validators = variant?.answer.status === 200 ? readValidators(variant.answer.headers) : undefined;
    const purgesBefore = countPurges(request.operation);

    const admit = (answer: Answer, forwardStatus?: 304): ExchangeOutcome => {
      if (answer.status === 304) throw unaskedNotModified();
      const mayStore = storing.mayStore && countPurges(request.operation) === purgesBefore;
      return admission.admit(request, answer, forwardStatus, mayStore);
    };
    try {
      const answer = await next(validators === undefined ? request : { ...request, validators }, trace);
      const isNotModified = answer.status === 304;
      if (variant !== undefined && validators !== undefined) {
        if (isNotModified && confirms(answer, variant.answer))
          return admit(renew(variant.answer, answer), 304);
        if (isNotModified || mayBeDueToValidators(answer.status)) {
          // It is about another body than the stored one, or about the validators, which are in no key: read without them.
          return admit(await next(request, trace));
        }
      }
      return admit(answer);
    } catch (error) {
      // A fault while the answer is admitted is an outcome too, so that every subscriber gets one.
      return failedOutcome(request, error, trace.attempts > 0);
    }
  };
}

function unaskedNotModified(): GatewayError {
  return new GatewayError('upstream-invalid-response', {
    reason: 'a 304 to a request without validators',
    receivedStatus: 304,
  });
}

/** The facts of one background refresh, for one log line. */
export interface BackgroundRefresh {
  readonly operation: string;
  /** What the upstream answered; absent where no answer came. */
  readonly status?: number;
  readonly error?: unknown;
  /** The answer, or the old one confirmed by a 304, is stored. */
  readonly stored: boolean;
  readonly attempts: number;
  readonly waitedMs: number;
  readonly upstreamMs: number;
}

export interface BackgroundRefreshOptions {
  /** How long a background refresh may take, waiting included. */
  readonly refreshTimeoutMs: number;
  /** Called when a background refresh has ended. */
  onBackground?(refresh: BackgroundRefresh): void;
}

/** After a refresh that stored nothing, stale answers are served for this long before the next one. */
const refreshPauseMs = 1_000;

export class BackgroundRefreshes {
  readonly #options: BackgroundRefreshOptions;
  readonly #contexts = new Set<FixedContext>();
  #isClosed = false;

  constructor(options: BackgroundRefreshOptions) {
    this.#options = options;
  }

  mayStart(variant: Variant, nowMs: number): boolean {
    return !this.#isClosed && nowMs >= variant.refreshNotBeforeMs;
  }

  /**
   * Subscribes to a flight on no request's behalf, so that it goes on without one.
   *
   * @param request the one that found the answer stale
   * @param run makes the flight's exchange with the request that it is given; never fails
   */
  start(
    flight: Flight,
    request: UpstreamRequest,
    variant: Variant,
    run: (request: UpstreamRequest) => Promise<ExchangeOutcome>,
  ): void {
    const { trace } = flight;
    // In the name of the caller whose request found the answer stale.
    const flow = { ...request.context.flow, background: true };
    const { context, release } = timedContext(this.#options.refreshTimeoutMs, flow);
    void flight.subscribe(context, (reason) => failedOutcome(request, reason, trace.attempts > 0));
    this.#contexts.add(context);
    // The ids of the request would name one that has been answered before this exchange.
    const unattributed = { ids: {}, callerIds: undefined, cacheControl: undefined, pragma: undefined };
    // A fault in the log is no fault of the refresh.
    void run({ ...request, ...unattributed })
      .then((settled) => {
        release();
        this.#contexts.delete(context);
        this.#report(settled, flight, variant);
      })
      .catch(() => undefined);
  }

  /** Ends all refreshes; none starts any more. */
  close(reason: Error): void {
    this.#isClosed = true;
    for (const context of [...this.#contexts]) context.end(reason);
  }

  #report(outcome: ExchangeOutcome, { operation, trace }: Flight, variant: Variant): void {
    const stored = outcome.kind === 'answered' && outcome.stored;
    if (!stored) variant.refreshNotBeforeMs = performance.now() + refreshPauseMs;
    this.#options.onBackground?.({
      operation,
      ...(outcome.kind === 'failed'
        ? { error: outcome.error }
        : { status: outcome.forwardStatus ?? outcome.answer.status }),
      stored,
      attempts: trace.attempts,
      waitedMs: trace.waitedMs,
      upstreamMs: trace.upstreamMs,
    });
  }
}
