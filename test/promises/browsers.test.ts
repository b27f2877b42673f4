import { writeFileSync } from 'node:fs';
import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { bearer, enrol, startWith, textOf } from '../support/callers-files.ts';
import {
  type AtEnd,
  accounts,
  type Came,
  sharedPair,
  startPair,
  type TestGateway,
} from '../support/gateway.ts';
import { type RawReply, sendRaw } from '../support/raw-request.ts';

const good = 'https://good.example';
const app = 'http://localhost:5173';
const CORS_ORIGINS = `${good},${app}`;

const preflight = (origin: string, more: Record<string, string> = {}) => ({
  method: 'OPTIONS',
  headers: { origin, 'access-control-request-method': 'GET', ...more },
});

/** The names of all fields that would let a page read something. */
function corsFields(headers: object): string[] {
  return Object.keys(headers).filter((name) => name.startsWith('access-control-'));
}

/** The members of `Vary`, wherever it came from. */
function varyOf(came: Came | RawReply): string[] {
  const value = 'headers' in came ? came.headers.vary : came.fields['vary']?.join(',');
  return (value ?? '').split(',').map((name) => name.trim().toLowerCase());
}

type Replies = readonly [name: string, came: Came | RawReply][];
const replies = new Map<string | undefined, Replies>();

// At once, for each waits two seconds for the key that the upstream refuses.
beforeAll(async () => {
  const ends: (() => void | Promise<void>)[] = [];
  await Promise.all(
    [undefined, good, app, 'https://evil.example'].map(async (origin) =>
      replies.set(origin, await collectReplies(origin, (end) => ends.push(end))),
    ),
  );
  for (const end of ends) await end();
});

/** A reply of every kind that the public listener gives, by name; each with the origin or without. */
function everyReply(origin: string | undefined): Replies {
  return replies.get(origin) ?? expect.unreachable();
}

async function collectReplies(origin: string | undefined, atEnd: AtEnd): Promise<Replies> {
  const script = enrol('script', { limit: { perSecond: 0.01, burst: 40 } });
  const spent = enrol('spent', { limit: { perSecond: 0.01, burst: 1 } });
  const settings = {
    CORS_ORIGINS,
    ALLOWED_HOSTS: 'localhost,127.0.0.1',
    RETRY_LIMIT: '0',
    GATE_MAX_CLOSED: '0s',
  };
  const pair = await startWith([script.entry, spent.entry], settings, {}, atEnd);
  const { ask, standIn } = pair;
  const from: Record<string, string> = origin === undefined ? {} : { origin };
  const known = { ...from, ...bearer(script.token) };
  const collected: [string, Came | RawReply][] = [];
  const take = async (name: string, status: number, came: Promise<Came | RawReply>): Promise<void> => {
    collected.push([name, await came]);
    expect([name, (await came).status]).toEqual([name, status]);
  };
  await take('200', 200, ask(accounts, { headers: known }));
  const etag = (await ask(accounts, { headers: known })).headers.etag ?? '';
  await take('hit', 200, ask(accounts, { headers: known }));
  await take('HEAD', 200, ask(accounts, { method: 'HEAD', headers: known }));
  await take('304', 304, ask(accounts, { headers: { ...known, 'if-none-match': etag } }));
  await take('401', 401, ask(accounts, { headers: from }));
  await take('401 absolute', 401, sendRaw(pair, `http://localhost${accounts}`, { lines: lines(from) }));
  await take('403', 403, ask('/api/users/api-keys/', { headers: known }));
  await take('404', 404, ask('/api/nothing', { headers: known }));
  await take('404 outside', 404, ask('/nothing', { headers: from }));
  await take('405', 405, ask(accounts, { method: 'DELETE', headers: known }));
  await take('400', 400, ask(`${accounts}?api_key=x`, { headers: known }));
  await take('414', 414, ask(`${accounts}?${'x'.repeat(9_000)}`, { headers: known }));
  await take('421', 421, ask(accounts, { headers: { ...known, host: 'evil.example' } }));
  await ask(accounts, { headers: { ...from, ...bearer(spent.token) } });
  await take('429', 429, ask(accounts, { headers: { ...from, ...bearer(spent.token) } }));
  await take('document', 200, ask('/problems/caller-forbidden', { headers: from }));
  await take('no document', 404, ask('/problems/toString', { headers: from }));
  await take(
    'not in cache',
    504,
    ask(`${accounts}?a`, { headers: { ...known, 'cache-control': 'only-if-cached' } }),
  );
  standIn.behave({ status: 500, headers: { 'content-type': 'text/html' }, body: '<h1>no</h1>' });
  await take('500 of the upstream', 500, ask(`${accounts}?b`, { headers: known }));
  standIn.behave({ status: 401 });
  await take('502', 502, ask(`${accounts}?c`, { headers: known }));
  await standIn.refuseConnections(true);
  await take('502 unreachable', 502, ask(`${accounts}?d`, { headers: known }));
  await standIn.refuseConnections(false);
  return collected;
}

