import { describe, it } from 'vitest';
import { accounts, startPair } from '../support/gateway.ts';

describe.concurrent('a 429 is waited out', () => {
  it('a 429 is waited out for as long as the upstream says, and the caller need not know', async ({
    expect,
    onTestFinished,
  }) => {
    const { ask, standIn, logLines } = await startPair({}, {}, onTestFinished);
    standIn.behave({ status: 429, headers: { 'retry-after': '1' }, body: '{}' }, 1);
    const came = await ask(accounts);
    expect(came.status).toBe(200);
    const [first, second] = standIn.requests;
    expect((second?.at ?? 0) - (first?.at ?? 0)).toBeGreaterThanOrEqual(1_000);
    const line = logLines().find(({ msg }) => msg === 'request');
    expect(line).toMatchObject({ status: 200, attempts: 2, cache: 'miss' });
    expect(line?.['totalMs']).toBeGreaterThanOrEqual(1_000);
    // The wait counts from the answer's receipt; a busy machine may take a moment of it before it begins to wait.
    expect(line?.['waitedMs']).toBeGreaterThan(500);
  });

  it('a 429 is waited out with growing waits where it says nothing', async ({ expect, onTestFinished }) => {
    const { ask, standIn } = await startPair({ RETRY_BASE: '40ms' }, {}, onTestFinished);
    standIn.behave({ status: 429, body: '{}' }, 3);
    expect((await ask(accounts)).status).toBe(200);
    const at = standIn.requests.map((request) => request.at);
    const waits = at.slice(1).map((time, index) => time - (at[index] ?? 0));
    expect(waits).toHaveLength(3);
    expect(waits[0]).toBeGreaterThanOrEqual(40);
    expect(waits[1]).toBeGreaterThanOrEqual(80);
    expect(waits[2]).toBeGreaterThanOrEqual(160);
  });

  it('a 429 is never waited out beyond REQUEST_TIMEOUT: then the refusal is immediate, and its Retry-After true', async ({
    expect,
    onTestFinished,
  }) => {
    // Longer than this test may take: a caller that waited would end it.
    const { ask, standIn } = await startPair({ REQUEST_TIMEOUT: '90s' }, {}, onTestFinished);
    standIn.behave({ status: 429, headers: { 'retry-after': '100' }, body: '{}' });
    const startedMs = performance.now();
    const came = await ask(accounts);
    const tookSeconds = Math.ceil((performance.now() - startedMs) / 1_000);
    expect(came.json()).toMatchObject({ status: 429, code: 'upstream-rate-limited' });
    expect(Number(came.headers['retry-after'])).toBeGreaterThanOrEqual(100 - tookSeconds);
    expect(Number(came.headers['retry-after'])).toBeLessThanOrEqual(150);
    expect(came.headers['proxy-status']).toContain('received-status=429');
    // It holds for all callers: another read is refused without asking.
    expect((await ask('/api/users/api-keys/')).status).toBe(429);
    expect(standIn.requests).toHaveLength(1);
  });
});

describe.concurrent('a limit that the operator tells', () => {
  it('a limit that the operator tells is kept without a 429, retries included and less the reserve, and what cannot wait is told at once', async ({
    expect,
    onTestFinished,
  }) => {
    const { ask, askAdmin, standIn } = await startPair(
      {
        ...{ UPSTREAM_LIMIT: '4/1h,100/1d', UPSTREAM_LIMIT_RESERVE: '25%', CACHE_TTL: '0s' },
        ...{ CACHE_STALE_IF_ERROR: '0s', ADMIN_PORT: '0' },
      },
      {},
      onTestFinished,
    );
    standIn.behave({ status: 503, body: '{}' }, 1);
    expect((await ask(accounts)).status).toBe(200);
    expect((await ask(accounts)).status).toBe(200);
    const came = await ask(accounts);
    expect(came.json()).toMatchObject({ status: 429, code: 'upstream-rate-limited' });
    expect(Number(came.headers['retry-after'])).toBeGreaterThan(3_500);
    expect(Number(came.headers['retry-after'])).toBeLessThanOrEqual(3_600);
    // The upstream has refused nothing.
    expect(came.headers['proxy-status'] ?? '').not.toContain('received-status');
    expect(standIn.requests.map(({ status }) => status)).toEqual([503, 200, 200]);
    const { gate } = (await askAdmin('/status')).json() as {
      gate: { limits: { resetsInSeconds: number }[] };
    };
    expect(gate).toMatchObject({
      state: 'open',
      limits: [
        { window: '1h', limit: 3, used: 3, remaining: 0 },
        { window: '1d', limit: 75, used: 3, remaining: 72 },
      ],
    });
    expect(gate.limits[0]?.resetsInSeconds).toBeGreaterThan(3_500);
    expect(gate.limits[0]?.resetsInSeconds).toBeLessThanOrEqual(3_600);
    const metrics = (await askAdmin('/metrics')).body.toString();
    expect(metrics).toContain('analytics_gateway_upstream_limit_remaining{window="1d"} 72');
    expect(metrics).toContain('analytics_gateway_upstream_limit_window_seconds{window="1d"} 86400\n');
  });
});

