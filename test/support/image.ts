/**
 * The program that `build.ts` makes, in a folder that holds what the image holds: one for all tests, and copies for
 * those that look at the folder or put something into it.
 */
import { execFileSync } from 'node:child_process';
import { copyFileSync, globSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll } from 'vitest';

const root = fileURLToPath(new URL('../..', import.meta.url));

export interface BuiltProgram {
  /** Holds what the image holds, with no `node_modules` above it. */
  readonly folder: string;
  readonly main: string;
}

/** What the package has, but for its documents. */
export const builtFolder = join(root, 'node_modules/.cache/program');

/** What tests start. It takes two thirds of the work that a start from `src/` takes. */
export const builtMain = join(builtFolder, 'dist/main.js');

/** Vitest's `globalSetup`: makes `builtMain` where it is older than its sources. */
export function setup(): void {
  const sources = ['build.ts', 'package-lock.json', 'package.json', '.env.example', 'src/**'];
  const changedMs = globSync(sources, { cwd: root }).map((path) => statSync(join(root, path)).mtimeMs);
  // Written last, so that it tells when the whole was made.
  const madeMs = statSync(join(builtFolder, 'package.json'), { throwIfNoEntry: false })?.mtimeMs ?? 0;
  if (Math.max(...changedMs) >= madeMs) buildInto(builtFolder);
}

function buildInto(folder: string): void {
  execFileSync(process.execPath, ['build.ts', join(folder, 'dist')], { cwd: root });
  for (const file of ['.env.example', 'package.json']) copyFileSync(join(root, file), join(folder, file));
}

/** Builds the program before the tests of the calling file or `describe`, and removes it after them. */
export function buildProgram(): BuiltProgram {
  const folder = mkdtempSync(join(tmpdir(), 'gateway-built-'));
  beforeAll(() => buildInto(folder));
  afterAll(() => rmSync(folder, { recursive: true }));
  return { folder, main: join(folder, 'dist/main.js') };
}