function lines(headers: Record<string, string>): string[] {
  return Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
}

describe('a page of a listed origin', () => {
  it.each([good, app])(
    'a page of the listed origin %s reads everything the gateway says, problems too',
    (origin) => {
      for (const [name, came] of everyReply(origin)) {
        const fields = 'headers' in came ? came.headers : came.fields;
        expect([name, [fields['access-control-allow-origin']].flat()]).toEqual([name, [origin]]);
        const exposed = [fields['access-control-expose-headers']].flat().join();
        for (const field of ['X-Request-ID', 'Cache-Status', 'RateLimit', 'Retry-After', 'ETag']) {
          expect([name, exposed]).toEqual([name, expect.stringContaining(field)]);
        }
        expect([name, corsFields(fields)]).toEqual([
          name,
          ['access-control-allow-origin', 'access-control-expose-headers'],
        ]);
      }
    },
  );

  it('a preflight of a listed origin is answered before authentication, with exactly what the page may do', async () => {
    const { ask, standIn, logLines } = await startWith([enrol('script').entry], {
      CORS_ORIGINS,
      FORWARD_REQUEST_HEADERS: 'Accept-Language',
      CALLER_FAILURES_PER_MINUTE: '1',
    });
    for (const path of [accounts, '/api/nothing', accounts]) {
      const came = await ask(path, preflight(good, { 'access-control-request-headers': 'authorization' }));
      expect(came.status).toBe(204);
      const {
        date: _date,
        connection: _connection,
        'keep-alive': _keepAlive,
        'x-request-id': _id,
        ...fields
      } = came.headers;
      expect(fields).toEqual({
        'access-control-allow-origin': good,
        'access-control-allow-methods': 'GET, HEAD',
        'access-control-allow-headers':
          'Content-Type, Cache-Control, Pragma, X-Request-ID, traceparent, tracestate, Authorization, X-API-Key, If-Modified-Since, If-None-Match, Prefer, accept-language',
        'access-control-expose-headers': expect.any(String),
        'access-control-max-age': '7200',
        vary: 'Origin',
        'x-content-type-options': 'nosniff',
        'content-security-policy': "default-src 'none'; frame-ancestors 'none'; sandbox",
        'cross-origin-resource-policy': 'same-origin',
        via: '1.1 analytics-gateway',
      });
    }
    expect(standIn.requests).toHaveLength(0);
    expect(logLines().filter(({ status, method }) => status === 204 && method === 'OPTIONS')).toHaveLength(3);
  });

  it('a page of a listed origin may send its JWT in the field that the callers file names, as that changes', async () => {
    const staff = (header: string) => ({
      name: 'staff',
      jwt: { issuer: 'i', audience: 'a', jwks: 'http://127.0.0.1:9/keys', match: { sub: 's' }, header },
    });
    const { ask, file } = await startWith([staff('X-First')], { CORS_ORIGINS });
    const allowed = async () =>
      (await ask(accounts, preflight(good))).headers['access-control-allow-headers']?.split(', ');
    expect(await allowed()).toContain('x-first');
    writeFileSync(file, textOf([staff('X-Second')]));
    await expect.poll(allowed).toContain('x-second');
    expect(await allowed()).not.toContain('x-first');
  });

  it('a page of a listed origin is not let in by its origin: it needs a credential as any caller', async () => {
    const { ask, standIn } = await startWith([enrol('script').entry], { CORS_ORIGINS });
    expect((await ask(accounts, { headers: { origin: good } })).status).toBe(401);
    // OPTIONS without what makes it a preflight is a method like any other.
    expect((await ask(accounts, { method: 'OPTIONS', headers: { origin: good } })).status).toBe(401);
    expect(standIn.requests).toHaveLength(0);
  });
});

