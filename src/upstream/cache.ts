/**
 * The first layer of the way out: answers reads from memory, lets identical reads share one exchange, and keeps
 * what may be kept. It acts; what may be done is decided by `cache-policy`, `vary-policy` and `validation-policy`.
 */
import { GatewayError } from '../errors.ts';
import { andThen, type Eventually, type Handler, type Layer } from '../layer.ts';
import { type CacheFacts, Trace } from '../trace.ts';
import { createAnswerStore, type Resource, selectVariant, type Variant } from './answer-store.ts';
import { cacheKey } from './cache-key.ts';
import { type CacheDefaults, isTrouble, isTroubleCode, useOf, type Wish, wishOf } from './cache-policy.ts';
import type { Answer, UpstreamRequest } from './exchange.ts';
import { backgroundClaim, type Flight, openFlight, type Seat } from './flight.ts';
import { failed, keepAnswers, type Outcome } from './keeping.ts';
import { type Forward, handOut, wholeSeconds } from './stored-answer.ts';
import { confirms, renewed, validatorsOf } from './validation-policy.ts';
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
interface Shared {
  readonly operation: string;
  readonly flight: Flight<Outcome>;
  readonly trace: Trace;
  /** Somebody waits who has not said `no-store`. */
  mayStore: boolean;
}

type Forwarded = NonNullable<CacheFacts['forwarded']>;

/**
 * Shares answers between callers: over time from a store, at one moment through a flight.
 *
 * A fresh answer is handed out as the very same object every time and without a promise. Every answer is kept
 * under the key generation that fetched it, so that after a rotation nobody reads what another key could see.
 */
