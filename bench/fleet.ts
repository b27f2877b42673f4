/**
 * Three gateways before one upstream: with a shared store and without, beside a single one. Over real sockets, each
 * gateway in a process of its own, each fleet against a stand-in of its own. Ends with 1 where a promise is missed.
 *
 *   npm run bench:fleet [-- --seconds 60] [--sticky | --kill-store | --failover | --cluster]
 *
 * The storm is that of `bench:storm` (50/s, with and without `Retry-After: 1`), spread round the gateways, or with
 * `--sticky` the greedy caller on one gateway and the others on another. `--kill-store` ends the store in the middle for
 * ten seconds, `--failover` the master behind three sentinels for good, and with `--cluster` the store is three masters, of
 * which one gives all its slots to another in the middle. Without any of these, there follow a read that 500 callers make at once, a caller with a limit of 20 a second,
 * and ten rolling restarts under load.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { startRedis } from '../test/support/redis.ts';
import { startCluster, startSentinels } from '../test/support/redis-sets.ts';
import { atLeast, atMost, type Check, judgeStorm, type StormBounds } from './fleet/checks.ts';
import { deadlineMs, type FleetPlan, Gateways } from './fleet/gateways.ts';
import { type CallerPlan, runCallers } from './storm/callers.ts';
import { figuresOf } from './storm/figures.ts';
import { type Scenario, scenarios, usual } from './storm/scenarios.ts';
import { type SideResult, tableOf } from './storm/table.ts';
import { measureRoundTrip } from './storm/unhindered.ts';
import { startUpstream } from './storm/upstream.ts';

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '60' },
    sticky: { type: 'boolean', default: false },
    'kill-store': { type: 'boolean', default: false },
    failover: { type: 'boolean', default: false },
    cluster: { type: 'boolean', default: false },
  },
});
const seconds = Number(values.seconds);
if (!(seconds >= 1)) {
  throw new TypeError(
    'npm run bench:fleet [-- --seconds N] [--sticky | --kill-store | --failover | --cluster]',
  );
}
/** What happens to the store in the middle of a storm. */
const isTroubled = values['kill-store'] || values.failover || values.cluster;
const latencyMs = 5;
const storeAwayMs = 10_000;
const restarts = 10;
const unlimited = { perSecond: 1e6, burst: 1e6, retryAfterSeconds: undefined };

async function storm(
  plan: FleetPlan,
  scenario: Scenario,
  trouble?: () => Promise<void>,
): Promise<SideResult> {
  const { burst, retryAfterSeconds, callers } = scenario;
  const roundTripMs = await measureRoundTrip(
    (upstream, _key, _limitMs, plans) => Gateways.start(plan, upstream, plans),
    latencyMs,
    deadlineMs,
  );
  const limit = { perSecond: scenario.perSecond(0), burst, retryAfterSeconds };
  const upstream = await startUpstream(limit, latencyMs);
  const gateways = await Gateways.start(plan, upstream.url, callers);
  const troubled = trouble?.();
  const records = await runCallers(gateways, callers, performance.now() + seconds * 1_000);
  const allowed = Array.from({ length: seconds }, (_, at) => limit.perSecond + (at === 0 ? burst : 0));
  const figures = figuresOf(records, await upstream.counts(), allowed, roundTripMs);
  await troubled;
  await gateways.close();
  await upstream.close();
  return { name: plan.name, figures, note: undefined };
}

interface BenchStore extends AsyncDisposable {
  readonly address: string;
  /** In the middle of a storm. */
  readonly trouble?: () => Promise<void>;
}

async function openStore(): Promise<BenchStore> {
  if (values.failover) {
    const set = await startSentinels();
    const trouble = async (): Promise<void> => {
      await sleep((seconds * 1_000) / 2);
      const master = await set.master();
      await master.kill();
      await sleep(storeAwayMs);
      // For the next storm: it comes back as a replica.
      await master.start();
    };
    return Object.assign(set, { trouble });
  }
  if (values.cluster) {
    const set = await startCluster();
    const trouble = async (): Promise<void> => {
      await sleep((seconds * 1_000) / 2);
      const from = await set.owner('{analytics-gateway}');
      await set.moveSlots(from, await set.otherMaster(from));
    };
    return Object.assign(set, { trouble });
  }
  const store = await startRedis();
  if (!values['kill-store']) return store;
  const trouble = async (): Promise<void> => {
    await sleep(Math.max(0, (seconds * 1_000 - storeAwayMs) / 2));
    await store.kill();
    await sleep(storeAwayMs);
    await store.start();
  };
  return Object.assign(store, { trouble });
}

