/**
 * The last release beside this gateway, at one shared store, as in a rolling upgrade: built from git's history, in a folder
 * that is kept; or the commit that RELEASE names. Where the history is not there, it says so and tries nothing.
 */
import { equal } from 'node:assert/strict';
import { type ExecFileSyncOptions, execFileSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fullBucket, takeOne } from '../../src/callers/bucket.ts';
import { builtMain } from '../../test/support/program.ts';
import { startRedis } from '../../test/support/redis.ts';
import { type Deployed, startDeployed } from '../deployed.ts';
import { Suite } from './suite.ts';

const git = (...words: readonly string[]): string =>
  execFileSync('git', words, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();

/** The tag of the version before this one, or the last commit that had it; `undefined` where neither is there. */
function findRelease(): { readonly version: string; readonly commit: string } | undefined {
  const { version: own } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
  const all = [...readFileSync('CHANGELOG.md', 'utf8').matchAll(/^## (\d+\.\d+\.\d+)/gm)].map(
    ([, one]) => one,
  );
  const version = all.find((one) => one !== own) ?? '';
  const lastWith = (): string => {
    const all = git('rev-list', '--date-order', 'HEAD').split('\n');
    return git('grep', '-l', `"version": "${version}"`, ...all, '--', 'package.json').split(':', 1)[0] ?? '';
  };
  for (const find of [() => process.env['RELEASE'] ?? `v${version}`, lastWith]) {
    try {
      return { version, commit: git('rev-parse', '--verify', `${find()}^{commit}`) };
    } catch {
      // Not there.
    }
  }
  return undefined;
}

/** Builds it elsewhere: Node runs no TypeScript below `node_modules`. @returns its program */
function buildRelease(commit: string): string {
  const kept = join(process.cwd(), 'node_modules/.cache', `release-${commit}`);
  const main = join(kept, 'dist/main.js');
  if (existsSync(join(kept, 'package.json'))) return main;
  const folder = mkdtempSync(join(tmpdir(), 'gateway-release-'));
  const archive = execFileSync('git', ['archive', commit], { maxBuffer: 2 ** 28 });
  execFileSync('tar', ['-x', '-C', folder], { input: archive });
  const options: ExecFileSyncOptions = { cwd: folder, stdio: ['ignore', 'ignore', 'inherit'] };
  execFileSync('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], options);
  execFileSync(process.execPath, ['build.ts', join(kept, 'dist')], options);
  for (const file of ['.env.example', 'package.json']) copyFileSync(join(folder, file), join(kept, file));
  rmSync(folder, { recursive: true });
  return main;
}

/** Says what it was asked for, and takes 50 requests a second. */
async function startUpstream() {
  const asked = new Map<string, number>();
  const limit = { perSecond: 50, burst: 10 };
  const bucket = fullBucket(limit, performance.now());
  let isLimited = false;
  const server = createServer(({ url = '' }, reply) => {
    if (isLimited && !takeOne(bucket, limit, performance.now())) return void reply.writeHead(429).end('{}');
    asked.set(url, (asked.get(url) ?? 0) + 1);
    const fields = { 'content-type': 'application/json', 'cache-control': 'max-age=60' };
    setTimeout(() => reply.writeHead(200, fields).end(JSON.stringify({ url })), 20);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/api`,
    asked: () => [...asked.values()].reduce((sum, one) => sum + one, 0),
    limit() {
      isLimited = true;
    },
    close: () => server.close(),
  };
}

const release = findRelease();
if (release === undefined) {
  process.stdout.write("SKIPPED, not there: the last release in git's history\n");
  process.exit(0);
}
const released = buildRelease(release.commit);
const store = await startRedis();
const upstream = await startUpstream();
const folder = mkdtempSync(join(tmpdir(), 'gateway-release-'));
const settings = {
  UPSTREAM_BASE_URL: upstream.url,
  UPSTREAM_API_KEY: 'a-key-of-this-team-0123456789',
  UPSTREAM_API_KEY_CHECK: 'off',
  SHARED_STORE: store.address,
};
const start = async (main: string): Promise<Deployed> => {
  const gateway = await startDeployed({ folder, settings, main, onLine() {} });
  await untilSo(async () => (await shared(gateway)).inUse);
  return gateway;
};

async function shared({ adminPort }: Deployed) {
  const status = await (await fetch(`http://127.0.0.1:${adminPort}/status`)).json();
  type Shared = { inUse: boolean; gateways: unknown[]; gate: { role: string } };
  return (status as { sharedStore: Shared }).sharedStore;
}

/** @throws Error after twenty seconds */
async function untilSo(isSo: () => Promise<boolean>): Promise<void> {
  for (let tries = 0; !(await isSo()); tries += 1) {
    if (tries === 200) throw new Error(`not so after 20 s: ${isSo}`);
    await sleep(100);
  }
}

let reads = 0;
function nextRead(): string {
  reads += 1;
  return `/analytics/accounts/?read=${reads}`;
}

/** @throws Error where the answer is not that of the read */
async function ask({ port }: Deployed, read: string): Promise<void> {
  const reply = await fetch(`http://127.0.0.1:${port}/api${read}`);
  equal(`${reply.status} ${await reply.text()}`, `200 ${JSON.stringify({ url: `/api${read}` })}`);
}

const suite = new Suite(
  `analytics-gateway ${release.version} beside this one, at one store`,
  release.commit.slice(0, 7),
);
const gateways = [await start(released), await start(builtMain)] as [Deployed, Deployed];
const [old, own] = gateways;

await suite.try('each counts the other', () =>
  untilSo(async () => (await Promise.all(gateways.map(shared))).every((one) => one.gateways.length === 2)),
);
await suite.try('a read that one has fetched is found by the other', async () => {
  for (let count = 0; count < 40; count += 1) {
    const read = nextRead();
    const before = upstream.asked();
    for (const gateway of count % 2 === 0 ? [old, own] : [own, old]) await ask(gateway, read);
    equal(upstream.asked() - before, 1, read);
  }
});
await suite.try('a read that both are asked for at once goes up once', async () => {
  for (let count = 0; count < 40; count += 1) {
    const read = nextRead();
    const before = upstream.asked();
    await Promise.all([...gateways, ...gateways].map((gateway) => ask(gateway, read)));
    equal(upstream.asked() - before, 1, read);
  }
});
upstream.limit();
/** Sends reads through both for so long as `during` takes. @returns how many, all of them answered rightly */
async function load(during: () => Promise<void>): Promise<number> {
  let isOver = false;
  let count = 0;
  const loop = async (place: number): Promise<void> => {
    while (!isOver) {
      await ask(gateways[place % 2] as Deployed, nextRead());
      count += 1;
    }
  };
  const loops = Array.from({ length: 20 }, (_, place) => loop(place));
  await Promise.race([during(), ...loops]).finally(() => {
    isOver = true;
  });
  await Promise.all(loops);
  return count;
}
await suite.try(
  'one of them gives the turns of both under a limit of 50 a second, and no read is lost',
  async () => {
    await load(async () => {
      await untilSo(async () => {
        const roles = (await Promise.all(gateways.map(shared))).map(({ gate }) => gate.role);
        return roles.toSorted().join() === 'follows,leads';
      });
      await sleep(5_000);
    });
  },
);
for (const [place, main] of [builtMain, released, released].entries()) {
  const name = main === released ? 'the last release' : 'this version';
  await suite.try(
    `another gateway of ${name} takes the place of one, and no read is lost (${place + 1})`,
    async () => {
      await load(async () => {
        const before = gateways[place % 2] as Deployed;
        gateways[place % 2] = await start(main);
        // Reads that are under way there are answered.
        before.signal('SIGTERM');
        equal(await before.exited, 0);
        await sleep(2_000);
      });
    },
  );
}
for (const gateway of gateways) gateway.signal('SIGTERM');
await Promise.all(gateways.map(({ exited }) => exited));
upstream.close();
await store[Symbol.asyncDispose]();
rmSync(folder, { recursive: true });
suite.end();
