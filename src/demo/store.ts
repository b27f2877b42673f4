/** A Valkey or Redis server for the demo of several gateways, on a socket of its own, where one is installed. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const names = ['valkey-server', 'redis-server'];
const folders = [...(process.env['PATH'] ?? '').split(delimiter), '/usr/bin', '/usr/local/bin'];
const startLimitMs = 5_000;

export interface DemoStore {
  /** For SHARED_STORE. */
  readonly address: string;
  end(): Promise<void>;
}

/** `undefined` where no server is installed, or it does not start. It keeps nothing on the disk. */
export async function startDemoStore(): Promise<DemoStore | undefined> {
  const program = names.flatMap((name) => folders.map((folder) => join(folder, name))).find(existsSync);
  if (program === undefined) return undefined;
  const folder = mkdtempSync(join(tmpdir(), 'analytics-gateway-store-'));
  const path = join(folder, 'store.sock');
  const options = ['--port', '0', '--unixsocket', path, '--save', '', '--dir', folder];
  const child = spawn(program, options, { stdio: 'ignore' });
  const ended = once(child, 'exit').catch(() => undefined);
  const end = async (): Promise<void> => {
    child.kill('SIGTERM');
    await ended;
    rmSync(folder, { recursive: true, force: true });
  };
  const untilMs = performance.now() + startLimitMs;
  while (!existsSync(path) && child.exitCode === null && performance.now() < untilMs) await sleep(20);
  if (existsSync(path)) return { address: `unix:${path}`, end };
  await end();
  return undefined;
}
