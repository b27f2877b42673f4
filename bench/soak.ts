/**
 * Holds the built gateway, with the image's flags, under a steady load for minutes: 200 requests a second over 3,000
 * reads, 2 % of callers leaving, one upstream call of twenty a fault, a rare 429, and one hostile caller. Then stops
 * it, with requests under way, and checks that nothing was mixed up, nothing was lost and nothing grew.
 *
 *   npm run soak [-- MINUTES] [--seed N]
 *
 * Exit status 1 where a check is broken.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { get } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { digestOf, mintToken } from '../src/callers/token.ts';
import { parseExposition, type Scraped } from '../test/support/exposition-parser.ts';
import { randomFrom } from '../test/support/random.ts';
import { standInKey } from '../test/support/stand-in/stand-in.ts';
import { type Deployed, startDeployed } from './deployed.ts';
import { createCallers } from './soak/callers.ts';
import { checksOf, type Observed, tableOf } from './soak/checks.ts';
import { startHostileCaller } from './soak/hostile.ts';
import { openLedger } from './soak/ledger.ts';
import { furtherReads, operations, slowTarget, targets } from './soak/reads.ts';
import { sampleProcess } from './soak/trend.ts';
import { type SoakUpstream, startSoakUpstream } from './soak/upstream.ts';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { seed: { type: 'string', default: String(Date.now() % 2 ** 31) } },
});
const minutes = Number(positionals[0] ?? 10);
const seed = Number(values.seed);
if (!(minutes > 0) || !Number.isInteger(seed)) {
  throw new TypeError('npm run soak [-- MINUTES] [--seed WHOLE_NUMBER]');
}

const perSecond = 200;
const leavingShare = 0.02;
const callerCount = 8;
/** What is under way when the gateway is told to stop. */
const lateRequests = 40;
/** Half of the run, but no more than this: V8 has compiled what is hot, and its heap has found its size. */
const longestWarmUpMinutes = 3;
const warmUpMinutes = Math.min(longestWarmUpMinutes, minutes / 2);

interface Callers {
  readonly file: string;
  readonly tokens: readonly string[];
  readonly hostileToken: string;
}

function writeCallers(folder: string): Callers {
  const tokens = Array.from({ length: callerCount }, () => mintToken());
  const hostileToken = mintToken();
  const callers = [...tokens, hostileToken].map((token, at) => {
    return { name: `caller-${at}`, operations, tokens: [{ sha256: digestOf(token) }] };
  });
  const file = join(folder, 'callers.json');
  writeFileSync(file, JSON.stringify({ callers }), { mode: 0o600 });
  return { file, tokens, hostileToken };
}

function settingsOf(upstream: SoakUpstream, callersFile: string): Record<string, string> {
  return {
    UPSTREAM_BASE_URL: upstream.url,
    UPSTREAM_API_KEY: standInKey,
    UPSTREAM_API_KEY_CHECK: 'off',
    UPSTREAM_READS: furtherReads.join(','),
    CALLERS_FILE: callersFile,
    // Below the stand-in's stalls, so that a fault costs its own caller seconds and no more.
    UPSTREAM_TIMEOUT: '2s',
    UPSTREAM_MAX_BODY: '1MiB',
    REQUEST_TIMEOUT: '10s',
    RETRY_BASE: '50ms',
    RETRY_CAP: '1s',
    SHUTDOWN_GRACE: '15s',
  };
}

function fetchText(port: number, path: string): Promise<string> {
  return new Promise((resolve, reject) => {
    get({ host: '127.0.0.1', port, path, agent: false, timeout: 20_000 }, (incoming) => {
      let text = '';
      incoming.setEncoding('utf8').on('data', (piece: string) => {
        text += piece;
      });
      incoming.on('end', () => {
        if (incoming.statusCode === 200) resolve(text);
        else reject(new Error(`${path}: ${incoming.statusCode}`));
      });
      incoming.on('error', reject);
    })
      .on('timeout', () => reject(new Error(`${path}: no answer`)))
      .on('error', reject);
  });
}

