/** Packages that are none of our dependencies: each is installed beside the gateway where a setting needs it. */
import { createRequire, findPackageJSON } from 'node:module';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { errorCode, SettingError } from '../errors.ts';

/** Each with the version that we know, as npm takes it. The build leaves them out of the program. */
export const optionalPackages = {
  '@aws-sdk/client-secrets-manager': '3',
  '@google-cloud/secret-manager': '7',
  '@opentelemetry/api': '1',
  '@opentelemetry/sdk-node': '0',
} as const;

export type OptionalPackage = keyof typeof optionalPackages;

/** Imports a package by name. A test gives its own. */
export type LoadModule = (name: string) => Promise<unknown>;

/** A setting asks for a package that cannot be imported. The message names the setting, and says what to install. */
export class PackageError extends SettingError {
  override readonly name = 'PackageError';
}

/**
 * Where the command that we print installs them: beside the program, wherever it was put, and with a `package.json` of
 * its own. Npm then asks nothing of ours, whose libraries it would fetch or remove, and `npm ci` leaves it alone.
 */
const folder = join(dirname(findPackageJSON('..', import.meta.url) ?? import.meta.filename), 'libraries');

/** From where Node looks for packages, so also of a project that has the gateway as its own; then from the folder. */
export const importModule: LoadModule = async (name) => {
  try {
    return await import(name);
  } catch (error) {
    const beside = errorCode(error) === 'ERR_MODULE_NOT_FOUND' ? findInFolder(name) : undefined;
    if (beside === undefined) throw error;
    return await import(pathToFileURL(beside).href);
  }
};

function findInFolder(name: string): string | undefined {
  try {
    return createRequire(join(folder, 'package.json')).resolve(name);
  } catch {
    return undefined;
  }
}

/**
 * Why a package could not be imported, and the command that installs it.
 *
 * @param error what the import failed with
 * @param names all that are needed together
 */
export function importProblem(error: unknown, ...names: readonly OptionalPackage[]): string {
  const packages = names.map((name) => `${name}@${optionalPackages[name]}`).join(' ');
  return errorCode(error) === 'ERR_MODULE_NOT_FOUND'
    ? `needs a package that is not installed: npm install --prefix ${shellWord(folder)} ${packages}`
    : `the package ${packages} cannot be loaded`;
}

/** A path as a shell takes it for one word. */
function shellWord(path: string): string {
  return /^[\w/.@:+-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`;
}
