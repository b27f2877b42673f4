import { setImmediate as nextTurn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { shareAnswers } from '../../src/cache/cache.ts';
import { createCompressor, mayCompress } from '../../src/cache/store-response.ts';
import type { Answer } from '../../src/exchange/exchange.ts';
import type { HeaderFields } from '../../src/http/fields.ts';
import { newTrace, patientContext, requestWith } from '../support/requests.ts';

const json = { 'content-type': 'application/json' };
const text = JSON.stringify(Array.from({ length: 200 }, (_, id) => ({ id, name: `account ${id}` })));

function answerOf(headers: HeaderFields = json, body = text, status = 200): Answer {
  const now = performance.now();
  return {
    status,
    headers,
    body: Buffer.from(body),
    sentMs: now,
    receivedMs: now,
    receivedAt: Date.now(),
    generation: 1,
  };
}

describe('an answer may be compressed', () => {
  it.each<[string, HeaderFields, number, boolean]>([
    ['JSON', json, 1024, true],
    ['JSON with a charset', { 'content-type': 'application/json; charset=utf-8' }, 1024, true],
    ['a JSON type', { 'content-type': 'application/vnd.x+json' }, 1024, true],
    ['text', { 'content-type': 'text/csv' }, 1024, true],
    ['not below 1 KiB', json, 1023, false],
    [
      'not under no-transform (RFC 9110 section 7.7)',
      { ...json, 'cache-control': 'No-Transform' },
      4096,
      false,
    ],
    ['not under a misspelled no-transform', { ...json, 'cache-control': 'no-transform=1' }, 4096, false],
    ['not in another coding', { ...json, 'content-encoding': 'gzip' }, 4096, false],
    ['not a picture', { 'content-type': 'image/png' }, 4096, false],
    ['not of unknown type', {}, 4096, false],
  ])('whether an answer may be compressed is right: %s', (_, headers, size, expected) => {
    expect(mayCompress(answerOf(headers, 'x'.repeat(size)))).toBe(expected);
  });
});

function cacheOf(answer: () => Answer, maxEntryBytes = 1 << 20) {
  const cache = shareAnswers({
    ttlMs: 15_000,
    staleWhileRevalidateMs: 0,
    staleIfErrorMs: 0,
    maxBytes: 1 << 21,
    maxEntryBytes,
    generation: () => 1,
    refreshTimeoutMs: 1000,
  });
  const handle = cache.layer(answer);
  const get = async (): Promise<Answer> => await handle(requestWith(patientContext()), newTrace());
  const done = () => vi.waitFor(() => expect(cache.compressing).toBe(0));
  return { cache, get, done };
}

describe('a stored answer', () => {
  it('a stored answer is compressed once a caller accepts a coding, counts in the bound, and stays the same object', async () => {
    const { cache, get, done } = cacheOf(() => answerOf());
    const first = await get();
    const before = cache.snapshot().bytes;
    expect(cache.compressing).toBe(0);
    first.encoded?.want?.();
    expect(cache.compressing).toBe(1);
    expect(first.encoded).toEqual({ want: undefined });
    await done();
    const { br, gzip } = first.encoded ?? {};
    expect(brotliDecompressSync(br ?? '').toString()).toBe(text);
    expect(gunzipSync(gzip ?? '').toString()).toBe(text);
    expect(cache.snapshot().bytes).toBe(before + (br?.length ?? 0) + (gzip?.length ?? 0));
    expect(await get()).toBe(first);
    expect((await get()).encoded?.br).toBe(br);
  });
  it('an answer too small to compress has no encodings, so that it adds nothing to Vary', async () => {
    expect((await cacheOf(() => answerOf(json, '{}')).get()).encoded).toBeUndefined();
  });
  it('an answer that is not stored is not compressed', async () => {
    const { cache, get } = cacheOf(() => answerOf({ ...json, 'cache-control': 'no-store' }));
    expect((await get()).encoded).toBeUndefined();
    expect(cache.compressing).toBe(0);
  });
  it('an answer that compression does not make smaller is tried once', async () => {
    const noise = Buffer.from(crypto.getRandomValues(new Uint8Array(2000))).toString('latin1');
    const { get, done } = cacheOf(() => ({ ...answerOf(), body: Buffer.from(noise, 'latin1') }));
    (await get()).encoded?.want?.();
    await done();
    expect((await get()).encoded).toEqual({ want: undefined });
  });
  it('encodings that no longer fit are dropped', async () => {
    const { cache, get, done } = cacheOf(() => answerOf(), text.length + 1100);
    const first = await get();
    const before = cache.snapshot();
    expect(before.entries).toBe(1);
    first.encoded?.want?.();
    await done();
    expect(first.encoded).toEqual({ want: undefined });
    expect(cache.snapshot().bytes).toBe(before.bytes);
  });
  it('an answer purged while it is compressed stays purged', async () => {
    const { cache, get, done } = cacheOf(() => answerOf());
    const first = await get();
    cache.purge();
    first.encoded?.want?.();
    await done();
    expect(first.encoded).not.toHaveProperty('br');
    expect(cache.snapshot().bytes).toBe(0);
  });
});

describe('a stale answer that is compressed while it is refreshed', () => {
  afterEach(() => vi.useRealTimers());

  it('a stale answer that is compressed while it is refreshed is not refreshed again at once when that fails', async () => {
    vi.useFakeTimers({ toFake: ['performance', 'Date'] });
    const refreshes: PromiseWithResolvers<Answer>[] = [];
    const ended = vi.fn();
    let isStored = false;
    const cache = shareAnswers({
      ...{ ttlMs: 0, staleWhileRevalidateMs: 0, staleIfErrorMs: 0, refreshTimeoutMs: 25_000 },
      ...{ maxBytes: 1 << 21, maxEntryBytes: 1 << 20, generation: () => 1, onBackground: ended },
    });
    const handle = cache.layer(() => {
      if (!isStored) return answerOf({ ...json, 'cache-control': 'max-age=1, stale-while-revalidate=60' });
      const refresh = Promise.withResolvers<Answer>();
      refreshes.push(refresh);
      return refresh.promise;
    });
    const get = async (): Promise<Answer> => await handle(requestWith(patientContext()), newTrace());
    const { encoded } = await get();
    isStored = true;
    vi.advanceTimersByTime(1_000);
    await get();
    encoded?.want?.();
    await vi.waitFor(() => expect(encoded).toHaveProperty('br'));
    refreshes[0]?.reject(new Error('it failed'));
    await vi.waitFor(() => expect(ended).toHaveBeenCalled());
    await get();
    expect(refreshes).toHaveLength(1);
    cache.close();
  });
});

describe('bodies that wait to be compressed', () => {
  it('a queued body is not held once it is evicted', async () => {
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    const cache = shareAnswers({
      ttlMs: 15_000,
      staleWhileRevalidateMs: 0,
      staleIfErrorMs: 0,
      maxBytes: 4e6,
      maxEntryBytes: 2e6,
      generation: () => 1,
      refreshTimeoutMs: 1000,
    });
    const bodies: WeakRef<Buffer>[] = [];
    const handle = cache.layer(() => {
      const answer = { ...answerOf(), body: Buffer.alloc(1e6, 'a') };
      bodies.push(new WeakRef(answer.body));
      return answer;
    });
    // In one turn: the first is being compressed, and none of the others can be.
    for (let i = 0; i < 100; i += 1) {
      const answer = await handle({ ...requestWith(patientContext()), query: `?${i}` }, newTrace());
      answer.encoded?.want?.();
    }
    expect(cache.compressing).toBe(100);
    // A WeakRef holds on until the turn ends: no time to compress more than one.
    await nextTurn();
    collect();
    expect(bodies.filter((body) => body.deref() !== undefined).length).toBeLessThan(10);
    cache.close();
  });
  it('a body is compressed once, however often its answer is confirmed meanwhile', async () => {
    const headers = { ...json, etag: '"1"', 'cache-control': 'max-age=0' };
    let status = 200;
    const { cache, get, done } = cacheOf(() => answerOf(headers, text, status));
    const first = await get();
    first.encoded?.want?.();
    status = 304;
    for (let i = 0; i < 3; i += 1) (await get()).encoded?.want?.();
    const before = cache.snapshot().bytes;
    await done();
    const { br, gzip } = first.encoded ?? {};
    expect(cache.snapshot().bytes).toBe(before + (br?.length ?? 0) + (gzip?.length ?? 0));
  });
});

describe('a stored answer that a 304 confirms', () => {
  it.each(['no-store, no-transform', 'private="x-a", no-transform', 'max-age=60, no-transform'])(
    'a stored answer that a 304 confirms is given without its encodings where the 304 says %s',
    async (said) => {
      let confirmed: Answer | undefined;
      const { get, done } = cacheOf(
        () => confirmed ?? answerOf({ ...json, etag: '"1"', 'cache-control': 'max-age=0', 'x-a': '1' }),
      );
      (await get()).encoded?.want?.();
      await done();
      confirmed = answerOf({ 'cache-control': said }, '', 304);
      const got = await get();
      expect(got.status).toBe(200);
      expect(got.encoded).toBeUndefined();
    },
  );
});

describe('the compressor', () => {
  it('the compressor skips a body that is gone when its turn comes', async () => {
    const compressor = createCompressor();
    const [skipped, done] = [vi.fn(), vi.fn()];
    compressor.add(() => undefined, skipped);
    compressor.add(() => Buffer.from(text), done);
    await vi.waitFor(() => expect(done).toHaveBeenCalledOnce());
    expect(skipped).not.toHaveBeenCalled();
  });
  it('the compressor leaves out a coding that saves nothing', async () => {
    const compressor = createCompressor();
    const coded = await new Promise<number[]>((resolve) => {
      const body = Buffer.from(crypto.getRandomValues(new Uint8Array(2000)));
      compressor.add(
        () => body,
        (br, gzip) => resolve([br?.length ?? 0, gzip?.length ?? 0]),
      );
    });
    expect(coded).toEqual([0, 0]);
  });
  it('the compressor refuses bodies while its queue is full', () => {
    const compressor = createCompressor();
    for (let i = 0; i < 1000; i += 1) compressor.add(() => Buffer.from(text), vi.fn());
    expect(compressor.add(() => Buffer.from(text), vi.fn())).toBe(false);
    expect(compressor.waiting).toBeLessThan(300);
    compressor.clear();
  });
});

describe('several queues of bodies to compress', () => {
  it('several queues of bodies are compressed one body at a time, in turns, so that one queue holds up no other for longer than a body', async () => {
    const order: string[] = [];
    const done = ['a', 'b'].map((name) => {
      const { add } = createCompressor();
      const { promise, resolve } = Promise.withResolvers<void>();
      for (const last of [false, true]) {
        const body = (): Buffer => {
          order.push(`${name} begins`);
          return Buffer.from(text);
        };
        add(body, () => {
          order.push(`${name} ends`);
          if (last) resolve();
        });
      }
      return promise;
    });
    await Promise.all(done);
    expect(order).toEqual(['a', 'b', 'a', 'b'].flatMap((name) => [`${name} begins`, `${name} ends`]));
  });
});
