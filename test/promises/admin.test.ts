import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { readConfig } from '../../src/config/config.ts';
import { ListenError } from '../../src/edge/listen.ts';
import { startGateway } from '../../src/gateway/gateway.ts';
import { adminOutput } from '../support/admin-output.ts';
import { bearer, enrol, startWith } from '../support/callers-files.ts';
import { parseExposition, type Scraped } from '../support/exposition-parser.ts';
import { accounts, ask, type Came, startPair, type TestGateway } from '../support/gateway.ts';
import { run, settingsFor } from '../support/process.ts';
import { startProduct } from '../support/product.ts';
import { formsIn } from '../support/secret-forms.ts';
import { standInKey, startStandIn } from '../support/stand-in/stand-in.ts';

const withAdmin = { ADMIN_PORT: '0' };
const adminToken = { ADMIN_TOKEN_FROM: 'env:TEST_TOKEN', TEST_TOKEN: 'a-token-for-changes-0123' };
const metric = (name: string): string => `analytics_gateway_${name}`;
const codeOf = (came: Came): unknown => came.json()['code'];

async function scrape({ askAdmin }: Pick<TestGateway, 'askAdmin'>): Promise<Scraped> {
  const { status, headers, body } = await askAdmin('/metrics');
  expect(status).toBe(200);
  expect(headers['content-type']).toBe('text/plain; version=0.0.4; charset=utf-8');
  return parseExposition(body.toString());
}

type Members = Record<string, Record<string, unknown>>;

async function statusOf({ askAdmin }: Pick<TestGateway, 'askAdmin'>): Promise<Members> {
  const { status, headers, body } = await askAdmin('/status');
  expect(status).toBe(200);
  expect(headers['content-type']).toBe('application/json');
  return JSON.parse(body.toString()) as Members;
}

const accessLines = ({ logLines }: TestGateway) => logLines().filter(({ msg }) => msg === 'request');

