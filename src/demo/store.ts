/** A Valkey or Redis server for the demo of several gateways, on a socket of its own, where one is installed. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const names = ['valkey-server', 'redis-server'];
const usualFolders = ['/usr/bin', '/usr/local/bin'];
const startLimitMs = 5_000;

export interface DemoStore {
  /** For SHARED_STORE. */
  readonly address: string;
  end(): Promise<void>;
}

/**
 * `undefined` where no server is installed, or it does not start. It keeps nothing on the disk.
 *
 * @param path the folders of programs, as in PATH
 */
export async function startDemoStore(path: string): Promise<DemoStore | undefined> {
  const folders = [...path.split(delimiter), ...usualFolders];
  const program = names.flatMap((name) => folders.map((folder) => join(folder, name))).find(existsSync);
  if (program === undefined) return undefined;
  const folder = mkdtempSync(join(tmpdir(), 'analytics-gateway-store-'));
  const socket = join(folder, 'store.sock');
  const options = ['--port', '0', '--unixsocket', socket, '--save', '', '--dir', folder];
  const child = spawn(program, options, { stdio: 'ignore' });
  const ended = once(child, 'exit').catch(() => undefined);
  const end = async (): Promise<void> => {
    child.kill('SIGTERM');
    await ended;
    rmSync(folder, { recursive: true, force: true });
  };
  const untilMs = performance.now() + startLimitMs;
  while (!existsSync(socket) && child.exitCode === null && performance.now() < untilMs) await sleep(20);
  if (existsSync(socket)) return { address: `unix:${socket}`, end };
  await end();
  return undefined;
}
