/** Packages that are none of our dependencies: each is installed beside the gateway where a setting needs it. */
import { errorCode } from './errors.ts';

/** Imports a package by name. A test gives its own. */
export type LoadModule = (name: string) => Promise<unknown>;

export const importModule: LoadModule = (name) => import(name);

/** A setting asks for a package that cannot be imported. The message names the setting, and says what to install. */
export class PackageError extends Error {
  override readonly name = 'PackageError';
}

/**
 * Why a package could not be imported, and what to install.
 *
 * @param error what the import failed with
 * @param packages as npm takes them, with versions
 */
export function importProblem(error: unknown, packages: string): string {
  const isMissing = errorCode(error) === 'ERR_MODULE_NOT_FOUND';
  return isMissing
    ? `needs a package that is not installed: npm install ${packages}`
    : `the package ${packages} cannot be loaded`;
}
