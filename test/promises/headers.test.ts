import { describe, expect, it } from 'vitest';
import { accounts, startPair } from '../support/gateway.ts';
import { standInKey } from '../support/stand-in/stand-in.ts';

const traceParent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';

describe('of a caller’s fields only the listed ones go up', () => {
  it('of a caller’s fields never a credential, a cookie or a forwarding field goes up', async () => {
    const { ask, standIn } = await startPair({ FORWARD_REQUEST_HEADERS: 'Accept-Language' });
    await ask(accounts, {
      headers: {
        Authorization: 'Bearer theirs',
        'X-API-Key': 'theirs',
        x_api_key: 'theirs',
        Cookie: 'a=b',
        Forwarded: 'for=1.2.3.4',
        'X-Forwarded-For': '1.2.3.4',
        'X-Forwarded-Host': 'evil.example',
        'X-HTTP-Method-Override': 'DELETE',
        'X-Original-URL': '/api/users/api-keys/',
        Accept: 'text/html',
        'Accept-Encoding': 'gzip',
        'Accept-Language': 'de',
        'User-Agent': 'theirs',
        Range: 'bytes=0-1',
        'If-None-Match': '"x"',
        Via: '1.1 theirs',
        TE: 'trailers',
        Expect: '200-ok',
        'X-Request-ID': 'their-id.1',
        traceparent: traceParent,
        tracestate: 'a=b',
        Connection: 'close, x-api-key, accept, via',
      },
    });
    const [request] = standIn.requests;
    const { host: _host, connection: _connection, 'user-agent': agent, ...fields } = request?.headers ?? {};
    expect(fields).toEqual({
      accept: 'application/json',
      'accept-encoding': 'identity',
      'accept-language': 'de',
      via: '1.1 analytics-gateway',
      'x-api-key': standInKey,
      'x-request-id': 'their-id.1',
      traceparent: traceParent,
      tracestate: 'a=b',
    });
    expect(agent).toMatch(/^workspace-analytics-gateway\//);
  });

  it.each(['constructor', 'toString', '__proto__', 'hasOwnProperty'])(
    'a field that is named like what every object inherits (%s) is that of the caller or none',
    async (name) => {
      const { ask, standIn } = await startPair({
        FORWARD_REQUEST_HEADERS: name,
        FORWARD_RESPONSE_HEADERS: name,
      });
      expect((await ask(accounts)).status).toBe(200);
      expect(Object.keys(standIn.requests[0]?.headers ?? {})).not.toContain(name.toLowerCase());
      if (name === '__proto__') return;
      standIn.behave({ headers: { [name]: 'theirs' } });
      const came = await ask(`${accounts}?2`, { headers: { [name]: 'ours' } });
      expect([came.status, came.headers[name.toLowerCase()]]).toEqual([200, 'theirs']);
      expect(standIn.requests[1]?.headers).toHaveProperty(name.toLowerCase(), 'ours');
    },
  );
});

describe('a caller’s Connection', () => {
  it('fields that a caller’s Connection names do not go up (RFC 9110 section 7.6.1)', async () => {
    const { ask, standIn } = await startPair({ FORWARD_REQUEST_HEADERS: 'X-One, X-Two' });
    const named = { connection: 'keep-alive, X-One ,traceparent' };
    await ask(accounts, { headers: { ...named, 'x-one': '1', 'x-two': '2', traceparent: traceParent } });
    const [request] = standIn.requests;
    expect(request?.headers).toMatchObject({ 'x-two': '2' });
    expect(request?.headers).not.toHaveProperty('x-one');
    expect(request?.headers).not.toHaveProperty('traceparent');
    const ids = { traceparent: traceParent, tracestate: 'vendor=1' };
    await ask(`${accounts}?state`, { headers: { connection: 'keep-alive, TraceState', ...ids } });
    expect(standIn.requests[1]?.headers).toMatchObject({ traceparent: traceParent });
    expect(standIn.requests[1]?.headers).not.toHaveProperty('tracestate');
  });
});

describe('of the upstream’s fields only the listed ones come down', () => {
  it('of the upstream’s fields only the listed ones come down, with the gateway’s own beside them', async () => {
    const { ask, standIn } = await startPair({ FORWARD_RESPONSE_HEADERS: 'X-Total-Count' });
    standIn.behave({
      headers: {
        'content-language': 'de',
        'last-modified': 'Sat, 21 Nov 2026 08:00:00 GMT',
        etag: '"v1"',
        'x-total-count': '7',
        'set-cookie': ['a=b', 'c=d'],
        server: 'secret-server/1.0',
        'x-powered-by': 'x',
        link: '<https://upstream.example/next>; rel=next',
        'x-ratelimit-remaining': '5',
        ratelimit: '"x";r=5;t=1',
        'keep-alive': 'timeout=3',
        'access-control-allow-origin': '*',
        'content-security-policy': 'default-src *',
        'cache-control': 'public, max-age=60',
        expires: 'Sat, 21 Nov 2099 08:00:00 GMT',
        via: '1.1 upstream',
        'strict-transport-security': 'max-age=1',
      },
    });
    const came = await ask(accounts, { headers: { 'x-request-id': 'r-1' } });
    // An age of a second, where the upstream's clock ticked meanwhile.
    const {
      date: _date,
      age: _age,
      'content-length': _length,
      connection: _connection,
      'keep-alive': _keepAlive,
      ...fields
    } = came.headers;
    expect(fields).toEqual({
      'server-timing': expect.stringMatching(/^cache;desc=miss, upstream;dur=\d+$/),
      'content-type': 'application/json',
      'content-language': 'de',
      'last-modified': 'Sat, 21 Nov 2026 08:00:00 GMT',
      etag: '"v1"',
      'x-total-count': '7',
      'cache-control': 'private, no-cache',
      'cache-status': 'analytics-gateway; fwd=uri-miss; stored',
      vary: 'accept-encoding',
      via: '1.1 analytics-gateway',
      'x-request-id': 'r-1',
      'x-content-type-options': 'nosniff',
      'content-security-policy': "default-src 'none'; frame-ancestors 'none'; sandbox",
      'cross-origin-resource-policy': 'same-origin',
    });
  });

  it('CALLER_CACHE_CONTROL=upstream passes the upstream’s caching fields on', async () => {
    const { ask, standIn } = await startPair({ CALLER_CACHE_CONTROL: 'upstream' });
    standIn.behave({
      headers: { 'cache-control': 'public, max-age=60', expires: 'Sat, 21 Nov 2099 08:00:00 GMT' },
    });
    expect((await ask(accounts)).headers).toMatchObject({
      'cache-control': 'public, max-age=60',
      expires: 'Sat, 21 Nov 2099 08:00:00 GMT',
    });
  });

  it('CALLER_CACHE_CONTROL=upstream passes on the age that an answer would lose with its date', async () => {
    const { ask, standIn } = await startPair({ CALLER_CACHE_CONTROL: 'upstream' });
    standIn.behave({
      headers: { 'cache-control': 'max-age=60', date: new Date(Date.now() - 20_000).toUTCString() },
    });
    expect((await ask(accounts)).headers.age).toMatch(/^2[0-9]$/);
  });

  it('fields that the upstream’s Connection names do not come down, whatever FORWARD_RESPONSE_HEADERS says (RFC 9110 section 7.6.1)', async () => {
    const { ask, standIn } = await startPair({ FORWARD_RESPONSE_HEADERS: 'X-One, X-Two' });
    standIn.behave({
      headers: {
        connection: 'keep-alive, X-One, last-modified, Vary, etag',
        'x-one': '1',
        'x-two': '2',
        'last-modified': 'Sat, 21 Nov 2026 08:00:00 GMT',
        vary: 'Accept-Language',
        etag: '"hop"',
      },
    });
    for (const _ of ['fetched', 'stored']) {
      const { headers } = await ask(accounts);
      expect(headers).toMatchObject({ 'x-two': '2', vary: 'accept-encoding' });
      expect(headers).not.toHaveProperty('x-one');
      expect(headers).not.toHaveProperty('last-modified');
      expect(headers.etag).not.toBe('"hop"');
    }
  });

  it.each<[string, (now: number) => string | undefined, number]>([
    ['the upstream’s Date', (now) => new Date(now - 20_000).toUTCString(), 20],
    ['the time of receipt for an invalid Date', () => 'now', 0],
    ['the time of receipt for no Date', () => undefined, 0],
  ])('an answer leaves with %s, fetched and stored alike', async (_, date, ageSeconds) => {
    const { ask, standIn } = await startPair({ CALLER_CACHE_CONTROL: 'upstream' });
    const now = Math.floor(Date.now() / 1000) * 1000;
    standIn.behave({
      headers: {
        date: date(now),
        'cache-control': 'max-age=600',
        expires: new Date(now + 580_000).toUTCString(),
      },
    });
    const fetched = await ask(accounts);
    const sentAt = Date.parse(fetched.headers.date ?? '');
    // The exchange may cross a second or two on a busy machine.
    expect(Math.abs(sentAt - (now - ageSeconds * 1000))).toBeLessThanOrEqual(ageSeconds > 0 ? 0 : 30_000);
    await new Promise((resolve) => setTimeout(resolve, 1_100));
    const askedAt = Date.now();
    const stored = await ask(accounts);
    expect(stored.headers['cache-status']).toMatch(/; hit;/);
    expect(stored.headers.date).toBe(fetched.headers.date);
    // What a caller computes from Date is the age that it is told.
    const age = Number(stored.headers.age);
    expect(age).toBeGreaterThanOrEqual(Math.floor((askedAt - sentAt) / 1000) - 1);
    expect(age).toBeLessThanOrEqual((Date.now() - sentAt) / 1000 + 1);
    expect(await ask(accounts, { method: 'HEAD' })).toMatchObject({
      headers: { date: fetched.headers.date },
    });
    const confirmed = await ask(accounts, { headers: { 'if-none-match': String(fetched.headers.etag) } });
    expect(confirmed).toMatchObject({ status: 304, headers: { date: fetched.headers.date } });
  });

  it.each([400, 403, 404, 410, 500])(
    'a %i of the upstream passes with its body, marked as the upstream’s',
    async (status) => {
      const { ask, standIn } = await startPair({ RETRY_LIMIT: '0' });
      standIn.behave({ status, headers: { 'content-type': 'text/html' }, body: '<script>alert(1)</script>' });
      const came = await ask(accounts);
      expect(came.status).toBe(status);
      expect(came.body.toString()).toBe('<script>alert(1)</script>');
      expect(came.headers['proxy-status']).toBe(`analytics-gateway; received-status=${status}`);
      expect(came.headers['x-content-type-options']).toBe('nosniff');
      expect(came.headers['content-security-policy']).toContain('sandbox');
    },
  );
});

describe('a request has one id everywhere', () => {
  it('a request has the caller’s own id everywhere, where it is fit', async () => {
    const { ask, standIn, logLines } = await startPair();
    const came = await ask(accounts, { headers: { 'x-request-id': 'abc-123' } });
    expect(came.headers['x-request-id']).toBe('abc-123');
    expect(standIn.requests[0]?.headers['x-request-id']).toBe('abc-123');
    expect(logLines()).toContainEqual(expect.objectContaining({ requestId: 'abc-123', status: 200 }));
  });

  it.each(['', 'a b', 'x'.repeat(200), '<script>', standInKey])(
    'a request has an id of the gateway everywhere, and none of another request, where the caller’s %j is not fit',
    async (id) => {
      const { ask } = await startPair();
      const came = await ask(accounts, { headers: { 'x-request-id': id } });
      expect(came.headers['x-request-id']).toMatch(/^[\w-]{16,32}$/);
      expect(came.headers['x-request-id']).not.toBe(id);
      const other = await ask(accounts, { headers: { 'x-request-id': id } });
      expect(other.headers['x-request-id']).not.toBe(came.headers['x-request-id']);
    },
  );
});
