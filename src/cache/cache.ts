/**
 * The first layer of the way out: answers reads from memory, lets identical reads share one exchange, and stores
 * what may be stored. It acts; `cache-rules`, `vary` and `validation` decide.
 *
 * A request goes through `read-through`: served from the store (`answer-store`, `serve-stored`), joined to a flight
 * (`coalesced-fetch`, `single-flight`) or fetched (`revalidate`, `store-response`); `respond` makes its answer.
 */
import { GatewayError } from '../errors.ts';
import type { Answer, UpstreamRequest } from '../exchange/exchange.ts';
import type { Layer } from '../exchange/layer.ts';
import { AnswerStore, type AnswerStoreOptions } from './answer-store.ts';
import { BackgroundRefreshes, type BackgroundRefreshOptions } from './background-refresh.ts';
import { Flights } from './coalesced-fetch.ts';
import { fetchShared } from './fetch-shared.ts';
import { ReadThrough } from './read-through.ts';
import { respondToMisses } from './respond.ts';
import { fetchOrRevalidate } from './revalidate.ts';
import type { SharedReads } from './shared-reads.ts';
import { type AdmissionOptions, ResponseAdmission } from './store-response.ts';

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
  const purgesOf = (operation: string) => (purges.get(operation) ?? 0) + (purges.get(undefined) ?? 0);

  const { shared, generation } = options;
  const purge = (operation: string | undefined): number => {
    purges.set(operation, (purges.get(operation) ?? 0) + 1);
    flights.removeAll(operation);
    return store.purge(operation);
  };
  shared?.onPurge(purge);

  return {
    layer(next) {
      const fetchAnswer = fetchOrRevalidate({ next, admission, purgesOf });
      const fetchFlight =
        shared === undefined ? fetchAnswer : fetchShared({ shared, fetchAnswer, admission, purgesOf });
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
