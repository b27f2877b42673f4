import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { type CacheOptions, shareAnswers } from '../../src/cache/cache.ts';
import type { BackgroundRefresh } from '../../src/cache/revalidate.ts';
import { GatewayError } from '../../src/errors.ts';
import type { Answer, UpstreamRequest } from '../../src/exchange/exchange.ts';
import type { Eventually } from '../../src/exchange/layer.ts';
import { Trace } from '../../src/exchange/trace.ts';
import type { HeaderFields } from '../../src/http/fields.ts';
import { LiveContext } from '../support/requests.ts';

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['performance', 'Date', 'setTimeout', 'clearTimeout'] });
});
afterEach(() => {
  vi.useRealTimers();
});

const defaults: Omit<CacheOptions, 'generation'> = {
  ttlMs: 15_000,
  staleWhileRevalidateMs: 15_000,
  staleIfErrorMs: 300_000,
  maxBytes: 1 << 20,
  maxEntryBytes: 1 << 18,
  refreshTimeoutMs: 25_000,
};

function answer(headers: HeaderFields = {}, body = '{}', status = 200, generation = 1): Answer {
  const nowMs = performance.now();
  return {
    status,
    headers,
    body: Buffer.from(body),
    sentMs: nowMs,
    receivedMs: nowMs,
    receivedAt: Date.now(),
    generation,
  };
}

/** Counts how often its signal is read. */
class SpiedContext extends LiveContext {
  override get signal(): AbortSignal {
    signalsRead += 1;
    return super.signal;
  }
}

const left = new Error('left');

function contextOf(name = 'a', deadlineMs = performance.now() + 25_000, weight = 1) {
  const context = new SpiedContext({ name, weight, background: false }, deadlineMs);
  // As the context of each request does while a layer waits.
  setTimeout(() => context.end(new GatewayError('upstream-timeout')), deadlineMs - performance.now());
  return { context, leave: (reason: Error = left) => context.end(reason) };
}
let signalsRead = 0;

function request(more: Partial<UpstreamRequest> = {}): UpstreamRequest {
  return {
    operation: 'list-accounts',
    path: '/analytics/accounts/',
    query: '',
    keyedHeaders: {},
    headers: {},
    ids: { 'x-request-id': 'r1' },
    callerIds: undefined,
    cacheControl: undefined,
    pragma: undefined,
    context: contextOf().context,
    ...more,
  };
}

/** A cache before an upstream that plays what each test says; exchanges without a script wait to be answered. */
function cacheBefore(
  upstream: (request: UpstreamRequest, call: number, trace: Trace) => Eventually<Answer>,
  more: Partial<CacheOptions> = {},
) {
  const sent: UpstreamRequest[] = [];
  const refreshes: BackgroundRefresh[] = [];
  let generation: number | undefined = 1;
  const cache = shareAnswers({
    ...defaults,
    generation: () => generation,
    onBackground: (refresh) => refreshes.push(refresh),
    ...more,
  });
  const handle = cache.layer((asked, trace) => {
    sent.push(asked);
    return upstream(asked, sent.length, trace);
  });
  const ask = (more: Partial<UpstreamRequest> = {}) => {
    const trace = new Trace(performance.now());
    return { result: handle(request(more), trace), trace };
  };
  const get = async (more: Partial<UpstreamRequest> = {}) => {
    const { result, trace } = ask(more);
    const got = await result;
    return { got, text: got.body.toString(), trace, cache: trace.cache };
  };
  return {
    cache,
    sent,
    refreshes,
    ask,
    get,
    rotate: (to: number | undefined) => {
      generation = to;
    },
  };
}

const counting =
  (headers: HeaderFields = {}) =>
  (_: UpstreamRequest, call: number) =>
    answer(headers, `{"call":${call}}`);

/** An upstream whose answers the test gives when it likes. */
function manual() {
  const calls: { request: UpstreamRequest; give(answer: Answer): void; fail(error: unknown): void }[] = [];
  const upstream = (asked: UpstreamRequest) =>
    new Promise<Answer>((resolve, reject) => {
      calls.push({ request: asked, give: resolve, fail: reject });
    });
  return { calls, upstream };
}

describe('a fresh answer', () => {
  it('a fresh answer is served as the same object, at once and without a promise', async () => {
    const { ask, get, sent } = cacheBefore(counting());
    await get();
    const first = ask().result;
    expect(first).not.toBeInstanceOf(Promise);
    expect(ask().result).toBe(first);
    expect(sent).toHaveLength(1);
  });
  it('a hit does not build the signal of its request', async () => {
    const { ask, get } = cacheBefore(counting());
    await get();
    signalsRead = 0;
    ask();
    expect(signalsRead).toBe(0);
  });
  it('the trace tells a stored miss, then a hit with its remaining lifetime and age', async () => {
    const { get } = cacheBefore(counting({ 'cache-control': 'max-age=30', age: '2' }));
    expect((await get()).cache).toEqual({ hit: false, forwarded: 'uri-miss', stored: true });
    vi.advanceTimersByTime(2500);
    const { cache, trace } = await get();
    expect(cache).toEqual({ hit: true, ttlSeconds: 25 });
    expect(trace.ageSeconds).toBe(4);
    expect(trace.generation).toBe(1);
  });
  it('an answer just fetched carries its age from one second on (RFC 9111 section 5.1)', async () => {
    expect((await cacheBefore(counting()).get()).trace.ageSeconds).toBeUndefined();
    expect((await cacheBefore(counting({ age: '7' })).get()).trace.ageSeconds).toBe(7);
    const date = new Date(Math.floor(Date.now() / 1000) * 1000 - 20_000).toUTCString();
    expect((await cacheBefore(counting({ date })).get()).trace.ageSeconds).toBe(20);
  });
  it('freshness ends by the monotonic clock, whatever the wall clock does', async () => {
    const { get, sent } = cacheBefore(counting({ 'cache-control': 'max-age=30' }));
    await get();
    vi.setSystemTime(Date.now() - 86_400_000);
    vi.advanceTimersByTime(29_000);
    expect((await get()).cache).toMatchObject({ hit: true, ttlSeconds: 1 });
    vi.advanceTimersByTime(20_000);
    vi.setSystemTime(Date.now() + 86_400_000);
    await get();
    expect(sent).toHaveLength(2);
  });
  it('an answer larger than an entry may be is not stored', async () => {
    const { get, sent, cache } = cacheBefore(() => answer({}, 'x'.repeat(5000)), { maxEntryBytes: 4000 });
    await get();
    await get();
    expect(sent).toHaveLength(2);
    expect(cache.snapshot().bytes).toBe(0);
  });
});

describe('the key of an answer', () => {
  it.each<[string, Partial<UpstreamRequest>, Partial<UpstreamRequest>]>([
    ['query', { query: '?a=1' }, { query: '?a=2' }],
    ['order of the query', { query: '?a=1&b=2' }, { query: '?b=2&a=1' }],
    ['path', { path: '/a/1/' }, { path: '/a/2/' }],
    ['operation', { operation: 'a' }, { operation: 'b' }],
    ['where one part ends', { operation: 'a', path: 'b/' }, { operation: 'ab', path: '/' }],
    ['where another ends', { path: '/a', query: 'b' }, { path: '/ab', query: '' }],
  ])('the cache key distinguishes reads by %s', async (_, one, other) => {
    const { get } = cacheBefore(counting());
    expect((await get(one)).text).toBe('{"call":1}');
    expect((await get(other)).text).toBe('{"call":2}');
    expect((await get(one)).text).toBe('{"call":1}');
  });
  it('the cache key ignores ids', async () => {
    const { get, sent } = cacheBefore(counting());
    await get({ ids: { 'x-request-id': '1', traceparent: 'x' } });
    await get({ ids: { 'x-request-id': '2' } });
    expect(sent).toHaveLength(1);
  });
  it('the cache key holds the key generation: after a rotation no request is served what another key saw', async () => {
    const { get, rotate } = cacheBefore((_, call) => answer({}, `${call}`, 200, call));
    expect((await get()).text).toBe('1');
    rotate(2);
    expect((await get()).text).toBe('2');
    rotate(1);
    expect((await get()).text).toBe('1');
  });
  it('an answer is stored under the generation that fetched it, not under the one at the time of the request', async () => {
    const { get, rotate, sent } = cacheBefore((_, call) => answer({}, `${call}`, 200, 2));
    await get();
    expect((await get()).text).toBe('2');
    rotate(2);
    expect((await get()).text).toBe('2');
    expect(sent).toHaveLength(2);
  });
});

