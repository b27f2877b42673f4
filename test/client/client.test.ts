import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import {
  AnswerError,
  type ClientOptions,
  createClient,
  type Fetch,
  GatewayProblem,
} from '../../src/client/client.ts';

const baseUrl = 'http://gateway.example/api';
const accounts = `${baseUrl}/analytics/accounts/`;

type Sent = Parameters<Fetch>[1] & { readonly url: string };

/** A client whose gateway gives these answers, one after the other, and then the last one again and again. */
function clientOf(answers: readonly (() => Response)[], options: Partial<ClientOptions> = {}) {
  const sent: Sent[] = [];
  const fetch: Fetch = (url, init) => {
    init.signal?.throwIfAborted();
    const answer = answers[Math.min(sent.length, answers.length - 1)];
    sent.push({ url, ...init });
    return answer === undefined ? Promise.reject(new TypeError('fetch failed')) : Promise.resolve(answer());
  };
  return { ...createClient({ baseUrl, fetch, ...options }), sent };
}

const json =
  (body: unknown, status = 200, headers: Record<string, string> = {}) =>
  (): Response =>
    new Response(JSON.stringify(body), {
      status,
      headers: { 'content-type': 'application/json', ...headers },
    });

function problem(code: string, status: number, headers: Record<string, string> = {}): () => Response {
  const body = {
    type: `/problems/${code}`,
    title: 'A title',
    status,
    detail: 'A detail.',
    code,
    requestId: 'id',
  };
  return json(body, status, headers);
}

const busy = (seconds: number | string): (() => Response) =>
  problem('upstream-rate-limited', 429, { 'retry-after': String(seconds) });

async function failureOf(read: Promise<unknown>): Promise<unknown> {
  return read.then(
    () => expect.fail('the read has an answer'),
    (error: unknown) => error,
  );
}

describe('what the client asks about its caller', () => {
  it.each(['http://gateway.example/api', 'http://gateway.example/w/acme/api', 'http://gateway.example/api/'])(
    'what the client asks about its caller stands beside the base address %s',
    async (base) => {
      const client = clientOf([json({ caller: 'reports', limits: [] })], { baseUrl: base, token: 'wag_x' });
      const { data } = await client.me();
      expect(data.caller).toBe('reports');
      expect(client.sent).toMatchObject([
        { url: 'http://gateway.example/me', headers: { authorization: 'Bearer wag_x' } },
      ]);
    },
  );

  it('what the client asks about its caller fails as a read does', async () => {
    const client = clientOf([problem('caller-unauthenticated', 401)]);
    expect(await failureOf(client.me())).toBeInstanceOf(GatewayProblem);
  });
});

describe('a read of the client', () => {
  it.each([
    ['list-accounts', '/analytics/accounts/'],
    ['list-api-keys', '/users/api-keys/'],
    ['/analytics/posts/42', '/analytics/posts/42'],
    ['/a/b.c_d~e-f/', '/a/b.c_d~e-f/'],
  ] as const)('the client asks for %s at %s below the base address', async (operation, path) => {
    for (const base of [baseUrl, `${baseUrl}/`]) {
      const client = clientOf([json([])], { baseUrl: base });
      await client.read(operation);
      expect(client.sent[0]?.url).toBe(`${baseUrl}${path}`);
    }
  });

  it.each([
    '/..',
    '/a/../b',
    '/a/./b',
    '//evil.example/',
    '/a?b',
    '/a#b',
    '/a%2Fb',
    '/a\\b',
    '/',
    '/a b',
  ] as const)('the client refuses the path %j, which would arrive as another one', async (path) => {
    const client = clientOf([json([])]);
    expect(await failureOf(client.read(path))).toBeInstanceOf(TypeError);
    expect(client.sent).toEqual([]);
  });

  it.each(['accounts', 'toString', '@evil.example/'])(
    'the client refuses %j, which names no operation',
    async (name) => {
      expect(await failureOf(clientOf([json([])]).read(name as 'list-accounts'))).toBeInstanceOf(TypeError);
    },
  );

  it('the client sends the query, the token and further fields, and follows no redirect', async () => {
    const client = clientOf([json([])], { token: 'a-token' });
    const { signal } = new AbortController();
    await client.read('list-accounts', {
      query: { page: 2, name: 'a b&c', all: true },
      headers: { 'Cache-Control': 'no-cache', accept: 'text/csv' },
      signal,
    });
    expect(client.sent).toEqual([
      {
        url: `${accounts}?page=2&name=a+b%26c&all=true`,
        headers: { accept: 'application/json', authorization: 'Bearer a-token', 'cache-control': 'no-cache' },
        redirect: 'error',
        signal,
      },
    ]);
  });

  it('the client asks for the token anew for each request, and sends no credential where there is none', async () => {
    const tokens = ['first', 'second', ''];
    const client = clientOf([json([])], { token: async () => tokens.shift() ?? '' });
    for (const credential of ['Bearer first', 'Bearer second', undefined]) {
      await client.read('list-accounts');
      expect(client.sent.at(-1)?.headers['authorization']).toBe(credential);
    }
  });
});

