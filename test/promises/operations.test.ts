import { beforeEach, describe, expect, it } from 'vitest';
import { accounts, sharedPair, startPair } from '../support/gateway.ts';
import { standInKey } from '../support/stand-in/stand-in.ts';

describe('an operation becomes exactly the specified read', () => {
  it.each([
    ['/api/analytics/accounts/', '/api/analytics/accounts/'],
    ['/api/analytics/accounts', '/api/analytics/accounts/'],
    ['/api/users/api-keys/', '/api/users/api-keys/'],
    ['/api/users/api-keys', '/api/users/api-keys/'],
    ['/api/analytics/accounts/?b=2&a=1&b=%20', '/api/analytics/accounts/?b=2&a=1&b=%20'],
  ])('the operation %s becomes exactly the specified read %s', async (path, target) => {
    const { ask, standIn } = await startPair();
    const came = await ask(path);
    expect(came.status).toBe(200);
    expect(standIn.requests).toMatchObject([
      { method: 'GET', target, key: standInKey, headers: { accept: 'application/json' } },
    ]);
  });

  it('HEAD is a GET to the upstream whose body stays in the gateway', async () => {
    const { ask, standIn } = await startPair();
    const whole = await ask(accounts);
    const head = await ask(accounts, { method: 'HEAD' });
    expect(head).toMatchObject({ status: 200, body: Buffer.alloc(0) });
    expect(head.headers).toMatchObject({
      'content-length': String(whole.body.length),
      etag: whole.headers.etag,
    });
    expect(standIn.requests.map(({ method }) => method)).toEqual(['GET']);
  });

  it('UPSTREAM_READS adds operations, with parameters', async () => {
    const reads = ['/analytics/posts/', '/analytics/reports/:id/'];
    const { ask, standIn } = await startPair({ UPSTREAM_READS: reads.join(',') }, { reads });
    expect((await ask('/api/analytics/reports/a-1')).status).toBe(200);
    expect((await ask('/api/analytics/posts/')).status).toBe(200);
    expect((await ask('/api/analytics/reports/a%2f1/')).status).toBe(404);
    expect(standIn.requests.map(({ target }) => target)).toEqual([
      '/api/analytics/reports/a-1/',
      '/api/analytics/posts/',
    ]);
  });
});

describe('everything else stays here', () => {
  const shared = sharedPair((atEnd) => startPair({}, {}, atEnd));
  beforeEach(() => shared().standIn.reset());

  // `operations.test.ts` has more.
  it.each([
    '/api',
    '/api/',
    '/api/analytics/',
    '/api//analytics/accounts/',
    '//api/analytics/accounts/',
    '/api/%61nalytics/accounts/',
    '/%2e%2e/api/analytics/accounts/',
    '/API/analytics/accounts/',
    '/x/../api/analytics/accounts/',
    '/api/../api/analytics/accounts/',
    '/apix/analytics/accounts/',
    'http://evil.example/api/analytics/accounts/',
    '*',
    '/api/analytics/accounts/#x',
  ])('a request for the target %s stays in the gateway', async (target) => {
    const { exchange, standIn } = shared();
    const came = await exchange(`GET ${target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`);
    expect(came).toMatch(/^HTTP\/1\.1 (?:404|400|405|421) /);
    if (came.startsWith('HTTP/1.1 404')) expect(came).toContain('"code":"unknown-operation"');
    expect(standIn.requests).toHaveLength(0);
  });

  it.each(['POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'PROPFIND', 'QUERY'])(
    'a request with the method %s stays in the gateway',
    async (method) => {
      const { ask, standIn } = shared();
      const came = await ask(accounts, { method });
      expect(came.status).toBe(405);
      expect(came.headers.allow).toBe('GET, HEAD');
      expect(came.json()).toMatchObject({ code: 'method-not-allowed' });
      expect(standIn.requests).toHaveLength(0);
    },
  );

  it.each(['/livez', '/readyz'])('a probe refuses every other method than GET and HEAD: %s', async (path) => {
    const { ask } = shared();
    for (const method of ['POST', 'OPTIONS', 'TRACE', 'QUERY']) {
      const came = await ask(path, { method });
      expect([came.status, came.headers.allow]).toEqual([405, 'GET, HEAD']);
      expect(came.json()).toMatchObject({ code: 'method-not-allowed' });
    }
  });

  it.each(['api_key=x', 'a=1&X-Api-Key=x', 'APIKEY=x', 'api%5fkey=x', 'api-key'])(
    'a request with the query %s stays in the gateway',
    async (query) => {
      const { ask, standIn, logText } = shared();
      const came = await ask(`${accounts}?${query}hunter2`.replace('api-keyhunter2', 'api-key'));
      expect(came.json()).toMatchObject({ status: 400, code: 'invalid-request' });
      expect(came.body.toString() + logText()).not.toContain('hunter2');
      expect(standIn.requests).toHaveLength(0);
    },
  );

  it('a request with a target over 8 KiB stays in the gateway', async () => {
    const { ask, standIn } = shared();
    expect((await ask(`${accounts}?q=${'x'.repeat(8_200)}`)).json()).toMatchObject({
      status: 414,
      code: 'uri-too-long',
    });
    expect(standIn.requests).toHaveLength(0);
  });

  it.each<[string, Record<string, string>]>([
    ['with a length', { 'content-length': '2' }],
    ['in chunks', { 'transfer-encoding': 'chunked' }],
  ])('a request with a body %s stays in the gateway', async (_name, headers) => {
    const { ask, standIn } = shared();
    const came = await ask(accounts, { headers, body: '{}' });
    expect(came.json()).toMatchObject({ status: 400, code: 'invalid-request' });
    expect(came.headers.connection).toBe('close');
    expect(standIn.requests).toHaveLength(0);
  });

  // Some versions of Node refuse them, others hide those beyond their limit (CVE-2026-58044).
  it.each([101, 102, 150, 3_000])('a request with %i header fields stays in the gateway', async (count) => {
    const { exchange, standIn } = shared();
    for (const path of [accounts, '/livez', '/openapi.json']) {
      const fields = `Host: localhost\r\n${'a:b\r\n'.repeat(count - 1)}`;
      const came = await exchange(`GET ${path} HTTP/1.1\r\n${fields}\r\n`);
      expect(came).toMatch(/^HTTP\/1.1 431 .*\r\n\r\n$/s);
      expect(came).toMatch(/connection: close/i);
    }
    expect(standIn.requests).toHaveLength(0);
  });

  it('a request with a hundred header fields is answered', async () => {
    const { exchange } = shared();
    const came = await exchange(`GET ${accounts} HTTP/1.1\r\nHost: localhost\r\n${'a:b\r\n'.repeat(99)}\r\n`);
    expect(came).toMatch(/^HTTP\/1.1 200 /);
  });

  it('a field beyond the hundredth decides nothing', async () => {
    const { exchange, standIn } = shared();
    const inner = `GET ${accounts}?hidden HTTP/1.1\r\nHost: localhost\r\n\r\n`;
    const filler = 'a:b\r\n'.repeat(100);
    for (const last of [`Content-Length: ${inner.length}`, 'Host: evil.example', 'Transfer-Encoding: gzip']) {
      const came = await exchange(
        `GET ${accounts} HTTP/1.1\r\nHost: localhost\r\n${filler}${last}\r\n\r\n${inner}`,
      );
      expect(came.match(/HTTP\/1.1 \d+/g)).toEqual(['HTTP/1.1 431']);
    }
    expect(standIn.requests).toHaveLength(0);
  });
});