describe('the metrics count', () => {
  it('the metrics count one request for each access line, and started = finished + aborted', async () => {
    const [script, limited] = [enrol('script'), enrol('limited', { limit: { perSecond: 0.01, burst: 1 } })];
    const pair = await startWith([script.entry, limited.entry], { ...withAdmin, RETRY_LIMIT: '0' });
    const { standIn, exchange } = pair;
    const known = { headers: bearer(script.token) };
    // A miss and a rush that shares it, hits, refusals of all kinds.
    await Promise.all(Array.from({ length: 20 }, () => pair.ask(accounts, known)));
    for (let more = 0; more < 30; more++) await pair.ask(accounts, known);
    await pair.ask('/api/nothing/', known);
    await pair.ask(accounts, { ...known, method: 'DELETE' });
    await pair.ask(accounts);
    await pair.ask(accounts, { headers: bearer('wag_wrong') });
    for (let more = 0; more < 3; more++) await pair.ask(accounts, { headers: bearer(limited.token) });
    standIn.behave({ status: 500, body: 'down' }, 1);
    await pair.ask(`${accounts}?fails`, known);
    await exchange('NONSENSE\r\n\r\n');
    await pair.ask('/readyz');
    // One leaves before it is answered.
    standIn.behave({ stallAt: 'before-headers' });
    const leaver = new AbortController();
    const left = pair.ask(`${accounts}?left`, { ...known, signal: leaver.signal }).catch(() => undefined);
    await expect.poll(() => pair.gateway.waiting).toBe(1);
    const meanwhile = await scrape(pair);
    expect(meanwhile.value(metric('requests_in_flight'))).toBe(1);
    expect(meanwhile.value(metric('upstream_in_flight'))).toBe(1);
    leaver.abort();
    await left;
    await expect.poll(() => pair.gateway.waiting).toBe(0);

    const after = await scrape(pair);
    const lines = accessLines(pair);
    expect(after.value(metric('requests_started_total'))).toBe(lines.length);
    expect(after.sum(metric('requests_total'))).toBe(lines.length);
    expect(after.value(metric('requests_in_flight'))).toBe(0);
    // Told apart as the lines are.
    for (const { operation = 'none', status, cache = 'none' } of lines) {
      const labels = { operation: String(operation), status: String(status), cache: String(cache) };
      const alike = lines.filter((line) => {
        return (
          (line['operation'] ?? 'none') === operation &&
          line['status'] === status &&
          (line['cache'] ?? 'none') === cache
        );
      });
      expect(after.value(metric('requests_total'), labels), JSON.stringify(labels)).toBe(alike.length);
    }
    expect(after.sum(metric('request_duration_seconds_count'))).toBe(lines.length);
    expect(after.sum(metric('requests_total'), { status: '499' })).toBe(1);
    expect(after.value(metric('problems_total'), { code: 'caller-unauthenticated' })).toBe(2);
    expect(after.value(metric('problems_total'), { code: 'unknown-operation' })).toBe(1);
    expect(
      after.value(metric('caller_refusals_total'), { caller: 'limited', code: 'caller-rate-limited' }),
    ).toBe(2);
    expect(after.sum(metric('caller_requests_total'), { caller: 'script' })).toBe(
      lines.filter(({ caller }) => caller === 'script').length,
    );
    expect(after.sum(metric('unparsed_requests_total'))).toBe(1);
    expect(after.sum(metric('upstream_attempts_total'))).toBe(standIn.counts.total);
    expect(
      after.value(metric('upstream_attempts_total'), { operation: 'list-accounts', outcome: 'abandoned' }),
    ).toBe(1);

    const { requests } = await statusOf(pair);
    expect(requests).toMatchObject({
      started: lines.length,
      finished: lines.length,
      aborted: 1,
      inFlight: 0,
    });
    await pair.gateway.drain();
    const stopped = pair.logLines().find(({ msg }) => msg === 'stopped');
    expect(stopped).toMatchObject({ started: lines.length, finished: lines.length - 1, aborted: 1 });
  });

  it('the metrics count the attempts and 429s that the upstream sees, with retries and background refreshes', async () => {
    const pair = await startPair(withAdmin, { cacheControl: 'max-age=0, stale-while-revalidate=60' });
    const { standIn } = pair;
    await pair.ask(accounts);
    await pair.ask(accounts);
    await expect.poll(() => standIn.counts.total).toBe(2);
    standIn.behave({ status: 429, headers: { 'retry-after': '0' }, body: '{}' }, 1);
    expect((await pair.ask(`${accounts}?retried`)).status).toBe(200);
    await expect.poll(async () => (await scrape(pair)).value(metric('upstream_in_flight'))).toBe(0);
    const { sum, value } = await scrape(pair);
    expect(sum(metric('upstream_attempts_total'))).toBe(standIn.counts.total);
    expect(value(metric('upstream_attempts_total'), { operation: 'list-accounts', outcome: '429' })).toBe(1);
    expect(value(metric('upstream_retries_total'))).toBe(1);
    expect(value(metric('gate_refusals_total'))).toBe(1);
  });

  it('the metrics count the fields that should have said how long to wait, and an operator’s own fields are heard', async () => {
    const settings = { ...withAdmin, RETRY_LIMIT: '0', UPSTREAM_LIMIT_HEADERS: 'X-RateLimit-Reset-Reads' };
    const pair = await startPair(settings);
    const inReads = { 'x-ratelimit-remaining-reads': '0', 'x-ratelimit-reset-reads': '25m' };
    pair.standIn.behave({ status: 429, headers: { ...inReads, 'retry-after': 'soon' }, body: '{}' });
    const told = await pair.ask(accounts);
    expect(told.status).toBe(429);
    // Less the time that the request itself would wait.
    expect(Number(told.headers['retry-after'])).toBeGreaterThan(1_200);
    const { value } = await scrape(pair);
    expect(value(metric('gate_stated_wait_seconds'))).toBeGreaterThan(1_200);
    expect(value(metric('upstream_unreadable_waits_total'), { field: 'retry-after' })).toBe(1);
    const { upstream, gate } = await statusOf(pair);
    expect(upstream?.['unreadableWaits']).toEqual([{ field: 'retry-after', count: 1 }]);
    expect(gate?.['statedWaitSeconds']).toBeGreaterThan(1_200);
  });

  it('the metrics count runs of the garbage collector, and have the event loop’s delays, from the second scrape on', async () => {
    const pair = await startPair(withAdmin);
    const { value } = await scrape(pair);
    const before = value('nodejs_gc_duration_seconds_count', { kind: 'minor' }) ?? 0;
    let kept: object[] = [];
    await expect
      .poll(
        async () => {
          kept = Array.from({ length: 300_000 }, (_, index) => ({ index }));
          const later = await scrape(pair);
          return (
            (later.value('nodejs_gc_duration_seconds_count', { kind: 'minor' }) ?? 0) > before &&
            (later.value('nodejs_eventloop_lag_p99_seconds') ?? -1) >= 0
          );
        },
        { timeout: 60_000, interval: 150 },
      )
      .toBe(true);
    expect(kept).toHaveLength(300_000);
  });

  it('the labels of the metrics hold nothing of what callers send', async () => {
    const pair = await startPair(withAdmin);
    const word = 'a-word-of-the-caller';
    for (const path of [`/api/${word}/`, `${accounts}?${word}`, `/${word}`, `/problems/${word}`]) {
      await pair.ask(path, { method: 'GET', headers: { 'x-request-id': word, 'user-agent': word } });
    }
    await pair.exchange(
      `${word} / HTTP/1.1\r\nHost: localhost\r\nX-API-Key: ${word}\r\nConnection: close\r\n\r\n`,
    );
    for (const path of ['/metrics', '/status', '/']) {
      expect((await pair.askAdmin(path)).body.toString(), path).not.toContain(word);
    }
  });
});

