/**
 * Sealing of what is kept in the shared store. Who reads the store learns nothing; who writes to it can put nothing
 * before a caller; two entries cannot be swapped, because the name is authenticated with the value.
 *
 * Both keys are derived from the upstream key, so that gateways with the same key understand each other without another
 * secret, and a rotation makes everything older unreadable.
 */
import { createCipheriv, createDecipheriv, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { deriveSecret, type Key } from '../key/key.ts';

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

export interface KeySealing {
  readonly sealing: Sealing;
  /** The generation of the key, at this gateway. */
  readonly generation: number;
}

/**
 * @param key in use now; `undefined` while there is none
 * @param workspace another one has another sealing, were its key the same; empty for the unnamed one
 */
export function sealWithKey(key: () => Key | undefined, workspace = ''): () => KeySealing | undefined {
  const own = workspace === '' ? '' : `, workspace ${workspace}`;
  const known = new WeakMap<Key, KeySealing>();
  return () => {
    const current = key();
    if (current === undefined) return undefined;
    let sealing = known.get(current);
    if (sealing === undefined) {
      const { generation } = current;
      sealing = {
        sealing: createSealing((purpose) => deriveSecret(current, `${purpose}${own}`)),
        generation,
      };
      known.set(current, sealing);
    }
    return sealing;
  };
}

const lengthBytes = 4;

/** Any facts as JSON, then a body. */
export function pack(facts: object, body: Buffer): Buffer {
  const head = Buffer.from(JSON.stringify(facts));
  const length = Buffer.alloc(lengthBytes);
  length.writeUInt32BE(head.length);
  return Buffer.concat([length, head, body]);
}

/** The facts and the body; `undefined` for bytes that were not packed. */
export function unpack(
  bytes: Buffer,
): { readonly facts: Record<string, unknown>; readonly body: Buffer } | undefined {
  if (bytes.length < lengthBytes) return undefined;
  const end = lengthBytes + bytes.readUInt32BE(0);
  if (bytes.length < end) return undefined;
  try {
    const facts: unknown = JSON.parse(bytes.toString('utf8', lengthBytes, end));
    if (typeof facts !== 'object' || facts === null) return undefined;
    return { facts: facts as Record<string, unknown>, body: bytes.subarray(end) };
  } catch {
    return undefined;
  }
}
