/**
 * One upstream limit, many callers: each retrying for itself, and the same callers through the gateway, side by
 * side over real sockets, each side against a stand-in with the same hidden limit.
 *
 *   node bench/storm.ts [--seconds 60] [--scenario '50/s'] [--all] [--latency 5] [--json] [--alone]
 *
 * `--alone` leaves out the side on which each retries for itself: two sides of 2000/s are more than two cores can do.
 * A run of a minute or longer, of both sides, writes docs/storm.md and docs/storm.svg.
 */
import { writeFile } from 'node:fs/promises';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { standInKey } from '../test/support/stand-in/stand-in.ts';
import { runCallers, type Side, type StartSide } from './storm/callers.ts';
import { startDirectSide } from './storm/direct-side.ts';
import { documentOf } from './storm/document.ts';
import { figuresOf } from './storm/figures.ts';
import { startGatewaySide } from './storm/gateway-side.ts';
import { type Counted, type Course, pictureOf, shownSeconds } from './storm/picture.ts';
import { type Scenario, scenarios, usual } from './storm/scenarios.ts';
import { type SideResult, tableOf } from './storm/table.ts';
import { measureRoundTrip } from './storm/unhindered.ts';
import { startUpstream, type Upstream } from './storm/upstream.ts';

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '60' },
    scenario: { type: 'string', multiple: true },
    all: { type: 'boolean', default: false },
    latency: { type: 'string', default: '5' },
    json: { type: 'boolean', default: false },
    alone: { type: 'boolean', default: false },
  },
});
const seconds = Number(values.seconds);
const latencyMs = Number(values.latency);
const deadlineMs = 25_000;
/** How often the upstream is asked for its counts. */
const countingMs = 500;
const starts: readonly StartSide[] = values.alone ? [startGatewaySide] : [startDirectSide, startGatewaySide];
const names = values.all ? scenarios.map(({ name }) => name) : (values.scenario ?? usual);

/** The first scenario's course, for the picture. */
let course: Course | undefined;

/** Counts at the upstream until a time (`performance.now()`), or for as long as the picture is. */
async function countUntil(upstream: Upstream, untilMs: number): Promise<Counted[]> {
  const counted: Counted[] = [];
  const endMs = Math.min(untilMs - countingMs, performance.now() + (shownSeconds + 1) * 1000);
  while (performance.now() < endMs) {
    counted.push({ ...(await upstream.counts()), atMs: Date.now() });
    await sleep(countingMs);
  }
  return counted;
}

async function runSide(
  side: Side,
  scenario: Scenario,
  upstream: Upstream,
  untilMs: number,
  roundTripMs: number,
): Promise<SideResult> {
  const counting = countUntil(upstream, untilMs);
  const records = await runCallers(side, scenario.callers, untilMs);
  const counted = await counting;
  const counts = await upstream.counts();
  const allowed = Array.from({ length: seconds }, (_, second) => {
    return scenario.perSecond(second / seconds) + (second === 0 ? scenario.burst : 0);
  });
  const figures = figuresOf(records, counts, allowed, roundTripMs);
  const note = await side.close();
  if (side.gate !== undefined) course ??= { counted, gate: side.gate(), perSecond: scenario.perSecond(0) };
  return { name: side.name, figures, note };
}

async function run(scenario: Scenario, roundTripsMs: readonly number[]): Promise<SideResult[]> {
  const limitAt = (share: number) => ({
    perSecond: scenario.perSecond(share),
    burst: scenario.burst,
    retryAfterSeconds: scenario.retryAfterSeconds,
  });
  const upstreams = await Promise.all(starts.map(() => startUpstream(limitAt(0), latencyMs)));
  const sides = await Promise.all(
    starts.map((start, i) => start((upstreams[i] as Upstream).url, standInKey, deadlineMs, scenario.callers)),
  );
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
  const moved = moveLimit();
  const results = await Promise.all(
    sides.map((side, i) =>
      runSide(side, scenario, upstreams[i] as Upstream, untilMs, roundTripsMs[i] as number),
    ),
  );
  await moved;
  await Promise.all(upstreams.map((upstream) => upstream.close()));
  return results;
}

const roundTripsMs = await Promise.all(starts.map((start) => measureRoundTrip(start, latencyMs, deadlineMs)));
const results: { scenario: string; sides: readonly SideResult[] }[] = [];
for (const name of names) {
  const scenario = scenarios.find((one) => one.name === name);
  if (scenario === undefined) {
    process.stderr.write(
      `no such scenario: ${name}\nthere are: ${scenarios.map((one) => one.name).join(' · ')}\n`,
    );
    process.exit(2);
  }
  const sides = await run(scenario, roundTripsMs);
  results.push({ scenario: name, sides });
  const text = values.json
    ? JSON.stringify({ scenario: name, seconds, roundTripsMs, sides })
    : tableOf(name, sides);
  process.stdout.write(`${text}\n`);
}
if (seconds >= 60 && !values.alone && !values.json) {
  const machine = `${cpus().length} × ${cpus()[0]?.model.trim() ?? 'unknown'}, Node ${process.versions.node}`;
  const docs = join(import.meta.dirname, '..', 'docs');
  await writeFile(join(docs, 'storm.md'), documentOf(results, seconds, machine));
  if (course !== undefined) await writeFile(join(docs, 'storm.svg'), pictureOf(course));
}
process.exit(0);