describe('a purge', () => {
  it('a purge removes everything or one operation, says how much, and has a log line', async () => {
    const pair = await startPair(withAdmin);
    const { askAdmin, standIn } = pair;
    for (const path of [accounts, `${accounts}?b`, '/api/users/api-keys/']) await pair.ask(path);
    const one = await askAdmin('/cache/purge?operation=list-accounts', { method: 'POST' });
    expect(one.json()).toEqual({ operation: 'list-accounts', entries: 2, bytes: expect.any(Number) });
    expect(one.json()['bytes']).toBeGreaterThan(1_000);
    await pair.ask('/api/users/api-keys/');
    expect(standIn.counts.total).toBe(3);
    await pair.ask(accounts);
    expect(standIn.counts.total).toBe(4);
    const all = await askAdmin('/cache/purge', { method: 'POST' });
    expect(all.json()).toMatchObject({ entries: 2 });
    expect((await statusOf(pair))['cache']).toMatchObject({ entries: 0, bytes: 0, evictions: 0 });
    const told = pair.logLines().filter(({ msg }) => String(msg).includes('purged'));
    expect(told).toMatchObject([{ operation: 'list-accounts', entries: 2 }, { entries: 2 }]);
  });

  it.concurrent.for<[name: string, method: string, path: string, status: number, code: string]>([
    ['of an unknown operation', 'POST', '/cache/purge?operation=nope', 404, 'unknown-operation'],
    ['with another parameter', 'POST', '/cache/purge?op=list-accounts', 400, 'invalid-request'],
    ['of two operations', 'POST', '/cache/purge?operation=list-accounts&operation=x', 400, 'invalid-request'],
    ['by GET', 'GET', '/cache/purge', 405, 'method-not-allowed'],
  ])(
    'a purge of %s is refused and removes nothing',
    async ([, method, path, status, code], { expect, onTestFinished }) => {
      const pair = await startPair(withAdmin, {}, onTestFinished);
      await pair.ask(accounts);
      const came = await pair.askAdmin(path, { method });
      expect(came.status).toBe(status);
      expect(came.headers['content-type']).toBe('application/problem+json');
      expect(codeOf(came)).toBe(code);
      if (status === 405) expect(came.headers['allow']).toBe('POST');
      if (status === 404) expect(came.json()['detail']).toContain('list-accounts, list-api-keys');
      await pair.ask(accounts);
      expect(pair.standIn.counts.total).toBe(1);
    },
  );
});

