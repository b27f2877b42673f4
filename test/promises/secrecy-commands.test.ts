import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { accounts, ask } from '../support/gateway.ts';
import { imageFlags } from '../support/image-flags.ts';
import { type Product, startProduct } from '../support/product.ts';
import { formsIn } from '../support/secret-forms.ts';
import { type StandIn, type StandInOptions, standInKey, startStandIn } from '../support/stand-in/stand-in.ts';

let good: StandIn;
let refusing: StandIn;
let echoing: StandIn;
let busy: StandIn;
let poor: StandIn;
const all: StandIn[] = [];
let stores = '';

beforeAll(async () => {
  const start = async (options: StandInOptions = {}): Promise<StandIn> => {
    const standIn = await startStandIn(options);
    all.push(standIn);
    return standIn;
  };
  good = await start();
  refusing = await start({ key: 'another-key-0123456789' });
  poor = await start({ role: 'insufficient' });
  echoing = await start();
  echoing.behave({ echo: { in: 'body' } });
  busy = await start();
  busy.behave({ status: 429, echo: { in: 'header' } });
  stores = mkdtempSync(join(tmpdir(), 'stores-'));
  writeFileSync(join(stores, 'key'), standInKey);
  writeFileSync(join(stores, 'bad'), `${standInKey}\n${standInKey}é`);
});
afterAll(async () => {
  await Promise.all(all.map((standIn) => standIn.close()));
  rmSync(stores, { recursive: true });
});

interface Run {
  readonly args: readonly string[];
  readonly status: number;
  readonly settings?: () => Record<string, string>;
  readonly nodeFlags?: readonly string[];
  readonly preload?: string;
  readonly files?: Record<string, string>;
  /** What is done with it while it runs; it has to bring it to its end. */
  readonly drive?: (product: Product) => Promise<void>;
}

const inEnvironment = (upstream: StandIn): Record<string, string> => ({
  UPSTREAM_BASE_URL: upstream.url,
  UPSTREAM_API_KEY: standInKey,
  PORT: '0',
  ADMIN_PORT: '0',
  LOG_LEVEL: 'trace',
  RETRY_LIMIT: '0',
});
const inFile = (upstream: StandIn): Record<string, string> => {
  const { UPSTREAM_API_KEY: _, ...others } = inEnvironment(upstream);
  return { ...others, UPSTREAM_API_KEY_FROM: `file:${join(stores, 'key')}` };
};

const serve: Run['drive'] = async (product) => {
  const port = Number(new URL(await product.url()).port);
  for (const path of [accounts, `${accounts}?again`, '/api/users/api-keys/', '/nothing', '/readyz']) {
    await ask({ host: '127.0.0.1', port }, path, { headers: { 'x-api-key': standInKey } });
  }
  const adminPort = Number(/"adminUrl":"http:[^"]*:(\d+)"/.exec(product.stdout())?.[1]);
  for (const path of ['/metrics', '/status', '/', `/${standInKey}`]) {
    const { body } = await ask({ host: '127.0.0.1', port: adminPort }, path, {
      headers: { 'x-api-key': standInKey },
    });
    expect(formsIn(body.toString(), standInKey), path).toEqual([]);
  }
  product.process.kill('SIGHUP');
  product.process.kill('SIGUSR1');
  await new Promise((resolve) => setTimeout(resolve, 100));
  product.process.kill('SIGTERM');
};

/** Something of the process, a library perhaps, prints or fails with the key in its hands. */
const careless = (what: string): string => `
  const key = process.env.UPSTREAM_API_KEY;
  setTimeout(() => { ${what} }, 1_000);`;

