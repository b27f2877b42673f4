import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { check } from '../../src/commands/check.ts';
import type { CheckReport, LearnedLimit } from '../../src/commands/check-report.ts';
import { GatewayError, type GatewayErrorOptions, type ProblemCode } from '../../src/errors.ts';
import type { Answer, SignedRequest } from '../../src/exchange/exchange.ts';
import { openKeyring } from '../../src/key/keyring.ts';
import type { KeyStore } from '../../src/key/store.ts';
import { attachKey, checkThrough, retryWithKey } from '../../src/upstream/credential.ts';
import { down, FakeStore, key1 } from '../support/fake-store.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const answer = (status: number, request: SignedRequest): Answer => ({
  status,
  headers: {},
  body: Buffer.from('{}'),
  sentMs: 0,
  receivedMs: 1,
  receivedAt: 0,
  generation: request.generation,
});

/** Runs the check over a transport that a test describes; moves the clock until it is done. */
async function run(
  send: (request: SignedRequest) => Answer | Promise<Answer>,
  {
    store = new FakeStore(key1) as KeyStore,
    json = true,
    settingsProblems = [] as string[],
    addedReads = [] as string[],
    toldLimits = [] as { most: number; window: string }[],
    linkedBase = undefined as URL | undefined,
    learned = undefined as LearnedLimit | undefined,
  } = {},
) {
  let text = '';
  let closed = false;
  const paths: string[] = [];
  const done = check({
    settingsProblems,
    addedReads,
    toldLimits,
    linkedBase,
    baseUrl: 'https://analytics.example/api',
    timeoutMs: 25_000,
    json,
    write: (more) => {
      text += more;
    },
    open: async () => {
      const sendUp = (request: SignedRequest) => {
        paths.push(request.path);
        return send(request);
      };
      const keyring = await openKeyring({
        from: 'fake:',
        environment: {},
        check: checkThrough((next) => next, sendUp),
        refreshMs: 60_000,
        onEvent: () => {},
        open: () => store,
      });
      return {
        keyring,
        ask: retryWithKey(attachKey(keyring)(sendUp)),
        ...(learned && { readLearned: async () => learned }),
        close: () => {
          closed = true;
        },
      };
    },
  });
  let status: number | undefined;
  void done.then((value) => {
    status = value;
  });
  for (let step = 0; step < 40 && status === undefined; step++) await vi.advanceTimersByTimeAsync(1_000);
  return {
    status: await done,
    text,
    paths,
    closed,
    report: json ? (JSON.parse(text) as CheckReport) : undefined,
  };
}

const failWith = (code: ProblemCode, options: GatewayErrorOptions) => () =>
  Promise.reject(new GatewayError(code, options));

describe('a check of the limit', () => {
  const toldLimits = [
    { most: 60, window: '1m' },
    { most: 10_000, window: '1d' },
  ];
  const headers = { 'x-ratelimit-remaining': '57', 'x-ratelimit-reset': '30' };

  const asked = 'http://127.0.0.1:9091/status';
  const learned = { asked, attemptsPerSecond: 48.512 };

  it('a check of the limit shows the one that is told, the one that the upstream tells and what was learned, for programs and for people', async () => {
    const send = (request: SignedRequest) => ({ ...answer(200, request), headers });
    const { report } = await run(send, { toldLimits, learned });
    expect(report?.limit).toEqual({
      told: [
        { limit: 60, window: '1m' },
        { limit: 10_000, window: '1d' },
      ],
      stated: [{ field: 'x-ratelimit-reset', remaining: 57, resetsInSeconds: 30 }],
      learned,
    });
    expect((await run(send, { toldLimits, learned, json: false })).text).toContain(
      `Limit: UPSTREAM_LIMIT tells 60/1m, 10000/1d; the upstream tells 57 left for 30 s (x-ratelimit-reset); the gateway that runs has learned about 48.5 a second (${asked})\nBeside it: this check has sent 2 reads with the same key, which no gateway counts\n`,
    );
    expect((await run((request) => answer(200, request))).report).not.toHaveProperty('limit');
  });

  it.each([
    [{ asked, attemptsPerSecond: null }, `the gateway that runs has learned no limit (${asked})`],
    [
      { asked, problem: 'no gateway runs at 127.0.0.1:9091' },
      'not known here: no gateway runs at 127.0.0.1:9091',
    ],
    [{ asked: null, problem: 'ADMIN_PORT is off' }, 'not known here: ADMIN_PORT is off'],
  ])(
    'a check of the limit says so where nothing was learned, or where it cannot ask: %j',
    async (found, words) => {
      const { text } = await run((request) => answer(200, request), {
        toldLimits,
        learned: found,
        json: false,
      });
      expect(text).toContain(
        `; the upstream tells none; ${words.startsWith('not') ? 'what was learned is ' : ''}${words}\n`,
      );
    },
  );
});

