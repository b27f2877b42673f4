/** A Redis or Valkey server of a test's own, on a Unix socket, where one is installed. */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

/** Another one, for a single run: `REDIS_SERVER=/path/valkey-server npx vitest run test/fleet`. */
const named = process.env['REDIS_SERVER'];
const programs = [
  '/usr/bin/valkey-server',
  '/usr/local/bin/valkey-server',
  '/usr/bin/redis-server',
  '/usr/local/bin/redis-server',
];

/** The server's program, or `undefined` where none is installed: its tests then say that they are left out. */
export const redisProgram = (named === undefined ? programs : [named]).find((path) => existsSync(path));

if (redisProgram === undefined) {
  if (named !== undefined || process.env['REQUIRE_REDIS'] === 'true')
    throw new Error('no Redis or Valkey server is installed');
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
  /** Runs one command on a connection of its own. Resolves with the values of the reply, one a line. */
  command(...words: readonly string[]): Promise<string>;
}

/** @param options further options of the server; with `--requirepass`, `command` sends the password */
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
    command: async (...words) => {
      const password = options[options.indexOf('--requirepass') + 1] ?? '';
      const first = options.includes('--requirepass') ? [['AUTH', password]] : [];
      const values = await repliesTo(path, [...first, words, ['QUIT']]);
      return values.slice(first.length, -1).join('\n');
    },
    async [Symbol.asyncDispose]() {
      await kill();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** The values of the replies to these commands (RESP2), each character a byte. The last command ends the connection. */
async function repliesTo(path: string, commands: readonly (readonly string[])[]): Promise<string[]> {
  const socket = connect({ path });
  for (const words of commands) {
    const parts = words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`);
    socket.write(`*${words.length}\r\n${parts.join('')}`);
  }
  let replies = '';
  for await (const text of socket.setEncoding('latin1')) replies += text;
  const values: string[] = [];
  for (let at = 0; at < replies.length; ) {
    const kind = replies[at];
    const end = replies.indexOf('\r\n', at);
    const head = replies.slice(at + 1, end);
    at = end + 2;
    if (kind === '-') throw new Error(head);
    // Of a list only its values count, and a value that is not there is an empty one.
    if (kind === '*') continue;
    const isLong = kind === '$' && head !== '-1';
    values.push(isLong ? replies.slice(at, at + Number(head)) : head.replace(/^-1$/, ''));
    if (isLong) at += Number(head) + 2;
  }
  return values;
}
