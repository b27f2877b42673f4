/** Refreshes of stale answers in the background: the request that found the answer stale is served and does not wait. */
import type { UpstreamRequest } from '../exchange/exchange.ts';
import { type FixedContext, timedContext } from '../exchange/request-context.ts';
import type { Variant } from './answer-store.ts';
import type { CoalescedFetch } from './coalesced-fetch.ts';
import { failedOutcome, type Outcome } from './store-response.ts';

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
    flight: CoalescedFetch,
    request: UpstreamRequest,
    variant: Variant,
    run: (request: UpstreamRequest) => Promise<Outcome>,
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

  #report(outcome: Outcome, { operation, trace }: CoalescedFetch, variant: Variant): void {
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
