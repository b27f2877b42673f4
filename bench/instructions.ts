/**
 * `node bench/instructions.ts [answers]`: how many instructions a hit takes outside the kernel, with so many answers
 * stored (default 10), beside a bare `node:http` handler's. `node bench/instructions.ts through`: the same of a read that
 * passes through, beside the floor's (`peers/dispatch.mjs`). Fails where the gateway takes more than the bounds. Counted by
 * valgrind, which must be installed, so that the figures do not depend on what else the machine does. After
 * `npm run build`.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  type Contender,
  type Surroundings,
  startGateway,
  startPeer,
  startUpstream,
  token,
} from './contenders.ts';
import { applyLoad, type Load } from './load.ts';
import { fill } from './parts.ts';
import { median } from './rounds.ts';

const folder = mkdtempSync(join(tmpdir(), 'gateway-instructions-'));
const under = (name: string): string[] => [
  'valgrind',
  '--quiet',
  '--tool=callgrind',
  '--instr-atstart=no',
  // Compiled JavaScript is code that changes.
  '--smc-check=all-non-file',
  `--callgrind-out-file=${join(folder, name)}`,
];

/** What the gateway may take, as a multiple of each peer's: names, tokens, rules, log and counts included. */
const bounds = { hit: { 'node-http': 1.5 }, through: { dispatch: 4 } } as const;
/** Requests until everything is compiled: what is compiled while it is counted would be counted as well. */
const warmUpRequests = 40_000;
/** Requests that pass under valgrind's count before any is counted: the first of them still compile something. */
const settlingRequests = 4_000;
/** The same on both sides: what a process does beside its requests weighs the same, however slow the machine is. */
const countedRequests = 4_000;
/** Of so many counts the median is taken: V8 compiles something anew in one or the other, which is no cost of a request. */
const counts = 5;

async function count(name: string, { program, url }: Contender, reads: Load['reads']): Promise<number> {
  const control = (...args: string[]): void => {
    execFileSync('callgrind_control', [...args, String(program.pid)], { stdio: 'ignore' });
  };
  const apply = async (least: number): Promise<number> => {
    let requests = 0;
    while (requests < least) {
      const load = { url, connections: 8, reads, tokens: [token], seconds: 2 };
      requests += (await applyLoad(load, folder)).requests;
    }
    return requests;
  };
  await apply(warmUpRequests);
  control('--instr=on');
  await apply(settlingRequests);
  const each: number[] = [];
  while (each.length < counts) {
    control('--zero');
    const requests = await apply(countedRequests);
    control('--dump');
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    each.push(totalOf(`${name}.${each.length + 1}`) / requests);
  }
  process.stdout.write(`${name}: ${each.map(Math.round).join(', ')} instructions for each request\n`);
  return median(each);
}

/** The instructions in one of callgrind's dumps. */
function totalOf(dump: string): number {
  const total = /^totals: (\d+)/m.exec(readFileSync(join(folder, dump), 'utf8'))?.[1];
  return Number(total);
}

const isThrough = process.argv[2] === 'through';
const stored = isThrough ? 0 : Number(process.argv[2] ?? 10);
const upstream = await startUpstream(isThrough ? 15 : 1);
const around: Surroundings = {
  folder,
  upstreamOrigin: String(upstream.said['origin']),
  upstreamUrl: String(upstream.said['url']),
  bytes: 300,
};
try {
  const settings = isThrough ? { CACHE_TTL: '0s' } : { CACHE_MAX_BYTES: '1024MiB' };
  const gateway = await startGateway(around, { settings, under: under('gateway') });
  await fill(gateway.url, stored);
  const own = await count('gateway', gateway, isThrough ? 'new' : stored);
  await gateway.program.end();
  for (const [name, bound] of Object.entries(isThrough ? bounds.through : bounds.hit)) {
    const peer = await startPeer(name, around, under(name));
    const ratio = own / (await count(name, peer, isThrough ? 'new' : 'same'));
    await peer.program.end();
    process.stdout.write(
      `the gateway takes ${ratio.toFixed(2)} times the instructions of ${name} (bound: ${bound})\n`,
    );
    if (!(ratio <= bound)) process.exitCode = 1;
  }
} finally {
  await upstream.end();
  rmSync(folder, { recursive: true, force: true });
}
