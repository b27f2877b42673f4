/** The command line in this process: what it decides and says, for tests that promise nothing of a process. */
import { runCommandLine } from '../../src/commands/command-line.ts';
import type { Finished } from './process.ts';

/** Runs help, wrong usage, and the commands about settings and callers. The others write past what is collected here. */
export async function runHere(words: readonly string[]): Promise<Finished> {
  const written = { stdout: '', stderr: '' };
  const status = await runCommandLine(words, {
    stdout(text) {
      written.stdout += text;
    },
    stderr(text) {
      written.stderr += text;
    },
  });
  return { status, ...written };
}
