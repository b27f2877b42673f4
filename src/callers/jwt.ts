/**
 * Authenticates callers by JWT (RFC 7519, verified as RFC 8725 asks): verified once, then remembered by digest until
 * it expires, so that a hit needs no promise. Loaded by `authenticator.ts` where a caller has `jwt`.
 */
import { errors, type JWTPayload, type JWTVerifyGetKey, jwtVerify } from 'jose';
import { LRUCache } from 'lru-cache';
import { GatewayError } from '../errors.ts';
import type { OutboundProxy } from '../exchange/proxy.ts';
import { type Authenticated, makePerson } from './caller.ts';
import type { SignatureCheck } from './failures.ts';
import {
  claimedOrigin,
  clockToleranceSeconds,
  expired,
  findMisfit,
  type JwtRule,
  whyNoLogin,
} from './jwt-rule.ts';
import { KeySet, type KeySetSnapshot, KeySetUnavailableError } from './key-set.ts';
import { digestOf } from './token.ts';

export type JwtRules = readonly {
  readonly rule: JwtRule;
  readonly authenticated: Authenticated;
  /** The claim that tells people apart, where each has limits and a turn of its own. */
  readonly each?: string | undefined;
}[];

/** Why a JWT is not accepted: for the log. */
export interface JwtRefusal {
  readonly reason: string;
  /**
   * The issuer's keys could not be had, or the JWT is valid and no caller's: nothing that was guessed or forged, and not
   * counted as a failure.
   */
  readonly isNoFailure: boolean;
  /** The JWT is valid: another one of the same person would be no better. */
  readonly isForbidden?: true;
}

export interface JwtOptions {
  readonly rules: JwtRules;
  /** Where connections to issuers leave the network, where not by themselves. */
  readonly proxy: OutboundProxy | undefined;
  /** The keys at an address can't be fetched; `undefined` when they can be again. `hasKeys`: some were before. */
  onFailureChange(address: string, error: unknown, hasKeys: boolean): void;
}

interface Remembered {
  /** A refusal for a valid JWT that matches no caller: its signature need not be verified with each request. */
  readonly result: Authenticated | JwtRefusal;
  /** Wall clock, ms: a JWT's times are dates. */
  readonly expiresAt: number;
  readonly validFrom: number;
  readonly keys: KeySet;
}

const maxRemembered = 10_000;

/** Apart from the claims, which may have any name. */
type Verified = { readonly claims: JWTPayload } | { readonly refusal: JwtRefusal };

