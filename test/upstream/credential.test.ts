import { inspect } from 'node:util';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { GatewayError } from '../../src/errors.ts';
import type { Answer, SignedRequest, UpstreamRequest } from '../../src/exchange/exchange.ts';
import type { Handler } from '../../src/exchange/layer.ts';
import { Trace } from '../../src/exchange/trace.ts';
import { paceAttempts } from '../../src/gate/gate.ts';
import type { HeaderFields } from '../../src/http/fields.ts';
import { statedWait } from '../../src/http/stated-wait.ts';
import { attachKey, checkThrough, retryWithKey } from '../../src/upstream/credential.ts';
import { retryFailures } from '../../src/upstream/retry.ts';
import { down, FakeStore, inUse, key1, key2, key3, keyringOf, readOf } from '../support/fake-store.ts';
import { patientContext, requestWith } from '../support/requests.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const leave = new AbortController();

function requestOf(over: Partial<UpstreamRequest> = {}, withinMs = 25_000): UpstreamRequest {
  return { ...requestWith(patientContext(leave.signal, withinMs)), ...over };
}

function answerOf(status: number, request: SignedRequest, text = '{}', headers: HeaderFields = {}): Answer {
  return {
    status,
    headers,
    body: Buffer.from(text),
    sentMs: performance.now(),
    receivedMs: performance.now(),
    receivedAt: Date.now(),
    generation: request.generation,
    statedWaitMs: statedWait({ status, headers, receivedAt: Date.now() }).waitMs,
  };
}

const checkPath = '/users/api-keys/';

/** An upstream that takes some keys, and remembers what it was sent. */
function upstreamTaking(...valid: string[]) {
  const taken = new Set(valid);
  const sent: SignedRequest[] = [];
  const send = async (request: SignedRequest) => {
    sent.push(request);
    await new Promise((resolve) => setTimeout(resolve, 5));
    return answerOf(taken.has(request.key) ? 200 : 401, request);
  };
  const reads = () => sent.filter((request) => request.path !== checkPath);
  const checks = () => sent.filter((request) => request.path === checkPath);
  return { taken, sent, send, reads, checks, keys: () => reads().map((request) => request.key) };
}

/** The credential with what sends again for it, and with checks, over this upstream. */
function over(
  { keyring, checkWith }: Pick<Awaited<ReturnType<typeof keyringOf>>, 'keyring' | 'checkWith'>,
  send: Handler<SignedRequest, Answer>,
): Handler<UpstreamRequest, Answer> {
  checkWith(checkThrough((next) => next, send));
  return retryWithKey(attachKey(keyring)(send));
}

const trace = () => new Trace(performance.now());
const codeOf = (error: unknown) => (error instanceof GatewayError ? error.code : error);
const failure = (promise: Promise<Answer>) => promise.then(() => 'answered', codeOf);
const wait = (ms: number) => vi.advanceTimersByTimeAsync(ms);

describe('a request', () => {
  it('goes out with the key and the generation, and the answer comes back', async () => {
    const { keyring, checkWith } = await keyringOf(new FakeStore(key1));
    let seen: SignedRequest | undefined;
    const handle = over({ keyring, checkWith }, (request) => {
      seen = request;
      return answerOf(200, request);
    });
    const facts = trace();
    const request = requestOf();
    expect(await handle(request, facts)).toMatchObject({ status: 200, generation: 1 });
    expect(seen?.key).toBe(key1);
    expect(facts.generation).toBe(1);
    expect(inspect([request, facts, keyring.current])).not.toContain(key1);
  });

  it('is refused with upstream-key-missing while there is no key', async () => {
    const { keyring, checkWith } = await keyringOf(new FakeStore(down, false));
    const handle = over({ keyring, checkWith }, () => {
      throw new Error('must not be called');
    });
    await expect(handle(requestOf(), trace())).rejects.toThrow(
      expect.objectContaining({ code: 'upstream-key-missing', retryAfterMs: 1000 }),
    );
  });

  it.each([400, 403, 404, 429, 500, 503])('an answer with %i passes and marks nothing', async (status) => {
    const { keyring, checkWith } = await keyringOf(new FakeStore(key1));
    const send = vi.fn((request: SignedRequest) => answerOf(status, request));
    const handle = over({ keyring, checkWith }, send);
    expect(await handle(requestOf(), trace())).toMatchObject({ status });
    expect(send).toHaveBeenCalledTimes(1);
    expect(keyring.health().rejected).toBe(false);
  });

  it('that was accepted is the first that a check of the key asks', async () => {
    const { keyring, checkWith } = await keyringOf(new FakeStore(key1));
    const upstream = upstreamTaking(key1);
    const handle = over({ keyring, checkWith }, upstream.send);
    const answer = handle(requestOf({ path: '/analytics/accounts/', query: '?fine' }), trace());
    await wait(5);
    expect((await answer).status).toBe(200);
    keyring.refused(inUse(keyring), readOf('odd'));
    await wait(0);
    expect(upstream.sent.at(-1)).toMatchObject({ operation: 'key-check', query: '?fine' });
  });

  it('a failure of the transport is handed on as it is', async () => {
    const { keyring, checkWith } = await keyringOf(new FakeStore(key1));
    const handle = over({ keyring, checkWith }, () =>
      Promise.reject(new GatewayError('upstream-unreachable')),
    );
    expect(await failure(Promise.resolve(handle(requestOf(), trace())))).toBe('upstream-unreachable');
  });
});

