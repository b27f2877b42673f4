/**
 * The `jwt` member of a caller: whose logins are accepted, which of them are this caller, and what is read in a JWT for
 * that. Nothing here trusts a signature; `jwt.ts` verifies it. Pure: no `this`, no I/O, no clock.
 */

import { didYouMean } from '../config/misspellings.ts';
import { isLoopbackHost } from '../http/address.ts';
import type { JsonCheck, JsonNode } from './json.ts';

/** Matches a claim: `*` stands for any run of characters; `true` and `false` for themselves. */
export type ClaimPattern = string | boolean;

export interface JwtRule {
  readonly issuer: string;
  readonly audiences: readonly string[];
  /** Address of the key set. */
  readonly jwks: string;
  readonly algorithms: readonly string[];
  /** Lower-case name of the field that carries the JWT; `authorization` means a bearer token. */
  readonly header: string;
  /** Every claim must match one of its patterns. */
  readonly match: readonly { readonly claim: string; readonly patterns: readonly ClaimPattern[] }[];
}

/**
 * Signatures that a JWT may have: asymmetric ones only. With HMAC in the list, the public key, which anyone can
 * read, would be the secret (the confusion of CVE-2026-22817), and `none` is no signature.
 */
const jwtAlgorithms: readonly string[] = [
  'RS256',
  'RS384',
  'RS512',
  'PS256',
  'PS384',
  'PS512',
  'ES256',
  'ES384',
  'ES512',
  'EdDSA',
  'Ed25519',
];

const jwtMembers = ['issuer', 'audience', 'jwks', 'algorithms', 'header', 'match'];
const fieldName = /^[A-Za-z0-9-]{1,64}$/;
/** They are credentials of another kind, or mean something else to HTTP. */
const takenFields = [
  'x-api-key',
  'fly-src',
  'fly-src-signature',
  'cookie',
  'host',
  'connection',
  'x-request-id',
  // They go up with every request.
  'traceparent',
  'tracestate',
];

/** Keys fetched without TLS could be an attacker's, so http: only from this machine. */
function jwksProblem(address: string): string | undefined {
  const url = URL.parse(address);
  if (url === null) return 'must be an address as https://login.example.com/keys';
  if (url.username !== '' || url.password !== '') return 'must not hold credentials';
  if (url.protocol === 'https:') return undefined;
  if (url.protocol === 'http:' && isLoopbackHost(url.hostname)) return undefined;
  return 'must begin with https: (http: only on loopback)';
}

function readMatch(check: JsonCheck, node: JsonNode | undefined, path: string): JwtRule['match'] {
  if (node === undefined) {
    check.add(path, 'is missing: without it every login of the issuer would be this caller');
    return [];
  }
  const claims = check.members(node, path, []);
  if (claims?.size === 0) check.add(path, 'is empty: every login of the issuer would be this caller');
  return [...(claims ?? [])].map(([claim, value]) => {
    const patterns: ClaimPattern[] =
      value.type === 'boolean' ? [value.value === true] : check.texts(value, `${path}.${claim}`);
    return { claim, patterns };
  });
}

/** @param forwarded lower-case names of fields that go up: a JWT in one of them would, too */
export function readJwtRule(
  check: JsonCheck,
  node: JsonNode,
  path: string,
  forwarded: ReadonlySet<string>,
): JwtRule | undefined {
  const members = check.members(node, path, jwtMembers);
  if (members === undefined) return undefined;
  const jwks = check.text(members.get('jwks'), `${path}.jwks`);
  const wrong = jwks === undefined ? undefined : jwksProblem(jwks);
  if (wrong !== undefined) check.add(`${path}.jwks`, wrong);
  const algorithms = members.has('algorithms')
    ? check.texts(members.get('algorithms'), `${path}.algorithms`)
    : jwtAlgorithms;
  for (const algorithm of algorithms) {
    if (!jwtAlgorithms.includes(algorithm)) {
      check.add(
        `${path}.algorithms`,
        `${/^[A-Za-z0-9]{1,8}$/.test(algorithm) ? `"${algorithm}"` : `(malformed, ${algorithm.length} characters)`} is not a signature that is accepted${didYouMean(algorithm, jwtAlgorithms)}`,
      );
    }
  }
  let header = 'authorization';
  if (members.has('header')) {
    header = (check.text(members.get('header'), `${path}.header`) ?? header).toLowerCase();
    if (!fieldName.test(header) || takenFields.includes(header)) {
      check.add(`${path}.header`, 'must be the name of a header field that has no other meaning here');
    } else if (forwarded.has(header)) {
      check.add(`${path}.header`, 'goes up by FORWARD_REQUEST_HEADERS, and no credential may');
    }
  }
  return {
    issuer: check.text(members.get('issuer'), `${path}.issuer`) ?? '',
    audiences: check.texts(members.get('audience'), `${path}.audience`),
    jwks: jwks ?? '',
    algorithms,
    header,
    match: readMatch(check, members.get('match'), `${path}.match`),
  };
}

export type Claims = Readonly<Record<string, unknown>>;

/** Tolerance for clocks that differ, in seconds. */
export const clockToleranceSeconds = 30;

const shape = /^[A-Za-z0-9_-]+\.([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+$/;

/** What a JWT says of itself, unverified: the issuer only decides whose keys to try, the subject whose turn it takes. */
export interface ClaimedOrigin {
  readonly issuer: string;
  readonly subject: string | undefined;
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
    const { iss: issuer, sub, exp } = claims as Claims;
    if (typeof issuer !== 'string') return undefined;
    const subject = typeof sub === 'string' ? sub : undefined;
    return { issuer, subject, exp: typeof exp === 'number' ? exp : undefined };
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
 * The first claim that keeps verified claims from being this caller; `undefined` where they are. Every claim named by the
 * rule must match one of its patterns, a list (`email` is none) by any of its members. An e-mail address that is
 * malformed or not verified never matches.
 */
export function findMisfit(claims: Claims, match: JwtRule['match']): string | undefined {
  return match.find(({ claim, patterns }) => {
    const value = Object.hasOwn(claims, claim) ? claims[claim] : undefined;
    const values = Array.isArray(value) && claim !== 'email' ? value : [value];
    return !values.some((one) => patterns.some((pattern) => matchesOne(claims, claim, one, pattern)));
  })?.claim;
}

/** Of a JWT that has ended. @param exp its claim, in seconds since 1970 */
export function expired(exp: unknown): string {
  const at =
    typeof exp === 'number' && Math.abs(exp) < 1e11 ? ` (${new Date(exp * 1000).toISOString()})` : '';
  return `has expired${at}: its caller has to log in again`;
}
