/** `env:NAME`: the key in the environment. It cannot change while the process runs. */
import type { Environment } from '../config/values.ts';
import { type KeyStore, KeyStoreError } from './store.ts';

export function readEnvironment(name: string, environment: Environment): KeyStore {
  // The setting may hold the key itself instead of the name of its variable.
  const isVariable = environment[name] !== undefined || /^[A-Z_][A-Z0-9_]*$/.test(name);
  const describe = `env:${isVariable ? name : '(not a variable)'}`;
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
