/** Reads of our own, on no caller's behalf: a probe of the key, a check of the settings. */
import type { Claim } from '../claim.ts';
import type { UpstreamRequest } from '../exchange.ts';

/** A read without query and fields. */
export function plainRead(operation: string, path: string, claim: Claim): UpstreamRequest {
  return {
    operation,
    path,
    query: '',
    headers: {},
    ids: {},
    cacheControl: undefined,
    pragma: undefined,
    claim,
  };
}
