/** A further secret of the gateway's own, kept where the key may be kept too. */
import { loadKeyValue } from './key-source.ts';
import { openStore } from './open-store.ts';
import type { Environment } from './store.ts';

/**
 * How to read it: each time anew, so that a new value needs no restart. It has the form of a key: at least 16 visible
 * ASCII characters.
 *
 * @param from `env:NAME` or `file:/path`
 * @returns a function that rejects with a `KeyStoreError`
 * @throws KeyStoreError where the setting is malformed
 */
export function secretReader(from: string, environment: Environment, setting: string): () => Promise<string> {
  const store = openStore(from, environment, setting);
  return () => loadKeyValue(store);
}