/** Upstream calls for one read that 500 callers make at once. */
async function coldRead(plan: FleetPlan): Promise<number> {
  const upstream = await startUpstream(unlimited, 200);
  const reader: CallerPlan = { name: 'reader', loops: 500, thinkMs: 0, weight: 1 };
  const settings = { ...plan.settings, CACHE_TTL: '60s' };
  const gateways = await Gateways.start({ ...plan, settings }, upstream.url, [reader]);
  // The store is reached by then; the callers of one moment are to find it so.
  await sleep(1_000);
  const before = (await upstream.counts()).answered;
  const ask = () => gateways.askFor(reader.name, '/api/analytics/accounts/?cold');
  await Promise.all(Array.from({ length: reader.loops }, ask));
  const calls = (await upstream.counts()).answered - before;
  await gateways.close();
  await upstream.close();
  return calls;
}

/** Requests a second that a caller with a limit of 20 gets through in ten seconds. */
async function limited(plan: FleetPlan): Promise<number> {
  const upstream = await startUpstream(unlimited, latencyMs);
  const limit = { perSecond: 20, burst: 5 };
  const caller: CallerPlan = { name: 'limited', loops: 1, thinkMs: 0, weight: 1, limit };
  const gateways = await Gateways.start(plan, upstream.url, [caller]);
  await sleep(1_000);
  const untilMs = performance.now() + 10_000;
  let answered = 0;
  while (performance.now() < untilMs) {
    if ((await gateways.ask(caller.name)).kind === 'answered') answered += 1;
    await sleep(5);
  }
  await gateways.close();
  await upstream.close();
  return answered / 10;
}

/** Restarts one gateway after the other under the storm. @returns requests that got no answer, or a wrong one */
async function rollingRestarts(plan: FleetPlan, { burst, callers }: Scenario): Promise<Check[]> {
  const upstream = await startUpstream({ perSecond: 50, burst, retryAfterSeconds: undefined }, latencyMs);
  const settings = { ...plan.settings, SHUTDOWN_GRACE: '30s' };
  const gateways = await Gateways.start({ ...plan, settings }, upstream.url, callers);
  let isOver = false;
  const counts = { asked: 0, answered: 0, refused: 0, failed: 0 };
  const loop = async ({ name, thinkMs }: CallerPlan): Promise<void> => {
    while (!isOver) {
      counts.asked += 1;
      const ending = await gateways.ask(name);
      counts[ending.kind] += 1;
      await sleep(ending.kind === 'refused' ? ending.retryAfterMs : thinkMs);
    }
  };
  const loops = callers.flatMap((caller) => Array.from({ length: caller.loops }, () => loop(caller)));
  for (let at = 0; at < restarts; at += 1) {
    await sleep(1_000);
    await gateways.restart(at);
  }
  isOver = true;
  await Promise.all(loops);
  const accepted = (await upstream.counts()).answered;
  await gateways.close();
  await upstream.close();
  const name = `${restarts} rolling restarts:`;
  return [
    { text: `${name} ${counts.failed} of ${counts.asked} requests lost`, isMet: counts.failed === 0 },
    {
      text: `${name} ${counts.answered} answers of ${accepted} that the upstream gave`,
      isMet: counts.answered === accepted,
    },
  ];
}

/** The bounds of the promise, by the kind of storm. */
function boundsOf({ retryAfterSeconds }: Scenario): StormBounds {
  if (isTroubled) return { goodput: 0.8 };
  if (values.sticky) return { goodput: 0, share: 0.8 };
  const isStated = retryAfterSeconds !== undefined;
  return { goodput: isStated ? 0.85 : 0.95, wasted: 0.02, share: 0.9, p99Ms: isStated ? 2_000 : 1_000 };
}

const store = await openStore();
const isSticky = values.sticky;
const one: FleetPlan = { name: 'one gateway', gateways: 1, settings: {} };
const apart: FleetPlan = { name: 'three, each alone', gateways: 3, settings: {}, isSticky };
const together: FleetPlan = {
  ...{ name: 'three that share', gateways: 3, isSticky },
  settings: { SHARED_STORE: store.address },
};
const checks: Check[] = [];
const storms = scenarios.filter(({ name }) => usual.includes(name));
for (const scenario of storms) {
  const results: [SideResult, ...SideResult[]] = [await storm(one, scenario)];
  if (!isTroubled) results.push(await storm(apart, scenario));
  const result = await storm(together, scenario, store.trouble);
  results.push(result);
  process.stdout.write(`${tableOf(scenario.name, results)}\n`);
  checks.push(...judgeStorm(scenario.name, result.figures, results[0].figures, boundsOf(scenario)));
}
if (!values.sticky && !isTroubled) {
  const plan = { ...together, name: 'three that share' };
  const [calls, perSecond] = [await coldRead(plan), await limited(plan)];
  checks.push(atMost('upstream calls for one read of 500 callers', calls, 1));
  checks.push(atLeast('a limit of 20 a second lets through', perSecond, 18));
  checks.push(atMost('a limit of 20 a second lets through', perSecond, 22));
  checks.push(...(await rollingRestarts(together, storms[0] as Scenario)));
}
await store[Symbol.asyncDispose]();
process.stdout.write(
  `\n${checks.map(({ text, isMet }) => `${isMet ? 'met   ' : 'MISSED'} ${text}`).join('\n')}\n`,
);
process.exit(checks.every(({ isMet }) => isMet) ? 0 : 1);
