/**
 * What a request without a good credential gets: the same answer whatever is wrong. Why is for the log.
 *
 * Limits failed authentications per address, each kind by itself: a stranger that shares an address with company logins
 * (a proxy, an office, a balancer) must not be able to use up what those need. Asked after a credential failed, and before a
 * signature is verified, which costs more than a refusal; what was counted for a good signature is given back.
 */
import { LRUCache } from 'lru-cache';
import { GatewayError } from '../errors.ts';
import { FairShare } from '../exchange/fair-share.ts';
import { failureScope } from '../http/address.ts';
import { type Bucket, fullBucket, putOne, takeOne, untilOneMoreMs } from './bucket.ts';
import type { CallerLimit } from './caller.ts';

/**
 * What failed: nothing was sent, what was sent is known at a look to be no good, or a signature has to be verified, of a
 * JWT that names someone whose login was verified before or of another.
 */
export type FailureKind = 'no-credential' | 'token' | 'signature' | 'known-signature';

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
 * would take nearly all; so many cost some ten milliseconds. Those that name a person whose login was verified before
 * have as many by themselves: a stranger knows few of these names.
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
      if (kind === 'known-signature') return take(counted, kind, spareSignatures, nowMs);
      const waitMs = take(counted, kind, limit, nowMs);
      if (waitMs === 0 || kind !== 'signature') return waitMs;
      return take(counted, 'spare', spareSignatures, nowMs);
    },
    giveBack(remoteAddress, kind) {
      const bucket = addresses.get(failureScope(remoteAddress))?.[kind];
      if (bucket !== undefined) putOne(bucket, kind === 'known-signature' ? spareSignatures : limit);
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

/** For a good login that is no caller's: with a 401 a page would renew it for ever. */
export function forbidden(reason: string): GatewayError {
  return new GatewayError('caller-forbidden', {
    reason,
    detail:
      'Your login is valid, but it is not among those that the operator of this gateway admits. Ask the operator; the log says which claim does not fit.',
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

/** What JWTs that wait for keys take together. An ordinary one has a thousand bytes, the largest sixteen thousand. */
const maxWaitingBytes = 4 * 2 ** 20;
/** What waits besides the text. */
const bytesBesides = 512;

interface Waiting {
  held: number;
  readonly own: 0;
}

/**
 * Bounds the JWTs that wait for the keys of their issuer, which may be slow, with a share for each address. One whose keys
 * are there waits for none and is not counted.
 */
export class KeyWaits {
  readonly #shares = new FairShare<Waiting>();
  readonly #addresses = new Map<string, Waiting>();

  /** @throws GatewayError `overloaded` where the address has its share waiting already */
  async during(remoteAddress: string | undefined, token: string, keys: Promise<void>): Promise<void> {
    const scope = failureScope(remoteAddress);
    const bytes = token.length + bytesBesides;
    const address: Waiting = this.#addresses.get(scope) ?? { held: 0, own: 0 };
    if (!this.#shares.mayHold(address, address.held + bytes, maxWaitingBytes)) {
      const reason = 'too many logins wait for the keys of their issuer';
      const detail = 'Too many logins wait to be verified, for the keys of their issuer are slow to come.';
      throw new GatewayError('overloaded', { retryAfterMs: 1_000, reason, detail });
    }
    this.#addresses.set(scope, address);
    this.#shares.join(address);
    address.held += bytes;
    try {
      await keys;
    } finally {
      address.held -= bytes;
      if (address.held === 0) {
        this.#shares.leave(address);
        this.#addresses.delete(scope);
      }
    }
  }
}

/** A mutex: lets one verification in after the other. */
export class SignatureTurns {
  #last: Promise<void> = Promise.resolve();

  /** Waits for a turn. @returns how to end it */
  async take(): Promise<() => void> {
    const before = this.#last;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#last = promise;
    await before;
    return resolve;
  }
}

/** What all verifications share. */
export interface SharedChecks {
  readonly turns: SignatureTurns;
  readonly waits: KeyWaits;
  readonly failures: Failures;
}

/**
 * The verification of one JWT, a failure of its address from its first signature until it is found good. While it waits for
 * keys or for its turn it is none: a thousand good logins in one second are no failures. It may take several signatures,
 * for callers can trust different keys.
 */
export class SignatureCheck {
  readonly #shared: SharedChecks;
  readonly #remoteAddress: string | undefined;
  #endTurn: (() => void) | undefined;
  /** As what it is counted. */
  #counted: FailureKind | undefined;

  constructor(shared: SharedChecks, remoteAddress: string | undefined) {
    this.#shared = shared;
    this.#remoteAddress = remoteAddress;
  }

  /** Waits until keys have been fetched. @throws GatewayError `overloaded` where too many wait */
  waitForKeys(token: string, keys: Promise<void>): Promise<void> {
    return this.#shared.waits.during(this.#remoteAddress, token, keys);
  }

  /**
   * Gets the key for a signature, and then waits for the turn to verify it, which lasts until the next key or the end.
   *
   * @param isKnown the JWT names someone whose login was verified before
   * @throws GatewayError `caller-rate-limited` where the address is over its limit; what `findKey` throws
   */
  async begin<Key>(isKnown: boolean, findKey: () => Promise<Key>): Promise<Key> {
    this.#endTurn?.();
    const key = await findKey();
    this.#endTurn = await this.#shared.turns.take();
    this.#count(isKnown ? 'known-signature' : 'signature', 'a JWT, not verified');
    return key;
  }

  /**
   * Call once, whatever the outcome: the next turn begins.
   *
   * @param failure why the JWT is refused; `undefined` where that is not its caller's fault
   * @throws GatewayError `caller-rate-limited` where it is a failure and the address is over its limit
   */
  end(failure: string | undefined): void {
    try {
      // One that was refused before any signature was verified cost no more than a token.
      if (failure !== undefined) this.#count('token', failure);
      else if (this.#counted !== undefined)
        this.#shared.failures.giveBack(this.#remoteAddress, this.#counted);
    } finally {
      this.#endTurn?.();
    }
  }

  #count(kind: FailureKind, reason: string): void {
    if (this.#counted !== undefined) return;
    countFailure(this.#shared.failures, this.#remoteAddress, kind, reason);
    this.#counted = kind;
  }
}
