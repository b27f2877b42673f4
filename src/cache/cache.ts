/**
 * The first layer of the way out: answers reads from memory, lets identical reads share one exchange, and stores what
 * may be stored. It acts; `cache-rules` and `cache-key` decide.
 *
 * A request is served from the store (`answer-store`), joins a flight (`single-flight`) or is fetched (`revalidate`,
 * `store-response`); `respond` makes its answer.
 */
import { GatewayError } from '../errors.ts';
import type { Answer, UpstreamRequest } from '../exchange/exchange.ts';
import type { Eventually, Layer } from '../exchange/layer.ts';
import { Trace } from '../exchange/trace.ts';
import {
  AnswerStore,
  type AnswerStoreOptions,
  type Resource,
  selectVariant,
  type Variant,
} from './answer-store.ts';
import { cacheKey, exactRequestKey, withoutCallerIds } from './cache-key.ts';
import { judgeUse, parseRequestDirectives, type RequestDirectives } from './cache-rules.ts';
import { type FetchFlight, fetchShared } from './fetch-shared.ts';
import { type Forwarded, type Miss, type Respond, respondToMisses, serveStored } from './respond.ts';
import {
  BackgroundRefreshes,
  type BackgroundRefreshOptions,
  type FetchAnswer,
  fetchOrRevalidate,
} from './revalidate.ts';
import type { SharedReads } from './shared-reads.ts';
import { type Flight, Flights, makeExactFlightKey, makeFlightKey } from './single-flight.ts';
import {
  type AdmissionOptions,
  type ExchangeOutcome,
  failedOutcome,
  ResponseAdmission,
} from './store-response.ts';

export interface CacheOptions extends AdmissionOptions, AnswerStoreOptions, BackgroundRefreshOptions {
  /** What other gateways have and do; absent where this gateway is alone. */
  readonly shared?: SharedReads | undefined;
}

/** The cache's part of `/status`. */
export interface CacheSnapshot {
  /** Reads stored, each with all its variants. */
  readonly entries: number;
  readonly bytes: number;
  readonly maxBytes: number;
  /** Reads evicted to make room since the start. */
  readonly evictions: number;
  /** Exchanges that may be joined now. */
  readonly flights: number;
}

export interface Cache {
  readonly layer: Layer<UpstreamRequest, Answer>;
  /** Forgets all answers, or one operation's; what is under way is not stored either. Returns the reads dropped. */
  purge(operation?: string): number;
  snapshot(): CacheSnapshot;
  /** Bodies waiting to be compressed. */
  readonly compressing: number;
  /** Ends background work. Requests go on being answered. */
  close(): void;
}

/**
 * Shares answers between callers: over time from a store, at one moment through single flight.
 *
 * A fresh answer is served as the very same object every time and without a promise. Every answer is stored under
 * the key generation that fetched it, so that no request reads what another key was allowed to see.
 */
export function shareAnswers(options: CacheOptions): Cache {
  const store = new AnswerStore(options);
  const flights = new Flights();
  const refreshes = new BackgroundRefreshes(options);
  const admission = new ResponseAdmission(store, options);
  const respond = respondToMisses(admission);
  const purges = new Map<string | undefined, number>();
  const countPurges = (operation: string) => (purges.get(operation) ?? 0) + (purges.get(undefined) ?? 0);

  const { shared, generation } = options;
  const purge = (operation: string | undefined): number => {
    purges.set(operation, (purges.get(operation) ?? 0) + 1);
    flights.removeAll(operation);
    return store.purge(operation);
  };
  shared?.onPurge(purge);

  return {
    layer(next) {
      const fetchAnswer = fetchOrRevalidate({ next, admission, countPurges });
      const fetchFlight =
        shared === undefined ? fetchAnswer : fetchShared({ shared, fetchAnswer, admission, countPurges });
      const parts = { store, flights, refreshes, fetchAnswer, fetchFlight, respond, generation };
      const reads = new ReadThrough(parts);
      return (request, trace) => reads.answer(request, trace);
    },
    purge(operation) {
      shared?.purge(operation);
      return purge(operation);
    },
    snapshot() {
      return { ...store.snapshot(), flights: flights.size };
    },
    get compressing() {
      return admission.compressing;
    },
    close() {
      admission.close();
      refreshes.close(new GatewayError('shutting-down'));
    },
  };
}

