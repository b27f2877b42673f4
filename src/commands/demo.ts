/** `demo`: the gateway against the stand-in upstream, with a show of what it does in two minutes. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { type IncomingHttpHeaders, request } from 'node:http';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { readConfig } from '../config/config.ts';
import { type StandIn, standInKey, startStandIn } from '../demo/stand-in.ts';
import { prepareTraffic, type Traffic, trafficLimit } from '../demo/traffic.ts';
import { ListenError } from '../edge/listen.ts';
import { type Gateway, startGateway } from '../gateway/gateway.ts';

interface Came {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
  readonly ms: number;
}

export interface DemoOptions {
  /** Ends after the show. */
  readonly once: boolean;
  /** Three callers keep asking instead of the show. */
  readonly traffic: boolean;
  /** More than one share a store, and the three callers ask them in turn. */
  readonly gateways: number;
}

/** As it stands in the sources, or as `npm run build` has made it. */
const isBuilt = !import.meta.url.endsWith('.ts');

/** @returns the exit status */
export async function demo({ once, traffic: hasTraffic, gateways }: DemoOptions): Promise<number> {
  const isFleet = gateways > 1;
  const store = isFleet ? await startDemoStore(process.env['PATH'] ?? '') : undefined;
  if (isFleet && store === undefined) {
    process.stderr.write(
      'Several gateways share a store, and neither valkey-server nor redis-server is installed here.\n',
    );
    return 1;
  }
  const wantsTraffic = hasTraffic || isFleet;
  const standIn = await startStandIn(wantsTraffic ? { limit: trafficLimit } : {});
  const traffic = wantsTraffic ? prepareTraffic() : undefined;
  const settings = {
    ...(traffic && { CALLERS_FILE: traffic.file }),
    ...(store && { SHARED_STORE: store.address }),
  };
  const { PORT = '8080', ADMIN_PORT = '0' } = process.env;
  const free = { PORT: '0', ADMIN_PORT: ADMIN_PORT === 'off' ? 'off' : '0' };
  const gateway = await startOn({ PORT, ADMIN_PORT }, standIn, settings).catch((error: unknown) => {
    // Another process has one of the ports; a demo must not fail for that.
    if (error instanceof ListenError && !error.isSetting) return startOn(free, standIn, settings);
    throw error;
  });
  const others: Gateway[] = [];
  while (others.length < gateways - 1) others.push(await startOn(free, standIn, settings));
  const readyMs = performance.now();
  say(
    `The Workspace Analytics Gateway, at ${gateway.url}, before a stand-in for the upstream at ${standIn.url}`,
  );
  say('The stand-in accepts one key. The gateway holds it; the callers below do not have it.');
  if (traffic === undefined) await show(gateway.url, standIn);
  else startTraffic(traffic, gateway, others);
  sayFigures(readyMs);
  if (once) await traffic?.answered(3);
  else {
    if (traffic === undefined) sayWhatToTry(gateway);
    say('\nIt stays up until Ctrl-C.');
    await new Promise<void>((resolve) => {
      process.once('SIGINT', () => resolve());
      process.once('SIGTERM', () => resolve());
    });
  }
  await traffic?.stop();
  await Promise.all([gateway, ...others].map((one) => one.drain()));
  await standIn.close();
  await store?.end();
  return 0;
}

function startTraffic(traffic: Traffic, gateway: Gateway, others: readonly Gateway[]): void {
  const { adminUrl } = gateway;
  const { perSecond, burst } = trafficLimit;
  say(
    `\nThe upstream allows ${perSecond} requests a second, ${burst} at once. Three callers ask for more:\n${traffic.describe}`,
  );
  if (adminUrl !== undefined) sayConsole('Watch them share it', adminUrl);
  for (const { url, adminUrl: console } of others) {
    const beside = console === undefined ? '' : `: open ${console}/ beside it`;
    say(`Another gateway at ${url} shares answers and turns with the first${beside}.`);
  }
  traffic.start([gateway, ...others].map(({ url }) => url));
}

function sayConsole(what: string, adminUrl: string): void {
  say(`\n${what}: open ${adminUrl}/ in a browser. For programs:
  curl -s ${adminUrl}/status
  curl -s ${adminUrl}/metrics`);
}

function sayFigures(readyMs: number): void {
  const memory = Math.round(process.memoryUsage.rss() / 2 ** 20);
  const how = isBuilt
    ? 'both built. Alone the gateway needs less.'
    : 'both from source. Built and alone the gateway needs less: npm run build.';
  say(
    `\nFigures of this run: ready ${Math.round(readyMs)} ms after the process began, ${memory} MiB resident with the ` +
      `stand-in in the same process, ${how}`,
  );
}

function sayWhatToTry({ url, adminUrl }: Gateway): void {
  say(`\nTry:
  curl -i ${url}/api/analytics/accounts/
  curl -i ${url}/api/analytics/accounts/          # again: a hit
  curl -i ${url}/api/users/api-keys/
  curl -i ${url}/api/analytics/                   # refused
  curl -i '${url}/api/analytics/accounts/?api_key=x'  # a key is never in the URL
  curl -s ${url}/problems/unknown-operation
  curl -i ${url}/readyz
Operations, examples and problems: open ${url}/docs in a browser.`);
  if (adminUrl === undefined) return;
  sayConsole('The console, to watch it meanwhile (demo --traffic makes it move)', adminUrl);
}

