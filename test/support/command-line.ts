/** The command line in this process: what it decides and says, for tests that promise nothing of a process. */
import type { CheckReport } from '../../src/commands/check-report.ts';
import { runCommandLine } from '../../src/commands/command-line.ts';
import { checkEnvironment } from '../../src/commands/run-check.ts';
import { describeStartFailure } from '../../src/commands/start-problems.ts';
import { readConfig } from '../../src/config/config.ts';
import { startGateway } from '../../src/gateway/gateway.ts';
import type { Finished } from './process.ts';

/** Runs help, wrong usage, and the commands about settings and callers. The others write past what is collected here. */
export async function commandLine(words: readonly string[]): Promise<Finished> {
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

/** `check` with nothing in the environment but what finds programs, and these settings: for people and for programs. */
export async function checkHere(settings: Readonly<Record<string, string>>, workspaces?: readonly string[]) {
  const environment = { PATH: process.env['PATH'], ...settings };
  const written = { words: '', json: '' };
  const check = (form: 'words' | 'json'): Promise<number> =>
    checkEnvironment(environment, {
      json: form === 'json',
      workspaces,
      write(text) {
        written[form] += text;
      },
    });
  const both = [await check('words'), await check('json')];
  return { both, stdout: written.words, report: JSON.parse(written.json) as CheckReport };
}

/** What `serve` says, its exit status, and what it has logged, where it cannot start with these settings. */
export async function failedStart(settings: Readonly<Record<string, string>>) {
  const environment = { PATH: process.env['PATH'], ...settings };
  let logged = '';
  const logTo = {
    write(line: string) {
      logged += line;
    },
    flush() {},
    async close() {},
  };
  try {
    await (await startGateway({ config: readConfig(environment), environment, logTo })).drain();
  } catch (error) {
    return { ...(await describeStartFailure(error, environment)), logged };
  }
  throw new Error('the gateway started');
}
