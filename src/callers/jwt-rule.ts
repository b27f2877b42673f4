/** Reads the `jwt` member of a caller: whose logins are accepted, and which of them are this caller. Pure. */

import { didYouMean } from '../config/names.ts';
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
