/** The built program as files of tests use it: made once for all of them, and copied for those that want their own. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll } from 'vitest';
import { copyProgram, makeProgram } from './program.ts';

export interface BuiltProgram {
  /** Holds what the image holds, with no `node_modules` above it. */
  readonly folder: string;
  readonly main: string;
}

/** Vitest's `globalSetup`. */
export const setup = makeProgram;

/** Copies the program before the tests of the calling file or `describe`, and removes it after them. */
export function copyOfProgram(): BuiltProgram {
  const folder = mkdtempSync(join(tmpdir(), 'gateway-built-'));
  beforeAll(() => copyProgram(folder));
  afterAll(() => rmSync(folder, { recursive: true }));
  return { folder, main: join(folder, 'dist/main.js') };
}
