/**
 * `npm run bench`: the gateway beside its peers, in one run and alternating rounds, as it is deployed (`dist/`).
 * Prints a table and writes `bench/results.json`, `bench/results.svg` and `docs/performance.md`. `--quick` takes three
 * minutes and writes nothing but the table.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { root, type Surroundings, startUpstream } from './contenders.ts';
import { canPin } from './cores.ts';
import {
  type Effort,
  measureCallers,
  measureEntries,
  measureEventLoop,
  measureFootprint,
  measureHits,
  measurePassThrough,
  measureSaturation,
} from './parts.ts';
import { pictureOf } from './picture.ts';
import { type Results, tableOf } from './report.ts';

const quick = process.argv.includes('--quick');
const effort: Effort = quick
  ? { rounds: 3, seconds: 1, warmUpSeconds: 4, starts: 1, entries: 5_000, callers: 1_000, hits: 100_000 }
  : {
      rounds: 7,
      seconds: 3,
      warmUpSeconds: 8,
      starts: 5,
      entries: 100_000,
      callers: 10_000,
      hits: 1_000_000,
    };
const failures: Record<string, string> = {};
const folderOfBench = fileURLToPath(new URL('.', import.meta.url));

prepare();
const folder = mkdtempSync(join(tmpdir(), 'gateway-bench-'));
try {
  const results = await measure();
  process.stdout.write(`\n${tableOf(results)}\n`);
  if (!quick) {
    writeFileSync(join(folderOfBench, 'results.json'), `${JSON.stringify(results, null, 2)}\n`);
    writeFileSync(join(folderOfBench, 'results.svg'), pictureOf(results));
    execFileSync('npm', ['run', '--silent', 'docs:write'], { stdio: 'inherit', cwd: root });
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}

/** Builds what is deployed, and fetches the peers where they are missing. @throws Error where wrk is not installed */
function prepare(): void {
  if (spawnSync('wrk', ['-v'], { stdio: 'ignore' }).error !== undefined) {
    throw new Error(
      'the load comes from wrk, which is not installed (apt-get install wrk, brew install wrk)',
    );
  }
  const options = { stdio: 'inherit' } as const;
  execFileSync('npm', ['run', '--silent', 'build'], { ...options, cwd: root });
  if (!existsSync(join(folderOfBench, 'node_modules', 'fastify'))) {
    execFileSync('npm', ['ci', '--no-audit', '--no-fund'], { ...options, cwd: folderOfBench });
  }
}

async function measure(): Promise<Results> {
  const upstream = await startUpstream();
  const small = await startUpstream(1);
  const url = String(upstream.said['url']);
  const body = await fetch(`${url}/analytics/accounts/`, {
    headers: { 'x-api-key': String(upstream.said['key']) },
  });
  const bytes = (await body.arrayBuffer()).byteLength;
  const around: Surroundings = {
    folder,
    upstreamOrigin: String(upstream.said['origin']),
    upstreamUrl: url,
    bytes,
  };
  const aroundSmall = {
    ...around,
    upstreamOrigin: String(small.said['origin']),
    upstreamUrl: String(small.said['url']),
  };
  try {
    return {
      node: process.versions.node,
      machine: `${availableParallelism()} × ${cpus()[0]?.model.trim() ?? 'unknown'}`,
      pinned: canPin,
      bodyBytes: bytes,
      hits: (await part('hits', () => measureHits(around, effort))) ?? [],
      passThrough: (await part('passing through', () => measurePassThrough(around, effort))) ?? [],
      saturation: (await part('saturation', () => measureSaturation(around, effort))) ?? [],
      eventLoop: await part('event loop', () => measureEventLoop(around, effort)),
      entries: await part('growth of answers', () => measureEntries(aroundSmall, effort)),
      callers: await part('growth of callers', () => measureCallers(around, effort)),
      footprint: await part('start and memory', () => measureFootprint(around, effort)),
      failures,
    };
  } finally {
    await upstream.end();
    await small.end();
  }
}

/** A part that fails is told in the results; the others are measured all the same. */
async function part<T>(name: string, measuring: () => Promise<T>): Promise<T | undefined> {
  const startedMs = performance.now();
  process.stderr.write(`${name} … `);
  try {
    const result = await measuring();
    process.stderr.write(`${Math.round((performance.now() - startedMs) / 1_000)} s\n`);
    return result;
  } catch (error) {
    failures[name] = (error instanceof Error ? error.message : String(error)).slice(0, 300);
    process.stderr.write(`failed: ${failures[name]}\n`);
    process.exitCode = 1;
    return undefined;
  }
}
