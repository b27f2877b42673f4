/** The real gateway in a process of its own, with a callers file and a log of its own in a folder of its own. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, open, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { digestOf, mintToken } from '../../src/callers/token.ts';
import { imageFlags } from '../../test/support/image-flags.ts';
import { builtMain, compileCache, makeProgram } from '../../test/support/program.ts';
import type { CallerPlan } from './callers.ts';

export interface GatewayProcess {
  readonly url: URL;
  /** By the caller's name. */
  readonly tokens: ReadonlyMap<string, string>;
  /** For faults: to stop it where it stands, go on, or kill it. */
  signal(signal: NodeJS.Signals): void;
  /** The lines about single requests so far, or all of them after its end. */
  requests(): Promise<readonly LogLine[]>;
  /** Ends it; what it logged, but for the lines about single requests. */
  end(): Promise<readonly LogLine[]>;
}

export interface LogLine {
  readonly msg: string;
  readonly [fact: string]: unknown;
}

/** Longer than that no start and no end takes, on a busy machine either. */
const patienceMs = 20_000;

export function mintTokens(plans: readonly CallerPlan[]): ReadonlyMap<string, string> {
  return new Map(plans.map(({ name }) => [name, mintToken()]));
}

/**
 * @param settings further ones, as `SHARED_STORE`
 * @param tokens by the callers' names; gateways with the same callers have the same
 */
export async function startGatewayProcess(
  upstream: URL,
  key: string,
  deadlineMs: number,
  plans: readonly CallerPlan[],
  settings: Readonly<Record<string, string>> = {},
  tokens = mintTokens(plans),
): Promise<GatewayProcess> {
  const folder = await mkdtemp(join(tmpdir(), 'storm-'));
  const callers = plans.map(({ name, weight, limit }) => {
    return { name, weight, limit, tokens: [{ sha256: digestOf(tokens.get(name) ?? '') }] };
  });
  const callersFile = join(folder, 'callers.json');
  await writeFile(callersFile, JSON.stringify({ callers }), { mode: 0o600 });
  const logFile = join(folder, 'gateway.log');
  const log = await open(logFile, 'w');
  makeProgram();
  const child = spawn(process.execPath, [...imageFlags(), builtMain, 'serve'], {
    cwd: folder,
    env: {
      NODE_COMPILE_CACHE: compileCache,
      UPSTREAM_BASE_URL: upstream.href,
      UPSTREAM_API_KEY: key,
      UPSTREAM_API_KEY_CHECK: 'off',
      CALLERS_FILE: callersFile,
      // Every request has a query of its own; with this, nothing could come from memory even so.
      CACHE_TTL: '0s',
      REQUEST_TIMEOUT: `${deadlineMs}ms`,
      SHUTDOWN_GRACE: '1s',
      PORT: '0',
      ADMIN_PORT: '0',
      ...settings,
    },
    stdio: ['ignore', log.fd, 'inherit'],
  });
  let whole: string | undefined;
  const read = async (isAboutRequest: boolean): Promise<LogLine[]> => {
    const text = whole ?? (await readFile(logFile, 'utf8'));
    return text
      .split('\n')
      .filter((line) => line.endsWith('}') && line.includes('"msg":"request"') === isAboutRequest)
      .map((line) => JSON.parse(line));
  };
  const lines = () => read(false);
  const url = await listening(child, lines);
  const gone = once(child, 'exit');
  // Whatever happens to the benchmark, nothing it started stays behind.
  const kill = (): void => void child.kill('SIGKILL');
  process.once('exit', kill);
  return {
    url,
    tokens,
    signal: (signal) => void child.kill(signal),
    requests: () => read(true),
    async end() {
      if (whole !== undefined) return lines();
      const timer = setTimeout(() => child.kill('SIGKILL'), patienceMs);
      child.kill('SIGTERM');
      await gone;
      clearTimeout(timer);
      process.off('exit', kill);
      whole = await readFile(logFile, 'utf8');
      await log.close();
      await rm(folder, { recursive: true });
      return lines();
    },
  };
}

async function listening(child: ChildProcess, lines: () => Promise<LogLine[]>): Promise<URL> {
  const untilMs = performance.now() + patienceMs;
  while (child.exitCode === null && performance.now() < untilMs) {
    const line = (await lines()).find(({ msg }) => msg === 'listening');
    if (line !== undefined) return new URL(String(line['url']));
    await sleep(50);
  }
  child.kill('SIGKILL');
  throw new Error('the gateway did not start');
}
