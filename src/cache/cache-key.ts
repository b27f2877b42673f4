/** What makes two reads the same for the cache. Pure: no `this`, no I/O, no clock. */
import type { UpstreamRequest } from '../exchange.ts';

/** Lengths delimit, so that no two different reads make the same key, whatever their parts contain. */
export function cacheKey(request: UpstreamRequest, generation: number | undefined): string {
  const { operation, path, query } = request;
  return `${generation ?? '-'}:${operation.length}:${path.length}:${operation}${path}${query}`;
}