describe('on a 401', () => {
  it('the request goes once more with the key that the store has now, without old validators', async () => {
    const store = new FakeStore(key1);
    const { keyring, checkWith } = await keyringOf(store);
    const upstream = upstreamTaking(key2);
    const handle = over({ keyring, checkWith }, upstream.send);
    store.value = key2;
    const facts = trace();
    const answer = Promise.resolve(
      handle(requestOf({ validators: { 'if-none-match': '"generation-1"' } }), facts),
    );
    await wait(100);
    expect(await answer).toMatchObject({ status: 200, generation: 2 });
    expect(facts.generation).toBe(2);
    expect(upstream.keys()).toEqual([key1, key2]);
    // The store had it by then: there was nothing to find out.
    expect(upstream.checks()).toEqual([]);
    expect(upstream.sent.map((request) => request.validators)).toEqual([
      { 'if-none-match': '"generation-1"' },
      undefined,
    ]);
  });

  it('requests whose key was refused wait for a swap that lands after the refusal, and new ones send nothing meanwhile', async () => {
    const store = new FakeStore(key1);
    const { keyring, checkWith } = await keyringOf(store);
    const upstream = upstreamTaking(key2);
    const handle = over({ keyring, checkWith }, upstream.send);
    const first = Array.from({ length: 20 }, () => Promise.resolve(handle(requestOf(), trace())));
    await wait(500);
    const later = Array.from({ length: 20 }, () => Promise.resolve(handle(requestOf(), trace())));
    await wait(500);
    expect(upstream.reads()).toHaveLength(20);
    expect(upstream.checks()).toHaveLength(1);
    store.swap(key2);
    await wait(50);
    for (const answer of await Promise.all([...first, ...later])) expect(answer.status).toBe(200);
    expect(upstream.keys().filter((key) => key === key1)).toHaveLength(20);
    expect(upstream.keys().filter((key) => key === key2)).toHaveLength(40);
  });

  it('the previous key is tried once where the store has one', async () => {
    const store = new FakeStore(key2);
    store.previous = key1;
    const { keyring, checkWith } = await keyringOf(store);
    const upstream = upstreamTaking(key1);
    const handle = over({ keyring, checkWith }, upstream.send);
    const answer = Promise.resolve(handle(requestOf(), trace()));
    await wait(2_100);
    expect((await answer).status).toBe(200);
    expect(upstream.keys()).toEqual([key2, key1]);
    const next = Promise.resolve(handle(requestOf(), trace()));
    await wait(10);
    expect((await next).status).toBe(200);
    expect(upstream.keys()).toEqual([key2, key1, key1]);
  });

  it('an operation that alone gets a 401 is refused alone: others go on with the key, and nothing falls back', async () => {
    const store = new FakeStore(key2);
    store.previous = key1;
    const { keyring, checkWith, events } = await keyringOf(store);
    const upstream = upstreamTaking(key2);
    const odd = { operation: 'odd', path: '/odd/' };
    const handle = over({ keyring, checkWith }, async (request) => {
      const answer = await upstream.send(request);
      return request.path === odd.path ? { ...answer, status: 401 } : answer;
    });
    const refused = failure(Promise.resolve(handle(requestOf(odd), trace())));
    await wait(7);
    const validators = { 'if-none-match': '"of-the-same-key"' };
    const other = Promise.resolve(handle(requestOf({ validators }), trace()));
    await wait(20);
    expect(await refused).toBe('upstream-key-rejected');
    expect(await other).toMatchObject({ status: 200, generation: 1 });
    const paths = () => upstream.sent.map((request) => request.path);
    expect(paths()).toEqual([odd.path, checkPath, '/analytics/accounts/']);
    expect(upstream.sent.at(-1)?.validators).toEqual(validators);
    const again = failure(Promise.resolve(handle(requestOf(odd), trace())));
    await wait(6);
    expect(await again).toBe('upstream-key-rejected');
    expect(paths()).toHaveLength(4);
    expect(keyring.health().rejected).toBe(false);
    expect(events.map(({ kind }) => kind)).toEqual(['loaded', 'operation-refused']);
  });

  it('the key is rejected when nothing better comes: no upstream call but checks, until one is answered', async () => {
    const { keyring, checkWith } = await keyringOf(new FakeStore(key1));
    const upstream = upstreamTaking();
    const handle = over({ keyring, checkWith }, upstream.send);
    const first = failure(Promise.resolve(handle(requestOf(), trace())));
    await wait(2_050);
    expect(await first).toBe('upstream-key-rejected');
    expect(upstream.sent.map((request) => request.path)).toEqual([
      '/analytics/accounts/',
      '/users/api-keys/',
    ]);
    for (let more = 0; more < 50; more++) {
      await expect(handle(requestOf(), trace())).rejects.toThrow(
        expect.objectContaining({ code: 'upstream-key-rejected', receivedStatus: 401 }),
      );
    }
    await wait(10_000);
    const checks = upstream.sent.slice(1);
    expect(checks.map(({ operation }) => operation)).toEqual(Array(4).fill('key-check'));
    // The specification's read, and in turn with it the one that was refused: either may work first.
    expect(new Set(checks.map(({ path }) => path))).toEqual(new Set([checkPath, '/analytics/accounts/']));
    upstream.taken.add(key1);
    await wait(10_000);
    const again = Promise.resolve(handle(requestOf(), trace()));
    await wait(10);
    expect((await again).status).toBe(200);
  });

  it('a new generation ends the rejection at once', async () => {
    const store = new FakeStore(key1);
    const { keyring, checkWith } = await keyringOf(store);
    const upstream = upstreamTaking(key2);
    const handle = over({ keyring, checkWith }, upstream.send);
    const first = failure(Promise.resolve(handle(requestOf(), trace())));
    await wait(3_000);
    expect(await first).toBe('upstream-key-rejected');
    store.swap(key2);
    await wait(0);
    const again = Promise.resolve(handle(requestOf(), trace()));
    await wait(10);
    expect((await again).status).toBe(200);
  });

  it('a request waits no longer than its deadline, and a caller that leaves ends its waiting', async () => {
    const { keyring, checkWith } = await keyringOf(new FakeStore(key1));
    const handle = over({ keyring, checkWith }, upstreamTaking().send);
    const short = failure(Promise.resolve(handle(requestOf({}, 300), trace())));
    const gone = new AbortController();
    const context = patientContext(gone.signal);
    const left = failure(Promise.resolve(handle(requestOf({ context }), trace())));
    await wait(100);
    gone.abort(new Error('the caller left'));
    expect(await left).toMatchObject({ message: 'the caller left' });
    await wait(210);
    expect(await short).toBe('upstream-key-rejected');
  });

  it('each sending takes a turn at the gate, the check too, and no turn is held while the key is looked into', async () => {
    const store = new FakeStore(key1);
    const { keyring, checkWith } = await keyringOf(store);
    const upstream = upstreamTaking(key2);
    const gate = paceAttempts({ maxClosedMs: 300_000, baseMs: 500, capMs: 8000, initialWindow: 1 });
    checkWith(checkThrough(gate.layer, upstream.send));
    const handle = retryWithKey(gate.layer(attachKey(keyring)(upstream.send)));
    const answers = Array.from({ length: 3 }, () => handle(requestOf(), trace()));
    await wait(300);
    expect(gate.snapshot()).toMatchObject({ inFlight: 0, waiting: 0 });
    expect(upstream.sent.map(({ path }) => path)).toEqual(['/analytics/accounts/', checkPath]);
    store.swap(key2);
    await wait(0);
    expect(gate.snapshot()).toMatchObject({ inFlight: 1, waiting: 2 });
    await wait(100);
    for (const answer of await Promise.all(answers)) expect(answer.status).toBe(200);
    // The first sending, the two that were not sent with a suspect key, the check, and three with the new key.
    expect(gate.snapshot().attempts).toBe(7);
    expect(upstream.sent).toHaveLength(5);
    gate.close();
  });

  it('a rotation at an upstream that limits requests fails none of them', async () => {
    const store = new FakeStore(key1);
    const { keyring, checkWith } = await keyringOf(store);
    const upstream = upstreamTaking(key1);
    let second = 0;
    let used = 0;
    const limited = async (request: SignedRequest) => {
      const now = Math.floor(performance.now() / 1000);
      if (now > second) used = 0;
      second = now;
      return ++used > 10 ? answerOf(429, request, '', { 'retry-after': '1' }) : upstream.send(request);
    };
    const gate = paceAttempts({ maxClosedMs: 300_000, baseMs: 500, capMs: 8000 });
    checkWith(checkThrough(gate.layer, limited));
    const retry = retryFailures({ limit: 4, baseMs: 500, capMs: 8000, isGated: true });
    const handle = retry(retryWithKey(gate.layer(attachKey(keyring)(limited))));
    const failures: unknown[] = [];
    let answered = 0;
    let stop = false;
    const loops = Array.from({ length: 20 }, async () => {
      while (!stop) {
        const status = await Promise.resolve(handle(requestOf(), trace())).then(
          (came) => came.status,
          codeOf,
        );
        if (status === 200) answered++;
        else failures.push(status);
      }
    });
    await wait(20_000);
    // A guess of the rate that proves too high closes the gate for a moment, and one request tries then.
    for (let i = 0; i < 100 && gate.snapshot().state !== 'paced'; i++) await wait(50);
    expect(gate.snapshot().state).toBe('paced');
    for (const [before, next] of [
      [key1, key2],
      [key2, key3],
    ] as const) {
      const sentBefore = upstream.keys().length;
      upstream.taken.clear();
      upstream.taken.add(next);
      await wait(1_000);
      store.swap(next);
      await wait(10_000);
      const refused = upstream.keys().slice(sentBefore);
      expect(refused.filter((key) => key === before).length).toBeLessThanOrEqual(2);
    }
    stop = true;
    await wait(30_000);
    await Promise.all(loops);
    expect(failures).toEqual([]);
    expect(answered).toBeGreaterThan(200);
    gate.close();
  });

  it('a request is never sent more than three times', async () => {
    const store = new FakeStore(key1);
    const { keyring, checkWith } = await keyringOf(store);
    let count = 0;
    const handle = over({ keyring, checkWith }, (request) => {
      count++;
      store.swap(`another-key-0123456789-${count}`);
      return answerOf(401, request);
    });
    const answer = failure(Promise.resolve(handle(requestOf(), trace())));
    await wait(10);
    expect(await answer).toBe('upstream-key-rejected');
    expect(count).toBe(3);
  });
});