describe('a purge of a gateway whose admin listener other machines can reach', () => {
  const open = { ...withAdmin, ADMIN_HOST: '0.0.0.0' };
  const purge = ({ askAdmin }: TestGateway, headers: Record<string, string> = {}) =>
    askAdmin('/cache/purge', { method: 'POST', headers });

  it('a purge of a gateway whose admin listener other machines can reach needs the token of ADMIN_TOKEN_FROM, and reading needs nothing', async () => {
    const pair = await startPair({ ...open, ...adminToken });
    await pair.ask(accounts);
    const { TEST_TOKEN: token } = adminToken;
    const wrong = [
      {},
      bearer('wrong'),
      bearer(`${token}x`),
      bearer(token.toUpperCase()),
      { 'x-api-key': token },
      { authorization: token },
    ];
    for (const headers of wrong) {
      const came = await purge(pair, headers);
      expect(came).toMatchObject({ status: 401, headers: { 'www-authenticate': 'Bearer realm="admin"' } });
      expect(codeOf(came)).toBe('caller-unauthenticated');
      expect(came.json()['detail']).toContain('ADMIN_TOKEN_FROM');
    }
    expect((await statusOf(pair))['cache']).toMatchObject({ entries: 1 });
    expect(await statusOf(pair)).toMatchObject({ purgeNeeds: 'token' });
    expect((await pair.askAdmin('/metrics')).status).toBe(200);
    expect((await purge(pair, bearer(token))).json()).toMatchObject({ entries: 1 });
    expect(pair.logText()).not.toContain(token);
  });

  it('a purge of a gateway whose admin listener other machines can reach is refused where ADMIN_TOKEN_FROM is not set, whatever the request brings', async () => {
    const pair = await startPair(open);
    for (const headers of [{}, bearer('undefined')]) {
      const came = await purge(pair, headers);
      expect(came.status).toBe(403);
      expect(codeOf(came)).toBe('caller-forbidden');
      expect(came.json()['detail']).toContain('ADMIN_TOKEN_FROM is not set');
    }
    expect(await statusOf(pair)).toMatchObject({ purgeNeeds: 'setting' });
  });

  it('a purge of a gateway whose admin listener other machines can reach takes a new token of the file at once', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'admin-'));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const file = join(folder, 'token');
    writeFileSync(file, 'the-first-token-0123\n');
    const pair = await startPair({ ...open, ADMIN_TOKEN_FROM: `file:${file}` });
    expect((await purge(pair, bearer('the-first-token-0123'))).status).toBe(200);
    writeFileSync(file, 'another-token-012345\n');
    expect((await purge(pair, bearer('the-first-token-0123'))).status).toBe(401);
    expect((await purge(pair, bearer('another-token-012345'))).status).toBe(200);
  });

  it('a purge of a gateway whose admin listener other machines can reach says where the token cannot be read, and the log names the setting without a stack', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'admin-'));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const file = join(folder, 'token');
    writeFileSync(file, 'the-first-token-0123\n');
    const pair = await startPair({ ...open, ADMIN_TOKEN_FROM: `file:${file}` });
    writeFileSync(file, 'short\n');
    const tooShort = await purge(pair, bearer('the-first-token-0123'));
    rmSync(file);
    const gone = await purge(pair, bearer('the-first-token-0123'));
    for (const came of [tooShort, gone]) {
      expect(came.status).toBe(500);
      expect(came.json()['detail']).toMatch(/^The gateway cannot read the token of ADMIN_TOKEN_FROM/);
      expect(came.body.toString()).not.toContain(folder);
    }
    const lines = pair.logLines().filter(({ level }) => level === 'error');
    expect(lines).toMatchObject(
      ['the token is shorter than 16 characters', 'the file does not exist'].map((why) => ({
        reason: `a change was asked for, and the token cannot be read: ADMIN_TOKEN_FROM: file:${file}: ${why}`,
      })),
    );
    expect(JSON.stringify(lines)).not.toContain('stack');
  });

  it('a purge of a gateway whose admin listener other machines can reach needs no token on loopback', async () => {
    const pair = await startPair({ ...withAdmin, ...adminToken });
    expect((await purge(pair)).status).toBe(200);
    expect(await statusOf(pair)).toMatchObject({ purgeNeeds: 'nothing' });
  });

  it('a purge of a gateway whose admin listener other machines can reach is told of at the start where the token cannot be read', async () => {
    const environment = { ...settingsFor('http://127.0.0.1:9/api'), ...open, ADMIN_TOKEN_FROM: 'env:NONE' };
    await expect(startGateway({ config: readConfig(environment), environment })).rejects.toThrow(
      'env:NONE: the environment variable is not set',
    );
  });
});

