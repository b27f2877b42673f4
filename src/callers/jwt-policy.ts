/**
 * What is read in a JWT: whose it says it is, before it is verified, and which caller it makes, after. Nothing
 * here trusts a signature; `jwt.ts` verifies between the two. Pure: no `this`, no I/O, no clock.
 */
import { errors } from 'jose';
import type { ClaimPattern, JwtRule } from './jwt-rule.ts';

export type Claims = Readonly<Record<string, unknown>>;

/** Tolerance for clocks that differ, in seconds. */
export const clockToleranceSeconds = 30;

const shape = /^[A-Za-z0-9_-]+\.([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+$/;

/** What a JWT says of itself, unverified: the issuer only decides whose keys to try. */
export interface ClaimedOrigin {
  readonly issuer: string;
  /** In seconds since 1970. A JWT that ended is refused whatever its signature, so that is not verified. */
  readonly exp: number | undefined;
}

/** `undefined` for what is no JWT with an issuer. */
export function claimedOrigin(token: string): ClaimedOrigin | undefined {
  const payload = shape.exec(token)?.[1];
  if (payload === undefined) return undefined;
  try {
    const claims: unknown = JSON.parse(Buffer.from(payload, 'base64url').toString('utf8'));
    if (typeof claims !== 'object' || claims === null) return undefined;
    const { iss: issuer, exp } = claims as Claims;
    return typeof issuer === 'string'
      ? { issuer, exp: typeof exp === 'number' ? exp : undefined }
      : undefined;
  } catch {
    return undefined;
  }
}

/** Types of a JWT that says who calls: none, any JWT (RFC 7519, section 5.1), an access token (RFC 9068, section 2.1). */
const loginTypes = new Set(['jwt', 'at+jwt', 'application/jwt', 'application/at+jwt']);

/**
 * Why a JWT with a good signature says nothing of who sends it; `undefined` where it may. An issuer signs other things
 * with the same keys (RFC 8725, section 3.11): a logout token has the same issuer, audience and person as a login.
 */
export function whyNoLogin(type: unknown, claims: Claims): string | undefined {
  if (type !== undefined && !(typeof type === 'string' && loginTypes.has(type.toLowerCase()))) {
    return 'its typ is neither absent nor JWT or at+jwt';
  }
  // OpenID Connect Back-Channel Logout, section 2.4; RFC 8417, section 2.2.
  if (Object.hasOwn(claims, 'events')) return 'it has events: it reports something and is no login';
  // RFC 7800, section 3.1: only its holder may use it, by a proof that is not checked here.
  if (Object.hasOwn(claims, 'cnf')) return 'it has cnf: it is bound to a key and is no bearer token';
  return undefined;
}

/** Whether a text matches a pattern in which `*` is any run of characters. Every other character is itself. */
export function matchesPattern(text: string, pattern: string): boolean {
  const [first = '', ...rest] = pattern.split('*');
  const last = rest.pop();
  if (last === undefined) return text === first;
  if (text.length < first.length + last.length) return false;
  if (!text.startsWith(first) || !text.endsWith(last)) return false;
  let at = first.length;
  const end = text.length - last.length;
  for (const part of rest) {
    const found = text.indexOf(part, at);
    if (found === -1 || found + part.length > end) return false;
    at = found + part.length;
  }
  return true;
}

/** An address with a second `@`, blanks or control characters could match a pattern for a domain it is not in. */
const plainEmail = /^[^@\s\p{C}"<>()]+@[^@\s\p{C}"<>()]+$/u;

/** Some issuers send the word instead of the value. An issuer that says nothing vouches for its addresses. */
function isEmailDenied(claims: Claims): boolean {
  const verified = Object.hasOwn(claims, 'email_verified') ? claims['email_verified'] : true;
  return verified !== true && verified !== 'true';
}

/** A pattern with `@` is about an e-mail address, in whatever claim: `upn`, `preferred_username`, `sub`. */
function isAboutEmail(claim: string, pattern: ClaimPattern): boolean {
  return claim === 'email' || (typeof pattern === 'string' && pattern.includes('@'));
}

function matchesOne(claims: Claims, claim: string, value: unknown, pattern: ClaimPattern): boolean {
  if (typeof pattern === 'boolean') return value === pattern;
  if (typeof value !== 'string') return false;
  if (isAboutEmail(claim, pattern) && (isEmailDenied(claims) || !plainEmail.test(value))) return false;
  return matchesPattern(value, pattern);
}

/**
 * Whether verified claims are this caller: every claim named by the rule must match one of its patterns, a list
 * (`email` is none) by any of its members. An e-mail address that is malformed or not verified never matches.
 */
export function matchesRule(claims: Claims, match: JwtRule['match']): boolean {
  return match.every(({ claim, patterns }) => {
    const value = Object.hasOwn(claims, claim) ? claims[claim] : undefined;
    const values = Array.isArray(value) && claim !== 'email' ? value : [value];
    return values.some((one) => patterns.some((pattern) => matchesOne(claims, claim, one, pattern)));
  });
}

/**
 * Why a JWT is refused, and what to do, for the operator's log. Of its content only the audience is shown, which the
 * issuer has signed.
 *
 * @param error what its verification failed with
 */
export function whyRefused(error: unknown, rule: Pick<JwtRule, 'jwks' | 'algorithms' | 'audiences'>): string {
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

/** Of a JWT that has ended. @param exp its claim, in seconds since 1970 */
export function expired(exp: unknown): string {
  const at =
    typeof exp === 'number' && Math.abs(exp) < 1e11 ? ` (${new Date(exp * 1000).toISOString()})` : '';
  return `has expired${at}: its caller has to log in again`;
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