describe('a page of an origin that only looks like a listed one reads nothing', () => {
  const { token, entry } = enrol('script');
  const settings = { CORS_ORIGINS, CACHE_TTL: '0s', CALLER_FAILURES_PER_MINUTE: '0' };
  const shared = sharedPair((atEnd) => startWith([entry], settings, {}, atEnd));

  it.each(['null', 'https://good.example.evil', 'https://good.example:443', '__proto__'])(
    'a page of the origin %j, which only looks like a listed one, reads nothing',
    async (origin) => {
      const pair = shared();
      const from = [`Origin: ${origin}`];
      const asked = await sendRaw(pair, accounts, {
        method: 'OPTIONS',
        lines: [...from, 'Access-Control-Request-Method: GET'],
      });
      expect(asked.status).toBe(403);
      expect(JSON.parse(asked.body)).toMatchObject({ code: 'origin-not-allowed' });
      const refused = await sendRaw(pair, accounts, { lines: from });
      expect(refused.status).toBe(401);
      const answered = await sendRaw(pair, accounts, { lines: [...from, `Authorization: Bearer ${token}`] });
      expect(answered.status).toBe(200);
      for (const came of [asked, refused, answered]) {
        expect(corsFields(came.fields)).toEqual([]);
        expect(varyOf(came)).toContain('origin');
      }
    },
  );

  it('a request that names two origins in two fields reads nothing', async () => {
    const pair = await startPair({ CORS_ORIGINS });
    for (const origins of [
      [good, 'https://evil.example'],
      ['https://evil.example', good],
    ]) {
      const came = await sendRaw(pair, accounts, { lines: origins.map((origin) => `Origin: ${origin}`) });
      expect(corsFields(came.fields)).toEqual([]);
      expect(came.status).toBe(403);
    }
  });

  it('without CORS_ORIGINS no page reads anything', async () => {
    const { ask } = await startWith([enrol('script').entry]);
    const came = await ask(accounts, preflight(good));
    expect(came.json()).toMatchObject({ status: 403, code: 'origin-not-allowed' });
    expect(corsFields(came.headers)).toEqual([]);
    expect(came.headers).not.toHaveProperty('vary');
  });
});

describe('a cache in between never gives one origin what was said to another', () => {
  it.each([undefined, good, 'https://evil.example'])(
    'every answer varies by Origin, also the one to %s',
    (origin) => {
      for (const [name, came] of everyReply(origin)) {
        expect([name, varyOf(came)]).toEqual([name, expect.arrayContaining(['origin'])]);
      }
    },
  );

  it('an answer varies by Origin beside the coding, and beside what the upstream varies by', async () => {
    const { ask, standIn } = await startPair({ CORS_ORIGINS });
    await expect
      .poll(async () => varyOf(await ask(accounts, { headers: { 'accept-encoding': 'gzip' } })))
      .toEqual(['accept-encoding', 'origin']);
    const br = await ask(accounts, { headers: { 'accept-encoding': 'br', origin: good } });
    expect(varyOf(br)).toEqual(['accept-encoding', 'origin']);
    const headers = { 'accept-encoding': 'br', 'if-none-match': br.headers.etag ?? '' };
    expect(varyOf(await ask(accounts, { headers }))).toEqual(['accept-encoding', 'origin']);
    standIn.behave({ headers: { vary: 'Accept-Language, Origin' }, body: '{}' });
    expect(varyOf(await ask(`${accounts}?v`)).sort()).toEqual(['accept-language', 'origin']);
  });

  it('the gateway itself asks the upstream once for all origins', async () => {
    const { ask, standIn } = await startPair({ CORS_ORIGINS });
    const first = await ask(accounts, { headers: { origin: good } });
    const second = await ask(accounts, { headers: { origin: app } });
    const third = await ask(accounts);
    expect(first.headers['access-control-allow-origin']).toBe(good);
    expect(second.headers['access-control-allow-origin']).toBe(app);
    expect(corsFields(third.headers)).toEqual([]);
    expect(standIn.requests).toHaveLength(1);
    expect(standIn.requests[0]?.headers).not.toHaveProperty('origin');
  });
});

