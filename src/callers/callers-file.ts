/** The callers file as the gateway understands it, once nothing in it is wrong. */
import type { CallerLimit } from './caller.ts';

export interface TokenEntry {
  /** SHA-256 of the token, lower-case hexadecimal. */
  readonly digest: string;
  /** Wall clock, ms; `Infinity` where the token does not expire. */
  readonly expiresAt: number;
}

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

export interface FlyRule {
  readonly org: string;
  readonly app: string;
}

export interface CallerEntry {
  readonly name: string;
  /** In the order of the file: the last is the newest. */
  readonly tokens: readonly TokenEntry[];
  readonly operations: readonly string[];
  /** Empty for the unnamed one. */
  readonly workspaces: readonly string[];
  readonly weight: number;
  readonly limit: CallerLimit | undefined;
  readonly jwt: JwtRule | undefined;
  readonly fly: FlyRule | undefined;
  readonly anonymous: boolean;
}

/** What a caller may do where the file has no `operations` for it: the list of API keys is never a default. */
export const defaultOperations: readonly string[] = ['list-accounts'];

/**
 * Signatures that a JWT may have: asymmetric ones only. With HMAC in the list, the public key, which anyone can
 * read, would be the secret (the confusion of CVE-2026-22817), and `none` is no signature.
 */
export const jwtAlgorithms: readonly string[] = [
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

/** The same problems, each with the file before its place in the file. */
export function inFile(file: string, problems: readonly string[]): readonly string[] {
  return problems.map((problem) => `${file}: ${problem}`);
}

/** The file cannot be used. Every problem begins with the file's path, and names its place in the file. */
export class CallersFileError extends Error {
  override readonly name = 'CallersFileError';
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(problems.join('; '));
    this.problems = problems;
  }
}