describe('a page of another site gets nothing from the admin listener', () => {
  const foreign: [name: string, headers: Record<string, string>, status: number, code: string][] = [
    [
      'a page elsewhere',
      { origin: 'https://evil.example', 'sec-fetch-site': 'cross-site' },
      403,
      'origin-not-allowed',
    ],
    // `admin/middleware.test.ts` has more.
    ['a name made to mean us', { host: 'evil.example' }, 421, 'host-not-allowed'],
  ];

  it.concurrent.for(['127.0.0.1', '0.0.0.0'])(
    'a page of another site gets nothing from the admin listener on %s',
    async (host, { expect, onTestFinished }) => {
      const pair = await startPair({ ...withAdmin, ...adminToken, ADMIN_HOST: host }, {}, onTestFinished);
      await pair.ask(accounts);
      for (const [name, headers, status, code] of foreign) {
        for (const [method, path] of [
          ['POST', '/cache/purge'],
          ['GET', '/status'],
          ['GET', '/metrics'],
          ['GET', '/none'],
        ] as const) {
          const came = await pair.askAdmin(path, { method, headers });
          expect(came.status, `${name}: ${method} ${path}`).toBe(status);
          expect(codeOf(came)).toBe(code);
          expect(came.headers['access-control-allow-origin']).toBeUndefined();
        }
      }
      expect((await statusOf(pair))['cache']).toMatchObject({ entries: 1 });
      expect(pair.logLines().filter(({ code }) => code === 'host-not-allowed').length).toBeGreaterThan(0);
      const own = {
        origin: new URL(pair.gateway.adminUrl ?? '').origin.replace('0.0.0.0', '127.0.0.1'),
        'sec-fetch-site': 'same-origin',
        ...(host === '0.0.0.0' ? bearer(adminToken.TEST_TOKEN) : {}),
      };
      expect((await pair.askAdmin('/cache/purge', { method: 'POST', headers: own })).status).toBe(200);
    },
  );
});

