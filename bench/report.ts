/** From figures to words: the table that is printed, and the page `docs/performance.md`. Pure. */
import type { EventLoop, Footprint, Growth, Saturation } from './parts.ts';
import { type Measured, ratio } from './rounds.ts';

export interface Results {
  readonly node: string;
  readonly machine: string;
  /** Contender and generator on one processor, the upstream on another. */
  readonly pinned: boolean;
  readonly bodyBytes: number;
  readonly hits: readonly Measured[];
  readonly passThrough: readonly Measured[];
  readonly saturation: readonly Saturation[];
  readonly eventLoop: EventLoop | undefined;
  readonly entries: Growth | undefined;
  readonly callers: Growth | undefined;
  readonly footprint: Footprint | undefined;
  /** Parts that could not be measured, and why: told, never left out. */
  readonly failures: Readonly<Record<string, string>>;
}

/** Contenders under names that people know. */
export const names: Readonly<Record<string, string>> = {
  'the gateway': 'the gateway',
  'the gateway, storing': 'the gateway, storing each answer',
  nginx: 'nginx',
  'node-http': 'bare node:http',
  'hono-constant': 'Hono, a constant',
  dispatch: 'bare node:http with undici’s dispatch',
  fastify: 'fastify, @fastify/http-proxy',
  'http-proxy-3': 'http-proxy-3',
  'hono-proxy': "Hono's proxy helper",
};

export interface Target {
  readonly what: string;
  readonly value: number;
  readonly limit: number;
  readonly unit: string;
}

/** What was aimed at, and what came out. A ratio is the median of the ratios within each round. */
export function targetsOf(results: Results): Target[] {
  const { hits, passThrough, saturation, footprint, entries, callers } = results;
  const at32 = saturation.filter(({ connections }) => connections === 32);
  const targets: Target[] = [
    { what: 'a hit, to nginx', value: cost(hits, 'nginx'), limit: 1, unit: '×' },
    { what: 'a hit, to bare node:http', value: cost(hits, 'node-http'), limit: 1.3, unit: '×' },
    {
      what: 'passing through, to fastify-reply-from',
      value: cost(passThrough, 'fastify'),
      limit: 0.75,
      unit: '×',
    },
    {
      what: 'passing through, to bare node:http with undici’s dispatch',
      value: cost(passThrough, 'dispatch'),
      limit: 1.6,
      unit: '×',
    },
    { what: 'p99 of hits at saturation, to nginx', value: latency(at32), limit: 2, unit: '×' },
    { what: 'ready after', value: footprint?.readyMs ?? Number.NaN, limit: 250, unit: ' ms' },
    {
      what: 'memory idle, to its libraries alone',
      value: footprint === undefined ? Number.NaN : footprint.idleMiB / footprint.librariesMiB,
      limit: 1.1,
      unit: '×',
    },
    { what: 'memory idle', value: footprint?.idleMiB ?? Number.NaN, limit: 85, unit: ' MiB' },
    {
      what: `memory after ${count(footprint?.hits ?? 1_000_000)} hits`,
      value: footprint?.afterHitsMiB ?? Number.NaN,
      limit: 120,
      unit: ' MiB',
    },
    {
      what: `a hit among ${spanOf(entries, 'answers')}`,
      value: entries?.ratio ?? Number.NaN,
      limit: flat,
      unit: '×',
    },
    {
      what: `a hit with ${spanOf(callers, 'callers')}`,
      value: callers?.ratio ?? Number.NaN,
      limit: flat,
      unit: '×',
    },
  ];
  return targets;
}

/** Flat is the aim; so much is allowed for processor caches, which more data fill. */
const flat = 1.2;

function spanOf(growth: Growth | undefined, what: string): string {
  return growth === undefined ? `many ${what}, to few` : `${count(growth.to)} ${what}, to ${growth.from}`;
}

function cost(list: readonly Measured[], peer: string): number {
  const ours = list.find(({ name }) => name === 'the gateway');
  const theirs = list.find(({ name }) => name === peer);
  return ours === undefined || theirs === undefined ? Number.NaN : ratio(ours.cpuByRound, theirs.cpuByRound);
}

function latency(list: readonly Saturation[]): number {
  const ours = list.find(({ name }) => name === 'the gateway');
  const theirs = list.find(({ name }) => name === 'nginx');
  return ours === undefined || theirs === undefined ? Number.NaN : ratio(ours.p99ByRound, theirs.p99ByRound);
}