describe('an answer that holds the key', () => {
  it('a 429 that holds the key is handed back with its wait alone, so that the gate closes', async () => {
    const { keyring, checkWith, events } = await keyringOf(new FakeStore(key1));
    const handle = over({ keyring, checkWith }, (request) =>
      answerOf(429, request, `{"echo":"${key1}"}`, { 'retry-after': '7', 'x-echo': key1, etag: '"1"' }),
    );
    const answer = await handle(requestOf(), trace());
    expect(answer).toMatchObject({ status: 429, statedWaitMs: 7_000 });
    expect(answer.headers).toEqual({});
    expect(answer.body).toHaveLength(0);
    expect(events.at(-1)).toMatchObject({ kind: 'leak' });
  });

  it.each([
    ['in its body', () => answerOf(200, { generation: 1 } as SignedRequest, `{"echo":"${key1}"}`)],
    ['in a field', () => answerOf(404, { generation: 1 } as SignedRequest, '{}', { 'x-echo': key1 })],
    [
      'in base64',
      () => answerOf(500, { generation: 1 } as SignedRequest, Buffer.from(`a:${key1}`).toString('base64')),
    ],
  ])('%s is an invalid response and an alarm', async (_, answer) => {
    const { keyring, checkWith, events } = await keyringOf(new FakeStore(key1));
    const handle = over({ keyring, checkWith }, answer);
    await expect(handle(requestOf(), trace())).rejects.toThrow(
      expect.objectContaining({ code: 'upstream-invalid-response', message: 'the answer contains the key' }),
    );
    expect(events.at(-1)).toMatchObject({ kind: 'leak', level: 'error' });
    expect(JSON.stringify(events)).not.toContain(key1);
  });

  it('of a generation that was just replaced is an invalid response', async () => {
    const store = new FakeStore(key1);
    const { keyring, checkWith } = await keyringOf(store);
    store.swap(key2);
    await wait(0);
    const handle = over({ keyring, checkWith }, (request) => answerOf(200, request, key1));
    await expect(handle(requestOf(), trace())).rejects.toThrow(
      expect.objectContaining({ code: 'upstream-invalid-response' }),
    );
  });
});