describe('the routes of the admin listener', () => {
  it('the admin routes answer GET and HEAD alike, refuse bodies and other methods, and are listed in a 404', async () => {
    const { askAdmin, exchange } = await startPair(withAdmin);
    for (const path of ['/', '/status', '/metrics', '/livez', '/readyz']) {
      const head = await askAdmin(path, { method: 'HEAD' });
      expect(head.status, path).toBe(200);
      expect(head.body).toHaveLength(0);
      expect(Number(head.headers['content-length'])).toBeGreaterThan(0);
      expect(head.headers['cache-control']).toBe('no-store');
      expect(head.headers['x-content-type-options']).toBe('nosniff');
      const posted = await askAdmin(path, { method: 'POST' });
      expect(posted).toMatchObject({ status: 405, headers: { allow: 'GET, HEAD' } });
      expect(codeOf(await askAdmin(path, { headers: { 'content-length': '1' }, body: 'x' }))).toBe(
        'invalid-request',
      );
    }
    const unknown = await askAdmin('/api/analytics/accounts/');
    expect(unknown.status).toBe(404);
    expect(unknown.json()['detail']).toContain('/metrics');
    expect((await askAdmin(String(unknown.json()['type']))).body.toString()).toContain('unknown-operation');
    // And the callers' listener has none of them.
    for (const path of ['/metrics', '/status', '/cache/purge']) {
      expect(await exchange(`GET ${path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`)).toMatch(
        /^HTTP\/1.1 404/,
      );
    }
  });

  it('the admin routes refuse a request of which no URL can be made, as they refuse others', async () => {
    const { askAdmin } = await startPair(withAdmin);
    // Names that a `Host` may have, and no URL.
    for (const [path, host, status] of [
      ['/none', 'localhost:99999', 404],
      ['/status', '1.2.3.4.5', 421],
      ['/status', '999.999.999.999', 421],
      ['//evil.example/status', 'localhost', 404],
    ] as const) {
      for (const method of ['GET', 'TRACE']) {
        const came = await askAdmin(path, { method, headers: { host } });
        expect(came.status, `${method} ${path} for ${host}`).toBe(status);
        expect(came.headers['content-type']).toBe('application/problem+json');
        expect(came.headers['x-request-id']).toBe(came.json()['requestId']);
      }
    }
    expect((await askAdmin('/status', { headers: { host: 'localhost:99999' } })).status).toBe(200);
  });

  it('the admin routes show a page that runs only its own script', async () => {
    const { askAdmin } = await startPair(withAdmin);
    const { headers, body } = await askAdmin('/');
    expect(headers['content-type']).toBe('text/html; charset=utf-8');
    expect(headers['content-security-policy']).toMatch(/default-src 'none'; script-src 'sha256-[^' ]+'; /);
    expect(body.toString()).toContain('<title>Analytics gateway</title>');
  });

  it('the status shows changed settings by name, callers without digests, and why the gateway is not ready', async () => {
    const script = enrol('script');
    const pair = await startWith([script.entry], {
      ...withAdmin,
      UPSTREAM_API_KEY: '',
      UPSTREAM_API_KEY_FROM: 'exec:false',
      CACHE_TTL: '77s',
      CORS_ORIGINS: 'https://a-value.example',
    });
    const status = await statusOf(pair);
    expect(status).toMatchObject({
      ready: false,
      notReady: 'no key is loaded yet',
      key: { loaded: false, source: 'exec:false', fingerprint: null },
      callers: { count: 1, list: [{ name: 'script', tokens: 1, by: ['token'] }] },
      settings: expect.arrayContaining([
        'CACHE_TTL',
        'CORS_ORIGINS',
        'CALLERS_FILE',
        'UPSTREAM_API_KEY_FROM',
      ]),
    });
    expect(status['settings']).not.toContain('RETRY_LIMIT');
    expect(JSON.stringify(status)).not.toContain('a-value');
    expect((await pair.askAdmin('/readyz')).status).toBe(503);
    expect((await scrape(pair)).value(metric('key_loaded'))).toBe(0);
  });
});

describe('secrets of callers', () => {
  it('callers’ tokens and their digests are in no reply of the admin listener', async () => {
    const [script, old] = [enrol('script'), enrol('old')];
    const entry = {
      ...old.entry,
      tokens: (old.entry as { tokens: object[] }).tokens.map((one) => ({
        ...one,
        expires: '2020-01-01T00:00:00Z',
      })),
    };
    const pair = await startWith([script.entry, entry], withAdmin);
    const digests = [script.entry, old.entry].map(
      (one) => (one as { tokens: { sha256: string }[] }).tokens[0]?.sha256 ?? '',
    );
    for (const token of [script.token, old.token]) {
      await pair.ask(accounts, { headers: bearer(token) });
      await pair.ask(`/api/${token}`, { headers: { 'x-api-key': token } });
      await pair.ask(`${accounts}?${token}`, { headers: { 'x-request-id': token } });
    }
    for (const token of [script.token, old.token]) {
      const { askAdmin } = pair;
      // The listener keeps nothing of a request either: the first round sends the token, the second searches for it.
      await adminOutput(pair, token);
      for (const path of ['/metrics', '/status', '/']) {
        const { body, rawHeaders } = await askAdmin(path);
        const text = `${rawHeaders}${body}`;
        expect(formsIn(text, token), path).toEqual([]);
        for (const digest of digests) expect(text).not.toContain(digest.slice(0, 8));
      }
    }
  });
});

