import { randomUUID } from 'node:crypto';
import { describe, expect, it, vi } from 'vitest';
import { bearer, enrol, writeCallersFile } from '../support/callers-files.ts';
import { type FleetMember, startFleet, usesStore } from '../support/fleet.ts';
import { accounts } from '../support/gateway.ts';
import { redisProgram } from '../support/redis.ts';

const statusOf = async (member: FleetMember, path = accounts, headers: Record<string, string> = {}) => {
  const came = await member.ask(path, { headers });
  return [came.status, came.headers['cache-status']] as const;
};

function only<T>(list: readonly T[], index: number): T {
  const one = list[index];
  if (one === undefined) throw new Error(`there is no gateway ${index}`);
  return one;
}

/** What comes for certain, but on a busy machine late. */
const patiently = { timeout: 60_000 };

describe.skipIf(redisProgram === undefined)('gateways that share a store', () => {
  it('gateways that share a store make one upstream call for a read that 500 callers of three gateways make at once', async () => {
    const { members, standIn } = await startFleet(3, { REQUEST_TIMEOUT: '25s' });
    const { promise: until, resolve: answer } = Promise.withResolvers<void>();
    standIn.behave({ until, headers: { 'cache-control': 'max-age=60' } });
    const asked = Array.from({ length: 500 }, (_, index) => statusOf(only(members, index % 3)));
    await vi.waitFor(
      () => expect(members.reduce((sum, { gateway }) => sum + gateway.waiting, 0)).toBe(500),
      patiently,
    );
    answer();
    const came = await Promise.all(asked);
    expect(new Set(came.map(([status]) => status))).toEqual(new Set([200]));
    expect(standIn.requests).toHaveLength(1);
    // The two that waited have it in memory now.
    for (const member of members)
      expect((await statusOf(member))[1]).toMatch(/^analytics-gateway; hit; ttl=/);
    expect(standIn.requests).toHaveLength(1);
  });

  it('gateways that share a store give an answer of one at all, with its age and the freshness that is left, and keep it in memory', async () => {
    const { members, standIn, redis } = await startFleet(2);
    standIn.behave({ headers: { age: '7', 'cache-control': 'max-age=60' } });
    const [first, second] = [only(members, 0), only(members, 1)];
    const original = await first.ask(accounts);
    await vi.waitFor(async () => expect((await first.sharedStore()).reads.exchanges).toBe(1), patiently);
    // The turn is given back, or other gateways would wait for it.
    await vi.waitFor(async () => expect(await redis.command('KEYS', '*:turn:*')).toBe(''), patiently);
    const found = await second.ask(accounts);
    expect(found.body).toEqual(original.body);
    expect(found.headers['cache-status']).toMatch(
      /^analytics-gateway; hit; ttl=(?:[0-4]\d|5[0-3]); detail=shared-store$/,
    );
    expect(Number(found.headers.age)).toBeGreaterThanOrEqual(7);
    const calls = (await second.sharedStore()).reads;
    expect((await statusOf(second))[1]).toMatch(/^analytics-gateway; hit; ttl=\d+$/);
    expect((await second.sharedStore()).reads).toEqual(calls);
    expect(standIn.requests).toHaveLength(1);
  });

  it('gateways that share a store share no answer between requests that differ in a forwarded field, and none that repeats an id of its caller', async () => {
    const { members, standIn } = await startFleet(2, {
      FORWARD_REQUEST_HEADERS: 'x-tenant',
      CACHE_TTL: '60s',
    });
    standIn.behave(({ headers }) => ({
      body: JSON.stringify([headers['x-tenant'], headers['x-request-id']]),
    }));
    const bodies: string[] = [];
    for (const tenant of ['a', 'b']) {
      for (const member of members) {
        const headers = { 'x-tenant': tenant, 'x-request-id': `request-${bodies.length}` };
        bodies.push((await member.ask(accounts, { headers })).body.toString());
      }
    }
    expect(bodies).toEqual(['a', 'a', 'b', 'b'].map((tenant, at) => `["${tenant}","request-${at}"]`));
    expect(standIn.requests).toHaveLength(4);
  });

  it('gateways that share a store no longer give an answer of it once a caller that reloads has had a newer one, although that one must be validated each time', async () => {
    const { members, standIn, redis } = await startFleet(3);
    const [first, second, third] = [only(members, 0), only(members, 1), only(members, 2)];
    const outcomeIsGone = () =>
      vi.waitFor(async () => expect(await redis.command('KEYS', '*:outcome:*')).toBe(''), patiently);
    standIn.behave({ headers: { 'cache-control': 'max-age=600' }, body: '"first"' });
    await statusOf(first);
    await outcomeIsGone();
    standIn.behave({ headers: { 'cache-control': 'no-cache', etag: '"2"' }, body: '"second"' });
    await statusOf(second, accounts, { 'cache-control': 'no-cache' });
    await outcomeIsGone();
    expect((await third.ask(accounts)).body.toString()).toBe('"second"');
  });

  it('gateways that share a store keep nothing in the store of a read whose caller says no-store, nor of an answer above 1 MiB', async () => {
    const { members, standIn, redis } = await startFleet(2, { CACHE_TTL: '60s' });
    const [first, second] = [only(members, 0), only(members, 1)];
    await statusOf(first, accounts, { 'cache-control': 'no-store' });
    await vi.waitFor(async () => expect(await redis.command('KEYS', '*:turn:*')).toBe(''), patiently);
    expect((await redis.command('KEYS', '*:answer:*')) + (await redis.command('KEYS', '*:outcome:*'))).toBe(
      '',
    );
    standIn.behave({ body: { bytes: 2 ** 20 + 1 } });
    await statusOf(first, `${accounts}?large`);
    await vi.waitFor(async () => expect(await redis.command('KEYS', '*:answer:*')).not.toBe(''), patiently);
    expect(Number(await redis.command('STRLEN', await redis.command('KEYS', '*:answer:*')))).toBeLessThan(
      1_000,
    );
    expect((await statusOf(second, `${accounts}?large`))[1]).toContain('fwd=uri-miss');
    expect(standIn.requests).toHaveLength(3);
  });

  it('gateways that share a store revalidate what another gateway stored, with its validators', async () => {
    const { members, standIn } = await startFleet(
      2,
      { CACHE_STALE_WHILE_REVALIDATE: '0s' },
      { etag: true, cacheControl: 'max-age=1' },
    );
    await statusOf(only(members, 0));
    await new Promise((resolve) => setTimeout(resolve, 1_100));
    expect((await statusOf(only(members, 1)))[1]).toContain('fwd-status=304');
    expect(standIn.counts.byStatus).toEqual({ 200: 1, 304: 1 });
  });

  it('gateways that share a store forget an answer that one of them purges, in memory and in the store, also a gateway that comes later', async () => {
    const { members, standIn, add } = await startFleet(2, { CACHE_TTL: '60s' });
    for (const member of members) await statusOf(member);
    expect(standIn.requests).toHaveLength(1);
    await only(members, 0).askAdmin('/cache/purge', { method: 'POST' });
    await vi.waitFor(async () =>
      expect((await statusOf(only(members, 1)))[1]).not.toMatch(/; hit; ttl=\d+$/),
    );
    await vi.waitFor(() => expect(standIn.requests).toHaveLength(2), patiently);
    await only(members, 0).askAdmin('/cache/purge?operation=list-accounts', { method: 'POST' });
    await vi.waitFor(async () => {
      const late = await add();
      expect((await statusOf(late))[1]).toContain('fwd=uri-miss');
    }, patiently);
    expect(standIn.requests).toHaveLength(3);
  });

  it('gateways that share a store forget an answer that one of them purges, however many purges of other names were written into the store', async () => {
    const { members, redis } = await startFleet(2, { CACHE_TTL: '60s' });
    for (const member of members) await statusOf(member);
    const others = Array.from({ length: 1_000 }, (_, index) => [`other-${index}`, randomUUID()]);
    await redis.command('HSET', 'analytics-gateway:purges', ...others.flat());
    // Each gateway has read them once it has said again that it is there, once a second.
    const { calls } = await only(members, 1).sharedStore();
    await vi.waitFor(
      async () => expect((await only(members, 1).sharedStore()).calls).toBeGreaterThan(calls + 2),
      patiently,
    );
    await only(members, 0).askAdmin('/cache/purge', { method: 'POST' });
    await vi.waitFor(
      async () => expect((await statusOf(only(members, 1)))[1]).not.toMatch(/; hit; ttl=\d+$/),
      { timeout: 5_000 },
    );
  });

  it('gateways that share a store take back no purge that they know, whatever earlier one is named in the store again', async () => {
    const { members, standIn, redis } = await startFleet(2, { CACHE_TTL: '60s' });
    const purges = 'analytics-gateway:purges';
    const purge = () => only(members, 0).askAdmin('/cache/purge', { method: 'POST' });
    const textOf = async (place: number) => (await only(members, place).ask(accounts)).body.toString();
    const named = async () => (await redis.command('HGET', purges, '*')).trim();
    await purge();
    await vi.waitFor(async () => expect(await named()).toMatch(/^\d+-/), patiently);
    const first = await named();
    standIn.behave({ body: '{"is":"purged"}' });
    expect(await textOf(0)).toBe('{"is":"purged"}');
    const answer = async () =>
      (await redis.command('KEYS', '*:answer:*')).split('\n').find((name) => name.includes(':answer:')) ?? '';
    await vi.waitFor(async () => expect(await answer()).not.toBe(''), patiently);
    const name = await answer();
    await redis.command('COPY', name, 'kept');
    standIn.behave({ body: '{"is":"new"}' });
    await purge();
    await vi.waitFor(async () => expect(await named()).not.toBe(first), patiently);
    const second = await named();
    // Also the other one knows it now.
    await vi.waitFor(async () => expect(await textOf(1)).toBe('{"is":"new"}'), patiently);
    for (const place of [0, 1]) {
      // Memory is emptied at both, and the store goes back to how it was.
      await purge();
      await vi.waitFor(async () => expect(await named()).not.toBe(second), patiently);
      await redis.command('COPY', 'kept', name, 'REPLACE');
      await redis.command('HSET', purges, '*', first);
      expect(await textOf(place)).toBe('{"is":"new"}');
    }
    await vi.waitFor(async () => expect(await named()).not.toBe(first), patiently);
  });

  it('gateways that share a store leave nothing in the store that tells of a query or an answer, and believe nothing that was written into it', async () => {
    const { members, standIn, redis } = await startFleet(2, { CACHE_TTL: '60s' });
    standIn.behave({ body: '{"secret":"of the upstream"}' });
    await statusOf(only(members, 0), `${accounts}?workspace=hidden`);
    const names = async () => (await redis.command('KEYS', '*')).split('\n');
    await vi.waitFor(
      async () => expect((await names()).some((name) => name.includes(':answer:'))).toBe(true),
      patiently,
    );
    const name = (await names()).find((one) => one.includes(':answer:')) ?? '';
    const all = (await names()).join() + (await redis.command('GET', name));
    for (const word of ['hidden', 'of the upstream', 'accounts']) expect(all).not.toContain(word);
    await redis.command('SET', name, '{"secret":"of a stranger"}');
    const came = await only(members, 1).ask(`${accounts}?workspace=hidden`);
    expect(came.body.toString()).toBe('{"secret":"of the upstream"}');
    expect(standIn.requests).toHaveLength(2);
  });

  it('gateways that share a store hold a caller within its own limit together, whatever another program wrote under the name of its bucket', async () => {
    const limit = { perSecond: 20, burst: 5 };
    const { token, entry } = enrol('a', { operations: ['list-accounts'], limit });
    const file = writeCallersFile([entry]);
    const { members, redis } = await startFleet(3, { CALLERS_FILE: file, CACHE_TTL: '60s' });
    const startedMs = performance.now();
    let passed = 0;
    for (let round = 0; performance.now() - startedMs < 4_000; round++) {
      const came = await Promise.all(members.map((member) => statusOf(member, accounts, bearer(token))));
      passed += came.filter(([status]) => status === 200).length;
      // Three times as often as it may.
      await new Promise((resolve) => setTimeout(resolve, 50));
      if (round !== 5) continue;
      const name = await redis.command('KEYS', '*:limit:*');
      expect(name).not.toBe('');
      await redis.command('SET', name, '-1e300 1 unsigned');
    }
    const allowed = limit.burst + ((performance.now() - startedMs) * limit.perSecond) / 1_000;
    // What the other program wrote changes nothing. At the end one may be on its way at each gateway.
    expect(passed).toBeGreaterThan(limit.burst * 4);
    expect(passed).toBeLessThanOrEqual(1.1 * allowed + members.length);
  });

  it('gateways that share a store know of each other, and of one that has left', async () => {
    const { members, add, redis } = await startFleet(2);
    const third = await add();
    const known = async () => (await only(members, 0).sharedStore()).gateways.length;
    await vi.waitFor(async () => expect(await known()).toBe(3));
    const left = (await third.sharedStore()).gateways.find(({ isThis }) => isThis)?.id ?? '';
    await third.gateway.drain();
    // It says so itself: one that has died is forgotten only after three seconds.
    expect(await redis.command('EXISTS', `analytics-gateway:gateway:${left}`)).toBe('0');
    await vi.waitFor(async () => expect(await known()).toBe(2));
    const { gateways } = await only(members, 0).sharedStore();
    expect(gateways.filter(({ isThis }) => isThis)).toHaveLength(1);
    const metrics = (await only(members, 0).askAdmin('/metrics')).body.toString();
    expect(metrics).toContain('analytics_gateway_shared_store_in_use 1');
    expect(metrics).toContain('analytics_gateway_shared_store_gateways 2');
  });
});

