/** What a request without a good credential gets: the same answer whatever is wrong. Why is for the log. */
import { GatewayError } from '../errors.ts';
import type { FailureKind, Failures } from './failures.ts';

const challenge = 'Bearer realm="analytics-gateway"';

/** @param wasPresented the request has a credential, if a bad one */
export function unauthenticated(reason: string, wasPresented: boolean): GatewayError {
  return new GatewayError('caller-unauthenticated', {
    reason,
    // RFC 6750 section 3.1: an error code only where something was presented.
    headers: { 'www-authenticate': wasPresented ? `${challenge}, error="invalid_token"` : challenge },
  });
}

/**
 * Counts a failure of an address. A signature is counted before it is verified.
 *
 * @throws GatewayError `caller-rate-limited` where the address is over its limit
 */
export function countFailure(
  failures: Failures,
  remoteAddress: string | undefined,
  kind: FailureKind,
  reason: string,
): void {
  const retryAfterMs = failures.count(remoteAddress, kind);
  if (retryAfterMs === 0) return;
  throw new GatewayError('caller-rate-limited', {
    reason: `too many failed authentications from this address; this one: ${reason}`,
    detail: 'Too many requests from this address had no valid credential.',
    retryAfterMs,
  });
}
