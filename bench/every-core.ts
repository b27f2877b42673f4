/**
 * One and two gateways on one port (`REUSE_PORT=on`), with a store on a Unix socket: hits a second, how evenly the kernel
 * spreads connections, and a caller's limit over both. Ends with 1 where a promise is missed.
 *
 *   npm run bench:cores [-- --seconds 10] [--connections 64]
 *
 * The load generator needs a processor too. So each gateway may use a part of one (a control group), and what is left is
 * the generator's: the figures are those of a machine with as many processors, each slower. Where no group can be made
 * (it takes root) the second figure judges: how many hits a processor's second of each process makes, all together.
 */
import { hash } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { mintToken } from '../src/callers/token.ts';
import { startRedis } from '../test/support/redis.ts';
import { standInKey } from '../test/support/stand-in/stand-in.ts';
import { type ControlGroup, makeProcessorGroup } from './cgroup.ts';
import { startUpstream } from './contenders.ts';
import { type Deployed, startDeployed } from './deployed.ts';
import { applyLoad, type LoadResult } from './load.ts';
import { cpuUsOf, freePort } from './process.ts';

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '10' },
    connections: { type: 'string', default: '64' },
  },
});
const seconds = Number(values.seconds);
const connections = Number(values.connections);
if (!(seconds >= 1 && connections >= 1))
  throw new TypeError('npm run bench:cores [-- --seconds N] [--connections N]');

const leastGain = 1.8;
/** Two gateways have a part of two processors: the generator needs more than one of them has. */
const processorShare = 0.3;
const limit = { perSecond: 20, burst: 20 };
/** Buckets of two gateways are one; what they settle with each other late is a small part. */
const limitTolerance = 1.05;
const [plain, limited] = [mintToken(), mintToken()];
const folder = mkdtempSync(join(tmpdir(), 'bench-cores-'));

interface Measured extends LoadResult {
  /** Hits that a processor's second makes, of all processes together. */
  readonly perCpu: number;
  /** The part of each process in all hits. */
  readonly shares: readonly number[];
}

function write(text: string): void {
  process.stdout.write(`${text}\n`);
}

function writeCallers(): string {
  const file = join(folder, 'callers.json');
  const tokens = (token: string) => [{ sha256: hash('sha256', token, 'hex') }];
  const callers = [
    { name: 'plain', tokens: tokens(plain) },
    { name: 'limited', tokens: tokens(limited), limit },
  ];
  writeFileSync(file, JSON.stringify({ callers }));
  return file;
}

async function hitsOf({ adminPort }: Deployed): Promise<number> {
  const text = await (await fetch(`http://127.0.0.1:${adminPort}/metrics`)).text();
  return [...text.matchAll(/^analytics_gateway_requests_total\{.*\} (\d+)$/gm)].reduce(
    (sum, [, count]) => sum + Number(count),
    0,
  );
}

async function measure(url: string, gateways: readonly Deployed[]): Promise<Measured> {
  const load = { url, connections, tokens: [plain], reads: 'same' as const };
  await applyLoad({ ...load, seconds: Math.max(2, Math.round(seconds / 4)) }, folder);
  const look = () =>
    Promise.all(gateways.map(async (one) => ({ hits: await hitsOf(one), cpuUs: cpuUsOf(one.pid) })));
  const before = await look();
  const result = await applyLoad({ ...load, seconds }, folder);
  const spent = (await look()).map(({ hits, cpuUs }, at) => ({
    hits: hits - (before[at]?.hits ?? 0),
    cpuSeconds: (cpuUs - (before[at]?.cpuUs ?? 0)) / 1e6,
  }));
  const all = spent.reduce((sum, { hits }) => sum + hits, 0);
  return {
    ...result,
    perCpu: spent.reduce((sum, { hits, cpuSeconds }) => sum + hits / cpuSeconds, 0),
    shares: spent.map(({ hits }) => hits / all),
  };
}

function row(name: string, { perSecond, perCpu, shares, p99Ms, failed }: Measured): void {
  const parts = shares.map((share) => `${(share * 100).toFixed(0)} %`).join(' : ');
  write(
    `| ${name} | ${perSecond.toFixed(0)} | ${perCpu.toFixed(0)} | ${parts} | ${p99Ms.toFixed(1)} ms | ${failed} |`,
  );
}

const missed: string[] = [];
const upstream = await startUpstream();
const store = await startRedis();
const running: Deployed[] = [];
const groups: ControlGroup[] = [];
try {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}/api/analytics/accounts/`;
  const settings = {
    UPSTREAM_BASE_URL: String(upstream.said['url']),
    UPSTREAM_API_KEY: standInKey,
    CALLERS_FILE: writeCallers(),
    SHARED_STORE: store.address,
    PORT: String(port),
    REUSE_PORT: 'on',
    CACHE_TTL: '1h',
    LOG_LEVEL: 'info',
  };
  const start = async () => {
    const group = makeProcessorGroup(`gateway-cores-${running.length}`, processorShare);
    if (group) groups.push(group);
    const within = group?.command ?? [];
    running.push(await startDeployed({ folder, settings, within, onLine: () => {} }));
  };
  write(`wrk, ${connections} connections, ${seconds} s; ${availableParallelism()} processors\n`);
  write('| processes | hits/s | per CPU | spread | p99 | failed |');
  write('|---|---|---|---|---|---|');
  await start();
  const one = await measure(url, running);
  row('1', one);
  await start();
  await sleep(2_000);
  const two = await measure(url, running);
  row('2', two);
  const isApart = groups.length === running.length;
  const came = two.perSecond / one.perSecond;
  const gain = isApart ? came : two.perCpu / one.perCpu;
  const place = isApart ? `each gateway has ${processorShare} of a processor` : 'the generator beside them';
  write(`\n${came.toFixed(2)} × hits/s, ${place}; ${(two.perCpu / one.perCpu).toFixed(2)} × per CPU`);
  if (gain < leastGain)
    missed.push(`two processes make ${gain.toFixed(2)} × the hits of one, not ${leastGain} ×`);
  if (one.failed + two.failed > 0) missed.push(`${one.failed + two.failed} requests failed`);

  const asked = await applyLoad({ url, connections: 16, seconds, tokens: [limited], reads: 'same' }, folder);
  const passed = asked.requests - asked.failed;
  const most = (limit.burst + limit.perSecond * seconds) * limitTolerance;
  write(
    `a caller of ${limit.perSecond}/s was answered ${passed} times in ${seconds} s (at most ${most.toFixed(0)})`,
  );
  if (passed > most) missed.push(`a caller's limit let ${passed} requests pass`);
} finally {
  for (const one of running) one.signal('SIGTERM');
  await Promise.all(running.map(({ exited }) => exited));
  for (const group of groups) group.remove();
  await store.kill();
  await upstream.end();
  rmSync(folder, { recursive: true });
}
for (const promise of missed) write(`MISSED: ${promise}`);
process.exitCode = missed.length === 0 ? 0 : 1;
