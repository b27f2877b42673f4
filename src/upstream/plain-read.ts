/** Reads of our own, on no caller's behalf: a probe of the key, a check of the settings. */
import type { Claim, Turn, UpstreamRequest } from './exchange.ts';

/** A claim that nothing changes while it lasts. */
export function fixedClaim(signal: AbortSignal, deadlineMs: number, turn: Turn): Claim {
  return { signal, deadlineMs, turn, onChange: () => () => {} };
}

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