function startOn(
  ports: { readonly PORT: string; readonly ADMIN_PORT: string },
  standIn: StandIn,
  settings: Record<string, string>,
): Promise<Gateway> {
  const environment = {
    UPSTREAM_BASE_URL: standIn.url,
    UPSTREAM_API_KEY: standInKey,
    UPSTREAM_API_KEY_CHECK: 'off',
    ...ports,
    LOG_LEVEL: process.env['LOG_LEVEL'] ?? 'silent',
    LOG_FORMAT: process.env['LOG_FORMAT'] ?? '',
    SHUTDOWN_GRACE: '2s',
    ...settings,
  };
  return startGateway({ config: readConfig(environment), environment });
}

/** What came back in all, and how often the key was in it. */
interface Tally {
  bytes: number;
  keys: number;
}

const accounts = '/api/analytics/accounts/';

/** A handful of requests, side by side: what the caller sent, what the upstream received, what came back. */
async function show(url: string, standIn: StandIn): Promise<void> {
  const tally: Tally = { bytes: 0, keys: 0 };
  const ask = async (path: string, headers: Record<string, string> = {}): Promise<Came> => {
    const came = await get(`${url}${path}`, headers);
    const everything = `${JSON.stringify(came.headers)}${came.body}`;
    tally.bytes += Buffer.byteLength(everything);
    if (everything.includes(standInKey)) tally.keys += 1;
    return came;
  };
  await scene(standIn, 'A first read', `GET ${accounts}`, async () => describe(await ask(accounts)));
  await scene(standIn, 'The same again: a hit', `GET ${accounts}`, async () => describe(await ask(accounts)));
  await scene(
    standIn,
    'A rush of 100 callers for one thing that is not stored',
    `100 × GET ${accounts}?rush`,
    async () => {
      const rush = await Promise.all(Array.from({ length: 100 }, () => ask(`${accounts}?rush`)));
      return `${rush.filter(({ status }) => status === 200).length} × 200`;
    },
  );
  await scene(
    standIn,
    'The upstream says 429, wait a second: the gateway waits, the caller need not know',
    `GET ${accounts}?busy`,
    async () => {
      standIn.setLimit({ perSecond: 1, burst: 1, startsEmpty: true });
      const came = await ask(`${accounts}?busy`);
      standIn.setLimit(undefined);
      return describe(came);
    },
  );
  await scene(
    standIn,
    'A path that is no operation',
    'GET /api/analytics/exports/  X-API-Key: something a script still had',
    async () => {
      const refused = await ask('/api/analytics/exports/', { 'x-api-key': 'something a script still had' });
      const { code, title } = JSON.parse(refused.body) as { code: string; title: string };
      return `${refused.status}  ${code}: ${title}`;
    },
  );
  say(
    `\nIn the ${tally.bytes.toLocaleString('en')} bytes that came back, the key occurred ${tally.keys} times.`,
  );
}

/** Plays one scene and prints it with what the upstream received meanwhile. */
async function scene(
  standIn: StandIn,
  title: string,
  sent: string,
  play: () => Promise<string>,
): Promise<void> {
  const before = standIn.requests.length;
  const came = await play();
  const received = standIn.requests.slice(before).map(({ method, target, headers, status }) => {
    const key = headers['x-api-key'] === standInKey ? '<the key>' : '<none>';
    return `${method} ${target}  X-API-Key: ${key}  Accept: ${headers['accept']}  → ${status}`;
  });
  say(`\n${title}`);
  say(`  caller sent        ${sent}`);
  say(`  upstream received  ${received.length === 0 ? 'nothing' : received.join('\n                     ')}`);
  say(`  came back          ${came}`);
}

function describe({ status, headers, ms }: Came): string {
  return `${status}  in ${ms.toFixed(1)} ms  Cache-Status: ${headers['cache-status'] ?? '(not asked)'}`;
}

function get(url: string, headers: Record<string, string>): Promise<Came> {
  const startedMs = performance.now();
  return new Promise((resolve, reject) => {
    const exchange = request(url, { headers, agent: false }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('error', reject);
      response.on('end', () =>
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          body: Buffer.concat(chunks).toString(),
          ms: performance.now() - startedMs,
        }),
      );
    });
    exchange.on('error', reject);
    exchange.end();
  });
}

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

const names = ['valkey-server', 'redis-server'];
const usualFolders = ['/usr/bin', '/usr/local/bin'];
const startLimitMs = 5_000;

export interface DemoStore {
  /** For SHARED_STORE. */
  readonly address: string;
  end(): Promise<void>;
}

/**
 * A Valkey or Redis server for several gateways, on a socket of its own; `undefined` where none is installed, or it does
 * not start. It keeps nothing on the disk.
 *
 * @param path the folders of programs, as in PATH
 */
async function startDemoStore(path: string): Promise<DemoStore | undefined> {
  const folders = [...path.split(delimiter), ...usualFolders];
  const program = names.flatMap((name) => folders.map((folder) => join(folder, name))).find(existsSync);
  if (program === undefined) return undefined;
  const folder = mkdtempSync(join(tmpdir(), 'analytics-gateway-store-'));
  const socket = join(folder, 'store.sock');
  const options = ['--port', '0', '--unixsocket', socket, '--save', '', '--dir', folder];
  const child = spawn(program, options, { stdio: 'ignore' });
  const ended = once(child, 'exit').catch(() => undefined);
  const end = async (): Promise<void> => {
    child.kill('SIGTERM');
    await ended;
    rmSync(folder, { recursive: true, force: true });
  };
  const untilMs = performance.now() + startLimitMs;
  while (!existsSync(socket) && child.exitCode === null && performance.now() < untilMs) await sleep(20);
  if (existsSync(socket)) return { address: `unix:${socket}`, end };
  await end();
  return undefined;
}
