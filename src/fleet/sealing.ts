/**
 * Sealing of what is kept in the shared store. Who reads the store learns nothing; who writes to it can put nothing
 * before a caller; two entries cannot be swapped, because the name is authenticated with the value.
 *
 * Both keys are derived from the upstream key by HKDF (RFC 5869), so that gateways with the same key understand each
 * other without another secret, and a rotation makes everything older unreadable.
 */
import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomBytes } from 'node:crypto';

/** Changes whenever the format does: older entries are then no entries. */
const formatVersion = 1;
const nonceBytes = 12;
const tagBytes = 16;

export interface Sealing {
  /** The store's name for a resource: an HMAC, so that names tell nothing of paths and queries. */
  nameOf(resource: string): string;
  seal(name: string, plain: Uint8Array): Buffer;
  /** The plain bytes, or `undefined` for whatever was not sealed under this name with these keys. */
  unseal(name: string, sealed: Uint8Array): Buffer | undefined;
}

/** @param secret the upstream key's value; it is not kept */
export function createSealing(secret: string): Sealing {
  const derive = (purpose: string): Buffer =>
    Buffer.from(hkdfSync('sha256', secret, 'workspace-analytics-gateway', `shared store: ${purpose}`, 32));
  const nameKey = derive('names');
  const valueKey = derive('values');
  return {
    nameOf: (resource) => createHmac('sha256', nameKey).update(resource).digest('base64url'),
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
