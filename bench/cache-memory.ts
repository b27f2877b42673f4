/**
 * What the cache costs in memory: 200,000 different reads through it, before an upstream of three lines.
 * Run with `node --max-semi-space-size=2 --optimize-for-size bench/cache-memory.ts [body bytes]`, the flags the
 * gateway should run with: without them V8 lets dead answers lie until several times the live heap is used. Ends
 * with status 1 where memory grows by more than CACHE_MAX_BYTES and 60 MiB.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Trace } from '../src/trace.ts';
import { shareAnswers } from '../src/upstream/cache.ts';
import type { Claim } from '../src/upstream/exchange.ts';

const mebibyte = 1024 * 1024;
const maxBytes = 64 * mebibyte;
const allowedBytes = maxBytes + 60 * mebibyte;
const reads = 200_000;
const bodyBytes = Number(process.argv[2] ?? 600);
const perTurn = 100;

const cache = shareAnswers({
  ttlMs: 15_000,
  staleWhileRevalidateMs: 15_000,
  staleIfErrorMs: 300_000,
  maxBytes,
  maxEntryBytes: 4 * mebibyte,
  generation: () => 1,
  refreshTimeoutMs: 25_000,
});
const claim: Claim = {
  signal: new AbortController().signal,
  deadlineMs: Infinity,
  turn: { name: 'bench', weight: 1, background: false },
  onChange: () => () => undefined,
};
const handle = cache.layer(({ query }) => {
  const nowMs = performance.now();
  return Promise.resolve({
    status: 200,
    // As they come from a socket: each answer with strings and a buffer of its own.
    headers: Object.fromEntries([
      ['content-type', 'application/json'],
      ['date', new Date().toUTCString()],
      ['etag', `"${query.slice(1)}"`],
      ['server', `upstream/${query.length}`],
      ['connection', 'keep-alive'],
    ]),
    body: Buffer.from(JSON.stringify({ query }).padEnd(bodyBytes)),
    sentMs: nowMs,
    receivedMs: nowMs,
    receivedAt: Date.now(),
    generation: 1,
  });
});

globalThis.gc?.();
const before = process.memoryUsage().rss;
let peak = before;
for (let start = 0; start < reads; start += perTurn) {
  const turn: unknown[] = [];
  for (let read = start; read < start + perTurn; read += 1) {
    const request = {
      operation: 'list-accounts',
      path: '/analytics/accounts/',
      query: `?page=${read}&size=50`,
      headers: {},
      ids: {},
      cacheControl: undefined,
      pragma: undefined,
      claim,
    };
    turn.push(handle(request, new Trace(`${read}`, performance.now())));
  }
  await Promise.all(turn);
  // As between requests from sockets: back to the event loop.
  await nextTurn();
  peak = Math.max(peak, process.memoryUsage().rss);
}
globalThis.gc?.();
const { entries, bytes } = cache.snapshot();
const show = (amount: number) => `${(amount / mebibyte).toFixed(1)} MiB`;
const lines = [
  `${reads} reads of ${bodyBytes} bytes: ${entries} held, ${show(bytes)} by the cache's own count`,
  `resident: ${show(before)} before, ${show(process.memoryUsage().rss)} after, ${show(peak)} at most`,
  `heap ${show(process.memoryUsage().heapUsed)}, buffers ${show(process.memoryUsage().arrayBuffers)}`,
  `growth at most ${show(peak - before)}, allowed ${show(allowedBytes)} (CACHE_MAX_BYTES and 60 MiB)`,
];
process.stdout.write(`${lines.join('\n')}\n`);
if (peak - before > allowedBytes) process.exitCode = 1;
