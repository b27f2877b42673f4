/** Loads a cloud's own library when a store that needs it is named; none is among our dependencies. */
import { importProblem, type LoadModule, type OptionalPackage } from '../files/optional-package.ts';
import { KeyStoreError } from './store.ts';

/** @throws KeyStoreError that says what to install */
export async function loadSdk<T>(load: LoadModule, name: OptionalPackage, describe: string): Promise<T> {
  try {
    return (await load(name)) as T;
  } catch (error) {
    throw new KeyStoreError(`${describe}: ${importProblem(error, name)}`);
  }
}
