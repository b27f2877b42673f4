/** Claims for tests of the outbound layers. */
import type { Claim, SignedRequest } from '../../src/upstream/exchange.ts';

/** Somebody who waits until told otherwise. */
export function patientClaim(overrides: Partial<Claim> = {}): Claim {
  return {
    signal: new AbortController().signal,
    deadlineMs: performance.now() + 60_000,
    turn: { name: 'tester', weight: 1, background: false },
    onChange: () => () => {},
    ...overrides,
  };
}

/** A read of the accounts with this key. */
export function signedRequest(key: string, overrides: Partial<SignedRequest> = {}): SignedRequest {
  return {
    operation: 'list-accounts',
    path: '/analytics/accounts/',
    query: '',
    headers: {},
    ids: {},
    cacheControl: undefined,
    pragma: undefined,
    claim: patientClaim(),
    key,
    generation: 1,
    ...overrides,
  };
}