describe('Vary (RFC 9111 section 4.1)', () => {
  it('variants are stored side by side', async () => {
    const { get, sent } = cacheBefore((asked) =>
      answer({ vary: 'Accept-Language' }, asked.headers['accept-language'] ?? 'none'),
    );
    const languages = [{ 'accept-language': 'fr' }, { 'accept-language': 'de' }, {}];
    for (const headers of languages) await get({ headers });
    for (const headers of languages) {
      const { text, cache } = await get({ headers });
      expect(text).toBe(headers['accept-language'] ?? 'none');
      expect(cache?.hit).toBe(true);
    }
    expect(sent).toHaveLength(3);
  });
  it('the trace tells a missing variant from a missing read', async () => {
    const { get } = cacheBefore(counting({ vary: 'x-a' }));
    await get({ headers: { 'x-a': '1' } });
    expect((await get({ headers: { 'x-a': '2' } })).cache).toMatchObject({ forwarded: 'vary-miss' });
  });
  it.each(['*', 'x-a, *', 'X-Request-ID', 'traceparent'])(
    'an answer with Vary: %s is stored for no request',
    async (vary) => {
      const { get, sent } = cacheBefore(counting({ vary, 'cache-control': 'max-age=60' }));
      await get();
      await get();
      expect(sent).toHaveLength(2);
    },
  );
  it('Vary on a field that is the same for every request distinguishes none', async () => {
    const { get, sent } = cacheBefore(counting({ vary: 'Accept, Accept-Encoding, X-API-Key, Cookie' }));
    await get();
    await get();
    expect(sent).toHaveLength(1);
  });
  it('a variant in use stays stored, however many values a caller invents', async () => {
    const { get, sent } = cacheBefore(counting({ vary: 'x-a', 'cache-control': 'max-age=60' }));
    await get();
    for (let i = 0; i < 200; i += 1) {
      await get({ headers: { 'x-a': `${i}` } });
      vi.advanceTimersByTime(1);
      expect((await get()).cache?.hit).toBe(true);
    }
    expect((await get({ headers: { 'x-a': '199' } })).cache?.hit).toBe(true);
    expect(sent).toHaveLength(201);
  });
  it('the values of Vary fields count in the bound', async () => {
    const bytesFor = async (value: string) => {
      const { get, cache } = cacheBefore(counting({ vary: 'x-a' }));
      await get({ headers: { 'x-a': value } });
      return cache.snapshot().bytes;
    };
    // In its selection and in all that it said; strings of two bytes a letter.
    expect((await bytesFor('x'.repeat(1000))) - (await bytesFor('x'.repeat(2000)))).toBe(-4000);
  });
  it('a read has a bounded number of variants', async () => {
    const { get, cache } = cacheBefore(counting({ vary: 'x-a' }));
    for (let i = 0; i < 200; i += 1) await get({ headers: { 'x-a': `${i}` } });
    const { bytes } = cache.snapshot();
    for (let i = 200; i < 400; i += 1) await get({ headers: { 'x-a': `${i}` } });
    expect(cache.snapshot().bytes).toBe(bytes);
  });
});

describe('validation (RFC 9111 section 4.3)', () => {
  const validated = (confirm: HeaderFields = { etag: '"v1"', 'cache-control': 'max-age=5' }) =>
    cacheBefore((asked) =>
      asked.validators === undefined
        ? answer({ etag: '"v1"', 'cache-control': 'max-age=5, must-revalidate', 'x-a': '1' }, 'body')
        : answer(confirm, '', 304),
    );
  it('a stale answer is revalidated with its validators and renewed by a 304', async () => {
    const { get, sent } = validated({ etag: '"v1"', 'cache-control': 'max-age=50', 'x-a': '2' });
    await get();
    vi.advanceTimersByTime(5000);
    const { got, cache } = await get();
    expect(sent[1]?.validators).toEqual({ 'if-none-match': '"v1"' });
    expect(got).toMatchObject({ status: 200, headers: { 'x-a': '2' } });
    expect(got.body.toString()).toBe('body');
    expect(cache).toEqual({ hit: false, forwarded: 'stale', forwardStatus: 304, stored: true });
    vi.advanceTimersByTime(49_000);
    expect((await get()).cache?.hit).toBe(true);
  });
  it('a revalidation serves the new answer where the upstream has one', async () => {
    const { get } = cacheBefore((_, call) =>
      answer({ etag: `"v${call}"`, 'cache-control': 'max-age=5, must-revalidate' }, `${call}`),
    );
    await get();
    vi.advanceTimersByTime(5000);
    expect((await get()).text).toBe('2');
  });
  it.each<[string, HeaderFields, number]>([
    ['names another tag', { etag: '"v2"' }, 1],
    ['comes from another key', { etag: '"v1"' }, 2],
  ])('a plain read follows a 304 that %s', async (_, headers, generation) => {
    const { get, sent } = cacheBefore((asked, call) =>
      asked.validators === undefined
        ? answer({ etag: '"v1"', 'cache-control': 'max-age=5, must-revalidate' }, `${call}`)
        : answer(headers, '', 304, generation),
    );
    await get();
    vi.advanceTimersByTime(5000);
    expect((await get()).text).toBe('3');
    expect(sent[2]?.validators).toBeUndefined();
  });
  it('a 304 to a request without validators is an invalid response', async () => {
    const { get } = cacheBefore(() => answer({}, '', 304));
    await expect(get()).rejects.toMatchObject({ code: 'upstream-invalid-response' });
  });
  it('validators of a caller never go up', async () => {
    const { get, sent } = cacheBefore(counting());
    await get();
    expect(sent[0]?.validators).toBeUndefined();
  });
  it('a 304 that forbids storing ends the storing', async () => {
    const { get, sent } = validated({ 'cache-control': 'no-store' });
    await get();
    vi.advanceTimersByTime(5000);
    expect((await get()).text).toBe('body');
    await get();
    expect(sent).toHaveLength(3);
    expect(sent[2]?.validators).toBeUndefined();
  });
});

