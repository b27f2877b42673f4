/** The built gateway under hostile conditions, with an account of each request: what its caller got, and what the log says. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { type Agent, get } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type StandIn, standInKey, startStandIn } from '../../test/support/stand-in/stand-in.ts';
import { type Deployed, startDeployed } from '../deployed.ts';

export const accounts = '/api/analytics/accounts/';

/** What a caller got: a status, or why there was none. */
export type Got = number | string;

export interface Subject {
  readonly gateway: Deployed;
  readonly standIn: StandIn;
  readonly folder: string;
  readonly keyFile: string;
  readonly lines: readonly string[];
  /** Sends so many reads that the cache does not hold, some at once. @returns what each got */
  ask(count: number, options?: AskOptions): Promise<readonly Got[]>;
  /** Resolves once the log has such a line. @throws Error where none comes in ten seconds */
  untilLine(like: RegExp): Promise<void>;
  /** A member of `/status`, by its path. */
  status(...path: readonly string[]): Promise<unknown>;
  /** Stops it, and compares both accounts. @throws Error where they differ, or it does not end well */
  stop(): Promise<void>;
}

export interface AskOptions {
  readonly atOnce?: number;
  readonly token?: string;
  readonly agent?: Agent;
  readonly path?: string;
  /** The address it comes from. */
  readonly localAddress?: string;
}

export interface SubjectOptions {
  readonly settings?: Readonly<Record<string, string>>;
  readonly within?: readonly string[];
  readonly upstreamUrl?: (url: string) => string;
  /** Writes further files before the start. */
  readonly prepare?: (folder: string) => Promise<Readonly<Record<string, string>>>;
  /** The log may say that it lost lines, and how many. */
  readonly mayLoseLines?: boolean;
}

const patienceMs = 30_000;
let number = 0;

export async function startSubject(options: SubjectOptions = {}): Promise<Subject> {
  const folder = mkdtempSync(join(tmpdir(), 'gateway-prove-'));
  const keyFile = join(folder, 'key');
  writeFileSync(keyFile, standInKey, { mode: 0o600 });
  const standIn = await startStandIn();
  const more = await options.prepare?.(folder);
  const lines: string[] = [];
  const got = new Map<string, Got>();
  const close = async (): Promise<void> => {
    await standIn.close();
    rmSync(folder, { recursive: true });
  };
  const gateway = await startDeployed({
    folder,
    within: options.within ?? [],
    settings: {
      UPSTREAM_BASE_URL: options.upstreamUrl?.(standIn.url) ?? standIn.url,
      UPSTREAM_API_KEY_FROM: `file:${keyFile}`,
      UPSTREAM_API_KEY_CHECK: 'off',
      ...more,
      ...options.settings,
    },
    onLine: (line) => lines.push(line),
  }).catch(async (error: unknown) => {
    await close();
    throw error;
  });

  async function askOnce({
    token,
    agent,
    localAddress = '127.0.0.1',
    path = accounts,
  }: AskOptions): Promise<Got> {
    const id = `prove-${number++}`;
    const headers = {
      'x-request-id': id,
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    };
    const own = path === accounts ? `${accounts}?ask=${id}` : path;
    const what = await new Promise<Got>((resolve) => {
      const asked = get(
        { host: '127.0.0.1', port: gateway.port, path: own, agent: agent ?? false, headers, localAddress },
        (incoming) => {
          const pieces: Buffer[] = [];
          incoming.on('data', (piece: Buffer) => pieces.push(piece));
          incoming.on('error', ({ message }) => resolve(`cut: ${message}`));
          incoming.on('end', () => {
            const isWhole = isJson(Buffer.concat(pieces).toString());
            resolve(isWhole ? (incoming.statusCode ?? 0) : `WRONG: ${incoming.statusCode} with half a body`);
          });
        },
      );
      asked.setTimeout(patienceMs, () => asked.destroy(new Error('no answer in time')));
      asked.on('error', ({ message }) => resolve(message));
    });
    got.set(id, what);
    return what;
  }

  function disagreements(): string[] {
    const logged = new Map<string, number[]>();
    let lost = 0;
    for (const line of lines) {
      const { msg, requestId, status, lines: lostLines } = JSON.parse(line) as Record<string, unknown>;
      if (/lines were lost/.test(String(msg))) lost += Number(lostLines);
      if (msg === 'request')
        logged.set(String(requestId), [...(logged.get(String(requestId)) ?? []), Number(status)]);
    }
    if (lost > 0 && options.mayLoseLines !== true) return [`${lost} lines were lost`];
    const found = [...got].flatMap(([id, what]) => {
      if (typeof what === 'string') return what.startsWith('WRONG') ? [`${id}: ${what}`] : [];
      const of = logged.get(id) ?? [];
      if (of.length === 0 && lost > 0) {
        lost -= 1;
        return [];
      }
      return of.length === 1 && of[0] === what
        ? []
        : [`${id}: got ${what}, logged ${of.join() || 'nothing'}`];
    });
    return found;
  }

  return {
    ...{ gateway, standIn, folder, keyFile, lines },
    async ask(count, asked = {}) {
      const all: Got[] = [];
      const lane = async (): Promise<void> => {
        while (all.length < count) {
          const at = all.push(0) - 1;
          all[at] = await askOnce(asked);
        }
      };
      await Promise.all(Array.from({ length: asked.atOnce ?? 4 }, lane));
      return all;
    },
    async untilLine(like) {
      for (let tries = 0; tries < 200; tries++) {
        if (lines.some((line) => like.test(line))) return;
        await sleep(50);
      }
      throw new Error(`no line like ${like}; the last: ${lines.slice(-3).join('\n')}`);
    },
    async status(...path) {
      const text = await (await fetch(`http://127.0.0.1:${gateway.adminPort}/status`)).text();
      return path.reduce<unknown>(
        (found, name) => (found as Record<string, unknown>)[name],
        JSON.parse(text) as unknown,
      );
    },
    async stop() {
      try {
        gateway.signal('SIGTERM');
        const exit = await Promise.race([gateway.exited, sleep(40_000, 'no exit', { ref: false })]);
        if (exit !== 0) throw new Error(`ended with ${exit}: ${gateway.errors().slice(0, 500)}`);
        const found = disagreements();
        if (found.length > 0) throw new Error(found.slice(0, 5).join('; '));
        const raw = lines.find((line) => /"level":"fatal"/.test(line));
        if (raw !== undefined) throw new Error(raw);
      } finally {
        gateway.signal('SIGKILL');
        await close();
      }
    },
  };
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** @throws Error naming what came besides */
export function expectAll(got: readonly Got[], ...allowed: readonly Got[]): void {
  const others = got.filter((one) => !allowed.includes(one));
  if (others.length > 0)
    throw new Error(`${others.length} of ${got.length} got ${[...new Set(others)].join(', ')}`);
}

/** @throws Error with `what` */
export function expectThat(isSo: boolean, what: string): void {
  if (!isSo) throw new Error(what);
}

/** What a program printed. @throws Error where it fails */
export function run(program: string, ...words: readonly string[]): string {
  return execFileSync(program, words, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
}

/** Makes a network usable that is this process's own. @throws Error where it is the machine's */
export function expectNewNetwork(): void {
  expectThat(
    !/^\s*(?!lo:)\S+:\s*[1-9]/m.test(readFileSync('/proc/net/dev', 'utf8')),
    'this network is not new',
  );
  run('ip', 'link', 'set', 'lo', 'up');
}