describe('the key', () => {
  it('the key is searched for by value in every admin reply, also where a setting holds it by mistake', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'admin-'));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const place = join(folder, standInKey);
    mkdirSync(place, { recursive: true });
    writeFileSync(join(place, 'key'), standInKey);
    const pair = await startPair({
      ...withAdmin,
      UPSTREAM_API_KEY: '',
      UPSTREAM_API_KEY_FROM: `file:${join(place, 'key')}`,
    });
    expect(formsIn(await adminOutput(pair, standInKey), standInKey)).toEqual([]);
    expect((await statusOf(pair))['key']).toMatchObject({ source: expect.stringContaining('[key ') });
  });
});

describe('the admin listener', () => {
  it('the admin listener stays open to the end of a drain, and then closes', async () => {
    const pair = await startPair({ ...withAdmin, SHUTDOWN_GRACE: '4s' });
    pair.standIn.behave({ stallAt: 'before-headers' });
    const stalled = pair.ask(accounts);
    await pair.standIn.received(1);
    const drained = pair.gateway.drain();
    // The callers' listener has closed.
    await expect
      .poll(() =>
        pair.ask('/livez').then(
          () => 'open',
          () => 'closed',
        ),
      )
      .toBe('closed');
    const { value } = await scrape(pair);
    expect(value(metric('ready'))).toBe(0);
    expect(value(metric('requests_in_flight'))).toBe(1);
    expect(await statusOf(pair)).toMatchObject({ ready: false, notReady: 'shutting down' });
    await drained;
    expect((await stalled).status).toBe(503);
    await expect(pair.askAdmin('/metrics')).rejects.toThrow(/ECONNREFUSED/);
  });

  it('no admin listener exists with ADMIN_PORT=off', async () => {
    const { gateway, logText } = await startPair({ ADMIN_PORT: 'off' });
    expect(gateway.adminUrl).toBeUndefined();
    expect(logText()).not.toContain('admin');
  });

  it('the admin listener is named in the log with its address', async () => {
    const { gateway, logLines } = await startPair(withAdmin);
    expect(logLines()).toContainEqual(expect.objectContaining({ adminUrl: gateway.adminUrl }));
  });

  it('an admin port that is taken ends the start with 1, and the setting is named', async (owner) => {
    const port = await takePort();
    const settings = { ...settingsFor('http://127.0.0.1:9/api'), ADMIN_PORT: String(port) };
    const { status, stderr, stdout } = await run(owner, [], { settings });
    expect(status).toBe(1);
    expect(stderr).toContain('choose another ADMIN_PORT');
    expect(stdout).not.toContain('"msg":"listening"');
  });

  it('the admin listener is left out where its default port is taken and no setting names it', async () => {
    const other = createServer();
    // Another process may have it already, which is as good.
    await new Promise<void>((resolve) => {
      other.once('error', () => resolve());
      other.listen(9_091, '127.0.0.1', resolve);
    });
    onTestFinished(() => void other.close());
    const { ask, gateway, logLines } = await startPair({ ADMIN_PORT: '9091' });
    expect((await ask(accounts)).status).toBe(200);
    expect(gateway.adminUrl).toBeUndefined();
    expect(logLines()).toContainEqual(
      expect.objectContaining({ level: 'warn', msg: 'there is no admin listener' }),
    );
  });

  it('the admin listener closes where the start fails because of the callers’ port', async () => {
    const [taken, free] = [await takePort(), await freePort()];
    const environment = {
      ...settingsFor('http://127.0.0.1:9/api'),
      PORT: String(taken),
      ADMIN_PORT: String(free),
      LOG_LEVEL: 'silent',
    };
    await expect(startGateway({ config: readConfig(environment), environment })).rejects.toThrow(ListenError);
    await expect(ask({ host: '127.0.0.1', port: free }, '/livez', {})).rejects.toThrow(/ECONNREFUSED/);
  });
});