describe.concurrent('what the upstream says is left', () => {
  it.for([
    ['known', ''],
    ['added', '-reads'],
  ])(
    'what the upstream says is left closes the gate at nothing, without a 429, in %s fields',
    async ([, end = ''], { expect, onTestFinished }) => {
      const settings = { CACHE_TTL: '0s', UPSTREAM_LIMIT_HEADERS: 'X-RateLimit-Reset-Reads' };
      const { ask, standIn } = await startPair(settings, {}, onTestFinished);
      // A moment, however long this takes: one that moved would say that the fields mean something else.
      const reset = String(Math.ceil(Date.now() / 1_000) + 3_600);
      const fields = (left: number) => ({
        [`x-ratelimit-remaining${end}`]: String(left),
        [`x-ratelimit-reset${end}`]: reset,
      });
      for (const left of [5, 4, 3, 2, 1, 0]) {
        standIn.behave({ headers: fields(left) }, 1);
        expect((await ask(accounts)).status).toBe(200);
      }
      const came = await ask('/api/users/api-keys/');
      expect(came.json()).toMatchObject({ status: 429, code: 'upstream-rate-limited' });
      expect(Number(came.headers['retry-after'])).toBeGreaterThan(3_500);
      expect(standIn.requests).toHaveLength(6);
    },
  );

  it('what the upstream says is left is ignored where it is always the same, and the log says so once', async ({
    expect,
    onTestFinished,
  }) => {
    const { ask, standIn, logLines } = await startPair({ CACHE_TTL: '0s' }, {}, onTestFinished);
    standIn.behave({ headers: { 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '3600' } });
    for (let more = 0; more < 12; more += 1) expect((await ask(accounts)).status).toBe(200);
    const lines = logLines().filter(({ field }) => field === 'x-ratelimit-reset');
    expect(lines.map(({ msg }) => msg)).toEqual([
      'the upstream’s field does not tell what is left of its limit: it is ignored',
    ]);
  });
});

describe.concurrent('every request is answered in time', () => {
  it('a caller waits no longer than it prefers, and another that asked for the same read gets the answer', async ({
    expect,
    onTestFinished,
  }) => {
    const { ask, askAdmin, standIn } = await startPair(
      { ADMIN_PORT: '0', RETRY_LIMIT: '0' },
      {},
      onTestFinished,
    );
    const { promise: until, resolve: release } = Promise.withResolvers<void>();
    standIn.behave({ until });
    const patient = ask(accounts);
    await standIn.received(1);
    const hurried = Array.from({ length: 12 }, () => ask(accounts, { headers: { prefer: 'wait=0' } }));
    for (const came of await Promise.all(hurried)) {
      expect(came.json()).toMatchObject({ status: 504, code: 'upstream-timeout' });
      expect(came.headers['preference-applied']).toBe('wait=0');
    }
    release();
    const { status, headers } = await patient;
    expect(status).toBe(200);
    expect(headers['server-timing']).toMatch(/^cache;desc=miss, upstream;dur=\d+$/);
    expect(standIn.requests).toHaveLength(1);
    expect((await askAdmin('/status')).json()).toMatchObject({
      circuit: { state: 'closed', failuresInARow: 0 },
    });
    // From memory nothing has to be waited for.
    const hit = await ask(accounts, { headers: { prefer: 'wait=0' } });
    expect([hit.status, hit.headers['server-timing']]).toEqual([200, undefined]);
  });

  it('an unreachable upstream becomes a 502', async ({ expect, onTestFinished }) => {
    const { ask, standIn } = await startPair({}, {}, onTestFinished);
    await standIn.refuseConnections(true);
    const came = await ask(accounts);
    expect(came.json()).toMatchObject({ status: 502, code: 'upstream-unreachable' });
    expect(came.headers['proxy-status']).toBe('analytics-gateway; error=connection_refused');
    expect(came.headers['cache-status']).toBe('analytics-gateway; fwd=uri-miss');
    await standIn.refuseConnections(false);
  });
});
