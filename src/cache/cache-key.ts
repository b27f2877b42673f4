/** What makes two reads the same for the cache. Pure: no `this`, no I/O, no clock. */
import type { UpstreamRequest } from '../exchange/exchange.ts';

/**
 * The read without its caller's ids, which no key holds: what comes of it is about the read alone, even an error. So
 * it may be stored, and fits the other requests.
 */
export function withoutCallerIds(request: UpstreamRequest): UpstreamRequest {
  return request.callerIds === undefined ? request : { ...request, ids: {}, callerIds: undefined };
}

/**
 * All that goes up but the ids and the fields that no key holds, byte for byte: no spelling of a field is taken for
 * another, for the upstream may tell them apart. Lengths delimit, so that no two different reads make the same key,
 * whatever their parts contain.
 */
export function cacheKey(request: UpstreamRequest, generation: number | undefined): string {
  const { operation, path, query, keyedHeaders } = request;
  const lengths = `${operation.length}:${path.length}:${query.length}`;
  let key = `${generation ?? '-'}:${lengths}:${operation}${path}${query}`;
  for (const name in keyedHeaders) {
    const value = keyedHeaders[name] ?? '';
    key += `${name.length}:${value.length}:${name}${value}`;
  }
  return key;
}