export function shareAnswers(options: CacheOptions): SharedAnswers {
  const store = createAnswerStore(options);
  const flights = new Map<string, Shared>();
  /** The refreshes' own places in their flights. */
  const backgrounds = new Set<Seat<Outcome>>();
  const keeping = keepAnswers(store, options, options.generation);
  const purges = new Map<string | undefined, number>();
  let closed = false;

  const purgesOf = (operation: string) => (purges.get(operation) ?? 0) + (purges.get(undefined) ?? 0);

  function layer(next: Handler<UpstreamRequest, Answer>): Handler<UpstreamRequest, Answer> {
    function answerRead(request: UpstreamRequest, trace: Trace): Eventually<Answer> {
      const wish =
        request.cacheControl === undefined && request.pragma === undefined
          ? undefined
          : wishOf(request.cacheControl, request.pragma);
      return read(request, trace, wish, undefined);
    }

    /** @param collapsed false where the request has waited for an answer that turned out to be another's */
    function read(
      request: UpstreamRequest,
      trace: Trace,
      wish: Wish | undefined,
      collapsed: false | undefined,
    ): Eventually<Answer> {
      const generation = options.generation();
      const key = cacheKey(request, generation);
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
      if (request.claim.signal.aborted) throw request.claim.signal.reason;

      // Those who were given another's answer don't wait for each other: only equal requests share now.
      const flightKey =
        collapsed === undefined ? flightKeyOf(key, request) : `${key}\n\n${wholeSelection(request.headers)}`;
      const under = flights.get(flightKey);
      // One at a time goes where others may join, to see whether its like may share again.
      if (under !== undefined && isUnshareable(resource, request, nowMs)) {
        return goAlone(request, trace, wish, 'bypass', collapsed);
      }
      if (under !== undefined) {
        if (wish?.noStore !== true) under.mayStore = true;
        const waited = under.flight.enter(request.claim).wait().catch(goneFrom(under, request));
        return waited.then((outcome) => concludeJoined(outcome, request, trace, wish, forwarded));
      }
      const shared = open(flightKey, request, trace, wish?.noStore !== true);
      const seat = shared.flight.enter(request.claim);
      const outcome = fly(shared, flightKey, request, trace, variant);
      if (outcome instanceof Promise) {
        const waited = seat.wait().catch(goneFrom(shared, request));
        return waited.then((arrived) => conclude(arrived, request, trace, forwarded, collapsed));
      }
      return conclude(outcome, request, trace, forwarded, collapsed);
    }

    /** @param trace of whose exchange it is */
    function open(flightKey: string, request: UpstreamRequest, trace: Trace, mayStore: boolean): Shared {
      const flight = openFlight<Outcome>(() => land(flightKey, shared));
      const shared: Shared = { operation: request.operation, flight, trace, mayStore };
      flights.set(flightKey, shared);
      return shared;
    }

    function land(flightKey: string, shared: Shared): void {
      if (flights.get(flightKey) === shared) flights.delete(flightKey);
    }

    /** Makes the exchange of a flight and lets everybody who waits have its outcome. Never fails. */
    function fly(
      shared: Shared,
      flightKey: string,
      request: UpstreamRequest,
      trace: Trace,
      variant: Variant | undefined,
    ): Eventually<Outcome> {
      const going = { ...request, claim: shared.flight.claim };
      const result = exchange(going, trace, variant, () => shared.mayStore);
      return andThen(result, (outcome) => {
        land(flightKey, shared);
        shared.flight.settle(outcome);
        return outcome;
      });
    }

    /** One exchange, its answer judged and kept. Never fails: a failure is an outcome. */
    function exchange(
      request: UpstreamRequest,
      trace: Trace,
      variant: Variant | undefined,
      mayStore: () => boolean,
    ): Eventually<Outcome> {
      const purgesBefore = purgesOf(request.operation);
      const fail = (error: unknown) => failed(request, error, trace.attempts > 0);
      const keep = (answer: Answer, forwardStatus: number | undefined) =>
        keeping.judge(
          request,
          answer,
          forwardStatus,
          mayStore() && purgesOf(request.operation) === purgesBefore,
        );
      const receive = (answer: Answer): Eventually<Outcome> => {
        if (answer.status !== 304) return keep(answer, undefined);
        if (variant === undefined || validators === undefined) return fail(unasked());
        if (confirms(answer, variant.answer)) return keep(renewed(variant.answer, answer), 304);
        // It speaks of another body than ours: ask for the whole.
        return andThen(
          attempt(request, trace),
          (whole) => (whole.status === 304 ? fail(unasked()) : keep(whole, undefined)),
          fail,
        );
      };
      const validators = variant === undefined ? undefined : validatorsOf(variant.answer.headers);
      const asked = validators === undefined ? request : { ...request, validators };
      return andThen(attempt(asked, trace), guarded(receive, fail), fail);
    }

    function attempt(request: UpstreamRequest, trace: Trace): Eventually<Answer> {
      try {
        return next(request, trace);
      } catch (error) {
        return Promise.reject(error);
      }
    }

    /** Goes up with nobody: its answers are known to fit one request each. */
    function goAlone(
      request: UpstreamRequest,
      trace: Trace,
      wish: Wish | undefined,
      forwarded: Forwarded,
      collapsed: false | undefined,
    ): Eventually<Answer> {
      return andThen(
        exchange(request, trace, undefined, () => wish?.noStore !== true),
        (outcome) => conclude(outcome, request, trace, forwarded, collapsed),
      );
    }

    /** What the request that went up makes of its outcome. */
    function conclude(
      outcome: Outcome,
      request: UpstreamRequest,
      trace: Trace,
      forwarded: Forwarded,
      collapsed: boolean | undefined,
    ): Answer {
      const answered = outcome.kind === 'answered';
      const forward: Forward = { forwarded, ...(collapsed === undefined ? undefined : { collapsed }) };
      const standIn = troubleOf(outcome) ? keeping.staleFor(request) : undefined;
      if (standIn !== undefined) {
        const status = answered ? outcome.answer.status : statusBehind(outcome.error);
        const told = status === undefined ? forward : { ...forward, forwardStatus: status };
        // A hit is what was not forwarded (RFC 9211 section 2.1): here, where nothing was sent.
        const isForwarded = answered || outcome.sent;
        return handOut(standIn, trace, performance.now(), 'stale-if-error', isForwarded ? told : undefined);
      }
      trace.cache = {
        hit: false,
        ...forward,
        ...(answered && outcome.stored ? { stored: true } : undefined),
        ...(answered && outcome.forwardStatus !== undefined
          ? { forwardStatus: outcome.forwardStatus }
          : undefined),
      };
      if (outcome.kind === 'failed') throw outcome.error;
      const { answer, policy } = outcome;
      trace.generation = answer.generation;
      // Our own `Date` would make an answer young again that comes from another cache (RFC 9111 section 5.1).
      const ageSeconds = wholeSeconds(performance.now() - policy.bornMs);
      if (ageSeconds > 0) trace.ageSeconds = ageSeconds;
      return answer;
    }

    /** What a request that joined makes of the outcome: it may find that the answer is not for it. */
    function concludeJoined(
      outcome: Outcome,
      request: UpstreamRequest,
      trace: Trace,
      wish: Wish | undefined,
      forwarded: Forwarded,
    ): Eventually<Answer> {
      if (!outcome.fits(request)) return read(request, trace, wish, false);
      if (outcome.kind === 'failed') return conclude(outcome, request, trace, forwarded, true);
      if (outcome.shared === undefined) return goAlone(request, trace, wish, forwarded, false);
      trace.upstreamStatus = outcome.forwardStatus ?? outcome.shared.status;
      return conclude({ ...outcome, answer: outcome.shared }, request, trace, forwarded, true);
    }

    /** Starts a refresh that nobody waits for, unless one is under way. */
    function refresh(key: string, variant: Variant, request: UpstreamRequest, nowMs: number): void {
      if (closed || nowMs < variant.refreshNotBeforeMs) return;
      const flightKey = flightKeyOf(key, request);
      if (flights.has(flightKey)) return;
      const trace = new Trace(nowMs);
      const shared = open(flightKey, request, trace, true);
      const seat = shared.flight.enter(
        backgroundClaim(request.claim, nowMs + options.refreshTimeoutMs),
        true,
      );
      backgrounds.add(seat);
      // Its ids would name a request that has long been answered.
      const own = { ...request, ids: {}, cacheControl: undefined, pragma: undefined };
      const report = (outcome: Outcome): void => {
        backgrounds.delete(seat);
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
      const outcome = fly(shared, flightKey, own, trace, variant);
      // The log's troubles are not the refresh's.
      void Promise.resolve(outcome)
        .then(report)
        .catch(() => undefined);
    }

    return answerRead;
  }

  /** One flight for each key, and for each variant as far as its Vary is known. */
  function flightKeyOf(key: string, request: UpstreamRequest): string {
    const names = store.get(key)?.variants.find((one) => !one.policy.wholeRequest)?.names ?? [];
    return names.length === 0 ? key : `${key}\n${selection(names, request.headers)}`;
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
      for (const seat of [...backgrounds]) seat.leave(reason);
    },
  };
}

