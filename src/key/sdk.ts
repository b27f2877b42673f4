/** Loads a cloud's own library when a store that needs it is named; none is among our dependencies. */
import { KeyStoreError } from './store.ts';

/** Imports a package by name. A test gives its own. */
export type LoadModule = (name: string) => Promise<unknown>;

export const importModule: LoadModule = (name) => import(name);

/** @throws KeyStoreError that says what to install */
export async function loadSdk<T>(
  load: LoadModule,
  name: string,
  major: number,
  describe: string,
): Promise<T> {
  try {
    return (await load(name)) as T;
  } catch (error) {
    const missing = error instanceof Error && 'code' in error && error.code === 'ERR_MODULE_NOT_FOUND';
    throw new KeyStoreError(
      missing
        ? `${describe}: needs a package that is not installed: npm install ${name}@${major}`
        : `${describe}: the package ${name} cannot be loaded`,
    );
  }
}
