/** The gateway as it is deployed: the program that `build.ts` makes, and the flags that the image starts it with. */
import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll } from 'vitest';

const root = fileURLToPath(new URL('../..', import.meta.url));

/** Node's flags in the image's CMD. The one reader of them, so that what is tested is what is deployed. */
export function imageFlags(): string[] {
  const dockerfile = readFileSync(join(root, 'Dockerfile'), 'utf8');
  const command = JSON.parse(/^CMD (\[.*\])$/m.exec(dockerfile)?.[1] ?? '[]') as string[];
  const [program, ...words] = command;
  if (program !== 'node' || words.slice(-2).join(' ') !== 'dist/main.js serve') {
    throw new Error(`the image's command is not the expected one: ${command.join(' ')}`);
  }
  return words.slice(0, -2);
}

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
