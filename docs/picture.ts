/**
 * `npm run picture`: the console under load, as README shows it: `docs/console.png`. Three callers share an upstream
 * that allows 50 requests a second; one of them wants far more.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { digestOf, mintToken } from '../src/callers/token.ts';
import { findChromium, howToInstall, launchChromium } from '../test/support/chromium.ts';
import { standInKey, startStandIn } from '../test/support/stand-in/stand-in.ts';

/** A caller's loops: how many, how long each thinks between its requests, and how many different reads it makes. */
interface Load {
  readonly name: string;
  readonly loops: number;
  readonly pauseMs: number;
  readonly reads: number;
}

const loads: readonly Load[] = [
  { name: 'nightly-export', loops: 30, pauseMs: 0, reads: Number.POSITIVE_INFINITY },
  { name: 'sales-dashboard', loops: 4, pauseMs: 300, reads: 20 },
  { name: 'weekly-report', loops: 1, pauseMs: 200, reads: Number.POSITIVE_INFINITY },
];

/** How often the gateway keeps a point for the console's charts. */
const consolePeriodMs = 5_000;

/**
 * Takes the picture.
 *
 * @param chromium the browser's path
 * @param points how many points the charts should have at least
 * @returns a PNG
 */
export async function pictureOfConsole(chromium: string, points: number): Promise<Buffer> {
  const folder = mkdtempSync(join(tmpdir(), 'gateway-picture-'));
  const upstream = await startStandIn({ limit: { perSecond: 50, burst: 10 }, latencyMs: 5 });
  const tokens = new Map(loads.map(({ name }) => [name, mintToken()]));
  const callersFile = join(folder, 'callers.json');
  const callers = [...tokens].map(([name, token]) => ({ name, tokens: [{ sha256: digestOf(token) }] }));
  writeFileSync(callersFile, JSON.stringify({ callers }));
  const gateway = await startGateway({
    UPSTREAM_BASE_URL: upstream.url,
    UPSTREAM_API_KEY: standInKey,
    CALLERS_FILE: callersFile,
    CACHE_TTL: '5m',
  });
  const ending = new AbortController();
  const running = loads.flatMap((load) =>
    Array.from({ length: load.loops }, () =>
      askInALoop(gateway.url, tokens.get(load.name) ?? '', load, ending.signal),
    ),
  );
  try {
    return await photograph(chromium, gateway.adminUrl, points * consolePeriodMs);
  } finally {
    ending.abort();
    await Promise.all(running);
    gateway.process.kill('SIGTERM');
    await once(gateway.process, 'exit');
    await upstream.close();
    rmSync(folder, { recursive: true });
  }
}

interface Running {
  readonly process: ChildProcess;
  readonly url: string;
  readonly adminUrl: string;
}

/** A gateway in a process of its own, so that the memory in the picture is the gateway's. Resolves once it listens. */
async function startGateway(settings: Readonly<Record<string, string>>): Promise<Running> {
  const main = fileURLToPath(new URL('../src/main.ts', import.meta.url));
  const flags = ['--disable-sigusr1', '--max-semi-space-size=8'];
  const gateway = spawn(process.execPath, [...flags, main, 'serve'], {
    env: { PORT: '0', ADMIN_PORT: '0', SHUTDOWN_GRACE: '2s', ...settings },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let log = '';
  gateway.stdout.setEncoding('utf8');
  for await (const text of gateway.stdout.iterator({ destroyOnReturn: false })) {
    log += text;
    const url = /"url":"([^"]+)"/.exec(log)?.[1];
    const adminUrl = /"adminUrl":"([^"]+)"/.exec(log)?.[1];
    if (url === undefined || adminUrl === undefined) continue;
    gateway.stdout.resume();
    return { process: gateway, url, adminUrl };
  }
  throw new Error(`the gateway does not start: ${log}`);
}

async function askInALoop(url: string, token: string, load: Load, ending: AbortSignal): Promise<void> {
  while (!ending.aborted) {
    const which = Math.floor(Math.random() * Math.min(load.reads, 1e9));
    await get(`${url}/api/analytics/accounts/?${load.name}=${which}`, token, ending);
    await sleep(load.pauseMs, undefined, { signal: ending }).catch(() => {});
  }
}

/** Resolves when the answer was read, or when there is none. */
function get(url: string, token: string, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const asked = request(url, { headers: { 'x-api-key': token }, signal }, (answer) => {
      answer.on('close', resolve);
      answer.resume();
    });
    asked.on('error', () => resolve());
    asked.end();
  });
}

async function photograph(chromium: string, url: string, afterMs: number): Promise<Buffer> {
  const browser = await launchChromium(chromium);
  try {
    const page = await browser.newPage({ viewport: { width: 1_060, height: 1_500 }, colorScheme: 'light' });
    await page.goto(url);
    await page.locator('#banner[class]').waitFor();
    await page.waitForTimeout(afterMs);
    // From the verdict to the callers; the tables below them say no more of what is shown.
    const callers = await page.locator('section', { has: page.locator('#callers') }).boundingBox();
    if (callers === null) throw new Error('the console shows no callers');
    const height = Math.ceil(callers.y + callers.height + 16);
    return await page.screenshot({ clip: { x: 0, y: 0, width: 1_060, height } });
  } finally {
    await browser.close();
  }
}

if (import.meta.main) {
  const chromium = findChromium(process.env);
  if (chromium === undefined) {
    process.stderr.write(`${howToInstall}\n`);
    process.exitCode = 1;
  } else {
    const file = fileURLToPath(new URL('console.png', import.meta.url));
    writeFileSync(file, await pictureOfConsole(chromium, 20));
  }
}
