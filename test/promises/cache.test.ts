import { describe, expect, it } from 'vitest';
import { accounts, startPair } from '../support/gateway.ts';

describe('repeated reads are answered from memory', () => {
  it('repeated reads are answered from memory with their age, for as long as they are fresh', async () => {
    const { ask, gateway, standIn } = await startPair();
    standIn.behave({ headers: { age: '3', 'cache-control': 'max-age=60' } });
    expect((await ask(accounts)).headers['cache-status']).toBe('analytics-gateway; fwd=uri-miss; stored');
    const hit = await ask(accounts);
    expect(gateway.waiting).toBe(0);
    expect(hit.headers['cache-status']).toMatch(/^analytics-gateway; hit; ttl=5[0-7]$/);
    expect(Number(hit.headers.age)).toBeGreaterThanOrEqual(3);
    expect(standIn.requests).toHaveLength(1);
  });

  it('a forwarded field belongs to the key, although the upstream names it in no Vary', async () => {
    const { ask, standIn } = await startPair({ FORWARD_REQUEST_HEADERS: 'x-tenant' });
    standIn.behave((request) => ({ body: JSON.stringify(request.headers['x-tenant'] ?? 'none') }));
    const came = [];
    for (const headers of [{ 'x-tenant': 'a' }, { 'x-tenant': 'b' }, {}, { 'x-tenant': 'a' }]) {
      const { body, headers: fields } = await ask(accounts, { headers });
      came.push([body.toString(), fields['cache-status']?.includes('; hit'), fields.vary]);
    }
    expect(came).toEqual([
      ['"a"', false, 'x-tenant'],
      ['"b"', false, 'x-tenant'],
      ['"none"', false, 'x-tenant'],
      ['"a"', true, 'x-tenant'],
    ]);
    expect(standIn.requests).toHaveLength(3);
  });

  it('a forwarded field that is listed as unkeyed makes answers of their own only where Vary names it', async () => {
    const names = {
      FORWARD_REQUEST_HEADERS: 'x-client, x-tenant',
      FORWARD_REQUEST_HEADERS_UNKEYED: 'x-client',
    };
    const { ask, standIn } = await startPair(names);
    standIn.behave(({ target, headers }) => ({
      headers: target.includes('?vary') ? { vary: 'X-Client' } : {},
      body: JSON.stringify([headers['x-client'], headers['x-tenant']]),
    }));
    const bodies = [];
    for (const path of [accounts, `${accounts}?vary`]) {
      for (const client of ['1', '2']) {
        const headers = { 'x-client': client, 'x-tenant': 'a' };
        bodies.push((await ask(path, { headers })).body.toString());
      }
    }
    expect(bodies).toEqual(['["1","a"]', '["1","a"]', '["1","a"]', '["2","a"]']);
    expect(standIn.requests).toHaveLength(3);
  });
});

describe('what one caller writes into an answer', () => {
  it.each<[string, Record<string, string>]>([
    ['X-Request-ID', { 'x-request-id': 'https://evil.example/' }],
    ['traceparent', { traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' }],
    [
      'tracestate',
      { traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01', tracestate: 'a=</script>' },
    ],
  ])('an answer that repeats the %s of its caller reaches no other caller', async (name, headers) => {
    const { ask, standIn } = await startPair({ CACHE_TTL: '60s', FORWARD_RESPONSE_HEADERS: 'x-echo' });
    const own = headers[name.toLowerCase()] ?? '';
    standIn.behave((request) => {
      const echo = request.headers[name.toLowerCase()];
      const text = typeof echo === 'string' ? echo : 'none';
      return request.target.endsWith('?field')
        ? { headers: { 'x-echo': text } }
        : { body: JSON.stringify(text) };
    });
    for (const path of [accounts, `${accounts}?field`]) {
      const came = await ask(path, { headers });
      expect([came.body.toString(), came.headers['x-echo']].join()).toContain(own.slice(0, 9));
      const other = await ask(path);
      expect(other.headers['cache-status']).toBe('analytics-gateway; fwd=uri-miss; stored');
      expect([other.body.toString(), other.headers['x-echo']].join()).not.toContain(own.slice(0, 9));
    }
  });
});

describe('identical reads in flight share one upstream call', () => {
  it.each([100, 500])('%i callers of one cold read cost one', async (callers) => {
    const { ask, standIn, gateway } = await startPair();
    const held = Promise.withResolvers<void>();
    standIn.behave({ until: held.promise });
    const asked = Array.from({ length: callers }, () => ask(accounts));
    await expect.poll(() => gateway.waiting).toBe(callers);
    held.resolve();
    const came = await Promise.all(asked);
    expect(came.map(({ status }) => status)).toEqual(Array(callers).fill(200));
    expect(new Set(came.map(({ body }) => body.toString())).size).toBe(1);
    expect(standIn.requests).toHaveLength(1);
  });

  it('a caller that leaves does not end a shared read for the others; when all have left it is ended', async () => {
    const { ask, standIn, gateway, logLines } = await startPair();
    const held = Promise.withResolvers<void>();
    standIn.behave({ until: held.promise });
    const leaver = new AbortController();
    const left = ask(accounts, { signal: leaver.signal }).catch((error: Error) => error.name);
    const stays = ask(accounts);
    await expect.poll(() => gateway.waiting).toBe(2);
    leaver.abort();
    expect(await left).toBe('AbortError');
    await expect.poll(() => gateway.waiting).toBe(1);
    held.resolve();
    expect((await stays).status).toBe(200);
    expect(standIn.requests).toHaveLength(1);

    standIn.behave({ stallAt: 'before-headers' });
    const all = new AbortController();
    const leaving = [1, 2].map(() => ask(`${accounts}?all`, { signal: all.signal }).catch(() => 'left'));
    await standIn.received(2);
    await expect.poll(() => gateway.waiting).toBe(2);
    all.abort();
    await Promise.all(leaving);
    await expect.poll(() => standIn.counts.aborted).toBe(1);
    await expect.poll(() => logLines().filter(({ status }) => status === 499).length).toBe(3);
  });
});