describe.skipIf(redisProgram === undefined)('a gateway whose shared store', () => {
  const usualMs = 50;
  const each = async (members: readonly FleetMember[], path: string) =>
    Promise.all(members.map(async (member) => (await statusOf(member, path))[0]));

  it('a gateway whose shared store is killed answers as one that is alone, and shares again when the store returns', async () => {
    const { members, standIn, redis } = await startFleet(2, { CACHE_TTL: '60s' }, {}, usualMs);
    await redis.kill();
    expect(await each(members, `${accounts}?a`)).toEqual([200, 200]);
    await Promise.all(members.map((member) => usesStore(member, false)));
    expect(await each(members, `${accounts}?b`)).toEqual([200, 200]);
    expect(standIn.requests).toHaveLength(4);
    expect(only(members, 0).logText()).toContain('the shared store is away; this gateway goes on alone');
    await redis.start();
    await Promise.all(members.map((member) => usesStore(member)));
    await vi.waitFor(async () => {
      const path = `${accounts}?c=${Math.random()}`;
      await only(members, 0).ask(path);
      expect((await statusOf(only(members, 1), path))[1]).toContain('shared-store');
    }, patiently);
  });

  it('a shared store that was away while answers were purged does not bring them back', async () => {
    const { members, standIn, redis } = await startFleet(2, { CACHE_TTL: '60s' }, {}, usualMs);
    const [first, second] = [only(members, 0), only(members, 1)];
    await first.ask(accounts);
    await vi.waitFor(async () => expect((await first.sharedStore()).reads.exchanges).toBe(1), patiently);
    redis.freeze();
    await usesStore(first, false);
    await first.askAdmin('/cache/purge', { method: 'POST' });
    redis.thaw();
    await Promise.all(members.map((member) => usesStore(member)));
    await vi.waitFor(
      async () => expect(await redis.command('HGETALL', 'analytics-gateway:purges')).toContain('*'),
      patiently,
    );
    const before = standIn.requests.length;
    expect((await statusOf(second))[1]).not.toContain('shared-store');
    expect(standIn.requests.length).toBeGreaterThan(before);
  });

  it('a gateway whose shared store is full, or holds data of another kind under our names, answers all the same', async () => {
    const { members, redis } = await startFleet(2);
    await redis.command('CONFIG', 'SET', 'maxmemory', '1');
    expect(await each(members, `${accounts}?a`)).toEqual([200, 200]);
    expect((await only(members, 0).sharedStore()).reason).toBe('OOM');
    await redis.command('CONFIG', 'SET', 'maxmemory', '0');
    await redis.command('DEL', 'analytics-gateway:purges');
    await redis.command('LPUSH', 'analytics-gateway:purges', 'x');
    expect(await each(members, `${accounts}?b`)).toEqual([200, 200]);
  });

  it('a request that waits for a turn which another gateway took and never gave back waits for less than its life', async () => {
    const { members, standIn, redis } = await startFleet(2, { CACHE_TTL: '0s' });
    await statusOf(only(members, 0));
    // Another gateway dies: its turn has a name that is known from one that is taken now.
    const { promise: until, resolve: answer } = Promise.withResolvers<void>();
    standIn.behave({ until });
    const asked = statusOf(only(members, 0));
    const turn = () => redis.command('KEYS', '*:turn:*');
    await vi.waitFor(async () => expect(await turn()).not.toBe(''), patiently);
    const name = await turn();
    answer();
    await asked;
    await redis.command('SET', name, randomUUID(), 'PX', '700');
    expect((await statusOf(only(members, 1)))[0]).toBe(200);
    // One without an end was not taken by a gateway, and delays no request.
    await redis.command('SET', name, randomUUID());
    expect((await statusOf(only(members, 1)))[0]).toBe(200);
  });

  it('a gateway whose shared store is not reached at the start starts and answers', async () => {
    const { redis, add, standIn, members } = await startFleet(0);
    await redis.kill();
    const starting = add();
    await vi.waitFor(() => expect(members).toHaveLength(1), patiently);
    expect((await statusOf(only(members, 0), `${accounts}?early`))[0]).toBe(200);
    await redis.start();
    const member = await starting;
    expect((await statusOf(member))[0]).toBe(200);
    expect(standIn.requests).toHaveLength(2);
  });
});
