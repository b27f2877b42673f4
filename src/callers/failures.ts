/**
 * What a request without a good credential gets: the same answer whatever is wrong. Why is for the log.
 *
 * Limits failed authentications per address, each kind by itself: a stranger that shares an address with company logins
 * (a proxy, an office, a balancer) must not be able to use up what those need. Asked after a credential failed, and before a
 * signature is verified, which costs more than a refusal; what was counted for a good signature is given back.
 */
import { LRUCache } from 'lru-cache';
import { GatewayError } from '../errors.ts';
import { failureScope } from '../http/address.ts';
import { type Bucket, fullBucket, putOne, takeOne, untilOneMoreMs } from './bucket.ts';
import type { CallerLimit } from './caller.ts';

/** What failed: nothing was sent, what was sent is known at a look to be no good, or a signature has to be verified. */
export type FailureKind = 'no-credential' | 'token' | 'signature';

export interface Failures {
  /** Counts a failure. How long the address should wait, in ms; 0 while it is within the limit of that kind. */
  count(remoteAddress: string | undefined, kind: FailureKind): number;
  /** Takes a failure back that was counted before its check, and was none. */
  giveBack(remoteAddress: string | undefined, kind: FailureKind): void;
}

/** Addresses remembered. An attacker with more of them than this could not be counted by address anyway. */
const maxAddresses = 10_000;
/**
 * Signatures that are verified each second for an address over its limit, the forged ones of a stranger and the logins
 * behind the same address in the order in which they come. With few of them a stranger who sends some hundred a second
 * would take nearly all; so many cost some ten milliseconds.
 */
const spareSignatures: CallerLimit = { perSecond: 200, burst: 200 };

/** The buckets of one address, made when they are first needed. */
type Counted = Partial<Record<FailureKind | 'spare', Bucket>>;

/** @param perMinute failures of each kind from one address before it has to wait; 0 for no limit */
export function limitFailures(perMinute: number): Failures {
  if (perMinute <= 0) return { count: () => 0, giveBack: () => {} };
  const limit = { perSecond: perMinute / 60, burst: perMinute };
  // Not by `max`: that reserves the memory of all at once, a quarter of a megabyte.
  const addresses = new LRUCache<string, Counted>({ maxSize: maxAddresses, sizeCalculation: () => 1 });

  /** Takes one from a bucket of the address. How long until there is one more, in ms; 0 where there was one. */
  function take(counted: Counted, name: keyof Counted, by: CallerLimit, nowMs: number): number {
    counted[name] ??= fullBucket(by, nowMs);
    return takeOne(counted[name], by, nowMs) ? 0 : Math.ceil(untilOneMoreMs(counted[name], by));
  }

  return {
    count(remoteAddress, kind) {
      const nowMs = performance.now();
      const scope = failureScope(remoteAddress);
      let counted = addresses.get(scope);
      if (counted === undefined) {
        counted = {};
        addresses.set(scope, counted);
      }
      const waitMs = take(counted, kind, limit, nowMs);
      if (waitMs === 0 || kind !== 'signature') return waitMs;
      return take(counted, 'spare', spareSignatures, nowMs);
    },
    giveBack(remoteAddress, kind) {
      const bucket = addresses.get(failureScope(remoteAddress))?.[kind];
      if (bucket !== undefined) putOne(bucket, limit);
    },
  };
}

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
