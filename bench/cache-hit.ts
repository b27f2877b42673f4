/** What a hit costs inside the layer. Run with `node bench/cache-hit.ts`. */
import { shareAnswers } from '../src/cache/cache.ts';
import { FixedContext } from '../src/exchange/request-context.ts';
import { Trace } from '../src/exchange/trace.ts';

const cache = shareAnswers({
  ttlMs: 3_600_000,
  staleWhileRevalidateMs: 0,
  staleIfErrorMs: 0,
  maxBytes: 64 << 20,
  maxEntryBytes: 4 << 20,
  generation: () => 1,
  refreshTimeoutMs: 25_000,
});
const nowMs = performance.now();
const handle = cache.layer(() => ({
  status: 200,
  headers: { 'content-type': 'application/json' },
  body: Buffer.from('{}'),
  sentMs: nowMs,
  receivedMs: nowMs,
  receivedAt: Date.now(),
  generation: 1,
}));
const request = {
  operation: 'list-accounts',
  path: '/analytics/accounts/',
  query: '?page=1',
  headers: {},
  ids: {},
  cacheControl: undefined,
  pragma: undefined,
  context: new FixedContext(Number.MAX_SAFE_INTEGER, { name: 'bench', weight: 1, background: false }),
};
const rounds = 1_000_000;
for (let pass = 0; pass < 3; pass += 1) {
  const startMs = performance.now();
  for (let i = 0; i < rounds; i += 1) {
    void handle({ ...request, query: `?page=${i % 100}` }, new Trace(startMs));
  }
  const nanoseconds = ((performance.now() - startMs) * 1e6) / rounds;
  process.stdout.write(`${nanoseconds.toFixed(0)} ns a read, request and trace made anew\n`);
}