export class JwtVerifier {
  readonly #options: Pick<JwtOptions, 'proxy' | 'onFailureChange'>;
  // Not by `max`: that reserves the memory of all at once.
  readonly #remembered = new LRUCache<string, Remembered>({
    maxSize: maxRemembered,
    sizeCalculation: () => 1,
  });
  /** Digests of issuer and subject of logins that were verified, for as long as this runs. */
  readonly #people = new LRUCache<string, true>({ maxSize: maxRemembered, sizeCalculation: () => 1 });
  readonly #keySets = new Map<string, KeySet>();
  #rules: JwtRules;
  /** Grows whenever the rules or a key set change: what was verified under another version does not count. */
  #version = 0;

  constructor(options: JwtOptions) {
    this.#options = options;
    this.#rules = options.rules;
    this.#warm();
  }

  /** What is remembered of a token, without a promise; `undefined` where it has to be verified. */
  recall(header: string, digest: string): Authenticated | undefined {
    const result = this.#rememberedOf(`${header} ${digest}`)?.result;
    return result === undefined || 'reason' in result ? undefined : result;
  }

  #rememberedOf(name: string): Remembered | undefined {
    const found = this.#remembered.get(name);
    const now = Date.now();
    // Before its `nbf`, where the machine's clock was set back.
    if (found === undefined || now >= found.expiresAt || now < found.validFrom) return undefined;
    return found.keys.isCurrent() ? found : undefined;
  }

  /**
   * Verifies a token.
   *
   * @param check asked before each signature
   * @throws GatewayError `caller-rate-limited`, from the check
   */
  async verify(
    header: string,
    digest: string,
    token: string,
    check: SignatureCheck,
  ): Promise<Authenticated | JwtRefusal> {
    const startedIn = this.#version;
    const name = `${header} ${digest}`;
    const known = this.#rememberedOf(name);
    if (known !== undefined) return known.result;
    const claimed = claimedOrigin(token);
    const person =
      claimed?.subject === undefined ? undefined : digestOf(`${claimed.issuer}\n${claimed.subject}`);
    const isKnown = person !== undefined && this.#people.has(person);
    let refusal: JwtRefusal = { reason: 'a JWT of an issuer that no caller names', isNoFailure: false };
    /** Rules that trust the same keys, issuer and audience share one verification. */
    const verified = new Map<string, Verified>();
    let valid: Omit<Remembered, 'result'> | undefined;
    const misfits: string[] = [];
    for (const { rule, authenticated, each } of this.#rules) {
      if (rule.header !== header || rule.issuer !== claimed?.issuer) continue;
      // As RFC 7519 section 4.1.4 has it, and without the work: pages that poll with an ended JWT are many.
      if (claimed.exp !== undefined && claimed.exp <= Date.now() / 1000 - clockToleranceSeconds) {
        refusal = { reason: `a JWT that ${expired(claimed.exp)}`, isNoFailure: false };
        continue;
      }
      const trust = JSON.stringify([rule.jwks, rule.audiences, rule.algorithms]);
      const result = verified.get(trust) ?? (await this.#claimsOf(token, rule, check, isKnown));
      // A new version of the file, or other keys, came while this one waited: they decide.
      if (startedIn !== this.#version) return this.verify(header, digest, token, check);
      verified.set(trust, result);
      if ('refusal' in result) {
        refusal = result.refusal;
        continue;
      }
      if (person !== undefined) this.#people.set(person, true);
      const expiresAt = ((result.claims.exp ?? 0) + clockToleranceSeconds) * 1000;
      const validFrom = ((result.claims.nbf ?? 0) - clockToleranceSeconds) * 1000;
      valid = { expiresAt, validFrom, keys: this.#keysAt(rule.jwks) };
      const misfit = findMisfit(result.claims, rule.match);
      if (misfit === undefined) {
        const found = loginOf(authenticated, result.claims, each);
        this.#remembered.set(name, { result: found, ...valid });
        return found;
      }
      misfits.push(`${authenticated.caller.name} (claim "${misfit}")`);
    }
    // Where the keys of another rule could not be had, that rule may yet match.
    const isUnsure = [...verified.values()].some((one) => 'refusal' in one && one.refusal.isNoFailure);
    if (valid === undefined || isUnsure) return refusal;
    const result = refuseMisfit(misfits);
    this.#remembered.set(name, { result, ...valid });
    return result;
  }

  /** Takes the rules of a new version of the file; forgets everything but the keys. */
  adopt(rules: JwtRules): void {
    this.#rules = rules;
    this.#forget();
    this.#warm();
  }

  /** The key sets of all rules. */
  keySets(): readonly KeySetSnapshot[] {
    return [...this.#keySets.values()].map((keys) => keys.snapshot());
  }

  close(): void {
    for (const keys of this.#keySets.values()) keys.close();
  }

  #forget(): void {
    this.#version++;
    this.#remembered.clear();
  }

  #keysAt(address: string): KeySet {
    let keys = this.#keySets.get(address);
    if (keys === undefined) {
      keys = new KeySet({
        address,
        proxy: this.#options.proxy,
        onChange: () => this.#forget(),
        onFailureChange: (error, hasKeys) => this.#options.onFailureChange(address, error, hasKeys),
      });
      this.#keySets.set(address, keys);
    }
    return keys;
  }

  #warm(): void {
    const used = new Set(this.#rules.map(({ rule }) => rule.jwks));
    for (const [address, keys] of this.#keySets) {
      if (used.has(address)) continue;
      keys.close();
      this.#keySets.delete(address);
    }
    for (const address of used) this.#keysAt(address).warm();
  }

  async #claimsOf(token: string, rule: JwtRule, check: SignatureCheck, isKnown: boolean): Promise<Verified> {
    const keys = this.#keysAt(rule.jwks);
    const waits = (refreshed: Promise<void>): Promise<void> => check.waitForKeys(token, refreshed);
    const keyFor: JWTVerifyGetKey = (header, input) =>
      check.begin(isKnown, () => keys.keyFor(header, input, waits));
    try {
      const { payload, protectedHeader } = await jwtVerify(token, keyFor, {
        issuer: rule.issuer,
        audience: [...rule.audiences],
        // Pinned here, never taken from the token or the key (CVE-2026-22817).
        algorithms: [...rule.algorithms],
        requiredClaims: ['exp'],
        clockTolerance: clockToleranceSeconds,
      });
      const why = whyNoLogin(protectedHeader.typ, payload);
      if (why !== undefined)
        return { refusal: { reason: `a JWT that is refused: ${why}`, isNoFailure: false } };
      return { claims: payload };
    } catch (error) {
      if (error instanceof GatewayError) throw error;
      const isNoFailure = error instanceof KeySetUnavailableError;
      const why = isNoFailure ? `cannot be verified: ${error.message}` : whyRefused(error, rule);
      return { refusal: { reason: `a JWT that ${why}`, isNoFailure } };
    }
  }
}

/** So many entries that a JWT does not fit are named. */
const mostMisfits = 5;

/** Names claims, and never what a JWT has in them. */
function refuseMisfit(misfits: readonly string[]): JwtRefusal {
  const more = misfits.length - mostMisfits;
  const named = misfits.slice(0, mostMisfits).join(', ') + (more > 0 ? ` and ${more} more` : '');
  return { reason: `a valid JWT that fits no caller: not ${named}`, isNoFailure: true, isForbidden: true };
}

/** The login of these claims, and of one person where the entry tells people apart. */
function loginOf(authenticated: Authenticated, claims: JWTPayload, each: string | undefined): Authenticated {
  const { sub, exp = 0 } = claims;
  const person = each !== undefined && Object.hasOwn(claims, each) ? claims[each] : undefined;
  // Without the claim, or with one that is no name, it is one of all that have none.
  const isNamed = (typeof person === 'string' && person !== '') || typeof person === 'number';
  return {
    ...authenticated,
    ...(isNamed && { caller: makePerson(authenticated.caller, digestOf(String(person)).slice(0, 12)) }),
    ...(typeof sub === 'string' && { subject: sub.slice(0, 200) }),
    expiresAt: exp * 1000,
  };
}

/**
 * Why a JWT is refused, and what to do, for the operator's log. Of its content only the audience is shown, which the
 * issuer has signed.
 *
 * @param error what its verification failed with
 */
function whyRefused(error: unknown, rule: Pick<JwtRule, 'jwks' | 'algorithms' | 'audiences'>): string {
  if (error instanceof errors.JWTExpired) return expired(error.payload.exp);
  if (error instanceof errors.JWTClaimValidationFailed) return whyClaimRefused(error, rule.audiences);
  if (error instanceof errors.JWSSignatureVerificationFailed)
    return `has a signature that its key did not make: it is forged, or "jwks" (${rule.jwks}) has the keys of another login`;
  if (error instanceof errors.JWKSNoMatchingKey)
    return `names a key that "jwks" (${rule.jwks}) does not have: is that the address of the login's keys?`;
  if (error instanceof errors.JWKSMultipleMatchingKeys)
    return `names no key, and "jwks" (${rule.jwks}) has several that fit: the login has to set "kid"`;
  if (error instanceof errors.JOSEAlgNotAllowed)
    return `is signed in another way than "algorithms" allows (${rule.algorithms.join(', ')})`;
  if (error instanceof errors.JOSENotSupported)
    return 'needs an extension of JWT that the gateway does not know';
  if (error instanceof errors.JWTInvalid || error instanceof errors.JWSInvalid) return 'is malformed';
  if (error instanceof errors.JOSEError) return `cannot be verified (${error.code})`;
  return error instanceof Error ? error.message : 'cannot be verified';
}

function whyClaimRefused(
  { claim, reason, payload }: errors.JWTClaimValidationFailed,
  audiences: readonly string[],
): string {
  if (reason === 'missing') return `has no "${claim}"; the login has to set it`;
  if (reason === 'invalid') return `has a member "${claim}" that is no number`;
  if (claim === 'nbf') return 'is not valid yet ("nbf"): do the clocks of login and gateway differ?';
  if (claim !== 'aud') return `has another "${claim}" than the callers file expects`;
  const sent = JSON.stringify(payload.aud).slice(0, 100);
  return `is for another audience: its "aud" is ${sent}, and "audience" in the callers file is ${audiences.join(', ')}`;
}
