/** A command's function in this process: what it decides and prints, without the start of a process. */
import { type Finished, type Owner, temporaryFolder } from './process.ts';

let before: Promise<unknown> = Promise.resolve();

/**
 * Runs the function as the executable would, with these settings for its whole environment, and with what it writes
 * collected, but for a gateway's log, which goes to the descriptor. Calls wait for each other, because all of that
 * belongs to the process.
 *
 * @param folder where `.env` is looked for; default: an empty one
 */
export function runHere(
  owner: Owner,
  command: () => Promise<number>,
  settings: Readonly<Record<string, string>>,
  folder = temporaryFolder(owner),
): Promise<Finished> {
  const run = before.then(() => runAlone(command, settings, folder));
  before = run.catch(() => {});
  return run;
}

async function runAlone(
  command: () => Promise<number>,
  settings: Readonly<Record<string, string>>,
  folder: string,
): Promise<Finished> {
  const { env, execArgv, cwd, stdout, stderr } = process;
  // Not Vitest's spies: those end with any test that runs beside this one.
  const usualWrites = [stdout.write, stderr.write] as const;
  const printed = { stdout: '', stderr: '' };
  const collect = (stream: keyof typeof printed) => (text: string | Uint8Array) => {
    printed[stream] += text;
    return true;
  };
  try {
    [stdout.write, stderr.write] = [collect('stdout'), collect('stderr')];
    process.env = { PATH: env['PATH'], ADMIN_PORT: 'off', ...settings };
    // Vitest's own flags are not of those that may stand beside a key.
    process.execArgv = [];
    // Not `chdir`: processes that tests beside this one start would begin there.
    process.cwd = () => folder;
    const status = await command();
    return { status, ...printed };
  } finally {
    Object.assign(process, { env, execArgv, cwd });
    [stdout.write, stderr.write] = usualWrites;
    // Of `serve`.
    process.removeAllListeners('SIGHUP');
  }
}
