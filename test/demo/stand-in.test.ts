import { connect } from 'node:net';
import { Agent, request } from 'undici';
import { afterEach, describe, expect, it } from 'vitest';
import { type StandIn, type StandInOptions, standInKey, startStandIn } from '../support/stand-in/stand-in.ts';

let standIn: StandIn;
let agent: Agent;

async function start(options: StandInOptions = {}): Promise<void> {
  standIn = await startStandIn(options);
  agent = new Agent({ connections: 1, pipelining: 1 });
}

afterEach(async () => {
  await agent.destroy();
  await standIn.close();
});

async function read(path = '/analytics/accounts/', headers: Record<string, string> = {}, method = 'GET') {
  const answer = await request(standIn.url + path, {
    dispatcher: agent,
    method,
    headers: { 'x-api-key': standInKey, ...headers },
  });
  return { status: answer.statusCode, headers: answer.headers, text: await answer.body.text() };
}

describe('the specified reads', () => {
  it('the specified reads answer 200 with a JSON list for a valid key', async () => {
    await start();
    const accounts = await read();
    expect(accounts.status).toBe(200);
    expect(accounts.headers['content-type']).toBe('application/json');
    expect(JSON.parse(accounts.text)).toHaveLength(15);
    expect(Math.round(accounts.text.length / 102.4) / 10).toBe(3.3);
    const keys = await read('/users/api-keys/');
    expect(keys.status).toBe(200);
    expect(keys.text).not.toContain(standInKey);
  });

  it('the specified reads give the same bytes for the same seed, and others for another', async () => {
    await start({ seed: 7 });
    const first = await read();
    await standIn.close();
    await start({ seed: 7 });
    expect((await read()).text).toBe(first.text);
    await standIn.close();
    await start({ seed: 8 });
    expect((await read()).text).not.toBe(first.text);
  });

  it.each([
    ['GET', '/analytics/accounts'],
    ['GET', '/analytics//accounts/'],
    ['GET', '/analytics/accounts/x/'],
    ['GET', '/Analytics/accounts/'],
    ['GET', '/analytics/%61ccounts/'],
    ['POST', '/analytics/accounts/'],
    ['HEAD', '/analytics/accounts/'],
    ['GET', '/analytics/posts/'],
  ])('no other read than the specified ones is answered: %s %s is 404', async (method, path) => {
    await start();
    const answer = await read(path, {}, method);
    expect(answer.status).toBe(404);
    expect(answer.headers['content-type']).toBe('application/json');
  });

  it('the specified reads take every query but the one to be refused', async () => {
    await start();
    expect((await read('/analytics/accounts/?page=-1&x')).status).toBe(200);
    expect((await read('/analytics/accounts/?a=1&stand-in=invalid')).status).toBe(400);
  });

  it('the specified reads can be more, as UPSTREAM_READS names them', async () => {
    await start({ reads: ['/analytics/posts/', '/analytics/v1.0/:id/'] });
    expect((await read('/analytics/posts/')).status).toBe(200);
    expect((await read('/analytics/v1.0/a1/')).status).toBe(200);
    expect((await read('/analytics/v1x0/a1/')).status).toBe(404);
    expect((await read('/analytics/v1.0/a/1/')).status).toBe(404);
  });
});

describe('the key', () => {
  it.each([
    [{}],
    [{ 'x-api-key': '' }],
    [{ 'x-api-key': 'another' }],
    [{ authorization: `Bearer ${standInKey}` }],
  ])('the key is needed in X-API-Key: %j is 401', async (headers) => {
    await start();
    const answer = await request(`${standIn.url}/analytics/accounts/`, { dispatcher: agent, headers });
    expect(answer.statusCode).toBe(401);
    await answer.body.dump();
  });

  it('the key can be created and revoked', async () => {
    await start({ key: 'the-first-of-two-keys' });
    expect((await read()).status).toBe(401);
    standIn.keys.add(standInKey);
    expect((await read()).status).toBe(200);
    standIn.keys.delete(standInKey);
    expect((await read()).status).toBe(401);
  });

  it('the key of a holder with an insufficient role gives 403', async () => {
    await start({ role: 'insufficient' });
    expect((await read()).status).toBe(403);
  });
});

describe('the limit', () => {
  it('the limit refuses with 429 and Retry-After what is over it, and can be moved', async () => {
    await start({ limit: { perSecond: 0.001, burst: 2, retryAfterSeconds: 3 } });
    expect([(await read()).status, (await read()).status]).toEqual([200, 200]);
    const refused = await read();
    expect(refused.status).toBe(429);
    expect(refused.headers['retry-after']).toBe('3');
    standIn.setLimit({ perSecond: 0.001, burst: 1, retryAfter: 'none' });
    expect((await read()).status).toBe(200);
    expect((await read()).headers['retry-after']).toBeUndefined();
    standIn.setLimit(undefined);
    expect((await read()).status).toBe(200);
    expect(standIn.counts.byStatus).toEqual({ 200: 4, 429: 2 });
  });

  it('the limit is not used by a request without a valid key', async () => {
    await start({ limit: { perSecond: 0.001, burst: 1 } });
    expect((await read(undefined, { 'x-api-key': 'another' })).status).toBe(401);
    expect((await read()).status).toBe(200);
  });
});

describe('validators', () => {
  it('validators answer 304 without a body for the same ETag (RFC 9110 section 13.1.2)', async () => {
    await start({ etag: true, cacheControl: 'max-age=60' });
    const full = await read();
    const etag = String(full.headers['etag']);
    expect(etag).toMatch(/^"[0-9a-f]{16}"$/);
    for (const given of [etag, `W/${etag}`, `"x", ${etag}`, '*']) {
      const answer = await read(undefined, { 'if-none-match': given });
      expect(answer).toMatchObject({
        status: 304,
        text: '',
        headers: { etag, 'cache-control': 'max-age=60' },
      });
    }
    expect((await read(undefined, { 'if-none-match': '"x"' })).status).toBe(200);
  });
});

describe('what was received', () => {
  it('the record of requests is bounded and can be forgotten', async () => {
    await start();
    const socket = connect(Number(new URL(standIn.url).port), '127.0.0.1').resume();
    socket.write('GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n'.repeat(10_001));
    await expect.poll(() => standIn.counts.byStatus).toEqual({ 404: 10_001 });
    socket.destroy();
    expect(standIn.requests).toHaveLength(9_001);
    expect(standIn.counts).toEqual({ total: 10_001, byStatus: { 404: 10_001 }, connections: 1, aborted: 0 });
    standIn.reset();
    expect(standIn.requests).toHaveLength(0);
    expect(standIn.counts).toEqual({ total: 0, byStatus: {}, connections: 0, aborted: 0 });
  });

  it('the record of requests is not kept for benchmarks, but counted', async () => {
    await start({ recordRequests: false });
    await read();
    expect(standIn.requests).toHaveLength(0);
    expect(standIn.counts.total).toBe(1);
  });
});
