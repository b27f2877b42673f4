/** Who is measured, and how each is started. */

import { spawnSync } from 'node:child_process';
import { hash } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { mintToken } from '../src/callers/token.ts';
import { imageFlags } from '../test/support/image-flags.ts';
import { standInKey } from '../test/support/stand-in/stand-in.ts';
import { upstreamCore } from './cores.ts';
import { configureNginx } from './nginx.ts';
import { freePort, type Program, startProgram } from './process.ts';

export interface Contender {
  readonly name: string;
  readonly program: Program;
  /** The read that is measured. */
  readonly url: string;
  /** From its start to its first good answer about readiness. */
  readonly readyMs: number;
}

export interface Surroundings {
  /** For logs, configurations and load scripts. */
  readonly folder: string;
  /** Origin and base address of the stand-in. */
  readonly upstreamOrigin: string;
  readonly upstreamUrl: string;
  /** The size of its answer. */
  readonly bytes: number;
  /** Where contenders run; any where left out. */
  readonly core?: number | undefined;
}

export const token = mintToken();
export const root = fileURLToPath(new URL('..', import.meta.url));

const path = '/api/analytics/accounts/';
const peer = (name: string): string => fileURLToPath(new URL(`peers/${name}.mjs`, import.meta.url));

/** The stand-in, with answers of about 3.3 KiB (15 accounts) or smaller ones. */
export async function startUpstream(accounts = 15): Promise<Program> {
  return startProgram({
    command: process.execPath,
    args: [peer('stand-in')],
    env: { BENCH_ACCOUNTS: String(accounts) },
    core: upstreamCore,
    speaks: true,
  });
}

/** A peer on Node, from `bench/peers/`. */
export async function startPeer(
  name: string,
  around: Surroundings,
  under: readonly string[] = [],
): Promise<Contender> {
  const startedMs = performance.now();
  const [command = '', ...args] = [...under, process.execPath, peer(name)];
  const program = await startProgram({
    command,
    args,
    env: {
      NODE_ENV: 'production',
      BENCH_UPSTREAM: around.upstreamOrigin,
      BENCH_KEY: standInKey,
      BENCH_DIGEST: hash('sha256', token, 'hex'),
      BENCH_LOG: join(around.folder, `${name}.log`),
      BENCH_BYTES: String(around.bytes),
    },
    core: around.core,
    speaks: true,
  });
  const readyMs = performance.now() - startedMs;
  return { name, program, readyMs, url: `http://127.0.0.1:${program.said['port']}${path}` };
}

export async function startNginx(around: Surroundings, caches: boolean): Promise<Contender> {
  const port = await freePort();
  const args = configureNginx({
    folder: join(around.folder, caches ? 'nginx-cache' : 'nginx'),
    port,
    upstreamOrigin: around.upstreamOrigin,
    key: standInKey,
    token,
    caches,
  });
  const startedMs = performance.now();
  const program = await startProgram({ command: 'nginx', args, core: around.core, speaks: false });
  const url = `http://127.0.0.1:${port}${path}`;
  await answers(url);
  return { name: 'nginx', program, url, readyMs: performance.now() - startedMs };
}

/** The rest of the benchmark goes on without it. */
export function hasNginx(): boolean {
  return spawnSync('nginx', ['-v'], { stdio: 'ignore' }).status === 0;
}

export interface GatewayOptions {
  readonly name?: string;
  readonly settings?: Readonly<Record<string, string>>;
  /** Callers in the file, each with a token; the first has `token`. */
  readonly tokens?: readonly string[];
  /** Node's, instead of the image's. */
  readonly flags?: readonly string[];
  readonly nodeArgs?: readonly string[];
  /** A program to run it with, and that one's arguments. */
  readonly under?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

/** The gateway as it is deployed: from `dist/`, with the image's flags; callers, log, cache and admin listener on. */
export async function startGateway(around: Surroundings, options: GatewayOptions = {}): Promise<Contender> {
  const {
    settings = {},
    tokens = [token],
    flags = imageFlags(),
    nodeArgs = [],
    under = [],
    env = {},
  } = options;
  const port = await freePort();
  // Of its own: a folder in which logs grow would wake the gateway's watch with every write.
  const callersFolder = join(around.folder, `callers-${port}`);
  mkdirSync(callersFolder);
  const callersFile = join(callersFolder, 'callers.json');
  const callers = tokens.map((one, index) => ({
    name: `caller-${index}`,
    tokens: [{ sha256: hash('sha256', one, 'hex') }],
  }));
  writeFileSync(callersFile, JSON.stringify({ callers }));
  // The log goes to a file, as a container's does; only its end is told from ours by the shell's redirection.
  const log = join(around.folder, `gateway-${port}.log`);
  const startedMs = performance.now();
  const program = await startProgram({
    command: '/bin/sh',
    args: [
      '-c',
      `exec "$0" "$@" >> '${log}'`,
      ...under,
      process.execPath,
      ...flags,
      ...nodeArgs,
      join(root, 'dist/main.js'),
    ],
    env: {
      NODE_ENV: 'production',
      // The image has one, filled when it is built; here the first start fills it.
      NODE_COMPILE_CACHE: join(around.folder, 'compile-cache'),
      UPSTREAM_BASE_URL: around.upstreamUrl,
      UPSTREAM_API_KEY: standInKey,
      UPSTREAM_API_KEY_CHECK: 'off',
      PORT: String(port),
      ADMIN_PORT: '0',
      CALLERS_FILE: callersFile,
      // What is measured as a hit must stay one for as long as it is measured.
      CACHE_TTL: '1h',
      ...settings,
      ...env,
    },
    cwd: around.folder,
    core: around.core,
    speaks: false,
  });
  const url = `http://127.0.0.1:${port}${path}`;
  try {
    await answers(`http://127.0.0.1:${port}/readyz`);
  } catch (error) {
    await program.end();
    throw new Error(
      `the gateway did not start: ${program.errors().trim().split('\n').slice(0, 3).join(' ')}`,
      {
        cause: error,
      },
    );
  }
  return { name: options.name ?? 'the gateway', program, url, readyMs: performance.now() - startedMs };
}

/** Waits until a listener answers at all. */
export async function answers(url: string, everyMs = 3): Promise<void> {
  const untilMs = performance.now() + 60_000;
  for (;;) {
    try {
      const response = await fetch(url);
      await response.arrayBuffer();
      if (response.status < 500) return;
    } catch {
      // Not yet.
    }
    if (performance.now() > untilMs) throw new Error(`${url} does not answer`);
    await new Promise((resolve) => setTimeout(resolve, everyMs));
  }
}
