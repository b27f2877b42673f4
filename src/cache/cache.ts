/**
 * The first layer of the way out: answers reads from memory, lets identical reads share one exchange, and keeps
 * what may be kept. It acts; what may be done is decided by `cache-policy`, `vary-policy` and `validation-policy`.
 */
import { GatewayError } from '../errors.ts';
import type { Answer, UpstreamRequest } from '../exchange.ts';
import { andThen, type Eventually, type Handler, type Layer } from '../layer.ts';
import { Trace } from '../trace.ts';
import { createAnswerStore, type Resource, selectVariant, type Variant } from './answer-store.ts';
import { askUpstream } from './asking.ts';
import { cacheKey } from './cache-key.ts';
import { type CacheDefaults, useOf, type Wish, wishOf } from './cache-policy.ts';
import { concludeMisses, type Forwarded, type Miss } from './concluding.ts';
import { failed, keepAnswers, type Outcome } from './keeping.ts';
import { backgroundClaim, SingleFlight, type Subscriber } from './single-flight.ts';
import { handOut } from './stored-answer.ts';
import { selection, wholeSelection } from './vary-policy.ts';

export interface CacheOptions extends CacheDefaults {
  /** Everything held: bodies, fields, keys, codings, marks. */
  readonly maxBytes: number;
  /** One answer with its fields and codings; a larger one is passed on and not kept. */
  readonly maxEntryBytes: number;
  /** The key generation that reads are made with now; `undefined` while there is no key. */
  generation(): number | undefined;
  /** How long a background refresh may take, waiting included. */
  readonly refreshTimeoutMs: number;
  /** A background refresh has ended. */
  onBackground?(refresh: BackgroundRefresh): void;
}

/** The facts of one background refresh, for one log line. */
export interface BackgroundRefresh {
  readonly operation: string;
  /** What the upstream answered; absent where no answer came. */
  readonly status?: number;
  readonly error?: unknown;
  /** The answer, or the old one confirmed by a 304, is kept. */
  readonly stored: boolean;
  readonly attempts: number;
  readonly waitedMs: number;
  readonly upstreamMs: number;
}

export interface CacheSnapshot {
  /** Reads held, each with all its variants. */
  readonly entries: number;
  readonly bytes: number;
  readonly maxBytes: number;
  /** Reads that had to go for others since the start. */
  readonly evictions: number;
  /** Exchanges that may be joined now. */
  readonly flights: number;
  /** Bodies waiting to be compressed. */
  readonly compressing: number;
}

export interface SharedAnswers {
  readonly layer: Layer<UpstreamRequest, Answer>;
  /** Forgets all answers, or one operation's; what is under way is not kept either. Returns the reads dropped. */
  purge(operation?: string): number;
  snapshot(): CacheSnapshot;
  /** Ends background work. Requests go on being answered. */
  close(): void;
}

/** After a refresh that brought nothing to keep, stale answers are given this long before the next try. */
const refreshPauseMs = 1_000;

/** An exchange under way that may be joined. */
class SharedExchange extends SingleFlight<Outcome> {
  readonly operation: string;
  /** Of whose exchange it is. */
  readonly trace: Trace;
  /** Somebody waits who has not said `no-store`. */
  mayStore: boolean;

  constructor(operation: string, trace: Trace, mayStore: boolean, onAbandoned: () => void) {
    super(onAbandoned);
    this.operation = operation;
    this.trace = trace;
    this.mayStore = mayStore;
  }
}

/**
 * Shares answers between callers: over time from a store, at one moment through a flight.
 *
 * A fresh answer is handed out as the very same object every time and without a promise. Every answer is kept
 * under the key generation that fetched it, so that after a rotation nobody reads what another key could see.
 */
