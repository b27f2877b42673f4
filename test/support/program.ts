/**
 * The program that `build.ts` makes, in a folder that holds what the image holds: one for all tests and benchmarks, and
 * copies for those that look at the folder, put something into it, or want nothing above it.
 */
import { execFileSync } from 'node:child_process';
import { copyFileSync, cpSync, globSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));

/** What the package has, but for its documents. */
export const builtFolder = join(root, 'node_modules/.cache/program');

/** What tests start. It takes two thirds of the work that a start from `src/` takes. */
export const builtMain = join(builtFolder, 'dist/main.js');

/** Dozens of starts compile the same files: kept here, they take half the time. */
export const compileCache = join(root, 'node_modules/.cache/compile');

let isMade = false;

/** Makes `builtMain` where it is older than its sources. Once in a process. */
export function makeProgram(): void {
  if (isMade) return;
  isMade = true;
  const sources = ['build.ts', 'package-lock.json', 'package.json', '.env.example', 'src/**'];
  const changedMs = globSync(sources, { cwd: root }).map((path) => statSync(join(root, path)).mtimeMs);
  // Written last, so that it tells when the whole was made.
  const madeMs = statSync(join(builtFolder, 'package.json'), { throwIfNoEntry: false })?.mtimeMs ?? 0;
  if (Math.max(...changedMs) < madeMs) return;
  rmSync(builtFolder, { recursive: true, force: true });
  execFileSync(process.execPath, ['build.ts', join(builtFolder, 'dist')], { cwd: root });
  for (const file of ['.env.example', 'package.json'])
    copyFileSync(join(root, file), join(builtFolder, file));
}

/** Copies what `makeProgram` made into a folder. */
export function copyProgram(folder: string): void {
  cpSync(builtFolder, folder, { recursive: true });
}
