/** Libraries that only some tests need, in a folder with a package.json of its own: `npm ci --prefix test/libraries`. */
import { existsSync } from 'node:fs';

/** Whether the tests that need them can run. Where they must (CI sets REQUIRE_LIBRARIES), they run and fail instead. */
export const hasLibraries =
  existsSync(new URL('node_modules', import.meta.url)) || process.env['REQUIRE_LIBRARIES'] === 'true';

/** Imports one of them by its name, which is resolved from this folder. */
export function importLibrary(name: string): Promise<Readonly<Record<string, unknown>>> {
  return import(name) as Promise<Readonly<Record<string, unknown>>>;
}