describe('a token that the gateway refuses', () => {
  const refuse = problem('caller-unauthenticated', 401);

  it('a function is asked for another token after a 401, once, and told which was refused', async () => {
    const asked: (string | undefined)[] = [];
    const token = (refused?: string): string => {
      asked.push(refused);
      return refused === undefined ? 'old' : 'new';
    };
    const client = clientOf([refuse, json([])], { token });
    expect((await client.read('list-accounts')).status).toBe(200);
    expect(asked).toEqual([undefined, 'old']);
    expect(client.sent.map(({ headers }) => headers['authorization'])).toEqual(['Bearer old', 'Bearer new']);
    let count = 0;
    const hopeless = clientOf([refuse], { token: () => `token ${count++}` });
    expect(await failureOf(hopeless.read('list-accounts'))).toMatchObject({ status: 401 });
    expect(hopeless.sent).toHaveLength(2);
  });

  it.each<[string, ClientOptions['token']]>([
    ['a token that is a text', 'old'],
    ['a function that has no other', () => 'old'],
    ['no token', undefined],
  ])('a 401 is thrown at once for %s', async (_what, token) => {
    const client = clientOf([refuse], { token });
    expect(await failureOf(client.read('list-accounts'))).toMatchObject({ code: 'caller-unauthenticated' });
    expect(client.sent).toHaveLength(1);
  });
});

describe('what comes back from the client', () => {
  it('an answer has the data, the status and the fields', async () => {
    const client = clientOf([json({ results: [1] }, 203, { 'x-request-id': 'id' })]);
    const answer = await client.read('list-accounts');
    expect(answer).toMatchObject({ data: { results: [1] }, status: 203, url: accounts });
    expect(answer.headers.get('x-request-id')).toBe('id');
  });

  it('a problem of the gateway is thrown with its code', async () => {
    const error = await failureOf(clientOf([problem('caller-forbidden', 403)]).read('list-accounts'));
    expect(error).toBeInstanceOf(GatewayProblem);
    expect(error).toMatchObject({
      name: 'GatewayProblem',
      code: 'caller-forbidden',
      status: 403,
      message: 'A title (caller-forbidden). A detail. Request id.',
      problem: { requestId: 'id' },
      retryAfterMs: undefined,
    });
  });

  it.each([
    ['an error of the upstream', json({ detail: 'no' }, 404), 404, { detail: 'no' }],
    [
      'a problem of another server',
      json({ type: 'about:blank', code: 'x' }, 400),
      400,
      { type: 'about:blank', code: 'x' },
    ],
    ['null', json(null, 500), 500, null],
    ['a text', () => new Response('Bad Gateway', { status: 502 }), 502, 'Bad Gateway'],
    ['no body', () => new Response(null, { status: 431 }), 431, ''],
    ['a page instead of JSON', () => new Response('<!doctype html>'), 200, '<!doctype html>'],
    ['half of a JSON', () => new Response('[1,'), 200, '[1,'],
  ] as const)('%s is thrown as it came', async (_what, answer, status, body) => {
    const error = await failureOf(clientOf([answer]).read('list-accounts', { query: { of: 'a-person' } }));
    expect(error).toBeInstanceOf(AnswerError);
    expect(error).not.toBeInstanceOf(GatewayProblem);
    expect(error).toMatchObject({ name: 'AnswerError', status, body });
    // A query may be about people, and messages end in logs.
    expect(String(error)).not.toContain('a-person');
  });

  it('the message of an error has the upstream’s own detail and the id of the request', async () => {
    const answer = json({ detail: 'No such page.' }, 404, { 'x-request-id': 'r-1' });
    const { message } = (await failureOf(clientOf([answer]).read('list-accounts'))) as Error;
    expect(message).toBe(
      'The answer of list-accounts has the status 404 and is no problem of the gateway: No such page. Request r-1.',
    );
    const long = json({ detail: 'x'.repeat(10_000) }, 400);
    expect(String(await failureOf(clientOf([long]).read('list-accounts'))).length).toBeLessThan(700);
  });

  it('what fetch throws is thrown as it is', async () => {
    expect(await failureOf(clientOf([]).read('list-accounts'))).toEqual(new TypeError('fetch failed'));
  });
});

