/** What makes two reads the same for the cache. Pure: no `this`, no I/O, no clock. */
import type { UpstreamRequest } from '../exchange.ts';

/**
 * The read without its caller's ids, which no key holds: what comes of it is about the read alone, even an error. So
 * it may be stored, and fits the other requests.
 */
export function withoutCallerIds(request: UpstreamRequest): UpstreamRequest {
  return request.hasCallerIds ? { ...request, ids: {}, hasCallerIds: false } : request;
}

/** Lengths delimit, so that no two different reads make the same key, whatever their parts contain. */
export function cacheKey(request: UpstreamRequest, generation: number | undefined): string {
  const { operation, path, query } = request;
  return `${generation ?? '-'}:${operation.length}:${path.length}:${operation}${path}${query}`;
}
