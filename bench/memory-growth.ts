/**
 * `node bench/memory-growth.ts ['--flag --flag' ...]`: how much 200,000 different reads, each stored, grow a whole
 * gateway, over sockets, with these flags of Node instead of the image's. After `npm run build`.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Surroundings, startGateway, startUpstream, token } from './contenders.ts';
import { applyLoad } from './load.ts';

const reads = 200_000;
const folder = mkdtempSync(join(tmpdir(), 'gateway-memory-'));
const upstream = await startUpstream(2);
const around: Surroundings = {
  folder,
  upstreamOrigin: String(upstream.said['origin']),
  upstreamUrl: String(upstream.said['url']),
  bytes: 600,
};

/** In MiB, at most, from after some hits on. */
async function growthWith(flags: readonly string[]): Promise<number> {
  const { program, url } = await startGateway(around, { settings: { CACHE_TTL: '15s' }, flags });
  const load = { url, connections: 32, tokens: [token], seconds: 3 };
  try {
    await applyLoad({ ...load, reads: 'same' }, folder);
    const before = program.residentMiB();
    let peak = before;
    for (let done = 0; done < reads; ) {
      done += (await applyLoad({ ...load, reads: 'new' }, folder)).requests;
      peak = Math.max(peak, program.residentMiB());
    }
    return peak - before;
  } finally {
    await program.end();
  }
}

try {
  for (const flags of process.argv.length > 2 ? process.argv.slice(2) : ['']) {
    const growth = await growthWith(flags.split(' ').filter(Boolean));
    process.stdout.write(`${flags || 'no flags'}: ${growth.toFixed(0)} MiB\n`);
  }
} finally {
  await upstream.end();
  rmSync(folder, { recursive: true, force: true });
}