/** Asks for `/livez` once a second, each time on a connection of its own. */
function watchLoop(port: number): { readonly tookMs: (number | undefined)[]; end(): void } {
  const tookMs: (number | undefined)[] = [];
  const timer = setInterval(() => {
    const startMs = performance.now();
    fetchText(port, '/livez').then(
      () => tookMs.push(performance.now() - startMs),
      () => tookMs.push(undefined),
    );
  }, 1_000);
  return { tookMs, end: () => clearInterval(timer) };
}

async function scrape({ adminPort }: Deployed): Promise<Scraped> {
  return parseExposition(await fetchText(adminPort, '/metrics'));
}

/** A line may be 100 ms on its way to standard output. */
async function untilLinesAre(count: () => number, wanted: number): Promise<void> {
  for (let tries = 0; tries < 100 && count() < wanted; tries++) await sleep(50);
}

async function soak(folder: string, upstream: SoakUpstream): Promise<Observed> {
  const ledger = openLedger();
  const { totals } = ledger;
  const wrong: string[] = [];
  const callersFile = writeCallers(folder);
  const settings = settingsOf(upstream, callersFile.file);
  const gateway = await startDeployed({ folder, settings, onLine: ledger.read });
  const callers = createCallers({
    port: gateway.port,
    perSecond,
    leavingShare,
    tokens: callersFile.tokens,
    targets,
    random: randomFrom(seed),
    ledger,
    onWrong: (what) => wrong.push(what),
  });
  // What the cache holds of them is no growth: all are there before the first sample.
  await callers.sendEach(targets);
  const sampling = sampleProcess(gateway.pid);
  const loop = watchLoop(gateway.port);
  const hostile = startHostileCaller({ port: gateway.port, callers, token: callersFile.hostileToken });
  await callers.arrive(minutes * 60_000);
  hostile.end();
  sampling.end();
  loop.end();
  await callers.settled();

  const scraped = await scrape(gateway);
  const metric = (name: string): string => `analytics_gateway_${name}`;
  const metrics = {
    started: scraped.value(metric('requests_started_total')) ?? 0,
    done: scraped.sum(metric('requests_total')),
    aborted: scraped.sum(metric('requests_total'), { status: '499' }),
  };
  await untilLinesAre(() => totals.lines, metrics.done);
  const linesThen = totals.lines;

  const before = totals.byStatus.get(200) ?? 0;
  for (let number = 0; number < lateRequests; number++) callers.send(slowTarget(number));
  // The promise is about what has arrived.
  await sleep(250);
  gateway.signal('SIGTERM');
  await callers.settled();
  const drain = { sent: lateRequests, answered: (totals.byStatus.get(200) ?? 0) - before };
  const exit = await gateway.exited;
  callers.close();
  return {
    totals,
    metrics,
    linesThen,
    wrong,
    unaccounted: ledger.faults(),
    upstream: await upstream.counts(),
    samples: sampling.samples.filter((sample) => sample.minutes >= warmUpMinutes),
    livezMs: loop.tookMs,
    drain,
    exit,
    errors: gateway.errors(),
  };
}

const folder = mkdtempSync(join(tmpdir(), 'gateway-soak-'));
const upstream = await startSoakUpstream(seed);
try {
  process.stdout.write(`soak: ${minutes} minutes, ${perSecond} requests a second, --seed ${seed}\n`);
  const observed = await soak(folder, upstream);
  const checks = checksOf(observed);
  const { totals, upstream: counts, wrong, unaccounted, errors } = observed;
  const statuses = [...totals.byStatus].sort(([one], [other]) => one - other);
  process.stdout.write(
    `statuses: ${statuses.map(([status, count]) => `${status} × ${count}`).join(', ')}; ` +
      `upstream: ${counts.received} calls, ${counts.faults} faults, ${counts.rateLimited} × 429\n${tableOf(checks)}\n`,
  );
  for (const line of [...wrong.slice(0, 20), ...unaccounted, ...counts.foul])
    process.stdout.write(`  ${line}\n`);
  if (errors !== '') process.stdout.write(`${errors.slice(0, 2_000)}\n`);
  if (checks.some(({ isKept }) => !isKept)) process.exitCode = 1;
} finally {
  upstream.end();
  rmSync(folder, { recursive: true, force: true });
}
