/** What is measured, part by part. Each starts what it needs and ends it. */

import { existsSync, readFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { mintToken } from '../src/callers/token.ts';
import {
  type Contender,
  hasNginx,
  root,
  type Surroundings,
  startGateway,
  startNginx,
  startPeer,
  token,
} from './contenders.ts';
import { measuredCore } from './cores.ts';
import { applyLoad } from './load.ts';
import { type Program, startProgram } from './process.ts';
import { alternate, type Measured, median, ratio } from './rounds.ts';

export interface Effort {
  readonly rounds: number;
  readonly seconds: number;
  readonly warmUpSeconds: number;
  readonly starts: number;
  readonly entries: number;
  readonly callers: number;
  readonly hits: number;
}

async function withAll<T>(
  starting: readonly Promise<Contender>[],
  measure: (contenders: Contender[]) => Promise<T>,
): Promise<T> {
  const started = await Promise.allSettled(starting);
  const contenders = started.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
  try {
    // One that does not start spoils the part, and must not leave the others running beside the next.
    for (const one of started) if (one.status === 'rejected') throw one.reason;
    return await measure(contenders);
  } finally {
    await Promise.all(contenders.map(({ program }) => program.end()));
  }
}

/** A hit, everything switched on: who else answers from memory, and what the parser and the framework cost. */
export function measureHits(around: Surroundings, effort: Effort): Promise<Measured[]> {
  const pinned = { ...around, core: measuredCore };
  return withAll(
    [
      startGateway(pinned),
      ...(hasNginx() ? [startNginx(pinned, true)] : []),
      startPeer('node-http', pinned),
      startPeer('hono-constant', pinned),
    ],
    (contenders) => alternate(contenders, pinned, { ...effort, connections: 32, reads: 'same' }),
  );
}

/** A read that nothing can spare the upstream: each request has a query of its own. */
export function measurePassThrough(around: Surroundings, effort: Effort): Promise<Measured[]> {
  const pinned = { ...around, core: measuredCore };
  return withAll(
    [
      startGateway(pinned, { settings: { CACHE_TTL: '0s' } }),
      startGateway(pinned, { name: 'the gateway, storing' }),
      startPeer('dispatch', pinned),
      startPeer('fastify', pinned),
      startPeer('http-proxy-3', pinned),
      startPeer('hono-proxy', pinned),
      ...(hasNginx() ? [startNginx(pinned, false)] : []),
    ],
    (contenders) => alternate(contenders, pinned, { ...effort, connections: 32, reads: 'new' }),
  );
}

export interface Saturation extends Measured {
  readonly connections: number;
}

/** Hits as fast as they can be had, on all processors. */
export async function measureSaturation(around: Surroundings, effort: Effort): Promise<Saturation[]> {
  const results: Saturation[] = [];
  await withAll(
    [startGateway(around), ...(hasNginx() ? [startNginx(around, true)] : []), startPeer('node-http', around)],
    async (contenders) => {
      for (const connections of [1, 32, 512]) {
        const measured = await alternate(contenders, around, {
          ...effort,
          rounds: Math.max(2, Math.ceil(effort.rounds / 2)),
          connections,
          reads: 'same',
        });
        results.push(...measured.map((one) => ({ ...one, connections })));
      }
    },
  );
  return results;
}

export interface EventLoop {
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly maxMs: number;
}

/** How late timers fire while hits saturate the process. */
export async function measureEventLoop(around: Surroundings, effort: Effort): Promise<EventLoop> {
  const file = join(around.folder, 'event-loop.json');
  const preload = fileURLToPath(new URL('peers/event-loop.mjs', import.meta.url));
  const gateway = await startGateway(around, {
    nodeArgs: ['--import', preload],
    env: { BENCH_EVENT_LOOP: file },
  });
  try {
    const load = { url: gateway.url, connections: 32, reads: 'same', tokens: [token] } as const;
    await applyLoad({ ...load, seconds: effort.warmUpSeconds }, around.folder);
    // The first word tells of the start and the warm-up; it is reset with it.
    await tell(gateway.program, file);
    await applyLoad({ ...load, seconds: effort.seconds * 2 }, around.folder);
    return JSON.parse(await tell(gateway.program, file)) as EventLoop;
  } finally {
    await gateway.program.end();
  }
}

async function tell({ pid }: Program, file: string): Promise<string> {
  process.kill(pid, 'SIGUSR2');
  await pause(300);
  return existsSync(file) ? readFileSync(file, 'utf8') : '{}';
}

export interface Growth {
  readonly from: number;
  readonly to: number;
  readonly fromUs: number;
  readonly toUs: number;
  /** 1 is flat. */
  readonly ratio: number;
}

/** What a hit costs when few and when many answers are stored. `around` has an upstream of small answers. */
export function measureEntries(around: Surroundings, effort: Effort): Promise<Growth> {
  const pinned = { ...around, core: measuredCore };
  const settings = { CACHE_MAX_BYTES: '1024MiB' };
  return withAll([startGateway(pinned, { settings }), startGateway(pinned, { settings })], async (both) => {
    const [few, many] = both as [Contender, Contender];
    await fill(few.url, 10);
    await fill(many.url, effort.entries);
    const options = { ...effort, connections: 32 };
    const counts = [10, effort.entries];
    const rounds: Measured[][] = [];
    for (let round = 0; round < effort.rounds; round++) {
      const pair: Measured[] = [];
      for (const [index, one] of both.entries()) {
        const reads = counts[index] ?? 10;
        const warmUpSeconds = round === 0 ? effort.warmUpSeconds : 1;
        pair.push(...(await alternate([one], pinned, { ...options, rounds: 1, warmUpSeconds, reads })));
      }
      rounds.push(pair);
    }
    return growth(10, effort.entries, rounds);
  });
}

/** What a hit costs with one caller in the file and with many that take turns. */
export function measureCallers(around: Surroundings, effort: Effort): Promise<Growth> {
  const pinned = { ...around, core: measuredCore };
  const tokens = Array.from({ length: effort.callers }, (_, index) => (index === 0 ? token : mintToken()));
  return withAll([startGateway(pinned), startGateway(pinned, { tokens })], async (both) => {
    const rounds: Measured[][] = [];
    for (let round = 0; round < effort.rounds; round++) {
      const pair: Measured[] = [];
      for (const [index, one] of both.entries()) {
        const warmUpSeconds = round === 0 ? effort.warmUpSeconds : 1;
        const own = index === 0 ? [token] : tokens;
        const options = {
          ...effort,
          rounds: 1,
          warmUpSeconds,
          connections: 32,
          reads: 'same',
          tokens: own,
        } as const;
        pair.push(...(await alternate([one], pinned, options)));
      }
      rounds.push(pair);
    }
    return growth(1, effort.callers, rounds);
  });
}

function growth(from: number, to: number, rounds: readonly Measured[][]): Growth {
  const costs = (index: number): number[] => rounds.map((pair) => pair[index]?.cpuUsPerRequest ?? Number.NaN);
  return {
    from,
    to,
    fromUs: median(costs(0)),
    toUs: median(costs(1)),
    ratio: ratio(costs(1), costs(0)),
  };
}

/** Asks for so many different reads once, so that each is stored. */
export async function fill(url: string, count: number): Promise<void> {
  const agent = new Agent({ keepAlive: true, maxSockets: 64 });
  let next = 1;
  const worker = async (): Promise<void> => {
    while (next <= count) await read(`${url}?page=${next++}`, agent);
  };
  await Promise.all(Array.from({ length: 64 }, worker));
  agent.destroy();
}

function read(url: string, agent: Agent): Promise<void> {
  return new Promise((resolve, reject) => {
    const asked = request(url, { agent, headers: { authorization: `Bearer ${token}` } }, (answer) => {
      answer.resume();
      answer.once('end', resolve);
    });
    asked.once('error', reject);
    asked.end();
  });
}

export interface Footprint {
  readonly readyMs: number;
  readonly nodeReadyMs: number;
  readonly idleMiB: number;
  readonly librariesMiB: number;
  readonly nodeMiB: number;
  readonly hits: number;
  readonly afterHitsMiB: number;
}

/** By their names, as any program imports them. */
const libraries = ['hono', '@hono/node-server', 'commander', 'lru-cache', 'p-retry', 'pino', 'undici'];
const idleMs = 3_000;

/** How soon it is ready, and what it holds: idle, against a program that only imports its libraries, and after work. */
export async function measureFootprint(around: Surroundings, effort: Effort): Promise<Footprint> {
  const ready: number[] = [];
  const nodeReady: number[] = [];
  const idle: number[] = [];
  for (let start = 0; start < effort.starts; start++) {
    const gateway = await startGateway(around);
    ready.push(gateway.readyMs);
    await pause(idleMs);
    idle.push(gateway.program.residentMiB());
    await gateway.program.end();
    const peer = await startPeer('node-http', around);
    nodeReady.push(peer.readyMs);
    await peer.program.end();
  }
  const imports = libraries.map((name) => `import '${name}';`).join('');
  const librariesMiB = await residentOf(imports);
  const nodeMiB = await residentOf('');

  const gateway = await startGateway(around);
  try {
    let done = 0;
    while (done < effort.hits) {
      const load = { url: gateway.url, connections: 32, seconds: 5, reads: 'same', tokens: [token] } as const;
      done += (await applyLoad(load, around.folder)).requests;
    }
    await pause(idleMs);
    return {
      readyMs: median(ready),
      nodeReadyMs: median(nodeReady),
      idleMiB: median(idle),
      librariesMiB,
      nodeMiB,
      hits: done,
      afterHitsMiB: gateway.program.residentMiB(),
    };
  } finally {
    await gateway.program.end();
  }
}

/** What a program of these imports holds, once it is idle. It resolves them as the gateway does. */
async function residentOf(imports: string): Promise<number> {
  const program = await startProgram({
    command: process.execPath,
    args: [
      '--input-type=module',
      '-e',
      `${imports}setInterval(() => {}, 1e6);process.stdout.write('{}\\n');`,
    ],
    env: { NODE_ENV: 'production' },
    cwd: root,
    speaks: true,
  });
  await pause(idleMs);
  const mib = program.residentMiB();
  await program.end();
  return mib;
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
