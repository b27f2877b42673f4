import { spawnSync } from 'node:child_process';
import { root } from './documents.ts';
import { findOnPath } from './find-on-path.ts';

/**
 * Whether these programs are installed. Where they are not, tests that need them are left out and a line says so; where CI
 * requires them by the variable, it fails.
 */
export function hasTools(names: readonly string[], variable: string): boolean {
  const missing = names.filter((name) => findOnPath(name) === undefined);
  if (missing.length === 0) return true;
  if (process.env[variable] === 'true') throw new Error(`not installed: ${missing.join(', ')}`);
  process.stderr.write(`left out: tests that need ${missing.join(', ')}, which is not installed\n`);
  return false;
}

/** What a program printed, from the root of the repository, once it has ended. */
export function runTool(
  name: string,
  words: readonly string[],
  input = '',
): { readonly status: number | null; readonly stdout: string; readonly stderr: string } {
  const { status, stdout, stderr } = spawnSync(findOnPath(name) ?? name, words, {
    cwd: root,
    input,
    encoding: 'utf8',
    maxBuffer: 2 ** 26,
  });
  return { status, stdout, stderr };
}
