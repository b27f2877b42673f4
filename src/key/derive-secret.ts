/** Secrets that are derived from the upstream key, so that gateways which hold the same key need no other one. */
import { hkdfSync } from 'node:crypto';
import { exposeKey, type Key } from './key.ts';

/**
 * 32 bytes that tell nothing of the key (HKDF, RFC 5869). The same key and purpose give the same bytes in every process;
 * another key, as after a rotation, gives others.
 *
 * @param purpose distinguishes the secrets of one key; never the same for two uses
 */
export function deriveSecret(key: Key, purpose: string): Buffer {
  return Buffer.from(hkdfSync('sha256', exposeKey(key), 'workspace-analytics-gateway', purpose, 32));
}