/** `docs/performance.md`, whole: it is never written by hand. */
export function performancePage(results: Results): string {
  return `# Performance

<!-- Written by "npm run bench" from bench/results.json. -->

You want to know what the gateway costs, beside what else you could run. Under a shared limit of the upstream other figures count: [storm](storm.md).

![CPU time per request](../bench/results.svg)

## Measured

The targets are aims, not promises; the missed ones are listed with the others.

${tableOf(results)}

## How it is measured

\`npm run bench\` measures the gateway as it is deployed: built, with the image's flags and compile cache, a callers file, the access log, the cache and the admin listener. Beside it run nginx, fastify with \`@fastify/http-proxy\`, http-proxy-3, Hono's \`proxy\` helper and bare \`node:http\`: a handler that answers from memory, and one that passes through with undici's \`dispatch\`, whole bodies, nothing checked, which is the floor. The other peers do the same work: token check, one JSON log line per request, key injection, the same ${figure(results.bodyBytes / 1_024)} KiB of JSON; nginx also sends the same response fields. They are dependencies of \`bench/\` alone.

- The figure is CPU time of the process. Contenders take turns in rounds, and a ratio is the median of the ratios within each round.
- For these figures contender and load generator share one processor: on two, waking an idle generator costs more than an answer, and is charged to the slower contender. Throughput and latency are measured on all processors.
- The load comes from wrk, which must be installed. nginx is left out where there is none.
- It takes about twelve minutes. \`npm run bench -- --quick\` takes three and writes no files.

Ratios within a run repeat to a tenth; absolute times differ by a third from hour to hour on a shared machine. For small differences there is \`npx node bench/instructions.ts\`: valgrind counts a hit's instructions outside the kernel, and with \`through\` those of a read that passes through.

## Where the time goes

- **A hit**: half of it is the kernel's, as in the bare handler. The rest of the difference: recognising the caller (more than half of that is SHA-256 of the token), the log line, the look-up, Node's headers of the request, V8's collections. No promise is made on the way ([decision 4](decisions/0004-cost-of-a-hit.md)).
- **Passing through**: a quarter is the kernel's, a quarter compiled JavaScript (undici's, Node's and the layers'; 2 µs the search for the key, 1.5 µs whether the JSON of an answer of 3.3 KiB is whole). The rest is Node's and V8's own code: sockets, parser, strings, fields by name, promises, 1 µs SHA-256 for the entity tag, 4 µs collections: a read allocates 45 KB, fastify's 33, the floor's 12. A streaming proxy checks nothing, and spends on its streams instead ([decision 3](decisions/0003-whole-answers.md)).
- **Storing each answer**: collections of a heap that holds 64 MiB of answers. The gateway asks for them often, so that [memory stays bounded](caching.md#memory).
- **Start and idle memory**: Node itself and the libraries. The [build](decisions/0005-one-program.md) keeps both small.
`;
}

/** The line of the README that sets the gateway beside nginx. */
export function nginxLine({ hits, passThrough }: Results): string {
  const cpu = (list: readonly Measured[], who: string): string =>
    `${figure(list.find(({ name }) => name === who)?.cpuUsPerRequest ?? Number.NaN)} µs`;
  const [ours, theirs] = ['the gateway', 'nginx'];
  return (
    `nginx adds a header and caches as well, for less CPU time: ${cpu(hits, theirs)} for a hit against ${cpu(hits, ours)} here, ` +
    `${cpu(passThrough, theirs)} for a read that goes up against ${cpu(passThrough, ours)} ([performance](docs/performance.md)). What it leaves to you:`
  );
}

/** The figures alone, as tables. */
export function tableOf(results: Results): string {
  const { eventLoop, footprint } = results;
  const lines = ['| target | aimed at | measured | |', '|---|---|---|---|'];
  for (const { what, value, limit, unit } of targetsOf(results)) {
    // A target without a figure is not met, and stays in the table.
    const measured = Number.isFinite(value) ? `${figure(value)}${unit}` : 'not measured';
    const verdict = !Number.isFinite(value) ? 'open' : value <= limit ? 'met' : 'missed';
    lines.push(`| ${what} | ≤ ${limit}${unit} | ${measured} | ${verdict} |`);
  }
  lines.push(
    '',
    ...costTable('A hit', results.hits),
    '',
    ...costTable('Passing through', results.passThrough),
  );
  lines.push('', '| hits at saturation | connections | requests/s | p50 | p99 |', '|---|---|---|---|---|');
  for (const { name, connections, perSecond, p50Ms, p99Ms } of results.saturation) {
    lines.push(
      `| ${names[name] ?? name} | ${connections} | ${count(perSecond)} | ${figure(p50Ms)} ms | ${figure(p99Ms)} ms |`,
    );
  }
  if (eventLoop !== undefined) {
    lines.push(
      '',
      `Event loop late by ${figure(eventLoop.p50Ms)} ms (p50), ${figure(eventLoop.p99Ms)} ms (p99) at 32 connections.`,
    );
  }
  if (footprint !== undefined) {
    lines.push(
      '',
      `Ready after ${figure(footprint.readyMs)} ms, a bare Node server after ${figure(footprint.nodeReadyMs)} ms. ` +
        `Idle ${figure(footprint.idleMiB)} MiB; its libraries alone ${figure(footprint.librariesMiB)} MiB, ` +
        `Node ${figure(footprint.nodeMiB)} MiB.`,
    );
  }
  for (const [part, why] of Object.entries(results.failures))
    lines.push('', `Not measured: ${part} (${why}).`);
  lines.push(
    '',
    `${results.machine}, Node ${results.node}${results.pinned ? '; CPU figures with contender and generator on one processor' : ''}.`,
  );
  return lines.join('\n');
}

function costTable(title: string, list: readonly Measured[]): string[] {
  const ours = list.find(({ name }) => name === 'the gateway');
  return [
    `| ${title} | CPU per request | the gateway to it |`,
    '|---|---|---|',
    ...list.map(({ name, cpuUsPerRequest, cpuByRound, failed }) => {
      const to =
        ours === undefined || name === ours.name ? '' : `${figure(ratio(ours.cpuByRound, cpuByRound))}×`;
      const broken = failed === 0 ? '' : ` (${count(failed)} failed)`;
      return `| ${names[name] ?? name} | ${figure(cpuUsPerRequest)} µs${broken} | ${to} |`;
    }),
  ];
}

export function figure(value: number): string {
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

function count(value: number): string {
  return Math.round(value).toLocaleString('en');
}
