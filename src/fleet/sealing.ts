/**
 * Sealing of what is kept in the shared store. Who reads the store learns nothing; who writes to it can put nothing
 * before a caller; two entries cannot be swapped, because the name is authenticated with the value.
 *
 * Both keys are derived from the upstream key, so that gateways with the same key understand each other without another
 * secret, and a rotation makes everything older unreadable.
 */
import { createCipheriv, createDecipheriv, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';

/** Changes whenever the format does: older entries are then no entries. */
const formatVersion = 1;
const nonceBytes = 12;
const tagBytes = 16;

export interface Sealing {
  /** The store's name for a resource: an HMAC, so that names tell nothing of paths and queries. */
  nameOf(resource: string): string;
  /** A text that need not be secret, and behind it what no other program can make for the same purpose. */
  sign(purpose: string, text: string): string;
  /** Whether it was signed for this purpose with these keys. */
  isSigned(purpose: string, signed: string): boolean;
  seal(name: string, plain: Uint8Array): Buffer;
  /** The plain bytes, or `undefined` for whatever was not sealed under this name with these keys. */
  unseal(name: string, sealed: Uint8Array): Buffer | undefined;
}

/** @param derive 32 secret bytes for a purpose */
export function createSealing(derive: (purpose: string) => Buffer): Sealing {
  const nameKey = derive('shared store: names');
  const valueKey = derive('shared store: values');
  const nameOf = (resource: string): string =>
    createHmac('sha256', nameKey).update(resource).digest('base64url');
  const sign = (purpose: string, text: string): string => `${text} ${nameOf(`${purpose} ${text}`)}`;
  return {
    nameOf,
    sign,
    isSigned(purpose, signed) {
      const given = Buffer.from(signed);
      const expected = Buffer.from(sign(purpose, signed.slice(0, Math.max(signed.lastIndexOf(' '), 0))));
      return given.length === expected.length && timingSafeEqual(given, expected);
    },
    seal(name, plain) {
      const nonce = randomBytes(nonceBytes);
      const cipher = createCipheriv('aes-256-gcm', valueKey, nonce).setAAD(Buffer.from(name));
      const sealed = [Buffer.of(formatVersion), nonce, cipher.update(plain), cipher.final()];
      return Buffer.concat([...sealed, cipher.getAuthTag()]);
    },
    unseal(name, sealed) {
      const bodyStart = 1 + nonceBytes;
      if (sealed.length < bodyStart + tagBytes || sealed[0] !== formatVersion) return undefined;
      const tag = sealed.subarray(sealed.length - tagBytes);
      const decipher = createDecipheriv('aes-256-gcm', valueKey, sealed.subarray(1, bodyStart), {
        authTagLength: tagBytes,
      });
      decipher.setAAD(Buffer.from(name)).setAuthTag(tag);
      try {
        const body = sealed.subarray(bodyStart, sealed.length - tagBytes);
        return Buffer.concat([decipher.update(body), decipher.final()]);
      } catch {
        // Not ours, or changed since: for a cache that is the same as not there.
        return undefined;
      }
    },
  };
}
