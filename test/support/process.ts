/** The executable as a process of its own: what the tests of life, start, log and commands use. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type AskOptions, ask, type Came } from './gateway.ts';
import { builtMain, compileCache } from './program.ts';
import { type StandIn, type StandInOptions, standInKey, startStandIn } from './stand-in/stand-in.ts';

/** The test that something ends with: its context. Tests that run at once have no other way to say which they are. */
export interface Owner {
  readonly onTestFinished: (end: () => void | Promise<void>) => void;
}

/** The executable as it stands in a checkout. */
export const sourceMain = fileURLToPath(new URL('../../src/main.ts', import.meta.url));

export interface RunOptions {
  /** The whole environment, besides what finding programs needs. */
  readonly settings?: Readonly<Record<string, string>>;
  /** Flags of Node, before the file. */
  readonly flags?: readonly string[];
  /** Default: a new folder, so that no `.env` takes part. */
  readonly cwd?: string;
  /** Where standard output goes instead of being collected: a file descriptor. */
  readonly stdout?: number;
  /** A descriptor that the process gets as its third, as a listening socket of a supervisor. */
  readonly passed?: number;
  /** A program to run it with, such as `prlimit --nofile=40`. */
  readonly under?: readonly string[];
  /** Default: the built program. */
  readonly main?: string;
}

export interface Running {
  readonly child: ChildProcess;
  readonly pid: number;
  stdout(): string;
  stderr(): string;
  /** The exit status, or the signal's name. */
  readonly exited: Promise<number | NodeJS.Signals>;
  /** Resolves once the pattern is found in standard output; rejects when the process ends without it. */
  printed(pattern: RegExp): Promise<RegExpExecArray>;
  signal(name: NodeJS.Signals): void;
}

export interface Finished {
  readonly status: number | NodeJS.Signals;
  readonly stdout: string;
  readonly stderr: string;
}

/** A folder that ends with the test. */
export function temporaryFolder({ onTestFinished }: Owner): string {
  const folder = mkdtempSync(join(tmpdir(), 'gateway-process-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Starts the executable; whatever happens, it ends with the test. */
export function start(owner: Owner, command: readonly string[], options: RunOptions = {}): Running {
  const { settings = {}, flags = [], under = [], main = builtMain, cwd = temporaryFolder(owner) } = options;
  const [program = '', ...rest] = [...under, process.execPath, ...flags, '--', main, ...command];
  const child = spawn(program, rest, {
    cwd,
    // Many run side by side, so none takes the admin listener's usual port.
    env: { PATH: process.env['PATH'], NODE_COMPILE_CACHE: compileCache, ADMIN_PORT: 'off', ...settings },
    stdio: [
      'ignore',
      options.stdout ?? 'pipe',
      'pipe',
      ...(options.passed === undefined ? [] : [options.passed]),
    ],
  });
  let stdout = '';
  let stderr = '';
  const onOutput = new Set<() => void>();
  const changed = (): void => {
    for (const look of onOutput) look();
  };
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
    changed();
  });
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  let ended = false;
  const exited = new Promise<number | NodeJS.Signals>((resolve, reject) => {
    child.on('error', reject);
    // `close` and not `exit`: only then all output has been read.
    child.on('close', (code, signal) => {
      ended = true;
      resolve(code ?? signal ?? 'SIGKILL');
      changed();
    });
  });
  owner.onTestFinished(async () => {
    if (!ended) child.kill('SIGKILL');
    await exited;
  });
  return {
    child,
    pid: child.pid ?? 0,
    stdout: () => stdout,
    stderr: () => stderr,
    exited,
    printed: (pattern) =>
      new Promise((resolve, reject) => {
        const look = (): void => {
          const found = pattern.exec(stdout);
          if (found === null && !ended) return;
          onOutput.delete(look);
          if (found === null) reject(new Error(`ended without ${pattern}:\n${stdout}${stderr}`));
          else resolve(found);
        };
        onOutput.add(look);
        look();
      }),
    signal: (name) => void child.kill(name),
  };
}

/** Runs a command to its end. */
export async function run(
  owner: Owner,
  command: readonly string[],
  options: RunOptions = {},
): Promise<Finished> {
  const running = start(owner, command, options);
  const status = await running.exited;
  return { status, stdout: running.stdout(), stderr: running.stderr() };
}

export interface Served extends Running {
  readonly port: number;
  ask(path: string, options?: AskOptions): Promise<Came>;
  /** The log, every line of which must be JSON. */
  lines(): Record<string, unknown>[];
}

/** The settings of a gateway before an upstream; the port is free. */
export function settingsFor(upstreamUrl: string): Record<string, string> {
  return {
    UPSTREAM_BASE_URL: upstreamUrl,
    UPSTREAM_API_KEY: standInKey,
    PORT: '0',
    ADMIN_PORT: 'off',
    SHUTDOWN_GRACE: '5s',
    RETRY_BASE: '20ms',
    // Most tests count what the upstream receives.
    UPSTREAM_API_KEY_CHECK: 'off',
  };
}

/** `serve`, once it listens on TCP. Its log says where, so it must be collected. */
export async function serve(owner: Owner, options: RunOptions): Promise<Served> {
  const running = start(owner, ['serve'], options);
  const [, port] = await running.printed(/"url":"http:[^"]*:(\d+)"/);
  return {
    ...running,
    port: Number(port),
    ask: (path, askOptions = {}) => ask({ host: '127.0.0.1', port: Number(port) }, path, askOptions),
    lines: () => linesOf(running.stdout()),
  };
}

/** A stand-in that ends with the test. */
export async function standInFor({ onTestFinished }: Owner, options: StandInOptions = {}): Promise<StandIn> {
  const standIn = await startStandIn(options);
  onTestFinished(() => standIn.close());
  return standIn;
}

/** Asks again and again until the answer is yes; the test's own time limit ends it. */
export async function until(isSo: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await isSo())) await new Promise((resolve) => setTimeout(resolve, 20));
}

/** Every whole line of a log as what it says; throws where one is not JSON. */
export function linesOf(log: string): Record<string, unknown>[] {
  return log
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Record<string, unknown>);
}
