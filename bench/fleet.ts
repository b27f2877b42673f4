/**
 * Three gateways before one upstream: with a shared store and without, beside a single one. Over real sockets, each
 * gateway in a process of its own, each fleet against a stand-in of its own.
 *
 *   npm run bench:fleet [-- --seconds 60] [--sticky] [--kill-store]
 *
 * The storm is that of `bench:storm` (50/s, with and without `Retry-After: 1`), spread round the gateways, or with
 * `--sticky` the greedy caller on one gateway and the others on another. `--kill-store` ends the store in the middle for
 * ten seconds. Then come a read that 500 callers make at once, and a caller with a limit of 20 a second.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { Pool } from 'undici';
import { standInKey } from '../src/stand-in/stand-in.ts';
import { type RedisServer, startRedis } from '../test/support/redis.ts';
import { type CallerPlan, runCallers, type Side, type StartSide } from './storm/callers.ts';
import { figuresOf } from './storm/figures.ts';
import { mintTokens, startGatewayProcess } from './storm/gateway-process.ts';
import { askGateway } from './storm/gateway-side.ts';
import { type Scenario, scenarios, usual } from './storm/scenarios.ts';
import { type SideResult, tableOf } from './storm/table.ts';
import { measureRoundTrip } from './storm/unhindered.ts';
import { startUpstream } from './storm/upstream.ts';

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '60' },
    sticky: { type: 'boolean', default: false },
    'kill-store': { type: 'boolean', default: false },
  },
});
const seconds = Number(values.seconds);
if (!(seconds >= 1)) throw new TypeError('npm run bench:fleet [-- --seconds N] [--sticky] [--kill-store]');
const deadlineMs = 25_000;
const latencyMs = 5;
const storeAwayMs = 10_000;

interface Fleet {
  readonly name: string;
  readonly gateways: number;
  readonly settings: Readonly<Record<string, string>>;
}

/** The gateways behind a balancer, as one side of the comparison. */
function behindBalancer({ name, gateways, settings }: Fleet): StartSide {
  return async (upstream, key, limitMs, plans) => {
    const tokens = mintTokens(plans);
    const processes = await Promise.all(
      Array.from({ length: gateways }, () =>
        startGatewayProcess(upstream, key, limitMs, plans, settings, tokens),
      ),
    );
    const pools = processes.map(({ url }) => new Pool(url.origin));
    let count = 0;
    return {
      name,
      ask(caller) {
        const turn = values.sticky ? Number(caller !== 'greedy') : count;
        const pool = pools[turn % pools.length] as Pool;
        return askGateway(pool, `/api/analytics/accounts/?n=${count++}`, tokens.get(caller));
      },
      async close() {
        await Promise.all(pools.map((pool) => pool.destroy()));
        await Promise.all(processes.map((one) => one.end()));
        return undefined;
      },
    };
  };
}

async function storm(fleet: Fleet, scenario: Scenario, store: RedisServer | undefined): Promise<SideResult> {
  const { burst, retryAfterSeconds, callers } = scenario;
  const start = behindBalancer(fleet);
  const roundTripMs = await measureRoundTrip(start, latencyMs, deadlineMs);
  const upstream = await startUpstream(
    { perSecond: scenario.perSecond(0), burst, retryAfterSeconds },
    latencyMs,
  );
  const side = await start(upstream.url, standInKey, deadlineMs, callers);
  const killing = store === undefined ? undefined : killInTheMiddle(store);
  const records = await runCallers(side, callers, performance.now() + seconds * 1_000);
  const allowed = Array.from(
    { length: seconds },
    (_, at) => scenario.perSecond(at / seconds) + (at === 0 ? burst : 0),
  );
  const figures = figuresOf(records, await upstream.counts(), allowed, roundTripMs);
  await killing;
  const note = await side.close();
  await upstream.close();
  return { name: side.name, figures, note };
}

async function killInTheMiddle(store: RedisServer): Promise<void> {
  await sleep(Math.max(0, (seconds * 1_000 - storeAwayMs) / 2));
  await store.kill();
  await sleep(storeAwayMs);
  await store.start();
}

/** Upstream calls for one read that 500 callers make at once. */
async function coldRead(fleet: Fleet): Promise<number> {
  const upstream = await startUpstream({ perSecond: 1e6, burst: 1e6, retryAfterSeconds: undefined }, 200);
  const plan: CallerPlan = { name: 'reader', loops: 500, thinkMs: 0, weight: 1 };
  const tokens = mintTokens([plan]);
  const settings = { ...fleet.settings, CACHE_TTL: '60s' };
  const processes = await Promise.all(
    Array.from({ length: fleet.gateways }, () =>
      startGatewayProcess(upstream.url, standInKey, deadlineMs, [plan], settings, tokens),
    ),
  );
  const pools = processes.map(({ url }) => new Pool(url.origin));
  // The store is reached by then; the callers of one moment are to find it so.
  await sleep(1_000);
  const before = (await upstream.counts()).answered;
  await Promise.all(
    Array.from({ length: plan.loops }, (_, at) =>
      askGateway(pools[at % pools.length] as Pool, '/api/analytics/accounts/?cold', tokens.get(plan.name)),
    ),
  );
  const calls = (await upstream.counts()).answered - before;
  await Promise.all(pools.map((pool) => pool.destroy()));
  await Promise.all(processes.map((one) => one.end()));
  await upstream.close();
  return calls;
}

/** Requests a second that a caller with a limit of 20 gets through in ten seconds. */
async function limited(fleet: Fleet): Promise<number> {
  const upstream = await startUpstream(
    { perSecond: 1e6, burst: 1e6, retryAfterSeconds: undefined },
    latencyMs,
  );
  const limit = { perSecond: 20, burst: 5 };
  const plan: CallerPlan = { name: 'limited', loops: 1, thinkMs: 0, weight: 1, limit };
  const side: Side = await behindBalancer(fleet)(upstream.url, standInKey, deadlineMs, [plan]);
  await sleep(1_000);
  const untilMs = performance.now() + 10_000;
  let answered = 0;
  while (performance.now() < untilMs) {
    if ((await side.ask(plan.name)).kind === 'answered') answered += 1;
    await sleep(5);
  }
  await side.close();
  await upstream.close();
  return answered / 10;
}

const store = await startRedis();
const fleets: readonly Fleet[] = [
  { name: 'one gateway', gateways: 1, settings: {} },
  { name: 'three, each alone', gateways: 3, settings: {} },
  { name: 'three that share', gateways: 3, settings: { SHARED_STORE: store.address } },
];
for (const scenario of scenarios.filter(({ name }) => usual.includes(name))) {
  const results: SideResult[] = [];
  for (const fleet of fleets) {
    const isKilled = values['kill-store'] && fleet.settings['SHARED_STORE'] !== undefined;
    results.push(await storm(fleet, scenario, isKilled ? store : undefined));
  }
  process.stdout.write(`${tableOf(scenario.name, results)}\n`);
}
for (const fleet of fleets) {
  const [calls, perSecond] = [await coldRead(fleet), await limited(fleet)];
  process.stdout.write(
    `${fleet.name}: ${calls} upstream calls for one read of 500 callers; a limit of 20 a second let ${perSecond} through\n`,
  );
}
await store[Symbol.asyncDispose]();
process.exit(0);