describe("a caller's directives (RFC 9111 section 5.2.1)", () => {
  it('no-cache fetches a fresh answer, and not again within half a second', async () => {
    const { get, sent } = cacheBefore(counting());
    await get();
    vi.advanceTimersByTime(499);
    expect((await get({ cacheControl: 'no-cache' })).cache?.hit).toBe(true);
    vi.advanceTimersByTime(1);
    expect((await get({ cacheControl: 'no-cache' })).cache).toMatchObject({
      forwarded: 'request',
      stored: true,
    });
    expect((await get({ cacheControl: 'max-age=0' })).text).toBe('{"call":2}');
    expect((await get()).text).toBe('{"call":2}');
    expect(sent).toHaveLength(2);
  });
  it('requests with no-cache at the same moment share one exchange', async () => {
    const { calls, upstream } = manual();
    const { get } = cacheBefore(upstream);
    const all = [1, 2, 3].map(() => get({ cacheControl: 'no-cache' }));
    calls[0]?.give(answer());
    expect((await Promise.all(all)).map(({ cache }) => cache?.collapsed)).toEqual([undefined, true, true]);
    expect(calls).toHaveLength(1);
  });
  it('only-if-cached gets a stored answer or 504', async () => {
    const { get, sent } = cacheBefore(counting());
    await expect(get({ cacheControl: 'only-if-cached' })).rejects.toMatchObject({ code: 'not-in-cache' });
    await get();
    expect((await get({ cacheControl: 'only-if-cached' })).cache?.hit).toBe(true);
    vi.advanceTimersByTime(16_000);
    expect((await get({ cacheControl: 'only-if-cached' })).cache?.ttlSeconds).toBe(-1);
    vi.advanceTimersByTime(16_000);
    await expect(get({ cacheControl: 'only-if-cached' })).rejects.toMatchObject({ status: 504 });
    expect(sent).toHaveLength(1);
  });
  it('max-stale is served an old answer without revalidation', async () => {
    const { get, sent } = cacheBefore(counting());
    await get();
    vi.advanceTimersByTime(100_000);
    expect((await get({ cacheControl: 'max-stale=100' })).cache).toEqual({
      hit: true,
      ttlSeconds: -85,
      detail: 'max-stale',
    });
    expect(sent).toHaveLength(1);
  });
  it('a request with no-store stores nothing, but is served what is stored', async () => {
    const { get, sent } = cacheBefore(counting());
    expect((await get({ cacheControl: 'no-store' })).cache).toEqual({ hit: false, forwarded: 'uri-miss' });
    await get();
    expect((await get({ cacheControl: 'no-store' })).text).toBe('{"call":2}');
    expect(sent).toHaveLength(2);
  });
  it('an exchange stores nothing where all its requests say no-store', async () => {
    const { calls, upstream } = manual();
    const { get } = cacheBefore(upstream);
    const all = [1, 2].map(() => get({ cacheControl: 'no-store' }));
    calls[0]?.give(answer());
    await Promise.all(all);
    const later = get();
    expect(calls).toHaveLength(2);
    calls[1]?.give(answer());
    await later;
  });
  it('a request with no-store joins a flight, whose answer is stored for the others', async () => {
    const { calls, upstream } = manual();
    const { get } = cacheBefore(upstream);
    const one = get({ cacheControl: 'no-store' });
    const other = get();
    calls[0]?.give(answer());
    await Promise.all([one, other]);
    expect((await get()).cache?.hit).toBe(true);
    expect(calls).toHaveLength(1);
  });
});

describe('a stale answer while it is refreshed (RFC 5861 section 3)', () => {
  it('a stale answer is served at once to 500 callers for one call in the background', async () => {
    const { calls, upstream } = manual();
    const { get, ask, refreshes, sent } = cacheBefore(upstream);
    const first = get();
    calls[0]?.give(answer({}, 'old'));
    await first;
    vi.advanceTimersByTime(15_000);
    for (let i = 0; i < 500; i += 1) {
      const { result, trace } = ask();
      expect(result).not.toBeInstanceOf(Promise);
      expect(trace.cache).toEqual({ hit: true, ttlSeconds: 0, detail: 'stale-while-revalidate' });
    }
    expect(calls).toHaveLength(2);
    expect(sent[1]?.context.flow.background).toBe(true);
    expect(sent[1]?.ids).toEqual({});
    calls[1]?.give(answer({}, 'new'));
    await nextTurn();
    expect((await get()).text).toBe('new');
    expect(refreshes).toEqual([
      { operation: 'list-accounts', status: 200, stored: true, attempts: 0, waitedMs: 0, upstreamMs: 0 },
    ]);
  });
  it('a stale answer is served while it is refreshed only within its bound', async () => {
    const { get, sent } = cacheBefore(counting());
    await get();
    vi.advanceTimersByTime(30_000);
    expect((await get()).cache).toMatchObject({ hit: false, forwarded: 'stale' });
    expect(sent).toHaveLength(2);
  });
  it('a refresh takes the turn of a request that joins it, and goes on when that one leaves', async () => {
    const { calls, upstream } = manual();
    const { get, ask, sent } = cacheBefore(upstream);
    const first = get();
    calls[0]?.give(answer());
    await first;
    vi.advanceTimersByTime(15_000);
    ask();
    const changes = vi.fn();
    const seen = sent[1]?.context;
    seen?.watch({ onEnd: () => {}, onChange: changes });
    const { context, leave } = contextOf('b', performance.now() + 90_000);
    const joined = get({ cacheControl: 'no-cache', context });
    expect(seen?.flow).toEqual({ name: 'b', weight: 1, background: false });
    expect(seen?.deadlineMs).toBe(context.deadlineMs);
    leave();
    await expect(joined).rejects.toThrow('left');
    expect(seen?.flow.background).toBe(true);
    expect(changes).toHaveBeenCalledTimes(2);
    expect(seen?.signal.aborted).toBe(false);
    expect(calls).toHaveLength(2);
  });
  it('a second refresh does not follow a failed one at once', async () => {
    const { get, sent, refreshes } = cacheBefore((_, call) => {
      if (call > 1) throw new GatewayError('upstream-unreachable');
      return answer();
    });
    await get();
    vi.advanceTimersByTime(15_000);
    for (let i = 0; i < 5; i += 1) {
      expect((await get()).cache?.detail).toBe('stale-while-revalidate');
      await nextTurn();
    }
    expect(sent).toHaveLength(2);
    expect(refreshes[0]).toMatchObject({ stored: false, error: { code: 'upstream-unreachable' } });
    vi.advanceTimersByTime(1000);
    await get();
    expect(sent).toHaveLength(3);
  });
  it('a refresh ends at its own deadline, and with close', async () => {
    const { calls, upstream } = manual();
    const { get, ask, sent, cache } = cacheBefore(upstream);
    const first = get();
    calls[0]?.give(answer({ 'cache-control': 'max-age=1, stale-while-revalidate=999' }));
    await first;
    vi.advanceTimersByTime(1000);
    ask();
    vi.advanceTimersByTime(25_000);
    expect(sent[1]?.context.signal.reason).toMatchObject({ code: 'upstream-timeout' });
    ask();
    expect(sent[2]?.context.signal.aborted).toBe(false);
    cache.close();
    expect(sent[2]?.context.signal.reason).toMatchObject({ code: 'shutting-down' });
    ask();
    expect(sent).toHaveLength(3);
  });
  it('a stale answer is no longer served once its refresh brought a 404', async () => {
    const { get } = cacheBefore((_, call) => (call === 1 ? answer() : answer({}, 'gone', 404)));
    await get();
    vi.advanceTimersByTime(15_000);
    expect((await get()).got.status).toBe(200);
    await nextTurn();
    expect((await get()).got.status).toBe(404);
  });
});

