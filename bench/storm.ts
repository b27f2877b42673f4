/**
 * One upstream limit, many callers: each retrying for itself, and the same callers through the gateway, side by
 * side over real sockets, each side against a stand-in with the same hidden limit.
 *
 *   node bench/storm.ts [--seconds 60] [--scenario '50/s'] [--all] [--latency 5] [--json]
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { standInKey } from '../src/stand-in/stand-in.ts';
import { runCallers, type Side } from './storm/callers.ts';
import { startDirectSide } from './storm/direct-side.ts';
import { type Figures, figuresOf } from './storm/figures.ts';
import { startGatewaySide } from './storm/gateway-side.ts';
import { type Scenario, scenarios, usual } from './storm/scenarios.ts';
import { tableOf } from './storm/table.ts';
import { startUpstream, type Upstream } from './storm/upstream.ts';

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '60' },
    scenario: { type: 'string', multiple: true },
    all: { type: 'boolean', default: false },
    latency: { type: 'string', default: '5' },
    json: { type: 'boolean', default: false },
  },
});
const seconds = Number(values.seconds);
const latencyMs = Number(values.latency);
const deadlineMs = 25_000;
const names = values.all ? scenarios.map(({ name }) => name) : (values.scenario ?? usual);

type StartSide = (upstream: URL, key: string, deadlineMs: number) => Side;

async function runSide(
  start: StartSide,
  scenario: Scenario,
  upstream: Upstream,
  untilMs: number,
): Promise<{ name: string; figures: Figures }> {
  const side = start(upstream.url, standInKey, deadlineMs);
  const records = await runCallers(side, scenario.callers, untilMs);
  const counts = await upstream.counts();
  const allowed = Array.from({ length: seconds }, (_, second) => {
    return scenario.perSecond(second / seconds) + (second === 0 ? scenario.burst : 0);
  });
  // The stand-in's latency and about 2 ms of ours and the sockets'.
  const figures = figuresOf(records, counts, allowed, latencyMs + 2);
  await side.close();
  return { name: side.name, figures };
}

async function run(scenario: Scenario): Promise<{ name: string; figures: Figures }[]> {
  const limitAt = (share: number) => ({
    perSecond: scenario.perSecond(share),
    burst: scenario.burst,
    retryAfterSeconds: scenario.retryAfterSeconds,
  });
  const upstreams = await Promise.all([1, 2].map(() => startUpstream(limitAt(0), latencyMs)));
  const fromMs = performance.now();
  const untilMs = fromMs + seconds * 1000;
  const moveLimit = async (): Promise<void> => {
    let current = scenario.perSecond(0);
    while (performance.now() < untilMs) {
      await sleep(100);
      const share = (performance.now() - fromMs) / (untilMs - fromMs);
      const next = scenario.perSecond(share);
      if (next !== current && share < 1) for (const upstream of upstreams) upstream.setLimit(limitAt(share));
      current = next;
    }
  };
  const [direct, gateway] = upstreams as [Upstream, Upstream];
  const [one, other] = await Promise.all([
    runSide(startDirectSide, scenario, direct, untilMs),
    runSide(startGatewaySide, scenario, gateway, untilMs),
    moveLimit(),
  ]);
  await Promise.all(upstreams.map((upstream) => upstream.close()));
  return [one, other];
}

for (const name of names) {
  const scenario = scenarios.find((one) => one.name === name);
  if (scenario === undefined) {
    process.stderr.write(
      `no such scenario: ${name}\nthere are: ${scenarios.map((one) => one.name).join(' · ')}\n`,
    );
    process.exit(2);
  }
  const sides = await run(scenario);
  const text = values.json ? JSON.stringify({ scenario: name, seconds, sides }) : tableOf(name, sides);
  process.stdout.write(`${text}\n`);
}
process.exit(0);
