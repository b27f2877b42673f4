/** The sealing that belongs to the key in use: it changes with a rotation. */

import type { Key } from '../key/key.ts';
import { deriveSecret } from '../key/key.ts';
import { createSealing, type Sealing } from './sealing.ts';

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