describe('an earlier answer given to the client', () => {
  const fresh = json([1], 200, { etag: '"one"' });
  const unchanged = (): Response => new Response(null, { status: 304, headers: { etag: '"one"', age: '7' } });

  it('an earlier answer makes the read conditional, and its data is used again after a 304', async () => {
    const client = clientOf([fresh, unchanged, unchanged]);
    const first = await client.read('list-accounts');
    const second = await client.read('list-accounts', { previous: first });
    const third = await client.read('list-accounts', { previous: second });
    expect(client.sent.map(({ headers }) => headers['if-none-match'])).toEqual([undefined, '"one"', '"one"']);
    expect([second.status, third.status]).toEqual([304, 304]);
    expect(second.data).toBe(first.data);
    expect(third.data).toBe(first.data);
    expect(third.headers.get('age')).toBe('7');
  });

  it('an earlier answer to another read has no part in it', async () => {
    const client = clientOf([fresh]);
    const previous = await client.read('list-accounts', { query: { page: 1 } });
    await client.read('list-accounts', { query: { page: 2 }, previous });
    await client.read('list-api-keys', { previous });
    expect(client.sent.some(({ headers }) => 'if-none-match' in headers)).toBe(false);
  });

  it('an earlier answer without an ETag has no part in it', async () => {
    const client = clientOf([json([])]);
    await client.read('list-accounts', { previous: await client.read('list-accounts') });
    expect(client.sent[1]?.headers).not.toHaveProperty('if-none-match');
  });
});

describe('a read that is told to come later', () => {
  beforeEach(() => void vi.useFakeTimers({ now: Date.UTC(2026, 10, 1) }));
  afterEach(() => void vi.useRealTimers());

  it.each([
    ['2', 2_000],
    ['0', 1_000],
    ['Sun, 01 Nov 2026 00:00:05 GMT', 5_000],
    ['Sat, 31 Oct 2026 00:00:00 GMT', 1_000],
  ])('a read that is told "Retry-After: %s" is sent again after %d ms', async (value, waitMs) => {
    const client = clientOf([busy(value), json('data')]);
    const read = client.read('list-accounts');
    await vi.advanceTimersByTimeAsync(waitMs - 1);
    expect(client.sent).toHaveLength(1);
    await vi.advanceTimersByTimeAsync(1);
    expect(await read).toMatchObject({ data: 'data' });
    expect(client.sent).toHaveLength(2);
    expect(vi.getTimerCount()).toBe(0);
  });

  it.each(['soon', '-1', '1.5', '', 'no day GMT'])(
    'a read that is told "Retry-After: %s", which says nothing, fails at once',
    async (value) => {
      const error = await failureOf(clientOf([busy(value)]).read('list-accounts'));
      expect(error).toMatchObject({ code: 'upstream-rate-limited', retryAfterMs: undefined });
    },
  );

  it('a read whose wait is longer than may be waited fails at once, and says how long waiting would help', async () => {
    const client = clientOf([busy(31)]);
    expect(await failureOf(client.read('list-accounts'))).toMatchObject({ retryAfterMs: 31_000 });
    expect(client.sent).toHaveLength(1);
  });

  it('a read waits no longer in all than it may', async () => {
    const client = clientOf([busy(4)], { maxWaitMs: 10_000 });
    const failure = failureOf(client.read('list-accounts'));
    await vi.advanceTimersByTimeAsync(8_000);
    expect(await failure).toMatchObject({ code: 'upstream-rate-limited' });
    expect(client.sent).toHaveLength(3);
  });

  it('a read that may not wait at all is sent once', async () => {
    const client = clientOf([busy(0)], { maxWaitMs: 0 });
    expect(await failureOf(client.read('list-accounts'))).toMatchObject({ retryAfterMs: 1_000 });
    expect(client.sent).toHaveLength(1);
  });

  it('a read that may wait for ever is not sent at once where a timer cannot take the wait', async () => {
    const client = clientOf([busy('9'.repeat(400)), json([])], { maxWaitMs: Number.POSITIVE_INFINITY });
    const read = client.read('list-accounts');
    await vi.advanceTimersByTimeAsync(24 * 86_400_000);
    expect(client.sent).toHaveLength(1);
    await vi.advanceTimersByTimeAsync(86_400_000);
    await read;
  });

  it('a read that is aborted while it waits ends with the reason, and leaves nothing behind', async () => {
    const controller = new AbortController();
    const removed = vi.spyOn(controller.signal, 'removeEventListener');
    const client = clientOf([busy(5)]);
    const failure = failureOf(client.read('list-accounts', { signal: controller.signal }));
    await vi.advanceTimersByTimeAsync(1_000);
    controller.abort(new Error('enough'));
    expect(await failure).toEqual(new Error('enough'));
    expect(removed).toHaveBeenCalledOnce();
    expect(vi.getTimerCount()).toBe(0);
    expect(client.sent).toHaveLength(1);
  });

  it('a read that is aborted while a body comes does not wait', async () => {
    const controller = new AbortController();
    const client = clientOf([
      () => {
        controller.abort(new Error('enough'));
        return busy(5)();
      },
    ]);
    expect(await failureOf(client.read('list-accounts', { signal: controller.signal }))).toEqual(
      new Error('enough'),
    );
    expect(vi.getTimerCount()).toBe(0);
  });
});
