/** The program that `build.ts` makes, in a folder that holds what the image holds. */
import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, rmSync } from 'node:fs';
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

/** Builds the program before the tests of the calling file or `describe`, and removes it after them. */
export function buildProgram(): BuiltProgram {
  const folder = mkdtempSync(join(tmpdir(), 'gateway-built-'));
  beforeAll(() => {
    execFileSync(process.execPath, ['build.ts', join(folder, 'dist')], { cwd: root });
    for (const file of ['package.json', '.env.example']) copyFileSync(join(root, file), join(folder, file));
  });
  afterAll(() => rmSync(folder, { recursive: true }));
  return { folder, main: join(folder, 'dist/main.js') };
}