export function shareAnswers(options: CacheOptions): SharedAnswers {
  const store = createAnswerStore(options);
  const flights = new Map<string, SharedExchange>();
  /** The refreshes' own places in their flights. */
  const backgrounds = new Set<Subscriber<Outcome>>();
  const keeping = keepAnswers(store, options, options.generation);
  const conclude = concludeMisses(keeping);
  const purges = new Map<string | undefined, number>();
  let closed = false;

  const purgesOf = (operation: string) => (purges.get(operation) ?? 0) + (purges.get(undefined) ?? 0);

  function layer(next: Handler<UpstreamRequest, Answer>): Handler<UpstreamRequest, Answer> {
    const ask = askUpstream({ next, keeping, purgesOf });

    function answerRead(request: UpstreamRequest, trace: Trace): Eventually<Answer> {
      const { cacheControl, pragma } = request;
      const wish =
        cacheControl === undefined && pragma === undefined ? undefined : wishOf(cacheControl, pragma);
      return read(request, trace, wish, undefined);
    }

    /** @param collapsed false where the request has waited for an answer that turned out to be another's */
    function read(
      request: UpstreamRequest,
      trace: Trace,
      wish: Wish | undefined,
      collapsed: false | undefined,
    ): Eventually<Answer> {
      const key = cacheKey(request, options.generation());
      const resource = store.get(key);
      const variant = resource === undefined ? undefined : selectVariant(resource, request.headers);
      const nowMs = performance.now();
      // A mark alone is no answer.
      let forwarded: Forwarded = (resource?.variants.length ?? 0) === 0 ? 'uri-miss' : 'vary-miss';
      if (variant !== undefined) {
        const use = useOf(variant.policy, wish, nowMs);
        if (use === 'fresh') return handOut(variant, trace, nowMs, undefined);
        if (use === 'max-stale') return handOut(variant, trace, nowMs, 'max-stale');
        if (use === 'refresh') {
          if (wish?.onlyIfCached !== true) refresh(key, variant, request, nowMs);
          return handOut(variant, trace, nowMs, 'stale-while-revalidate');
        }
        forwarded = use;
      }
      if (wish?.onlyIfCached === true) throw new GatewayError('not-in-cache');
      // Nothing goes up for a caller that has already left.
      if (request.claim.ended !== undefined) throw request.claim.ended;

      const miss: Miss = { request, trace, wish, forwarded, collapsed };
      // Those who were given another's answer don't wait for each other: only equal requests share now.
      const flightKey =
        collapsed === undefined
          ? flightKeyOf(key, resource, request)
          : `${key}\n\n${wholeSelection(request.headers)}`;
      const under = flights.get(flightKey);
      if (under === undefined) return start(flightKey, miss, variant);
      // One at a time goes where others may join, to see whether its like may share again.
      return isUnshareable(resource, request, nowMs)
        ? fetchUncoalesced({ ...miss, forwarded: 'bypass' })
        : join(under, miss);
    }

    /** Goes up first, so that others may join. */
    function start(flightKey: string, miss: Miss, variant: Variant | undefined): Eventually<Answer> {
      const { request, trace, wish } = miss;
      const shared = open(flightKey, request, trace, wish?.noStore !== true);
      const subscriber = shared.subscribe(request.claim, (reason) =>
        failed(request, reason, trace.attempts > 0),
      );
      const outcome = fly(shared, flightKey, request, variant);
      if (!(outcome instanceof Promise)) return conclude(outcome, miss);
      // Its own place, and not the exchange itself: it may leave before the others.
      return subscriber.outcome.then((arrived) => conclude(arrived, miss));
    }

    function join(under: SharedExchange, miss: Miss): Eventually<Answer> {
      const { request, wish } = miss;
      if (wish?.noStore !== true) under.mayStore = true;
      // What went up went up for it as well.
      const subscriber = under.subscribe(request.claim, (reason) =>
        failed(request, reason, under.trace.attempts > 0),
      );
      return subscriber.outcome.then((outcome) => concludeJoined(outcome, miss));
    }

    /** Goes up with nobody: its answers are known to fit one request each. */
    function fetchUncoalesced(miss: Miss): Eventually<Answer> {
      const { request, trace, wish } = miss;
      return andThen(ask(request, trace, undefined, { mayStore: wish?.noStore !== true }), (outcome) =>
        conclude(outcome, miss),
      );
    }

    function open(
      flightKey: string,
      { operation }: UpstreamRequest,
      trace: Trace,
      mayStore: boolean,
    ): SharedExchange {
      const shared = new SharedExchange(operation, trace, mayStore, () => remove(flightKey, shared));
      flights.set(flightKey, shared);
      return shared;
    }

    function remove(flightKey: string, shared: SharedExchange): void {
      if (flights.get(flightKey) === shared) flights.delete(flightKey);
    }

    /** Makes the exchange of a flight and lets everybody who waits have its outcome. Never fails. */
    function fly(
      shared: SharedExchange,
      flightKey: string,
      request: UpstreamRequest,
      variant: Variant | undefined,
    ): Eventually<Outcome> {
      return andThen(ask({ ...request, claim: shared }, shared.trace, variant, shared), (outcome) => {
        remove(flightKey, shared);
        shared.complete(outcome);
        return outcome;
      });
    }

    /** What a request that joined makes of the outcome: it may find that the answer is not for it. */
    function concludeJoined(outcome: Outcome, miss: Miss): Eventually<Answer> {
      const { request, trace, wish } = miss;
      if (!outcome.fits(request)) return read(withoutCallerIds(request), trace, wish, false);
      if (outcome.kind === 'failed') return conclude(outcome, { ...miss, collapsed: true });
      if (outcome.shared === undefined) return fetchUncoalesced({ ...miss, collapsed: false });
      trace.upstreamStatus = outcome.forwardStatus ?? outcome.shared.status;
      return conclude({ ...outcome, answer: outcome.shared }, { ...miss, collapsed: true });
    }

    /** Starts a refresh that nobody waits for, unless one is under way. */
    function refresh(key: string, variant: Variant, request: UpstreamRequest, nowMs: number): void {
      if (closed || nowMs < variant.refreshNotBeforeMs) return;
      const flightKey = flightKeyOf(key, store.get(key), request);
      if (flights.has(flightKey)) return;
      const trace = new Trace(nowMs);
      const shared = open(flightKey, request, trace, true);
      const subscriber = shared.subscribe(
        backgroundClaim(request.claim, nowMs + options.refreshTimeoutMs),
        (reason) => failed(request, reason, trace.attempts > 0),
        true,
      );
      backgrounds.add(subscriber);
      // Its ids would name a request that has long been answered.
      const own = { ...request, ids: {}, hasCallerIds: false, cacheControl: undefined, pragma: undefined };
      const report = (outcome: Outcome): void => {
        backgrounds.delete(subscriber);
        const stored = outcome.kind === 'answered' && outcome.stored;
        if (!stored) variant.refreshNotBeforeMs = performance.now() + refreshPauseMs;
        options.onBackground?.({
          operation: request.operation,
          ...(outcome.kind === 'failed'
            ? { error: outcome.error }
            : { status: outcome.forwardStatus ?? outcome.answer.status }),
          stored,
          attempts: trace.attempts,
          waitedMs: trace.waitedMs,
          upstreamMs: trace.upstreamMs,
        });
      };
      const outcome = fly(shared, flightKey, own, variant);
      // The log's troubles are not the refresh's.
      void Promise.resolve(outcome)
        .then(report)
        .catch(() => undefined);
    }

    return answerRead;
  }

  return {
    layer,
    purge(operation) {
      purges.set(operation, (purges.get(operation) ?? 0) + 1);
      for (const [flightKey, shared] of flights) {
        // It goes on for those who wait; who comes now asks anew.
        if (operation === undefined || shared.operation === operation) flights.delete(flightKey);
      }
      return store.purge(operation);
    },
    snapshot() {
      return { ...store.snapshot(), flights: flights.size, compressing: keeping.compressing };
    },
    close() {
      closed = true;
      keeping.close();
      const reason = new GatewayError('shutting-down');
      for (const subscriber of [...backgrounds]) subscriber.leave(reason);
    },
  };
}

/**
 * The request for an exchange that others will share after one that did not fit them. Without its caller's ids,
 * even an error fits them all: a failing upstream is asked twice, and not once for each.
 */
function withoutCallerIds(request: UpstreamRequest): UpstreamRequest {
  return request.hasCallerIds === true ? { ...request, ids: {}, hasCallerIds: false } : request;
}

function isUnshareable(resource: Resource | undefined, request: UpstreamRequest, nowMs: number): boolean {
  if (resource === undefined || resource.unshareable.size === 0) return false;
  const untilMs = resource.unshareable.get(wholeSelection(request.headers));
  return untilMs !== undefined && nowMs < untilMs;
}

/** One flight for each key, and for each variant as far as its Vary is known. */
function flightKeyOf(key: string, resource: Resource | undefined, request: UpstreamRequest): string {
  const names = resource?.variants.find((one) => !one.policy.wholeRequest)?.names ?? [];
  return names.length === 0 ? key : `${key}\n${selection(names, request.headers)}`;
}
