/** Reads of our own, on no caller's behalf: a probe of the key, a check of the settings. */
import type { UpstreamRequest } from '../exchange.ts';
import type { RequestContext } from '../request-context.ts';

/** A read without query and fields. */
export function plainRead(operation: string, path: string, context: RequestContext): UpstreamRequest {
  return {
    operation,
    path,
    query: '',
    headers: {},
    ids: {},
    cacheControl: undefined,
    pragma: undefined,
    context,
  };
}