const runs: Record<string, Run> = {
  serve: { args: ['serve'], settings: () => inEnvironment(good), status: 0, drive: serve },
  'serve, by default': { args: [], settings: () => inFile(good), status: 0, drive: serve },
  'serve before an upstream that echoes': {
    args: ['serve'],
    settings: () => inFile(echoing),
    status: 0,
    drive: serve,
  },
  'serve, and something prints': {
    args: ['serve'],
    settings: () => inEnvironment(good),
    preload: careless('console.log(key, { key }); console.error(new Error(key));'),
    status: 0,
    drive: async (product) => {
      await product.url();
      while (!product.stdout().includes('a library printed')) {
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
      product.process.kill('SIGTERM');
    },
  },
  'serve, and something throws': {
    args: ['serve'],
    settings: () => inEnvironment(good),
    preload: careless('throw Object.assign(new Error(key, { cause: { key } }), { key });'),
    status: 1,
  },
  'serve, and something rejects': {
    args: ['serve'],
    settings: () => inEnvironment(good),
    preload: careless('Promise.reject(key);'),
    status: 1,
  },
  check: { args: ['check'], settings: () => inEnvironment(good), status: 0 },
  'check --json': { args: ['check', '--json'], settings: () => inFile(good), status: 0 },
  'check, refused': { args: ['check'], settings: () => inFile(refusing), status: 1 },
  'check --json, refused': { args: ['check', '--json'], settings: () => inFile(refusing), status: 1 },
  'check, echoed': { args: ['check', '--json'], settings: () => inFile(echoing), status: 1 },
  'check, limited': { args: ['check'], settings: () => inFile(busy), status: 1 },
  'check, without the role': { args: ['check'], settings: () => inFile(poor), status: 1 },
  'check without a key': { args: ['check'], settings: () => ({ UPSTREAM_BASE_URL: good.url }), status: 2 },
  'check with a bad key': {
    args: ['check', '--json'],
    settings: () => ({ ...inFile(good), UPSTREAM_API_KEY_FROM: `file:${join(stores, 'bad')}` }),
    status: 2,
  },
  'check with a command that prints the key and fails': {
    args: ['check', '--json'],
    settings: () => ({
      ...inFile(good),
      UPSTREAM_API_KEY_FROM: `exec:sh -c 'cat ${join(stores, 'key')}; cat ${join(stores, 'key')} >&2; exit 3'`,
    }),
    status: 1,
  },
  'check with a command that prints no key': {
    args: ['check'],
    settings: () => ({ ...inFile(good), UPSTREAM_API_KEY_FROM: `exec:cat ${join(stores, 'bad')}` }),
    status: 1,
  },
  'check with a Vault that is down': {
    args: ['check', '--json'],
    settings: () => ({
      ...inFile(good),
      UPSTREAM_API_KEY_FROM: 'vault:secret/team#key',
      VAULT_ADDR: 'http://127.0.0.1:9',
      VAULT_TOKEN: standInKey,
    }),
    status: 1,
  },
  'check with a bad previous key': {
    args: ['check'],
    settings: () => ({
      ...inFile(good),
      UPSTREAM_API_KEY_PREVIOUS_FROM: `file:${join(stores, 'bad')}`,
    }),
    status: 1,
  },
  'token create': {
    args: ['token', 'create', 'billing', '--file', 'callers.json'],
    settings: () => inEnvironment(good),
    status: 0,
  },
  'token list': {
    args: ['token', 'list'],
    settings: () => ({ ...inEnvironment(good), CALLERS_FILE: 'callers.json' }),
    files: { 'callers.json': '{"callers":[{"name":"a","anonymous":true}]}' },
    status: 0,
  },
  'token revoke': {
    args: ['token', 'revoke', 'unknown', '--file', 'callers.json'],
    settings: () => inEnvironment(good),
    files: { 'callers.json': '{"callers":[]}' },
    status: 1,
  },
  'demo --once': { args: ['demo', '--once'], settings: () => ({ PORT: '0', LOG_LEVEL: 'trace' }), status: 0 },
  settings: { args: ['settings'], settings: () => inEnvironment(good), status: 0 },
  healthcheck: { args: ['healthcheck'], settings: () => ({ ...inEnvironment(good), PORT: '9' }), status: 1 },
  help: { args: ['--help'], settings: () => inEnvironment(good), status: 0 },
  'an unknown command': { args: ['sreve'], settings: () => inEnvironment(good), status: 2 },
  'an unknown option': { args: ['serve', '--key'], settings: () => inEnvironment(good), status: 2 },
  'token without a name': { args: ['token', 'create'], settings: () => inEnvironment(good), status: 2 },
  'the key where its store is to be named': {
    args: ['serve'],
    settings: () => ({ ...inFile(good), UPSTREAM_API_KEY_FROM: standInKey }),
    status: 2,
  },
  'the key in place of a command': {
    args: ['check', '--json'],
    settings: () => ({ ...inFile(good), UPSTREAM_API_KEY_FROM: `exec:${standInKey}` }),
    status: 1,
  },
  'the key in place of a path': {
    args: ['serve'],
    settings: () => ({ ...inFile(good), UPSTREAM_API_KEY_FROM: `file:${standInKey}` }),
    status: 2,
  },
  'a key of several lines': {
    args: ['serve'],
    settings: () => ({ ...inFile(good), UPSTREAM_API_KEY_FROM: `file:${join(stores, 'bad')}` }),
    status: 2,
  },
  'a key with an accent': {
    args: ['serve'],
    settings: () => ({ ...inEnvironment(good), UPSTREAM_API_KEY: `${standInKey}é` }),
    status: 2,
  },
  'a key that is too short, and much else that is wrong': {
    args: ['serve'],
    settings: () => ({
      UPSTREAM_BASE_URL: `https://user:${standInKey}@upstream.example/api?key=${standInKey}`,
      UPSTREAM_API_KEY: standInKey.slice(0, 8),
      UPSTREAM_API_KEYY: standInKey,
      UPSTREAM_TIMEOUT: standInKey,
      UPSTREAM_READS: standInKey,
      PORT: standInKey,
      ALLOWED_HOSTS: `${standInKey}/`,
      CORS_ORIGINS: standInKey,
      LOG_LEVEL: standInKey,
    }),
    status: 2,
  },
  'flags that show memory': {
    args: ['serve'],
    settings: () => inEnvironment(good),
    nodeFlags: ['--report-on-fatalerror'],
    status: 2,
  },
  'a variable that prints what is read and sent': {
    args: ['serve'],
    settings: () => ({ ...inFile(good), NODE_DEBUG: 'stream,undici,fetch,child_process' }),
    nodeFlags: imageFlags(),
    status: 2,
  },
  'check with a variable that prints what is read and sent': {
    args: ['check'],
    settings: () => ({ ...inFile(good), NODE_DEBUG: 'stream' }),
    nodeFlags: imageFlags(),
    status: 2,
  },
  'a file of --env-file with a variable that prints': {
    args: ['serve', '--env-file', 'team.env'],
    settings: () => inFile(good),
    nodeFlags: imageFlags(),
    files: { 'team.env': 'NODE_DEBUG=stream\n' },
    status: 2,
  },
  'a callers file that is not there': {
    args: ['serve'],
    settings: () => ({ ...inEnvironment(good), CALLERS_FILE: 'none.json' }),
    status: 2,
  },
  'an address in use': {
    args: ['serve'],
    settings: () => ({ ...inEnvironment(good), PORT: new URL(good.url).port }),
    status: 1,
  },
  'a .env that lacks what is required': {
    args: ['serve'],
    settings: () => ({}),
    files: { '.env': 'PORT=0\n' },
    status: 2,
  },
};

describe('the key is in nothing that a command leaves', () => {
  it.concurrent.for(Object.keys(runs))(
    'the key is in nothing that a command leaves: %s',
    async (name, { expect, onTestFinished }) => {
      const run = runs[name] as Run;
      const cwd = mkdtempSync(join(tmpdir(), 'command-'));
      onTestFinished(() => rmSync(cwd, { recursive: true, force: true }));
      for (const [file, text] of Object.entries(run.files ?? {})) writeFileSync(join(cwd, file), text);
      const product = startProduct(run.args, {
        settings: run.settings?.() ?? {},
        cwd,
        nodeFlags: run.nodeFlags ?? [],
        ...(run.preload === undefined ? {} : { preload: run.preload }),
        atEnd: onTestFinished,
      });
      const commandLine = readIfThere(`/proc/${product.process.pid}/cmdline`);
      await run.drive?.(product);
      const status = await product.ended;
      const left = readdirSync(cwd, { recursive: true, encoding: 'utf8' })
        .filter((file) => statSync(join(cwd, file)).isFile())
        .map((file) => `${file}\n${readFileSync(join(cwd, file), 'latin1')}`);
      for (const text of [product.stdout(), product.stderr(), commandLine, ...left]) {
        expect(formsIn(text, standInKey)).toEqual([]);
      }
      expect([status, product.stdout() + product.stderr() === ''], product.stderr()).toEqual([
        run.status,
        false,
      ]);
    },
  );
});

function readIfThere(file: string): string {
  try {
    return readFileSync(file, 'latin1');
  } catch {
    return '';
  }
}
