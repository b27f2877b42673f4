/** The executable as a process of its own: what tests of commands, signals and exit statuses use. */
import { type ChildProcess, spawn } from 'node:child_process';
import { onTestFinished } from 'vitest';
import type { AtEnd } from './gateway.ts';
import { builtMain, compileCache } from './program.ts';

export interface Product {
  readonly process: ChildProcess;
  /** What it wrote so far. */
  stdout(): string;
  stderr(): string;
  /** The exit status, or the signal that ended it. */
  readonly ended: Promise<number | NodeJS.Signals | null>;
  /** Where it listens, once its log says so. */
  url(): Promise<string>;
}

export interface ProductOptions {
  readonly settings?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** Flags of the runtime. */
  readonly nodeFlags?: readonly string[];
  /** A module's text that runs before anything of the product. */
  readonly preload?: string;
  /** A concurrent test's own `onTestFinished`. */
  readonly atEnd?: AtEnd;
}

/** Starts it with nothing of this process's environment but PATH, and compiled files at hand; what still runs at the test's end is killed. */
export function startProduct(args: readonly string[], options: ProductOptions = {}): Product {
  const { settings = {}, cwd, nodeFlags = [], preload, atEnd = onTestFinished } = options;
  const flags = [...nodeFlags];
  if (preload !== undefined) {
    flags.push('--import', `data:text/javascript,${encodeURIComponent(preload)}`);
  }
  const child = spawn(process.execPath, [...flags, builtMain, ...args], {
    // Many run side by side, so none takes the admin listener's usual port.
    env: {
      PATH: process.env['PATH'] ?? '',
      NODE_COMPILE_CACHE: compileCache,
      ADMIN_PORT: 'off',
      // Most tests count what the upstream receives.
      UPSTREAM_API_KEY_CHECK: 'off',
      ...settings,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
    ...(cwd === undefined ? {} : { cwd }),
  });
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', (chunk: Buffer) => {
    stdout += chunk.toString('latin1');
  });
  child.stderr.on('data', (chunk: Buffer) => {
    stderr += chunk.toString('latin1');
  });
  const ended = new Promise<number | NodeJS.Signals | null>((resolve) => {
    child.on('close', (status, signal) => resolve(status ?? signal));
  });
  atEnd(async () => {
    child.kill('SIGKILL');
    await ended;
  });
  return {
    process: child,
    stdout: () => stdout,
    stderr: () => stderr,
    ended,
    async url() {
      const find = (): string | undefined => /"url":"(http:[^"]+)"/.exec(stdout)?.[1];
      for (let tries = 0; tries < 1_000 && child.exitCode === null && find() === undefined; tries++) {
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      const url = find();
      if (url === undefined) throw new Error(`it does not listen: ${stderr}${stdout}`);
      return url;
    },
  };
}