describe('a stale answer in place of a failure (RFC 5861 section 4)', () => {
  const failing = (failure: () => Answer, headers: HeaderFields = {}) =>
    cacheBefore((_, call, trace) => {
      trace.attempts += 1;
      return call === 1 ? answer(headers, 'good') : failure();
    });
  const thrown = (error: GatewayError) => () => {
    throw error;
  };
  it.each<[string, () => Answer, number | undefined]>([
    ['429', () => answer({}, '', 429), 429],
    ['500', () => answer({}, '', 500), 500],
    ['503', () => answer({ 'cache-control': 'no-store' }, '', 503), 503],
    ['503 with its own lifetime', () => answer({ 'cache-control': 'max-age=60' }, '', 503), 503],
    ['a timeout', thrown(new GatewayError('upstream-timeout')), undefined],
    ['no connection', thrown(new GatewayError('upstream-unreachable')), undefined],
    ['a rejected key', thrown(new GatewayError('upstream-key-rejected', { receivedStatus: 401 })), 401],
    ['a closed gate', thrown(new GatewayError('upstream-rate-limited', { receivedStatus: 429 })), 429],
    ['an invalid response', thrown(new GatewayError('upstream-invalid-response')), undefined],
  ])('a stale answer is served instead of %s', async (_, failure, forwardStatus) => {
    const { get } = failing(failure);
    await get();
    vi.advanceTimersByTime(40_000);
    for (let i = 0; i < 2; i += 1) {
      const { text, cache, trace } = await get();
      expect(text).toBe('good');
      expect(cache).toEqual({
        hit: false,
        forwarded: 'stale',
        ttlSeconds: -25,
        detail: 'stale-if-error',
        ...(forwardStatus === undefined ? {} : { forwardStatus }),
      });
      expect(trace.ageSeconds).toBe(40);
    }
    const { cache } = await get({ cacheControl: 'no-cache' });
    expect(cache).toMatchObject({ hit: false, forwarded: 'request', detail: 'stale-if-error' });
  });
  it('a stale answer is a hit where nothing was sent (RFC 9211 section 2.1)', async () => {
    const closed = new GatewayError('upstream-rate-limited', { receivedStatus: 429 });
    const { get } = cacheBefore((_, call) => {
      if (call > 1) throw closed;
      return answer({}, 'good');
    });
    await get();
    vi.advanceTimersByTime(40_000);
    const [first, joined] = await Promise.all([get(), get()]);
    const expected = { hit: true, ttlSeconds: -25, detail: 'stale-if-error' };
    expect([first?.cache, joined?.cache]).toEqual([expected, expected]);
  });
  it('a stale answer is forwarded for all requests that joined what was sent (RFC 9211 section 2.2)', async () => {
    const { calls, upstream } = manual();
    const { get } = cacheBefore(upstream);
    const first = get();
    calls[0]?.give(answer());
    await first;
    vi.advanceTimersByTime(40_000);
    const all = [get(), get()];
    calls[1]?.give(answer({}, 'bad', 503));
    const facts = { hit: false, forwarded: 'stale', forwardStatus: 503, ttlSeconds: -25 };
    const [leader, joined] = await Promise.all(all);
    expect(leader?.cache).toEqual({ ...facts, detail: 'stale-if-error' });
    expect(joined?.cache).toEqual({ ...facts, detail: 'stale-if-error', collapsed: true });
  });
  it('a failure went forward only where something was sent (RFC 9211 section 2.2)', async () => {
    const { ask } = cacheBefore(() => {
      throw new GatewayError('upstream-rate-limited', { receivedStatus: 429 });
    });
    const { result, trace } = ask();
    await expect(result).rejects.toThrow(GatewayError);
    expect(trace.cache).toEqual({ hit: false });
  });
  it('a failure tells the status that the upstream answered with (RFC 9211 section 2.3)', async () => {
    const { ask } = cacheBefore((_, _call, trace) => {
      trace.attempts += 1;
      throw new GatewayError('upstream-key-rejected', { receivedStatus: 401 });
    });
    const { result, trace } = ask();
    await expect(result).rejects.toThrow(GatewayError);
    expect(trace.cache).toEqual({ hit: false, forwarded: 'uri-miss', forwardStatus: 401 });
  });
  it.each<[string, HeaderFields, number, () => Answer]>([
    ['beyond its bound', {}, 315_000, () => answer({}, 'bad', 503)],
    [
      'under must-revalidate',
      { 'cache-control': 'max-age=9, must-revalidate' },
      10_000,
      () => answer({}, 'bad', 503),
    ],
    ['under s-maxage', { 'cache-control': 's-maxage=9' }, 10_000, () => answer({}, 'bad', 503)],
    ['for a 404', {}, 40_000, () => answer({}, 'bad', 404)],
    ['for a 403', {}, 40_000, () => answer({}, 'bad', 403)],
    ['for a 400', {}, 40_000, () => answer({}, 'bad', 400)],
  ])('a stale answer is not served %s', async (_, headers, waitMs, failure) => {
    const { get } = failing(failure, headers);
    await get();
    vi.advanceTimersByTime(waitMs);
    expect((await get()).text).toBe('bad');
  });
  it.each<GatewayError>([new GatewayError('internal-error'), new GatewayError('shutting-down')])(
    'a stale answer is not served instead of the gateway’s own $code',
    async (error) => {
      const { get } = failing(thrown(error));
      await get();
      vi.advanceTimersByTime(40_000);
      await expect(get()).rejects.toBe(error);
    },
  );
  it('a stored server failure is never served stale', async () => {
    const { get } = cacheBefore((_, call) => {
      if (call === 1) return answer({ 'cache-control': 'max-age=60' }, 'bad', 503);
      throw new GatewayError('upstream-unreachable');
    });
    await get();
    expect((await get()).cache?.hit).toBe(true);
    vi.advanceTimersByTime(500);
    await expect(get({ cacheControl: 'no-cache' })).rejects.toMatchObject({ code: 'upstream-unreachable' });
  });
  it('a stale answer is not served across a rotation', async () => {
    const { get, rotate } = failing(() => answer({}, 'bad', 503));
    await get();
    rotate(2);
    expect((await get()).text).toBe('bad');
  });
  it('a stale answer is served to a caller whose time is up in a shared exchange', async () => {
    const { calls, upstream } = manual();
    const { get } = cacheBefore(upstream);
    const first = get();
    calls[0]?.give(answer({}, 'good'));
    await first;
    vi.advanceTimersByTime(40_000);
    const hasty = get({ context: contextOf('a', performance.now() + 100).context });
    const patient = get({ context: contextOf('b', performance.now() + 9000).context });
    vi.advanceTimersByTime(100);
    expect((await hasty).cache).toMatchObject({ detail: 'stale-if-error' });
    calls[1]?.give(answer({}, 'new'));
    expect((await patient).text).toBe('new');
  });
});

