/**
 * What a caller's token looks like, and its digest. Only the digest is ever kept.
 *
 * `wag_`, 256 random bits, and a checksum of both: whoever finds one in a log or a repository knows what it is,
 * a scanner can tell it from chance, and a token that lost a character on the way is told from an unknown one.
 */
import { hash, randomBytes } from 'node:crypto';
import { crc32 } from 'node:zlib';

export const tokenPrefix = 'wag_';
const randomPart = 43;
const checksumPart = 6;
const tokenShape = new RegExp(`^${tokenPrefix}[A-Za-z0-9_-]{${randomPart + checksumPart}}$`);

function checksum(body: string): string {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(crc32(body));
  return bytes.toString('base64url');
}

/** A new token of 256 random bits. Whoever calls this shows it once and keeps only the digest. */
export function mintToken(): string {
  const body = tokenPrefix + randomBytes(32).toString('base64url');
  return body + checksum(body);
}

/** What the log says of a token that nobody has: the caller is told none of it. */
export function describeUnknownToken(token: string): string {
  if (!token.startsWith(tokenPrefix)) return 'an unknown credential, not one of our tokens';
  const whole =
    tokenShape.test(token) && checksum(token.slice(0, -checksumPart)) === token.slice(-checksumPart);
  return whole
    ? 'an unknown token, revoked or of another gateway'
    : 'a damaged token (its checksum is wrong)';
}

/** SHA-256 in lower-case hexadecimal. Nobody can steer what it begins with, so a map of digests leaks nothing by its timing. */
export function digestOf(token: string): string {
  return hash('sha256', token, 'hex');
}