function isUnshareable(resource: Resource | undefined, request: UpstreamRequest, nowMs: number): boolean {
  if (resource === undefined || resource.unshareable.size === 0) return false;
  const untilMs = resource.unshareable.get(wholeSelection(request.headers));
  return untilMs !== undefined && nowMs < untilMs;
}

function troubleOf(outcome: Outcome): boolean {
  if (outcome.kind === 'answered') return isTrouble(outcome.answer.status);
  return outcome.error instanceof GatewayError && isTroubleCode(outcome.error.code);
}

function statusBehind(error: unknown): number | undefined {
  return error instanceof GatewayError ? error.receivedStatus : undefined;
}

/** A request that leaves a flight: by its own reason, and what went up went up for it as well. */
function goneFrom({ trace }: Shared, request: UpstreamRequest): (error: unknown) => Outcome {
  return (error) => failed(request, error, trace.attempts > 0);
}

function unasked(): GatewayError {
  return new GatewayError('upstream-invalid-response', {
    reason: 'a 304 that nobody asked for',
    receivedStatus: 304,
  });
}

/** What goes wrong while an answer is judged is an outcome like any other: nobody is left waiting. */
function guarded<T>(
  receive: (answer: Answer) => Eventually<T>,
  failed: (error: unknown) => T,
): (answer: Answer) => Eventually<T> {
  return (answer) => {
    try {
      return receive(answer);
    } catch (error) {
      return failed(error);
    }
  };
}