describe('the unchanged request that was answered 400', () => {
  it('a repeated request that was answered 400 is answered from memory, and goes up with no-cache', async () => {
    const { get, sent } = cacheBefore(() => answer({}, 'bad', 400));
    await get();
    for (let i = 0; i < 20; i += 1) {
      const { got, cache } = await get();
      expect(got.status).toBe(400);
      expect(cache).toMatchObject({ hit: true, detail: 'negative' });
    }
    expect(sent).toHaveLength(1);
    vi.advanceTimersByTime(500);
    await get({ cacheControl: 'no-cache' });
    expect(sent).toHaveLength(2);
    vi.advanceTimersByTime(15_000);
    await get();
    expect(sent).toHaveLength(3);
  });
  it('a stored 400 is not served to another request', async () => {
    const { get, sent } = cacheBefore((asked) =>
      asked.headers['x-odd'] === undefined ? answer({}, 'good') : answer({}, 'bad', 400),
    );
    await get({ headers: { 'x-odd': '1' } });
    expect((await get()).text).toBe('good');
    expect((await get({ headers: { 'x-odd': '1' } })).text).toBe('good');
    expect(sent).toHaveLength(2);
  });
  it.each<[string, Answer]>([
    ['400', answer({}, 'bad', 400)],
    ['400 that may not be stored', answer({ 'cache-control': 'no-store' }, 'bad', 400)],
    ['404', answer({}, 'bad', 404)],
    ['404 with a lifetime', answer({ 'cache-control': 'max-age=60' }, 'bad', 404)],
    ['503 with a lifetime', answer({ 'cache-control': 'max-age=60' }, 'bad', 503)],
    ['success that may not be stored', answer({ 'cache-control': 'no-store' }, 'odd')],
  ])(
    'a request with an odd header that was answered %s takes nothing from requests without it',
    async (_, odd) => {
      let isDown = false;
      const { get, sent } = cacheBefore((asked) => {
        if (asked.headers['x-odd'] !== undefined) return odd;
        if (isDown) throw new GatewayError('upstream-unreachable');
        return answer({}, 'good');
      });
      await get();
      vi.advanceTimersByTime(500);
      await get({ headers: { 'x-odd': '1' }, cacheControl: 'no-cache' });
      expect((await get()).cache?.hit).toBe(true);
      expect(sent).toHaveLength(2);
      isDown = true;
      vi.advanceTimersByTime(40_000);
      expect((await get()).text).toBe('good');
    },
  );
  it('a stored 400 is replaced by a later 200', async () => {
    let status = 400;
    const { get } = cacheBefore(() => answer({}, `${status}`, status));
    const headers = { 'x-odd': '1' };
    await get({ headers });
    status = 200;
    vi.advanceTimersByTime(500);
    await get({ headers, cacheControl: 'no-cache' });
    expect((await get({ headers })).text).toBe('200');
    vi.advanceTimersByTime(500);
    status = 400;
    expect((await get({ headers, cacheControl: 'no-cache' })).text).toBe('400');
    expect((await get({ headers })).text).toBe('200');
    expect((await get()).text).toBe('200');
  });
  it('a 400 with no-store is asked again', async () => {
    const { get, sent } = cacheBefore(() => answer({ 'cache-control': 'no-store' }, 'bad', 400));
    await get();
    await get();
    expect(sent).toHaveLength(2);
  });
  it('a 400 is shared with equal requests of the same moment only', async () => {
    const { calls, upstream } = manual();
    const { get } = cacheBefore(upstream);
    const all = ['1', '1', '2', '2', '3'].map((odd) => get({ headers: { 'x-odd': odd } }));
    calls[0]?.give(answer({}, 'bad1', 400));
    await nextTurn();
    // Requests that it does not fit go up at once, not one behind the other.
    expect(calls.map(({ request: { headers } }) => headers['x-odd'])).toEqual(['1', '2', '3']);
    calls[1]?.give(answer({}, 'bad2', 400));
    calls[2]?.give(answer({}, 'bad3', 400));
    expect((await Promise.all(all)).map(({ text }) => text)).toEqual([
      'bad1',
      'bad1',
      'bad2',
      'bad2',
      'bad3',
    ]);
  });
});

describe('a stored error', () => {
  it.each([400, 404, 500])('a stored %i never stands before a 200 that is still fresh', async (status) => {
    const { get, sent } = cacheBefore((_, call) =>
      call === 1
        ? answer({ 'cache-control': 'max-age=30' }, 'good')
        : answer({ 'cache-control': 'max-age=60' }, 'bad', status),
    );
    await get();
    vi.advanceTimersByTime(10_000);
    await get({ cacheControl: 'no-cache' });
    expect(await get()).toMatchObject({ text: 'good', cache: { hit: true, ttlSeconds: 20 } });
    expect(sent).toHaveLength(2);
  });
  it('a stored 404 is served instead of a 200 that is no longer fresh', async () => {
    const { get, sent } = cacheBefore((_, call) =>
      call === 1
        ? answer({ 'cache-control': 'max-age=30' }, 'good')
        : answer({ 'cache-control': 'max-age=60' }, 'gone', 404),
    );
    await get();
    vi.advanceTimersByTime(50_000);
    await get();
    expect(await get()).toMatchObject({ text: 'gone', cache: { hit: true, detail: 'negative' } });
    expect(sent).toHaveLength(2);
  });
});

describe('an answer that repeats an id of its caller', () => {
  const named = { ids: { 'x-request-id': 'chosen-by-a' }, callerIds: { 'x-request-id': 'chosen-by-a' } };
  const repeating = ({ ids }: UpstreamRequest): Answer => answer({}, JSON.stringify(ids));

  it('an answer that repeats an id of its caller is not stored', async () => {
    const { get, sent } = cacheBefore(repeating);
    expect(await get(named)).toMatchObject({ text: '{"x-request-id":"chosen-by-a"}', cache: { hit: false } });
    expect((await get({ ids: {} })).text).toBe('{}');
    expect((await get(named)).text).toBe('{}');
    expect(sent).toHaveLength(2);
  });
  it('an answer that repeats an id of its caller leaves the stored answer, and the sharing of the read, to other requests', async () => {
    const { get, sent } = cacheBefore(repeating);
    await get({ ids: {} });
    vi.advanceTimersByTime(500);
    await get({ ...named, cacheControl: 'no-cache' });
    expect((await get({ ids: {} })).cache).toMatchObject({ hit: true });
    expect(sent).toHaveLength(2);
  });
  it('an answer that repeats an id of its caller is shared with no request that joined: they ask once more, together and without ids', async () => {
    const { calls, upstream } = manual();
    const { get } = cacheBefore(upstream);
    const first = get(named);
    const others = Array.from({ length: 100 }, () => get(named));
    calls[0]?.give(repeating(calls[0].request));
    await first;
    await nextTurn();
    expect(calls).toHaveLength(2);
    calls[1]?.give(repeating(calls[1].request));
    expect(new Set((await Promise.all(others)).map(({ text }) => text))).toEqual(new Set(['{}']));
    expect((await get()).cache?.hit).toBe(true);
  });
  it('an answer that repeats an id which the gateway made is stored', async () => {
    const { get } = cacheBefore(repeating);
    await get({ ids: { 'x-request-id': 'made-by-us' } });
    expect((await get(named)).cache?.hit).toBe(true);
  });
});

describe('an error answered to a request with ids of its caller', () => {
  const traced = { ids: { traceparent: 'x' }, callerIds: { traceparent: 'x' } };
  /** Refuses what carries a trace. */
  const refusing = (refusal: () => Answer) => (asked: UpstreamRequest) =>
    asked.ids['traceparent'] === undefined ? answer({}, 'good') : refusal();
  const lasting = { 'cache-control': 'max-age=60' };

  it.each<[string, () => Answer]>([
    ['400', () => answer(lasting, 'bad', 400)],
    ['404', () => answer(lasting, 'bad', 404)],
    ['500', () => answer(lasting, 'bad', 500)],
  ])('an error of a request with ids is not stored: %s', async (_, refusal) => {
    const { get, sent } = cacheBefore(refusing(refusal));
    const first = await get(traced);
    expect(first).toMatchObject({ text: 'bad', cache: { hit: false, forwarded: 'uri-miss' } });
    expect(first.cache?.stored).toBeUndefined();
    expect((await get()).text).toBe('good');
    expect(sent).toHaveLength(2);
  });
  it.each<[string, () => Answer]>([
    ['an error', () => answer({}, 'bad', 400)],
    ['an error that may not be kept', () => answer({ 'cache-control': 'no-store' }, 'bad', 400)],
    ['an error for one caller', () => answer({ 'cache-control': 'private' }, 'bad', 403)],
  ])('%s of a request with ids leaves the stored answer to other requests', async (_, refusal) => {
    const { get, sent } = cacheBefore(refusing(refusal));
    await get();
    vi.advanceTimersByTime(500);
    expect((await get({ ...traced, cacheControl: 'no-cache' })).text).toBe('bad');
    expect((await get()).cache?.hit).toBe(true);
    expect(sent).toHaveLength(2);
  });
  it('a private error of a request with ids does not end the sharing of the read', async () => {
    const { calls, upstream } = manual();
    const { get } = cacheBefore(upstream);
    const first = get(traced);
    calls[0]?.give(answer({ 'cache-control': 'private' }, 'bad', 403));
    await first;
    const all = [get(), get(), get()];
    calls[1]?.give(answer({}, 'good'));
    await Promise.all(all);
    expect(calls).toHaveLength(2);
  });
  it.each<[string, (call: { give(answer: Answer): void; fail(error: unknown): void } | undefined) => void]>([
    ['an error', (call) => call?.give(answer({}, 'bad', 400))],
    ['a server failure', (call) => call?.give(answer({}, 'bad', 500))],
    ['an invalid response', (call) => call?.fail(new GatewayError('upstream-invalid-response'))],
  ])(
    'joined requests ask once more, together and without ids, after %s of a request with ids',
    async (_, refuse) => {
      const { calls, upstream } = manual();
      const { get } = cacheBefore(upstream);
      const first = get(traced);
      const others = Array.from({ length: 100 }, (_, at) => get(at % 2 === 0 ? traced : {}));
      refuse(calls[0]);
      await first.catch(() => undefined);
      await nextTurn();
      expect(calls).toHaveLength(2);
      const again = calls[1]?.request;
      expect([again?.ids['traceparent'], again?.callerIds]).toEqual([undefined, undefined]);
      calls[1]?.give(answer({}, 'bad for all', 400));
      const got = await Promise.all(others);
      expect(new Set(got.map(({ text }) => text))).toEqual(new Set(['bad for all']));
      expect(calls).toHaveLength(2);
      // It is an answer to what is in the key and to nothing else, so it is kept.
      expect((await get()).cache).toMatchObject({ hit: true, detail: 'negative' });
    },
  );
  it('a 429 of a request with ids is shared', async () => {
    const { calls, upstream } = manual();
    const { get } = cacheBefore(upstream);
    const all = [get(traced), get(traced), get()];
    calls[0]?.give(answer({}, 'slow', 429));
    expect((await Promise.all(all)).map(({ got }) => got.status)).toEqual([429, 429, 429]);
    expect(calls).toHaveLength(1);
  });
});