interface ReadThroughParts {
  readonly store: AnswerStore;
  readonly flights: Flights;
  readonly refreshes: BackgroundRefreshes;
  /** An exchange for one request alone. */
  readonly fetchAnswer: FetchAnswer;
  /** The exchange of a flight: perhaps another gateway has made it, or makes it now. */
  readonly fetchFlight: FetchFlight;
  readonly respond: Respond;
  /** The key generation that reads are made with now; `undefined` while there is no key. */
  generation(): number | undefined;
}

/** Answers each request from the store, with the exchange of another request, or with one of its own. */
class ReadThrough {
  readonly #store: AnswerStore;
  readonly #generation: () => number | undefined;
  /** What a hit does not need. */
  readonly #parts: ReadThroughParts;

  constructor(parts: ReadThroughParts) {
    this.#store = parts.store;
    this.#generation = parts.generation;
    this.#parts = parts;
  }

  answer(request: UpstreamRequest, trace: Trace): Eventually<Answer> {
    const { cacheControl, pragma } = request;
    const isPlain = cacheControl === undefined && pragma === undefined;
    const directives = isPlain ? undefined : parseRequestDirectives(cacheControl, pragma);
    return this.#read(request, trace, directives, false);
  }

  /** @param hasWaited whether the request has joined an exchange whose answer did not fit it */
  #read(
    request: UpstreamRequest,
    trace: Trace,
    directives: RequestDirectives | undefined,
    hasWaited: boolean,
  ): Eventually<Answer> {
    const key = cacheKey(request, this.#generation());
    const nowMs = performance.now();
    const resource = this.#store.get(key, request.context.flow.name, nowMs);
    const variant = resource === undefined ? undefined : selectVariant(resource, request.headers);
    // A resource may hold hit-for-miss marks alone.
    let forwarded: Forwarded = (resource?.variants.length ?? 0) === 0 ? 'uri-miss' : 'vary-miss';
    if (variant !== undefined) {
      const use = judgeUse(variant.policy, directives, nowMs);
      if (use === 'fresh') return serveStored(variant, trace, nowMs, undefined);
      if (use === 'max-stale') return serveStored(variant, trace, nowMs, 'max-stale');
      if (use === 'refresh') {
        if (directives?.onlyIfCached !== true) this.#refresh(key, resource, variant, request, nowMs);
        return serveStored(variant, trace, nowMs, 'stale-while-revalidate');
      }
      forwarded = use;
    }
    if (directives?.onlyIfCached === true) throw new GatewayError('not-in-cache');
    // Nothing goes up for a caller that has already left.
    if (request.context.ended !== undefined) throw request.context.ended;
    const collapsed = hasWaited ? false : undefined;
    const miss: Miss = { request, trace, directives, forwarded, collapsed };
    return this.#fetchMiss(miss, key, resource, variant, nowMs);
  }

  #fetchMiss(
    miss: Miss,
    key: string,
    resource: Resource | undefined,
    variant: Variant | undefined,
    nowMs: number,
  ): Eventually<Answer> {
    const { request, collapsed } = miss;
    // After an answer that did not fit, only equal requests share an exchange: one more, and not one after another.
    const flightKey =
      collapsed === undefined ? makeFlightKey(key, resource, request) : makeExactFlightKey(key, request);
    const flight = this.#parts.flights.get(flightKey);
    // Where hit-for-miss holds, one request at a time may be joined: its answer shows whether sharing is possible again.
    if (flight === undefined) return this.#start(flightKey, miss, variant);
    return isHitForMiss(resource, request, nowMs)
      ? this.#fetchUncoalesced({ ...miss, forwarded: 'bypass' })
      : this.#join(flight, miss);
  }

  /** Starts an exchange that other requests may join. */
  #start(flightKey: string, miss: Miss, variant: Variant | undefined): Eventually<Answer> {
    const { request, trace, directives } = miss;
    const { flights, respond } = this.#parts;
    const flight = flights.open(flightKey, request.operation, trace, directives?.noStore !== true);
    // The subscription, and not the exchange: this request may leave before the others.
    const own = subscribe(flight, request);
    void this.#run(flight, flightKey, request, variant, directives);
    return own.then((settled) => respond(settled, miss));
  }

  #join(flight: Flight, miss: Miss): Eventually<Answer> {
    if (miss.directives?.noStore !== true) flight.mayStore = true;
    miss.trace.joined = flight.trace;
    return subscribe(flight, miss.request).then((outcome) => this.#respondToJoined(outcome, miss));
  }

  /** Makes an exchange for this request alone: answers to it are known to fit one request each. */
  async #fetchUncoalesced(miss: Miss): Promise<Answer> {
    const { request, trace, directives } = miss;
    const { fetchAnswer, respond } = this.#parts;
    const storing = { mayStore: directives?.noStore !== true };
    return respond(await fetchAnswer(request, trace, undefined, storing), miss);
  }

  /** Makes the exchange of a flight and gives its outcome to all subscribers. Never fails. */
  async #run(
    flight: Flight,
    flightKey: string,
    request: UpstreamRequest,
    variant: Variant | undefined,
    directives: RequestDirectives | undefined,
  ): Promise<ExchangeOutcome> {
    const { fetchFlight, flights } = this.#parts;
    const { trace } = flight;
    const shared = { ...request, context: flight };
    let outcome: ExchangeOutcome;
    try {
      outcome = await fetchFlight(shared, trace, variant, flight, directives);
    } catch (fault) {
      // An outcome too, so that every subscriber gets one and no later request joins the flight.
      outcome = failedOutcome(request, fault, trace.attempts > 0);
    }
    flights.remove(flightKey, flight);
    flight.complete(outcome);
    return outcome;
  }

  /** Responds to a request that joined: the answer may not fit it, or be for one request only. */
  #respondToJoined(outcome: ExchangeOutcome, miss: Miss): Eventually<Answer> {
    const { request, trace, directives } = miss;
    const { respond } = this.#parts;
    // The next exchange is shared without ids, so that even an error fits: a failing upstream is asked twice at most.
    if (!outcome.fits(request) || !isRecentEnough(outcome, directives))
      return this.#read(withoutCallerIds(request), trace, directives, true);
    if (outcome.kind === 'failed') return respond(outcome, { ...miss, collapsed: true });
    if (outcome.shared === undefined) return this.#fetchUncoalesced({ ...miss, collapsed: false });
    // Where another gateway fetched it, nothing was sent for this request, nor for the one that it joined.
    if (outcome.via === undefined) trace.upstreamStatus = outcome.forwardStatus ?? outcome.shared.status;
    return respond({ ...outcome, answer: outcome.shared }, { ...miss, collapsed: true });
  }

  /** Starts a background refresh, unless an exchange for the answer is under way. */
  #refresh(
    key: string,
    resource: Resource | undefined,
    variant: Variant,
    request: UpstreamRequest,
    nowMs: number,
  ): void {
    const { flights, refreshes } = this.#parts;
    if (!refreshes.mayStart(variant, nowMs)) return;
    const flightKey = makeFlightKey(key, resource, request);
    if (flights.get(flightKey) !== undefined) return;
    const flight = flights.open(flightKey, request.operation, new Trace(nowMs), true);
    refreshes.start(flight, request, variant, (own) => this.#run(flight, flightKey, own, variant, undefined));
  }
}

function subscribe(flight: Flight, request: UpstreamRequest): Promise<ExchangeOutcome> {
  // What was sent for the flight was sent for this request as well.
  return flight.subscribe(request.context, (reason) =>
    failedOutcome(request, reason, flight.trace.attempts > 0),
  );
}

/** An answer that was stored before this request came must satisfy its directives; one from the upstream always does. */
function isRecentEnough(outcome: ExchangeOutcome, directives: RequestDirectives | undefined): boolean {
  if (outcome.kind === 'failed' || outcome.via !== 'store') return true;
  return judgeUse(outcome.policy, directives, performance.now()) === 'fresh';
}

function isHitForMiss(resource: Resource | undefined, { headers }: UpstreamRequest, nowMs: number): boolean {
  if (resource === undefined || resource.hitForMiss.size === 0) return false;
  const untilMs = resource.hitForMiss.get(exactRequestKey(headers));
  return untilMs !== undefined && nowMs < untilMs;
}
