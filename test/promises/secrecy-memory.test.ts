import { channel } from 'node:diagnostics_channel';
import { globSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { accounts, ask, startPair } from '../support/gateway.ts';
import { mountSecret } from '../support/kubernetes-mount.ts';
import { startProduct } from '../support/product.ts';
import { formsIn } from '../support/secret-forms.ts';
import { startStandIn } from '../support/stand-in/stand-in.ts';

const oldKey = 'old-key.Zq7+/xW2-0123456789';
const newKey = 'new-key.Yr8+/vV3-9876543210';

it('a key that was replaced is nowhere in memory once it is no longer searched for', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'heap-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const mount = mountSecret(oldKey);
  const standIn = await startStandIn({ key: oldKey });
  onTestFinished(() => standIn.close());
  const product = startProduct(['serve'], {
    settings: {
      UPSTREAM_BASE_URL: standIn.url,
      UPSTREAM_API_KEY_FROM: `file:${mount.path}`,
      PORT: '0',
      LOG_LEVEL: 'trace',
    },
    cwd: folder,
    nodeFlags: ['--expose-gc'],
    // Ten minutes pass in a tenth of a second; SIGUSR2 takes a snapshot, and says so when it is whole.
    preload: `
      import { renameSync } from 'node:fs';
      import { writeHeapSnapshot } from 'node:v8';
      const { setTimeout: set } = globalThis;
      globalThis.setTimeout = (run, ms, ...more) => set(run, ms === 600_000 ? 100 : ms, ...more);
      let count = 0;
      process.on('SIGUSR2', () => {
        globalThis.gc();
        globalThis.gc();
        count++;
        renameSync(writeHeapSnapshot('taking'), 'snapshot-' + count);
      });`,
  });
  const port = Number(new URL(await product.url()).port);
  const read = async (query: string): Promise<number> =>
    (await ask({ host: '127.0.0.1', port }, `${accounts}?${query}`, {})).status;
  const snapshot = async (number: number): Promise<string> => {
    product.process.kill('SIGUSR2');
    const file = join(folder, `snapshot-${number}`);
    await expect.poll(() => readIfThere(file), { timeout: 20_000, interval: 50 }).toBeDefined();
    // A snapshot is JSON: what is special in it stands escaped there.
    return readFileSync(file, 'utf8');
  };

  for (let number = 0; number < 20; number++) expect(await read(`early=${number}`)).toBe(200);
  expect(formsIn(await snapshot(1), oldKey)).toContain('raw');

  // Refused, so that the suspicion, too, has held it.
  standIn.keys.clear();
  standIn.keys.add(newKey);
  const waiting = [1, 2, 3].map((number) => read(`suspect=${number}`));
  await expect.poll(() => standIn.counts.byStatus[401] ?? 0).toBeGreaterThan(0);
  mount.swap(newKey);
  expect(await Promise.all(waiting)).toEqual([200, 200, 200]);
  for (let number = 0; number < 50; number++) expect(await read(`late=${number}`)).toBe(200);
  await new Promise((resolve) => setTimeout(resolve, 300));

  const after = await snapshot(2);
  expect(formsIn(after, newKey)).toContain('raw');
  expect(formsIn(after, oldKey)).toEqual([]);
});

function readIfThere(file: string): true | undefined {
  try {
    readFileSync(file);
    return true;
  } catch {
    return undefined;
  }
}

/** A listener there sees the fields of every request, the key among them. */
const channels = [
  'undici:request:create',
  'undici:request:bodySent',
  'undici:request:bodyChunkSent',
  'undici:request:bodyChunkReceived',
  'undici:request:headers',
  'undici:request:trailers',
  'undici:request:error',
  'undici:client:sendHeaders',
  'undici:client:beforeConnect',
  'undici:client:connected',
  'undici:client:connectError',
  'http.client.request.created',
  'http.client.request.start',
  'http.client.request.error',
  'http.client.response.finish',
  'http.server.request.start',
  'http.server.response.created',
  'http.server.response.finish',
  'net.client.socket',
  'net.server.socket',
];

it('the gateway listens to no diagnostics channel', async () => {
  const pair = await startPair();
  expect((await pair.ask(accounts)).status).toBe(200);
  expect(channels.filter((name) => channel(name).hasSubscribers)).toEqual([]);
  const sources = globSync('**/*.ts', { cwd: new URL('../../src/', import.meta.url) });
  expect(sources.length).toBeGreaterThan(50);
  for (const name of sources) {
    expect(readFileSync(new URL(`../../src/${name}`, import.meta.url), 'utf8')).not.toContain(
      'diagnostics_channel',
    );
  }
});