describe('an error answered to the validators of the cache', () => {
  it.each([400, 404, 412, 500])('a %i to a revalidation is followed by a plain read', async (status) => {
    const { get, sent } = cacheBefore((asked, call) =>
      asked.validators === undefined
        ? answer({ etag: '"v1"', 'cache-control': 'max-age=5, must-revalidate' }, `${call}`)
        : answer({ 'cache-control': 'max-age=60' }, 'bad', status),
    );
    await get();
    vi.advanceTimersByTime(5000);
    expect(await get()).toMatchObject({ text: '3', cache: { stored: true } });
    expect(sent.map(({ validators }) => validators !== undefined)).toEqual([false, true, false]);
  });
  it.each([429, 503])(
    'a %i to a revalidation is not followed by a plain read: the upstream is busy or down',
    async (status) => {
      const { get, sent } = cacheBefore((_, call) =>
        call === 1
          ? answer({ etag: '"v1"', 'cache-control': 'max-age=5, must-revalidate' }, 'good')
          : answer({}, 'bad', status),
      );
      await get();
      vi.advanceTimersByTime(5000);
      expect((await get()).text).toBe('bad');
      expect(sent).toHaveLength(2);
    },
  );
  it.each([400, 404])('a stored %i is asked about without validators, in one call', async (status) => {
    const { get, sent } = cacheBefore(() =>
      answer({ etag: '"v1"', 'cache-control': 'max-age=5' }, 'bad', status),
    );
    await get();
    vi.advanceTimersByTime(5000);
    expect((await get()).got.status).toBe(status);
    expect(sent.map(({ validators }) => validators)).toEqual([undefined, undefined]);
  });
});

