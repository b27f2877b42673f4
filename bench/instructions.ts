/**
 * `node bench/instructions.ts [answers ...]`: how many instructions a hit takes outside the kernel, and how often it
 * reads what the processor's last cache (32 MiB here) does not hold, with so many answers stored (default 10 and
 * 100000); first a bare `node:http` handler's. Counted by valgrind, which must be installed, so that the figures do
 * not depend on what else the machine does. Takes some minutes. After `npm run build`.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
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

const folder = mkdtempSync(join(tmpdir(), 'gateway-instructions-'));
const under = (name: string): string[] => [
  'valgrind',
  '--quiet',
  '--tool=callgrind',
  '--instr-atstart=no',
  '--cache-sim=yes',
  '--LL=33554432,16,64',
  // Compiled JavaScript is code that changes.
  '--smc-check=all-non-file',
  `--callgrind-out-file=${join(folder, name)}`,
];

async function count(name: string, { program, url }: Contender, reads: Load['reads']): Promise<void> {
  const control = (...args: string[]): void => {
    execFileSync('callgrind_control', [...args, String(program.pid)], { stdio: 'ignore' });
  };
  const load = { url, connections: 8, reads, tokens: [token] } as const;
  // Until everything is compiled; what is compiled while it is counted would be counted as well.
  await applyLoad({ ...load, seconds: 40 }, folder);
  control('--instr=on');
  await applyLoad({ ...load, seconds: 8 }, folder);
  control('--zero');
  const { requests } = await applyLoad({ ...load, seconds: 15 }, folder);
  control('--dump');
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  const counts = countsOf(name);
  const each = (event: string): number => (counts.get(event) ?? Number.NaN) / requests;
  const lines = each('DLmr') + each('DLmw');
  process.stdout.write(
    `${name}: ${Math.round(each('Ir'))} instructions, ${lines.toFixed(1)} lines from memory, of ${requests} requests\n`,
  );
}

/** The totals of callgrind's dump, by event. */
function countsOf(name: string): ReadonlyMap<string, number> {
  const file = readdirSync(folder).find((one) => one.startsWith(`${name}.`)) ?? name;
  const text = readFileSync(join(folder, file), 'utf8');
  const words = (key: string): string[] =>
    new RegExp(`^${key}: (.*)$`, 'm').exec(text)?.[1]?.split(' ') ?? [];
  const totals = words('totals');
  return new Map(words('events').map((event, index) => [event, Number(totals[index])]));
}

const upstream = await startUpstream(1);
const around: Surroundings = {
  folder,
  upstreamOrigin: String(upstream.said['origin']),
  upstreamUrl: String(upstream.said['url']),
  bytes: 300,
};
try {
  const bare = await startPeer('node-http', around, under('node-http'));
  await count('node-http', bare, 'same');
  await bare.program.end();
  const answers = process.argv.length > 2 ? process.argv.slice(2).map(Number) : [10, 100_000];
  for (const stored of answers) {
    const name = `gateway-${stored}`;
    const gateway = await startGateway(around, {
      settings: { CACHE_MAX_BYTES: '1024MiB' },
      under: under(name),
    });
    await fill(gateway.url, stored);
    await count(name, gateway, stored);
    await gateway.program.end();
  }
} finally {
  await upstream.end();
  rmSync(folder, { recursive: true, force: true });
}