describe('a check whose answers name the upstream’s address', () => {
  const send = (request: SignedRequest): Answer => ({
    ...answer(200, request),
    headers: { 'content-type': 'application/json' },
    body: '{"next":"https://analytics.example/api/analytics/accounts/?page=2"}',
  });

  it('a check says that links lead past the gateway, which is no fault, and not where PUBLIC_BASE_URL is set', async () => {
    const linkedBase = new URL('https://analytics.example/api');
    const { status, report } = await run(send, { linkedBase });
    expect([status, report?.notices]).toEqual([0, [expect.stringContaining('Set PUBLIC_BASE_URL')]]);
    expect((await run(send, { linkedBase, json: false })).text).toContain(
      '\nNotice: Answers name the upstream’s',
    );
    expect((await run(send)).report).not.toHaveProperty('notices');
  });
});

describe('a check of added reads', () => {
  const addedReads = ['/analytics/posts/', '/analytics/reports/:id/', '/analytics/tags/'];
  const statusOf = (statuses: Readonly<Record<string, number>>) => (request: SignedRequest) =>
    answer(statuses[request.path] ?? 200, request);

  it('a check asks added reads without a parameter, and says which it cannot ask', async () => {
    const { status, paths, report } = await run(statusOf({}), { addedReads });
    expect(status).toBe(0);
    expect(paths.slice(2)).toEqual(['/analytics/posts/', '/analytics/tags/']);
    expect(report?.calls.slice(2)).toMatchObject([
      { path: '/analytics/posts/', status: 200, outcome: 'accepted' },
      { path: '/analytics/reports/:id/', status: null, outcome: 'skipped' },
      { path: '/analytics/tags/', status: 200, outcome: 'accepted' },
    ]);
  });

  it.each([
    [404, 1, 'correct it in UPSTREAM_READS'],
    [410, 1, 'Is UPSTREAM_READS right?'],
    [403, 1, 'the workspace role of its holder is insufficient'],
    [400, 0, 'wants parameters in its query'],
    [422, 0, 'wants parameters in its query'],
    [429, 0, 'The upstream limits requests now'],
  ])(
    'a check of an added read that is answered with %i ends with %i, and says what to do',
    async (came, ends, words) => {
      const { status, text } = await run(statusOf({ '/analytics/posts/': came }), {
        addedReads,
        json: false,
      });
      expect(status).toBe(ends);
      expect(text.split('\n').find((line) => line.startsWith('GET /analytics/posts/'))).toContain(words);
      const verdict = 'Failed: The gateway could work, but not for each read of UPSTREAM_READS.';
      expect(text.includes(verdict)).toBe(ends === 1);
    },
  );

  it('a check asks once for a read that is added although it is specified, or added twice', async () => {
    const twice = ['/analytics/accounts/', '/users/api-keys', '/analytics/tags/', '/analytics/tags'];
    const { status, paths } = await run(statusOf({}), { addedReads: twice });
    expect(status).toBe(0);
    expect(paths).toEqual(['/analytics/accounts/', '/users/api-keys/', '/analytics/tags/']);
  });

  it('a check asks no added read where the upstream limits requests or cannot be reached', async () => {
    const limited = await run(statusOf({ '/users/api-keys/': 429 }), { addedReads });
    expect(limited.paths).toEqual(['/analytics/accounts/', '/users/api-keys/']);
    expect(limited.report?.calls.map(({ outcome }) => outcome)).toEqual([
      'accepted',
      'rate-limited',
      'skipped',
      'skipped',
      'skipped',
    ]);
    const away = await run(failWith('upstream-unreachable', {}), { addedReads });
    expect([away.status, away.paths.length]).toEqual([1, 1]);
  });

  it('a check of a specified read that is missing asks about the base address', async () => {
    const { text } = await run(statusOf({ '/analytics/accounts/': 404, '/users/api-keys/': 400 }), {
      json: false,
    });
    expect(text).toMatch(
      /accounts\/: 404\. .* Is UPSTREAM_BASE_URL right\? It ends with \/api, and has that once/,
    );
    expect(text).toMatch(/api-keys\/: 400\. .* Is UPSTREAM_BASE_URL right\?/);
  });
});