describe('the health of the key', () => {
  it('the health of the key shows a rotation and a rejection', async () => {
    const pair = await startPair(withAdmin);
    await pair.ask(accounts);
    const before = await scrape(pair);
    expect(before.value(metric('key_generation'))).toBe(1);
    expect(before.value(metric('key_age_seconds'))).toBeLessThan(60);
    expect(before.value(metric('key_last_accepted_timestamp_seconds'))).toBeGreaterThan(
      Date.now() / 1_000 - 60,
    );
    expect(before.value(metric('key_rejected'))).toBe(0);
    pair.standIn.behave({ status: 401, body: '{}' });
    await pair.ask(`${accounts}?refused`);
    const after = await scrape(pair);
    expect(after.value(metric('key_rejected'))).toBe(1);
    expect(after.value(metric('key_last_rejected_timestamp_seconds'))).toBeGreaterThan(
      Date.now() / 1_000 - 60,
    );
    expect((await statusOf(pair))['key']).toMatchObject({
      rejected: true,
      fingerprint: expect.stringMatching(/^[0-9a-f]{8}$/),
    });
  });

  it('a store that hangs is shown: reads go on with the last good key, one log line says so, and a metric counts it', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'admin-'));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const [hang, key] = [join(folder, 'hang'), join(folder, 'key')];
    writeFileSync(key, standInKey);
    const standIn = await startStandIn();
    onTestFinished(() => standIn.close());
    const product = startProduct(['serve'], {
      settings: {
        UPSTREAM_BASE_URL: standIn.url,
        UPSTREAM_API_KEY_FROM: `exec:sh -c 'test -e ${hang} && exec sleep 600; cat ${key}'`,
        UPSTREAM_API_KEY_REFRESH: '1s',
        UPSTREAM_TIMEOUT: '9s',
        PORT: '0',
        ADMIN_PORT: '0',
      },
      // The ten seconds a command may take pass in two.
      preload: `
        const { setTimeout: set } = globalThis;
        globalThis.setTimeout = (run, ms, ...more) => set(run, ms === 10_000 ? 2_000 : ms, ...more);`,
    });
    const port = Number(new URL(await product.url()).port);
    const adminPort = Number(/"adminUrl":"http:[^"]*:(\d+)"/.exec(product.stdout())?.[1]);
    const askAdmin: TestGateway['askAdmin'] = (path, options = {}) =>
      ask({ host: '127.0.0.1', port: adminPort }, path, options);
    let number = 0;
    /** Goes up each time. */
    const read = async (): Promise<number> =>
      (await ask({ host: '127.0.0.1', port }, `${accounts}?${number++}`, {})).status;
    await expect.poll(read).toBe(200);
    const failures = async () => (await scrape({ askAdmin })).value(metric('key_reload_failures_total')) ?? 0;
    expect(await failures()).toBe(0);

    writeFileSync(hang, '');
    await expect
      .poll(
        async () => {
          expect(await read()).toBe(200);
          return failures();
        },
        { interval: 250 },
      )
      .toBeGreaterThanOrEqual(2);
    const told = product
      .stdout()
      .split('\n')
      .filter((line) => line.includes('"kind":"reload-failed"'));
    expect(told).toHaveLength(1);
    expect(JSON.parse(told[0] ?? '')).toMatchObject({
      level: 'error',
      generation: 1,
      reason: 'exec:sh: the command did not end within 10 s',
    });
    const during = await scrape({ askAdmin });
    expect(during.value(metric('key_reload_failing'))).toBe(1);
    expect(during.value(metric('key_generation'))).toBe(1);
    expect(during.value(metric('ready'))).toBe(1);
    expect((await statusOf({ askAdmin }))['key']).toMatchObject({
      reloadFailure: 'exec:sh: the command did not end within 10 s',
    });
    expect(new Set(standIn.requests.map((request) => request.key))).toEqual(new Set([standInKey]));

    rmSync(hang);
    await expect.poll(async () => (await scrape({ askAdmin })).value(metric('key_reload_failing'))).toBe(0);
    expect(await read()).toBe(200);
    await expect.poll(product.stdout).toContain('"kind":"reload-recovered"');
    product.process.kill('SIGTERM');
    expect(await product.ended).toBe(0);
  });
});

/** A port that is taken until the test's end. */
async function takePort(): Promise<number> {
  const other = createServer();
  await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void other.close());
  return (other.address() as { port: number }).port;
}

async function freePort(): Promise<number> {
  const other = createServer();
  await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
  const { port } = other.address() as { port: number };
  await new Promise((resolve) => other.close(resolve));
  return port;
}
