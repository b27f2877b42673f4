/** `env:NAME`: the key in the environment. It cannot change while the process runs. */
import { type KeyStore, KeyStoreError } from './store.ts';

export function readEnvironment(
  name: string,
  environment: Readonly<Record<string, string | undefined>>,
): KeyStore {
  const describe = `env:${name}`;
  return {
    describe,
    local: true,
    load: () => {
      const text = environment[name];
      return text === undefined
        ? Promise.reject(new KeyStoreError(`${describe}: the environment variable is not set`))
        : Promise.resolve(text);
    },
    watch: () => () => {},
  };
}
