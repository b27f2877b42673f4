/**
 * `file:/path`: the key in a file that something else writes: a Docker or Kubernetes secret, a systemd
 * credential, an agent's rendered template, an editor.
 */

import { readSettled, watchForChanges } from '../files/follow.ts';
import { explainDenied } from '../files/read.ts';
import { describeFailure, type KeyStore, KeyStoreError, maxKeyBytes } from './store.ts';

/** More than a good file can hold, so that one that is too large is seen to be so and never read whole. */
const readBytes = 2 * maxKeyBytes;

export function readKeyFile(path: string): KeyStore {
  const describe = `file:${path}`;
  return {
    describe,
    local: true,
    load: async () => {
      try {
        const text = await readSettled(path, readBytes);
        if (Buffer.byteLength(text) >= readBytes) throw new KeyStoreError('is too large to be a key');
        return text;
      } catch (error) {
        throw new KeyStoreError(
          `${describe}: the file ${describeFailure(error)}${explainDenied(path, error)}`,
        );
      }
    },
    watch: (onChange) => {
      const watch = watchForChanges(path, onChange);
      return () => watch.close();
    },
  };
}
