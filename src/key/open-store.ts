/** From a setting as `file:/run/secrets/key` to the store it names. */
import { isAbsolute } from 'node:path';
import { splitWords } from './command-line.ts';
import { readEnvironment } from './env-store.ts';
import { runCommand } from './exec-store.ts';
import { readKeyFile } from './file-store.ts';
import { type KeyStore, KeyStoreError } from './store.ts';

/** The process's environment, as it was at the start. */
export type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Opens a store without asking it for anything yet.
 *
 * @param from the setting's value
 * @param environment where `env:` looks, and what stores take their own settings from
 * @param setting the setting's name, for messages
 * @throws KeyStoreError naming what is wrong with the setting; never with a value in it
 */
export function openStore(from: string, environment: Environment, setting: string): KeyStore {
  const colon = from.indexOf(':');
  const scheme = colon < 0 ? '' : from.slice(0, colon);
  const rest = from.slice(colon + 1);
  switch (scheme) {
    case 'env':
      if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(rest)) {
        throw new KeyStoreError(`${setting}: "env:" is followed by the name of an environment variable`);
      }
      return readEnvironment(rest, environment);
    case 'file':
      if (!isAbsolute(rest) || rest.includes('\0')) {
        throw new KeyStoreError(
          `${setting}: "file:" is followed by an absolute path, as file:/run/secrets/key`,
        );
      }
      return readKeyFile(rest);
    case 'exec': {
      const command = splitWords(rest);
      if ('reason' in command) throw new KeyStoreError(`${setting}: the command ${command.reason}`);
      return runCommand(command.words, environment);
    }
    default:
      // The value is not repeated: somebody may have put the key itself here.
      throw new KeyStoreError(
        `${setting}: names no store; it begins with env:, file:, exec:, vault:, aws-sm: or gcp-sm:`,
      );
  }
}
