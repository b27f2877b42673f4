/** `vault:mount/path#field`: a field of a secret in HashiCorp Vault's or OpenBao's KV version 2 engine. */
import { KeyStoreError } from './store.ts';
import { encodePath, field, type VaultAnswer, VaultSession } from './vault-session.ts';
import type { VaultSettings } from './vault-settings.ts';
import type { OpenedStore } from './when-used.ts';

/** KV version 2 has no lease: the secret is read again every now and then, and its value compared. */
export function readVault(settings: VaultSettings, describe: string): OpenedStore {
  const session = new VaultSession(settings, describe);
  const path = `${encodePath(settings.mount)}/data/${encodePath(settings.path)}`;
  let version: number | undefined;

  const valueIn = ({ status, body }: VaultAnswer): string => {
    const data = field(body, 'data');
    if (status === 404 && field(data, 'metadata') !== undefined) {
      throw new KeyStoreError(`${describe}: the secret's newest version was deleted`);
    }
    if (status !== 200)
      throw new KeyStoreError(`${describe}: ${meanings[status] ?? `Vault answered ${status}`}`);
    const value = field(field(data, 'data'), settings.field);
    if (value === undefined) {
      throw new KeyStoreError(
        `${describe}: the secret has no such field (or the engine is not KV version 2)`,
      );
    }
    if (typeof value !== 'string') throw new KeyStoreError(`${describe}: the field is not text`);
    return value;
  };

  return {
    load: async (signal) => {
      const answer = await session.read(path, signal);
      const value = valueIn(answer);
      const found = field(field(field(answer.body, 'data'), 'metadata'), 'version');
      version = typeof found === 'number' ? found : undefined;
      return value;
    },
    loadPrevious: async (signal) => {
      if (version === undefined || version < 2) return undefined;
      const answer = await session.read(`${path}?version=${version - 1}`, signal);
      return answer.status === 404 ? undefined : valueIn(answer);
    },
  };
}

const meanings: Readonly<Record<number, string>> = {
  400: 'Vault calls the request invalid: is VAULT_NAMESPACE right?',
  403: 'Vault refused the token, or its policy does not allow reading this path',
  404: 'there is no such secret (or the engine is not KV version 2)',
  307: 'Vault answered with a redirect, which is not followed: name the active node in VAULT_ADDR',
  429: 'this Vault node is a standby, or limits requests',
  503: 'Vault is sealed or down for maintenance',
};
