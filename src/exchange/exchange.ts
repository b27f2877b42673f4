/** What travels along the outbound layers: the request, the context that waits for it, and the upstream's answer. */

import type { HeaderFields } from '../http/fields.ts';
import type { Payload } from '../http/payload.ts';
import type { Eventually } from './layer.ts';
import type { RequestContext } from './request-context.ts';

/** One read, as it is to be sent upstream. Always a GET. */
export interface UpstreamRequest {
  /** The operation's name: part of every cache key. */
  readonly operation: string;
  /** The specified path below the base address, as `/analytics/accounts/`. */
  readonly path: string;
  /** The query in its exact bytes and order, with its `?`; empty where there is none. */
  readonly query: string;
  /**
   * Fields of the caller that go up (FORWARD_REQUEST_HEADERS) and are a part of every cache key: an answer may depend on
   * them without saying so. Lower-case names, sorted.
   */
  readonly keyedHeaders: Readonly<Record<string, string>>;
  /** Those that no key holds (FORWARD_REQUEST_HEADERS_UNKEYED): answers differ by them as far as their Vary says. */
  readonly headers: Readonly<Record<string, string>>;
  /** Request and trace ids: they go up, and never distinguish one read from another. */
  readonly ids: Readonly<Record<string, string>>;
  /**
   * Those of them that the caller chose; `undefined` where it chose none. No cache key holds ids, so what may be due to
   * one is not shared: an error, and an answer that repeats it.
   */
  readonly callerIds: Readonly<Record<string, string>> | undefined;
  /** The cache's validators, on a revalidation: `if-none-match`, `if-modified-since`. Set by the cache alone. */
  readonly validators?: Readonly<Record<string, string>>;
  /** The caller's `Cache-Control` (repeated fields joined by a comma) and `Pragma`: for the cache, never sent. */
  readonly cacheControl: string | undefined;
  readonly pragma: string | undefined;
  readonly context: RequestContext;
  /** Called with each attempt when it has its turn: gateways that share the read decide which of them makes it. */
  readonly atTurn?: (send: () => Eventually<Answer>) => Eventually<Answer>;
}

/** A read of our own, on no caller’s behalf: without query and fields. */
export function plainRead(operation: string, path: string, context: RequestContext): UpstreamRequest {
  return {
    operation,
    path,
    query: '',
    keyedHeaders: {},
    headers: {},
    ids: {},
    callerIds: undefined,
    cacheControl: undefined,
    pragma: undefined,
    context,
  };
}

/** A request with the key's value on it: only `credential` makes one, only `transport` gets one. */
export interface SignedRequest extends UpstreamRequest {
  /** The value of the `X-API-Key` field. Never logged, never kept. */
  readonly key: string;
  /** The key's generation, for the answer. */
  readonly generation: number;
  /**
   * Called with a whole answer, before it is handed up, and with how to free the room of its body: the answer may have to
   * wait to be searched for the key. Without it the room is free at once.
   */
  readonly keepRoom?: ((give: () => void) => void) | undefined;
}

/** Compressed bodies, made in the background by the cache and counted in its bytes; the edge only picks. */
export interface Encodings {
  br?: Buffer;
  gzip?: Buffer;
  /** Has them made, for a caller that accepts one. Absent where the answer is not stored, and once they are queued. */
  want?: (() => void) | undefined;
}

/**
 * The upstream's answer, whole. The cache hands out the same object on every hit, so that what is derived from
 * it (the prepared response fields) can be kept beside it.
 */
export interface Answer {
  readonly status: number;
  /** As received, nothing filtered: what passes to callers is the edge's decision. */
  readonly headers: HeaderFields;
  readonly body: Payload;
  /** When the attempt was sent and its last byte arrived, monotonic ms (`performance.now()`). */
  readonly sentMs: number;
  readonly receivedMs: number;
  /** Wall clock (`Date.now()`) at receipt: dates in the answer are measured against it. */
  readonly receivedAt: number;
  /** The generation of the key that fetched it. */
  readonly generation: number;
  /** How long a 429 or 5xx asks to wait, in ms from its receipt; absent where it asks for nothing, and in what was stored. */
  readonly statedWaitMs?: number | undefined;
  /** Where the answer may be given compressed. */
  readonly encoded?: Encodings | undefined;
  /** A place for what the edge derives from it, so that it lives and dies with the answer. */
  derived?: unknown;
}

/** Whether a status means that no content follows, whatever was sent with it (RFC 9110 section 15.3). */
export function hasNoContent(status: number): boolean {
  return status === 204 || status === 205;
}

/** What an answer says of the upstream's limit: a 429 that there is one, with the wait that it states; a 5xx nothing. */
export function limitOutcome({
  status,
  statedWaitMs,
}: Pick<Answer, 'status' | 'statedWaitMs'>): { readonly waitMs: number | undefined } | 'answered' | 'broken' {
  if (status === 429) return { waitMs: statedWaitMs };
  return status < 500 ? 'answered' : 'broken';
}