describe('a gateway that needs no credential answers no page of another site', () => {
  // Nothing is stored: a read that was let in would be seen at the upstream.
  const settings = { CORS_ORIGINS: good, CACHE_TTL: '0s' };
  const anonymous = [
    ['without a callers file', (atEnd) => startPair(settings, {}, atEnd)],
    [
      'with an anonymous caller in it',
      (atEnd) => startWith([{ name: 'sidecar', anonymous: true }], settings, {}, atEnd),
    ],
  ] as const satisfies readonly [string, (atEnd: AtEnd) => Promise<TestGateway>][];

  describe.each(anonymous)('%s', (_name, start) => {
    const shared = sharedPair(start);
    beforeEach(() => shared().standIn.reset());

    // `edge/cross-origin.test.ts` has more.
    it.each<[string, Record<string, string>]>([
      ['an image or a link', { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'no-cors' }],
      ['an older browser', { origin: 'https://evil.example' }],
    ])('a gateway that needs no credential refuses a page of another site: %s', async (_page, headers) => {
      const { ask, standIn } = shared();
      for (const path of [accounts, '/api/nothing', '/problems/overloaded']) {
        const came = await ask(path, { headers });
        expect(came.json()).toMatchObject({ status: 403, code: 'origin-not-allowed' });
        expect(corsFields(came.headers)).toEqual([]);
      }
      expect(standIn.requests).toHaveLength(0);
    });

    it.each<[string, Record<string, string>]>([
      ['a script', {}],
      ['a page of a listed origin', { 'sec-fetch-site': 'cross-site', origin: good }],
    ])('a gateway that needs no credential answers %s', async (_page, headers) => {
      const { ask } = shared();
      expect((await ask(accounts, { headers })).status).toBe(200);
    });

    it.each(['evil.example', '[2001:db8::1]:8080'])(
      'a gateway that needs no credential refuses a page whose own name %j leads to it (DNS rebinding)',
      async (host) => {
        const pair = shared();
        for (const lines of [[], ['Sec-Fetch-Site: same-origin', `Origin: http://${host}`]]) {
          const came = await sendRaw(pair, accounts, { host, lines });
          expect(came.status).toBe(421);
          expect(JSON.parse(came.body)).toMatchObject({ code: 'host-not-allowed' });
          expect(corsFields(came.fields)).toEqual([]);
        }
        expect(pair.standIn.requests).toHaveLength(0);
      },
    );

    it.each(['localhost', '[::1]:8080'])(
      'a gateway that needs no credential answers for %s, which means this machine everywhere',
      async (host) => {
        expect((await sendRaw(shared(), accounts, { host })).status).toBe(200);
      },
    );
  });

  it('the log says why a page was refused, with the host or origin', async () => {
    const pair = await startPair({ CORS_ORIGINS: good });
    await pair.ask(accounts, { headers: { host: 'evil.example' } });
    await pair.exchange(`GET ${accounts} HTTP/1.0\r\n\r\n`);
    await pair.ask(accounts, { headers: { origin: 'https://evil.example' } });
    await pair.ask(accounts, preflight('https://evil.example'));
    const reasons = pair.logLines().flatMap(({ reason }) => (reason === undefined ? [] : [reason]));
    expect(reasons).toEqual([
      'a Host that is not this machine',
      'no Host',
      'a request from a page of another site',
      'a preflight of an origin that is not listed',
    ]);
    const lines = pair.logLines().filter(({ msg }) => msg === 'request');
    expect(lines.map(({ host, origin }) => host ?? origin)).toEqual([
      'evil.example',
      undefined,
      'https://evil.example',
      'https://evil.example',
    ]);
  });

  it('ALLOWED_HOSTS decides about names where every caller needs a credential', async () => {
    const { token, entry } = enrol('script');
    const pair = await startWith([entry], { ALLOWED_HOSTS: 'gateway.internal' });
    const known = [`Authorization: Bearer ${token}`];
    const statuses = [];
    for (const host of ['gateway.internal', 'Gateway.Internal.:8080', 'localhost', 'gateway.internal.evil']) {
      statuses.push((await sendRaw(pair, accounts, { host, lines: known })).status);
    }
    expect(statuses).toEqual([200, 200, 421, 421]);
    // Before anybody is asked who they are.
    expect((await sendRaw(pair, accounts, { host: 'evil.example' })).status).toBe(421);
  });
});

describe('nothing the gateway says can be run, framed or embedded', () => {
  const security = {
    'x-content-type-options': 'nosniff',
    'content-security-policy': "default-src 'none'; frame-ancestors 'none'; sandbox",
    'cross-origin-resource-policy': 'same-origin',
  };

  it('answers, problems and documents cannot be run, framed or embedded', () => {
    for (const [name, came] of everyReply(good)) {
      const fields = 'headers' in came ? came.headers : came.fields;
      const sent = Object.fromEntries(
        Object.keys(security).map((field) => [field, [fields[field]].flat().join()]),
      );
      expect([name, sent]).toEqual([name, security]);
    }
  });

  it('replies to probes and preflights cannot be run, framed or embedded, for any Host', async () => {
    const { ask } = await startPair({ CORS_ORIGINS });
    for (const path of ['/livez', '/readyz']) {
      for (const method of ['GET', 'HEAD']) {
        const came = await ask(path, { method, headers: { host: 'evil.example' } });
        expect(came.status).toBe(200);
        expect(came.headers).toMatchObject(security);
      }
      expect((await ask(path, { method: 'POST' })).headers).toMatchObject(security);
    }
    for (const origin of [good, 'https://evil.example']) {
      expect((await ask(accounts, preflight(origin))).headers).toMatchObject(security);
    }
  });
});
