/** A Redis or Valkey server of a test's own, on a Unix socket, where one is installed. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const programs = [
  '/usr/bin/valkey-server',
  '/usr/local/bin/valkey-server',
  '/usr/bin/redis-server',
  '/usr/local/bin/redis-server',
];

/** The server's program, or `undefined` where none is installed: its tests then say that they are left out. */
export const redisProgram = programs.find((path) => existsSync(path));

if (redisProgram === undefined) {
  if (process.env['REQUIRE_REDIS'] === 'true') throw new Error('no Redis or Valkey server is installed');
  process.stderr.write('left out: tests of the shared store, for no Redis or Valkey server is installed\n');
}

export interface RedisServer {
  /** For `SHARED_STORE`. */
  readonly address: string;
  readonly path: string;
  /** Stops the process where it stands: connections stay open, nothing is answered. */
  freeze(): void;
  thaw(): void;
  kill(): Promise<void>;
  /** Starts it again, empty. */
  start(): Promise<void>;
  /** Runs one command on a connection of its own. */
  command(...words: readonly string[]): string;
}

/** @param options further options of the server, as `--requirepass` */
export async function startRedis(...options: readonly string[]): Promise<RedisServer & AsyncDisposable> {
  const program = redisProgram;
  if (program === undefined) throw new Error('no Redis or Valkey server is installed');
  const folder = mkdtempSync(join(tmpdir(), 'gateway-store-'));
  const path = join(folder, 'store.sock');
  let child: ChildProcess | undefined;

  async function start(): Promise<void> {
    child = spawn(
      program ?? '',
      ['--port', '0', '--unixsocket', path, '--save', '', '--dir', folder, ...options],
      {
        stdio: 'ignore',
      },
    );
    while (!existsSync(path) && child.exitCode === null) await sleep(10);
  }

  async function kill(): Promise<void> {
    if (child === undefined || child.exitCode !== null) return;
    const ended = new Promise((resolve) => child?.once('exit', resolve));
    child.kill('SIGCONT');
    child.kill('SIGKILL');
    await ended;
    child = undefined;
    rmSync(path, { force: true });
  }

  await start();
  return {
    address: `unix:${path}`,
    path,
    freeze: () => void child?.kill('SIGSTOP'),
    thaw: () => void child?.kill('SIGCONT'),
    kill,
    start,
    command: (...words) =>
      execFileSync(program.replace(/-server$/, '-cli'), ['-s', path, ...words], { encoding: 'utf8' }).trim(),
    async [Symbol.asyncDispose]() {
      await kill();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