describe('identical reads at one moment', () => {
  it('identical reads of 500 callers cost one call and give 500 answers', async () => {
    const { calls, upstream } = manual();
    const { get, cache } = cacheBefore(upstream);
    const all = Array.from({ length: 500 }, () => get());
    expect(calls).toHaveLength(1);
    expect(cache.snapshot().flights).toBe(1);
    calls[0]?.give(answer({}, 'one'));
    const got = await Promise.all(all);
    expect(got.every(({ text }) => text === 'one')).toBe(true);
    expect(got[0]?.cache).toEqual({ hit: false, forwarded: 'uri-miss', stored: true });
    expect(got[1]?.cache).toEqual({ hit: false, forwarded: 'uri-miss', stored: true, collapsed: true });
    expect(cache.snapshot().flights).toBe(0);
  });
  it.each(['no-store', 'private'])(
    'joined requests go up at once, each on its own, after an answer that says %s',
    async (said) => {
      const { calls, upstream } = manual();
      const { get } = cacheBefore(upstream);
      const all = Array.from({ length: 50 }, () => get());
      calls[0]?.give(answer({ 'cache-control': said }, '0'));
      await nextTurn();
      expect(calls).toHaveLength(50);
      calls.forEach((call, index) => {
        call.give(answer({ 'cache-control': said }, `${index}`));
      });
      const got = await Promise.all(all);
      expect(new Set(got.map(({ text }) => text)).size).toBe(50);
      expect(got[1]?.cache).toEqual({ hit: false, forwarded: 'uri-miss', collapsed: false });
      // For a while such requests do not wait for each other; one may be joined, in case its answer may be shared.
      const later = [get(), get()];
      expect(calls).toHaveLength(52);
      calls[50]?.give(answer({}, 'a'));
      calls[51]?.give(answer({}, 'b'));
      expect((await Promise.all(later)).map(({ cache }) => cache?.forwarded)).toEqual(['uri-miss', 'bypass']);
      // An answer that may be shared ends it.
      expect((await get()).cache?.hit).toBe(true);
    },
  );
  it.each<[string, Answer | GatewayError]>([
    ['429', answer({ 'cache-control': 'no-store' }, 'no', 429)],
    ['503', answer({}, 'no', 503)],
    ['404 without directives', answer({}, 'no', 404)],
    ['a dead upstream', new GatewayError('upstream-unreachable')],
  ])('identical reads share one failure: %s', async (_, failure) => {
    const { calls, upstream } = manual();
    const { get } = cacheBefore(upstream);
    const all = Array.from({ length: 50 }, () => get());
    if (failure instanceof GatewayError) calls[0]?.fail(failure);
    else calls[0]?.give(failure);
    const settled = await Promise.allSettled(all);
    expect(calls).toHaveLength(1);
    for (const one of settled) {
      if (failure instanceof GatewayError) expect(one).toEqual({ status: 'rejected', reason: failure });
      else expect(one).toMatchObject({ status: 'fulfilled', value: { text: 'no' } });
    }
  });
  it.each<[string, Answer | GatewayError]>([
    ['500', answer({}, 'odd', 500)],
    ['404', answer({}, 'odd', 404)],
    ['404 that may not be stored', answer({ 'cache-control': 'no-store' }, 'odd', 404)],
    ['an invalid response', new GatewayError('upstream-invalid-response')],
  ])(
    'requests with other headers do not share what an odd header may have caused: %s',
    async (_, failure) => {
      const { calls, upstream } = manual();
      const { get } = cacheBefore(upstream);
      const [first, ...others] = ['1', '1', undefined, undefined, undefined].map((odd) =>
        get({ headers: odd === undefined ? {} : { 'x-odd': odd } }).catch((error: unknown) => error),
      );
      if (failure instanceof GatewayError) calls[0]?.fail(failure);
      else calls[0]?.give(failure);
      await first;
      await nextTurn();
      const rest = calls.slice(1).filter(({ request }) => request.headers['x-odd'] === undefined);
      expect(rest).toHaveLength(1);
      for (const call of calls.slice(1)) call.give(answer({}, 'good'));
      const got = await Promise.all(others.slice(1));
      expect(got).toMatchObject([{ text: 'good' }, { text: 'good' }, { text: 'good' }]);
    },
  );
  it.each<[string, Answer | GatewayError]>([
    ['429', answer({}, 'no', 429)],
    ['no connection', new GatewayError('upstream-unreachable')],
    ['a timeout', new GatewayError('upstream-timeout')],
    ['a closed gate', new GatewayError('upstream-rate-limited')],
    ['no turn', new GatewayError('overloaded')],
    ['a rejected key', new GatewayError('upstream-key-rejected')],
    ['no key', new GatewayError('upstream-key-missing')],
  ])('requests with other headers share a failure that is the same for all: %s', async (_, failure) => {
    const { calls, upstream } = manual();
    const { get } = cacheBefore(upstream);
    const all = ['1', '2', '3'].map((odd) => get({ headers: { 'x-odd': odd } }));
    if (failure instanceof GatewayError) calls[0]?.fail(failure);
    else calls[0]?.give(failure);
    const settled = await Promise.allSettled(all);
    expect(calls).toHaveLength(1);
    const expected = failure instanceof GatewayError ? { reason: failure } : { value: { text: 'no' } };
    for (const one of settled) expect(one).toMatchObject(expected);
  });
  it('a request that left its flight is not asked for again', async () => {
    const { calls, upstream } = manual();
    const { get } = cacheBefore(upstream);
    const { context, leave } = contextOf();
    const stays = get({ headers: { 'x-odd': '1' } });
    const leaves = get({ context });
    leave(new GatewayError('internal-error'));
    await expect(leaves).rejects.toMatchObject({ code: 'internal-error' });
    expect(calls).toHaveLength(1);
    calls[0]?.give(answer());
    await stays;
  });
  it('reads stay shared after a private answer to a request with an odd header', async () => {
    const { calls, upstream } = manual();
    const { get } = cacheBefore(upstream);
    const odd = get({ headers: { 'x-odd': '1' } });
    calls[0]?.give(answer({ 'cache-control': 'no-store' }));
    await odd;
    const all = [get(), get(), get()];
    expect(calls).toHaveLength(2);
    calls[1]?.give(answer({}, 'one'));
    expect((await Promise.all(all)).map(({ text }) => text)).toEqual(['one', 'one', 'one']);
  });
  it('reads are shared again as soon as an answer may be shared, stored or not', async () => {
    const { calls, upstream } = manual();
    const { get } = cacheBefore(upstream, { ttlMs: 0 });
    const first = get();
    calls[0]?.give(answer({ 'cache-control': 'no-store' }));
    await first;
    const [probe, passing] = [get(), get()];
    expect(calls).toHaveLength(3);
    calls[1]?.give(answer());
    await probe;
    const all = [get(), get()];
    expect(calls).toHaveLength(4);
    calls[2]?.give(answer());
    calls[3]?.give(answer());
    await Promise.all([passing, ...all]);
  });
  it('reads stay shared after a server failure that says private', async () => {
    const { calls, upstream } = manual();
    const { get } = cacheBefore(upstream);
    const first = get();
    calls[0]?.give(answer({ 'cache-control': 'no-store' }, 'no', 503));
    await first;
    const all = [get(), get()];
    expect(calls).toHaveLength(2);
    calls[1]?.give(answer());
    await Promise.all(all);
  });
  it('a read has a bounded number of hit-for-miss marks', async () => {
    const { get, cache } = cacheBefore(counting({ 'cache-control': 'no-store' }));
    for (let i = 100; i < 300; i += 1) await get({ headers: { 'x-odd': `${i}` } });
    const { bytes } = cache.snapshot();
    for (let i = 300; i < 500; i += 1) await get({ headers: { 'x-odd': `${i}` } });
    expect(cache.snapshot().bytes).toBe(bytes);
  });
  it('joined requests whose answer varies fetch their own variant', async () => {
    const { calls, upstream } = manual();
    const { get } = cacheBefore(upstream);
    const all = ['fr', 'fr', 'de', 'de'].map((language) => get({ headers: { 'accept-language': language } }));
    calls[0]?.give(answer({ vary: 'accept-language' }, 'fr'));
    await nextTurn();
    expect(calls).toHaveLength(2);
    calls[1]?.give(answer({ vary: 'accept-language' }, 'de'));
    expect((await Promise.all(all)).map(({ text }) => text)).toEqual(['fr', 'fr', 'de', 'de']);
  });
  it('fields that private names are withheld from joined requests (RFC 9111 section 5.2.2.7)', async () => {
    const { calls, upstream } = manual();
    const { get } = cacheBefore(upstream);
    const all = [get(), get()];
    calls[0]?.give(answer({ 'cache-control': 'private="x-a", max-age=9', 'x-a': '1', 'x-b': '2' }));
    const [first, second] = await Promise.all(all);
    expect(first?.got.headers).toHaveProperty('x-a');
    expect(second?.got.headers).not.toHaveProperty('x-a');
    expect((await get()).got.headers).not.toHaveProperty('x-a');
  });
});

describe('a subscriber of a shared exchange', () => {
  it('a subscriber leaves with its own reason and harms no other', async () => {
    const { calls, upstream } = manual();
    const { get } = cacheBefore(upstream);
    const [a, b, c] = [contextOf(), contextOf(), contextOf()];
    const all = [a, b, c].map(({ context }) => get({ context }).catch((error: unknown) => error));
    a.leave(new Error('a left'));
    b.leave(new Error('b left'));
    expect(await all[0]).toMatchObject({ message: 'a left' });
    expect(await all[1]).toMatchObject({ message: 'b left' });
    expect(calls[0]?.request.context.signal.aborted).toBe(false);
    calls[0]?.give(answer({}, 'for c'));
    expect(await all[2]).toMatchObject({ text: 'for c' });
    expect([a.context.watchers, b.context.watchers, c.context.watchers]).toEqual([0, 0, 0]);
  });
  it('the last subscriber to leave aborts the exchange, and the next request starts another', async () => {
    const { calls, upstream } = manual();
    const { get, cache } = cacheBefore(upstream);
    const [a, b] = [contextOf(), contextOf()];
    const all = [a, b].map(({ context }) => get({ context }).catch((error: unknown) => error));
    const signal = calls[0]?.request.context.signal;
    a.leave(new Error('a left'));
    expect(signal?.aborted).toBe(false);
    b.leave(new Error('b left'));
    expect(signal?.aborted).toBe(true);
    expect(cache.snapshot().flights).toBe(0);
    const late = get();
    expect(calls).toHaveLength(2);
    calls[0]?.fail(new Error('aborted'));
    calls[1]?.give(answer({}, 'new'));
    expect((await late).text).toBe('new');
    expect(await Promise.all(all)).toMatchObject([{ message: 'a left' }, { message: 'b left' }]);
  });
  it('the signal of an abandoned exchange is aborted even when it is first read later', async () => {
    const { calls, upstream } = manual();
    const { get } = cacheBefore(upstream);
    const a = contextOf();
    const gone = get({ context: a.context }).catch((error: unknown) => error);
    a.leave();
    await gone;
    expect(calls[0]?.request.context.signal.reason).toBe(left);
  });
  it('nothing goes up for a caller that has already left', async () => {
    const { get, sent } = cacheBefore(counting());
    const a = contextOf();
    a.leave();
    await expect(get({ context: a.context })).rejects.toBe(left);
    expect(sent).toHaveLength(0);
  });
  it('a subscriber gives the flight its deadline and its flow while it waits', () => {
    const { calls, upstream } = manual();
    const { get } = cacheBefore(upstream);
    const join = (name: string, deadlineMs: number, weight: number) => {
      const one = contextOf(name, deadlineMs, weight);
      get({ context: one.context }).catch(() => undefined);
      return one;
    };
    const now = performance.now();
    join('a', now + 10_000, 1);
    const seen = calls[0]?.request.context;
    const flowNames = () => seen?.flows.map(({ name }) => name);
    const changes = vi.fn();
    const watcher = { onEnd: () => {}, onChange: changes };
    seen?.watch(watcher);
    const b = join('b', now + 20_000, 5);
    expect([seen?.deadlineMs, seen?.flow.name]).toEqual([now + 20_000, 'b']);
    join('c', now + 5_000, 2);
    expect([seen?.deadlineMs, seen?.flow.name]).toEqual([now + 20_000, 'b']);
    expect(flowNames()).toEqual(['a', 'b', 'c']);
    expect(changes).toHaveBeenCalledTimes(2);
    // Another request of a caller that waits changes nothing, nor does its end.
    join('c', now + 5_000, 2).leave();
    expect(changes).toHaveBeenCalledTimes(2);
    b.leave();
    expect(flowNames()).toEqual(['a', 'c']);
    expect([seen?.deadlineMs, seen?.flow.name]).toEqual([now + 10_000, 'c']);
    expect(changes).toHaveBeenCalledTimes(3);
    // Each may change alone.
    const d = join('d', now + 5_000, 5);
    expect([seen?.deadlineMs, seen?.flow.name]).toEqual([now + 10_000, 'd']);
    const e = join('e', now + 15_000, 1);
    expect([seen?.deadlineMs, seen?.flow.name]).toEqual([now + 15_000, 'd']);
    d.leave();
    expect([seen?.deadlineMs, seen?.flow.name]).toEqual([now + 15_000, 'c']);
    e.leave();
    expect([seen?.deadlineMs, seen?.flow.name]).toEqual([now + 10_000, 'c']);
    expect(changes).toHaveBeenCalledTimes(7);
    seen?.unwatch(watcher);
    join('f', now + 30_000, 1);
    expect(changes).toHaveBeenCalledTimes(7);
  });
  it('a subscriber is answered at its own deadline though the exchange goes on for others', async () => {
    const { calls, upstream } = manual();
    const { get } = cacheBefore(upstream);
    const now = performance.now();
    const hasty = get({ context: contextOf('a', now + 1000).context });
    const patient = get({ context: contextOf('b', now + 9000).context });
    vi.advanceTimersByTime(999);
    const settled = vi.fn();
    hasty.then(settled, settled);
    await nextTurn();
    expect(settled).not.toHaveBeenCalled();
    vi.advanceTimersByTime(1);
    await expect(hasty).rejects.toMatchObject({ code: 'upstream-timeout' });
    calls[0]?.give(answer({}, 'late'));
    expect((await patient).text).toBe('late');
  });
});