describe('a check', () => {
  it('a check that finds all fine tells store, fingerprint and both calls, and ends with 0', async () => {
    const { status, text, paths, closed } = await run((request) => answer(200, request), { json: false });
    expect(status).toBe(0);
    expect(paths).toEqual(['/analytics/accounts/', '/users/api-keys/']);
    expect(text).toMatch(/^Settings: fine. The upstream is https:\/\/analytics.example\/api\n/);
    expect(text).toMatch(/^Key: fake:store can be read; fingerprint [0-9a-f]{8}, generation 1$/m);
    expect(text).toMatch(/^GET \/analytics\/accounts\/: 200. The key was accepted.$/m);
    expect(text).toMatch(/^GET \/users\/api-keys\/: 200\.$/m);
    expect(text).toMatch(/^Fine: The gateway can work with these settings.$/m);
    expect(text).not.toContain(key1);
    expect(closed).toBe(true);
  });

  it('a check of wrong settings lists them and ends with 2, without a call', async () => {
    const settingsProblems = ['UPSTREAM_BASE_URL: is required', 'PORT: is not a number'];
    const { status, text, paths } = await run((request) => answer(200, request), {
      settingsProblems,
      json: false,
    });
    expect(status).toBe(2);
    for (const problem of settingsProblems) expect(text).toContain(problem);
    expect(paths).toEqual([]);
  });

  it('a check of a local store without a key ends with 2 and says why', async () => {
    const { status, report, paths } = await run((request) => answer(200, request), {
      store: new FakeStore(' \n'),
    });
    expect(status).toBe(2);
    expect(report?.key).toMatchObject({ ok: false, problem: expect.stringMatching(/is blank/) });
    expect(paths).toEqual([]);
  });

  it('a check of a network store that is down ends with 1 and says why', async () => {
    const { status, report } = await run((request) => answer(200, request), {
      store: new FakeStore(down, false),
    });
    expect(status).toBe(1);
    expect(report?.key).toEqual({ ok: false, source: 'fake:store', problem: down.message });
  });

  it('a check of a refused key ends with 1 and asks no further read with it', async () => {
    const { status, report, paths } = await run((request) => answer(401, request));
    expect(status).toBe(1);
    expect(report?.calls).toMatchObject([{ status: 401, outcome: 'key-rejected' }, { outcome: 'skipped' }]);
    expect(report?.summary).toMatch(/refused the key/);
    expect(paths[0]).toBe('/analytics/accounts/');
  });

  it('a check of a key that only one read refuses says so, and ends with 1', async () => {
    const { status, report, paths } = await run((request) =>
      answer(request.path === '/analytics/accounts/' ? 401 : 200, request),
    );
    expect(status).toBe(1);
    expect(report?.calls).toMatchObject([
      { status: 401, outcome: 'operation-refused' },
      { status: 200, outcome: 'accepted' },
    ]);
    expect(report?.summary).toMatch(/takes the key elsewhere/);
    expect(paths).toEqual(['/analytics/accounts/', '/users/api-keys/', '/users/api-keys/']);
  });

  it.each([
    [403, 'role-insufficient', /workspace role/, 1],
    [404, 'unexpected-status', /UPSTREAM_BASE_URL/, 1],
    [400, 'unexpected-status', /UPSTREAM_BASE_URL/, 1],
    [500, 'unexpected-status', /fault of its own/, 1],
    [429, 'rate-limited', /limits requests/, 0],
  ])('a check explains a %i of the first call', async (code, outcome, text, exit) => {
    const { status, report } = await run((request) =>
      answer(request.path === '/analytics/accounts/' ? code : 200, request),
    );
    expect(status).toBe(exit);
    expect(report?.calls[0]).toMatchObject({ status: code, outcome, meaning: expect.stringMatching(text) });
    expect(report?.calls[1]).toMatchObject({ status: 200, outcome: 'accepted' });
  });

  it('a check of an upstream that cannot be reached says each thing once, in whole sentences', async () => {
    const { text } = await run(failWith('upstream-unreachable', {}), { json: false });
    expect(text.split('\n').slice(2)).toEqual([
      'GET /analytics/accounts/: no answer. The upstream cannot be reached.',
      'GET /users/api-keys/: It was not asked, because the call before failed.',
      'Failed: The gateway could not work, as said above.',
      '',
    ]);
  });

  it('a check that meets nothing but 429 is not fine: no answer said that the key is good', async () => {
    expect((await run((request) => answer(429, request))).status).toBe(1);
  });

  it.each([
    ['upstream-unreachable', 'connection_refused', 'unreachable', /refused the connection/],
    ['upstream-unreachable', 'dns_error', 'unreachable', /host name/],
    ['upstream-unreachable', 'tls_certificate_error', 'unreachable', /certificate/],
    ['upstream-unreachable', 'tls_protocol_error', 'unreachable', /TLS/],
    ['upstream-unreachable', undefined, 'unreachable', /cannot be reached/],
    ['upstream-timeout', 'connection_timeout', 'timeout', /firewall/],
    ['upstream-timeout', 'http_response_timeout', 'timeout', /UPSTREAM_TIMEOUT/],
    ['upstream-invalid-response', undefined, 'invalid-response', /login page/],
  ] as const)('a check explains %s (%s) and ends with 1', async (code, proxyError, outcome, text) => {
    const { status, report } = await run(failWith(code, proxyError === undefined ? {} : { proxyError }));
    expect(status).toBe(1);
    expect(report?.calls[0]).toMatchObject({ status: null, outcome, meaning: expect.stringMatching(text) });
  });

  it('a check says nothing of the key even where a failure quotes it', async () => {
    const { text } = await run(failWith('upstream-invalid-response', { reason: `bad ${key1}` }));
    expect(text).not.toContain(key1);
  });
});
