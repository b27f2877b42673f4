/**
 * What a caller's token looks like, and its digest. Only the digest is ever kept.
 *
 * `wag_`, 256 random bits, and a checksum of both: a token in a log or a repository shows what it is, a scanner can
 * distinguish it from random text, and a truncated token can be distinguished from an unknown one.
 */
import { hash, randomBytes } from 'node:crypto';
import { crc32 } from 'node:zlib';

export const tokenPrefix = 'wag_';
const randomPart = 43;
const checksumPart = 6;
const tokenCharacters = tokenPrefix.length + randomPart + checksumPart;
const tokenShape = new RegExp(`^${tokenPrefix}[A-Za-z0-9_-]{${randomPart + checksumPart}}$`);

const checksumBytes = Buffer.alloc(4);

function checksum(body: string): string {
  checksumBytes.writeUInt32BE(crc32(body));
  return checksumBytes.toString('base64url');
}

/** A new token of 256 random bits, to be shown once; only its digest is kept. */
export function mintToken(): string {
  const body = tokenPrefix + randomBytes(32).toString('base64url');
  return body + checksum(body);
}

/** Whether a whole token of our making stands anywhere in a text. Its checksum rules out chance. */
export function holdsToken(text: string): boolean {
  for (let at = text.indexOf(tokenPrefix); at !== -1; at = text.indexOf(tokenPrefix, at + 1)) {
    if (isWhole(text.slice(at, at + tokenCharacters))) return true;
  }
  return false;
}

const leastCharacters = 32;
const leastDistinct = 8;

function isWhole(token: string): boolean {
  return tokenShape.test(token) && checksum(token.slice(0, -checksumPart)) === token.slice(-checksumPart);
}

/**
 * Whether a text is strong enough to be a token, wherever its digest comes from: the digest of a strong token
 * looks like that of a weak one, so the presented value is judged. Ours have their shape and
 * checksum. One made elsewhere has at least 32 characters, of which 8 differ: 128 random bits in hexadecimal
 * have that (but one in ten million), and a short, repeated or padded word has not.
 */
export function mayBeToken(text: string): boolean {
  if (text.startsWith(tokenPrefix)) return isWhole(text);
  return text.length >= leastCharacters && hasDistinct(text, leastDistinct);
}

function hasDistinct(text: string, least: number): boolean {
  const seen = new Set<string>();
  // A JWT has thousands of characters, and shows enough with its first ones.
  for (const character of text) if (seen.add(character).size >= least) return true;
  return false;
}

/** What the log says about a token that no caller has. The caller gets none of it. */
export function describeUnknownToken(token: string): string {
  if (!token.startsWith(tokenPrefix)) return 'an unknown credential, not one of our tokens';
  return isWhole(token)
    ? 'an unknown token, revoked or of another gateway'
    : 'a damaged token (its checksum is wrong)';
}

/** SHA-256 in lower-case hexadecimal. An attacker cannot choose how it begins, so a map of digests leaks nothing by its timing. */
export function digestOf(token: string): string {
  return hash('sha256', token, 'hex');
}
