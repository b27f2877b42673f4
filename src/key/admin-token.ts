/** The token of the admin listener, kept where the key may be kept too. */

import type { Environment } from '../config/values.ts';
import { loadKeyValue } from './key-source.ts';
import { openStore } from './open-store.ts';
import { KeyStoreError } from './store.ts';

/**
 * How to read the token of ADMIN_TOKEN_FROM: each time anew, so that a new value needs no restart. It has the form of a
 * key: at least 16 visible ASCII characters.
 *
 * @returns a function that rejects with a `KeyStoreError` that names the setting; `undefined` where no token is asked for
 * @throws KeyStoreError where the setting is malformed
 */
export function openAdminToken(
  settings: { readonly ADMIN_TOKEN_FROM?: string | undefined; readonly ADMIN_PORT?: number | 'off' },
  environment: Environment,
): (() => Promise<string>) | undefined {
  const { ADMIN_TOKEN_FROM: from, ADMIN_PORT: port } = settings;
  if (from === undefined || port === 'off') return undefined;
  const store = openStore(from, environment, 'ADMIN_TOKEN_FROM');
  return async () => {
    try {
      return await loadKeyValue(store, undefined, 'the token');
    } catch (error) {
      if (!(error instanceof KeyStoreError)) throw error;
      throw new KeyStoreError(`ADMIN_TOKEN_FROM: ${error.message}`);
    }
  };
}