describe('a purge', () => {
  it('a purge forgets one operation, or all', async () => {
    const { get, cache } = cacheBefore(counting());
    await get({ operation: 'a', query: '?1' });
    await get({ operation: 'a', query: '?2' });
    await get({ operation: 'b' });
    expect(cache.purge('a')).toBe(2);
    expect((await get({ operation: 'b' })).cache?.hit).toBe(true);
    expect((await get({ operation: 'a', query: '?1' })).cache?.hit).toBe(false);
    expect(cache.purge()).toBe(2);
    expect(cache.snapshot()).toMatchObject({ entries: 0, bytes: 0 });
  });
  it('an exchange under way at a purge is neither stored nor joined', async () => {
    const { calls, upstream } = manual();
    const { get, cache } = cacheBefore(upstream);
    const before = get();
    cache.purge('another-operation');
    void get().catch(() => undefined);
    expect(calls).toHaveLength(1);
    cache.purge('list-accounts');
    const after = get();
    calls[1]?.give(answer({}, 'new'));
    expect((await after).text).toBe('new');
    calls[0]?.give(answer({}, 'old'));
    expect((await before).text).toBe('old');
    expect((await get()).text).toBe('new');
  });
});

describe('requests that differ in a field which the stored answer varies by', () => {
  it('requests that differ in a field which the stored answer varies by do not wait for one exchange', async () => {
    const { calls, upstream } = manual();
    const { ask, get } = cacheBefore(upstream);
    const first = get({ headers: { 'accept-language': 'de' } });
    calls[0]?.give(answer({ vary: 'Accept-Language', 'cache-control': 'max-age=0' }));
    await first;
    for (const language of ['de', 'fr', 'fr']) ask({ headers: { 'accept-language': language } });
    expect(calls).toHaveLength(3);
  });
});

describe('a rotation during a flight', () => {
  it('requests after a rotation do not join a flight from before, and each answer is stored under its generation', async () => {
    const { calls, upstream } = manual();
    const { get, rotate } = cacheBefore(upstream);
    const before = get();
    rotate(2);
    const after = get();
    expect(calls).toHaveLength(2);
    calls[0]?.give(answer({}, 'one', 200, 1));
    calls[1]?.give(answer({}, 'two', 200, 2));
    expect((await before).text).toBe('one');
    expect((await after).text).toBe('two');
    expect((await get()).text).toBe('two');
  });
});

describe('memory', () => {
  it('memory stays below the bound, encodings, marks and negative answers included', async () => {
    const { get, cache } = cacheBefore(
      (asked, call) =>
        call % 3 === 0
          ? answer({}, 'x', 400)
          : call % 3 === 1
            ? answer({ 'cache-control': 'no-store' })
            : answer({}, asked.query.repeat(10)),
      { maxBytes: 50_000 },
    );
    for (let i = 0; i < 500; i += 1) {
      await get({ query: `?${i}` });
      expect(cache.snapshot().bytes).toBeLessThanOrEqual(50_000);
    }
    expect(cache.snapshot().entries).toBeGreaterThan(10);
  });
  it('one caller’s large reads evict no answers of another: 30 hits of 30 stay hits', async () => {
    const { get } = cacheBefore(({ query }) =>
      answer({}, 'x'.repeat(query.startsWith('?large') ? 100_000 : 500)),
    );
    const ask = (query: string, name: string) => get({ query, context: contextOf(name).context });
    for (let at = 0; at < 30; at += 1) await ask(`?${at}`, 'modest');
    for (let at = 0; at < 50; at += 1) await ask(`?large${at}`, 'greedy');
    let hits = 0;
    for (let at = 0; at < 30; at += 1) if ((await ask(`?${at}`, 'modest')).cache?.hit) hits += 1;
    expect(hits).toBe(30);
  });
  it('evictions count reads that made room, and neither renewals nor purges', async () => {
    const { get, cache } = cacheBefore(counting({ 'cache-control': 'max-age=0' }), { maxBytes: 10_000 });
    await get();
    await get();
    cache.purge();
    expect(cache.snapshot().evictions).toBe(0);
    for (let i = 0; i < 50; i += 1) await get({ query: `?${i}` });
    const { entries, evictions } = cache.snapshot();
    expect(entries).toBeLessThan(50);
    expect(evictions).toBe(50 - entries);
  });
  it('memory does not grow with renewals of the same answer', async () => {
    const { get, cache } = cacheBefore(counting({ 'cache-control': 'max-age=0' }));
    await get();
    const { bytes } = cache.snapshot();
    for (let i = 0; i < 5; i += 1) await get();
    expect(cache.snapshot()).toMatchObject({ entries: 1, bytes });
  });
  it('a stored small body does not hold the slab it was cut from', async () => {
    const { get } = cacheBefore(() => ({ ...answer(), body: Buffer.from('x'.repeat(100)).subarray(0, 50) }));
    await get();
    expect(((await get()).got.body as Buffer).buffer.byteLength).toBeLessThan(200);
  });
  it('nothing is stored at a bound of zero', async () => {
    const { get, sent, cache } = cacheBefore(counting(), { maxBytes: 0 });
    await get();
    await get();
    expect(sent).toHaveLength(2);
    expect(cache.snapshot().bytes).toBe(0);
  });
});
