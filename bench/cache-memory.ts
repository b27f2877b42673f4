/**
 * What the cache costs in memory: 200,000 small different reads through it, then 1,000 of 1 MB each, before an
 * upstream of three lines. Run with `node --max-semi-space-size=4 --optimize-for-size bench/cache-memory.ts
 * [body bytes ...]`, the flags for where memory is what counts: without them V8 lets dead answers lie until several
 * times the live heap is used. Ends with status 1 where memory grows by more than CACHE_MAX_BYTES and 60 MiB
 * (120 MiB where bodies are large).
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { shareAnswers } from '../src/cache/cache.ts';
import { FixedContext } from '../src/exchange/request-context.ts';
import { Trace } from '../src/exchange/trace.ts';

const mebibyte = 1024 * 1024;
const maxBytes = 64 * mebibyte;
/** V8 lets dead buffers lie until some tens of MiB of them have come together: more of them where each is large. */
const allowedBytes = (bodyBytes: number) => maxBytes + (bodyBytes < 100_000 ? 60 : 120) * mebibyte;
const sizes = process.argv.length > 2 ? process.argv.slice(2).map(Number) : [600, 1_000_000];
const context = new FixedContext(Number.MAX_SAFE_INTEGER, { name: 'bench', weight: 1, background: false });
const show = (amount: number) => `${(amount / mebibyte).toFixed(1)} MiB`;

/** As from a socket: bytes that were never a string. */
function bodyOf(query: string, bytes: number): Buffer {
  const body = Buffer.allocUnsafe(bytes).fill(' ');
  body.write(JSON.stringify({ query }));
  return body;
}

/** Returns how much memory grew at most. */
async function measure(bodyBytes: number): Promise<number> {
  const reads = Math.min(200_000, Math.ceil(1e9 / bodyBytes));
  // What comes in one turn is the upstream's and the callers' to hold, and not the cache's.
  const perTurn = Math.min(100, Math.ceil(1e6 / bodyBytes));
  const cache = shareAnswers({
    ttlMs: 15_000,
    staleWhileRevalidateMs: 15_000,
    staleIfErrorMs: 300_000,
    maxBytes,
    maxEntryBytes: 4 * mebibyte,
    generation: () => 1,
    refreshTimeoutMs: 25_000,
  });
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
      body: bodyOf(query, bodyBytes),
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
    for (let read = start; read < Math.min(start + perTurn, reads); read += 1) {
      const request = {
        operation: 'list-accounts',
        path: '/analytics/accounts/',
        query: `?page=${read}&size=50`,
        keyedHeaders: {},
        headers: {},
        ids: {},
        callerIds: undefined,
        cacheControl: undefined,
        pragma: undefined,
        context,
      };
      turn.push(handle(request, new Trace(performance.now())));
    }
    await Promise.all(turn);
    // As between requests from sockets: back to the event loop.
    await nextTurn();
    peak = Math.max(peak, process.memoryUsage().rss);
  }
  globalThis.gc?.();
  const { entries, bytes, compressing } = cache.snapshot();
  const after = process.memoryUsage();
  const lines = [
    `${reads} reads of ${bodyBytes} bytes: ${entries} held, ${show(bytes)} by the cache's own count`,
    `resident: ${show(before)} before, ${show(after.rss)} after, ${show(peak)} at most`,
    `heap ${show(after.heapUsed)}, buffers ${show(after.arrayBuffers)}, ${compressing} waiting to be compressed`,
    `growth at most ${show(peak - before)}, allowed ${show(allowedBytes(bodyBytes))}`,
  ];
  process.stdout.write(`${lines.join('\n')}\n`);
  cache.close();
  return peak - before;
}

for (const bodyBytes of sizes) {
  if ((await measure(bodyBytes)) > allowedBytes(bodyBytes)) process.exitCode = 1;
}
