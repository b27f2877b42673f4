import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { type Bucket, fullBucket, putOne, untilFullMs, writtenLimit } from '../../src/callers/bucket.ts';
import { type CallerLimit, makeCaller, makePerson } from '../../src/callers/caller.ts';
import { parseLimits } from '../../src/callers/callers-file.ts';
import { CallerLimits, rateLimitFields, type SharedBuckets } from '../../src/callers/limit.ts';
import { digestOf, mintToken } from '../../src/callers/token.ts';
import { bearer, cleanUp, open, refusal, writeCallers } from '../support/callers-fixture.ts';

beforeEach(() => vi.useFakeTimers());

afterEach(() => {
  vi.useRealTimers();
  cleanUp();
});

const caller = (limit?: CallerLimit, name = 'a') =>
  makeCaller({ name, operations: new Set(), limits: limit === undefined ? [] : [limit] });

/** What `shared-buckets.ts` does in the store, with the latency of a network. */
function sharedBucket(latencyMs: number): SharedBuckets & { away: boolean } {
  const buckets = new Map<string, Bucket>();
  return {
    away: false,
    get inUse() {
      return !this.away;
    },
    async take(name, limit, count) {
      await new Promise((resolve) => setTimeout(resolve, latencyMs / 2));
      const nowMs = performance.now();
      const bucket = buckets.get(name) ?? fullBucket(limit, nowMs);
      const grown = bucket.level + ((nowMs - bucket.atMs) * limit.perSecond) / 1_000;
      const level = Math.min(limit.burst, grown) - count;
      buckets.set(name, { level, atMs: nowMs });
      await new Promise((resolve) => setTimeout(resolve, latencyMs / 2));
      return level;
    },
  };
}

describe("a caller's limit across gateways", () => {
  const spread: Record<string, (turn: number) => number> = {
    'round the gateways': (turn) => turn % 3,
    'to one gateway': () => 0,
    'to one gateway for a second, then to the next': (turn) => Math.floor(turn / 200) % 3,
  };

  it.each(Object.keys(spread))(
    'a caller’s limit across gateways holds within a tenth where its requests go %s',
    async (way) => {
      const shared = sharedBucket(4);
      const gateways = [new CallerLimits(shared), new CallerLimits(shared), new CallerLimits(shared)];
      const a = caller({ perSecond: 20, burst: 10 });
      let passed = 0;
      // 200 requests a second for 30 s.
      for (let turn = 0; turn < 6_000; turn++) {
        await vi.advanceTimersByTimeAsync(5);
        if (gateways[spread[way]?.(turn) ?? 0]?.spend(a)?.ok === true) passed += 1;
      }
      expect(passed).toBeGreaterThan(0.9 * (30 * 20 + 10));
      expect(passed).toBeLessThan(1.1 * (30 * 20 + 10));
    },
  );

  it('a caller’s limit across gateways is that of each gateway alone while the store is away, and holds for all again afterwards', async () => {
    const shared = sharedBucket(4);
    const gateways = [new CallerLimits(shared), new CallerLimits(shared)];
    const a = caller({ perSecond: 10, burst: 1 });
    const passedIn = async (seconds: number): Promise<number> => {
      let passed = 0;
      for (let turn = 0; turn < seconds * 200; turn++) {
        await vi.advanceTimersByTimeAsync(5);
        if (gateways[turn % 2]?.spend(a)?.ok === true) passed += 1;
      }
      return passed;
    };
    shared.away = true;
    expect(await passedIn(10)).toBeGreaterThan(190);
    shared.away = false;
    expect(await passedIn(10)).toBeLessThan(115);
  });

  it('a caller’s limit across gateways tells a caller that has to wait for what others let through for how long', async () => {
    const shared = { inUse: true, take: () => Promise.resolve(-3) };
    const limits = new CallerLimits(shared);
    const a = caller({ perSecond: 2, burst: 5 });
    limits.spend(a);
    await vi.advanceTimersByTimeAsync(40);
    expect(limits.spend(a)).toMatchObject({ ok: false, remaining: 0, retryAfterMs: 2_000 });
  });
});

describe('a bucket', () => {
  const daily = { perSecond: 0, burst: 500, windowMs: 86_400_000 };

  it.each<[CallerLimit, string, number]>([
    [{ perSecond: 2, burst: 5 }, '5/3s', 2_000],
    [{ perSecond: 20, burst: 5 }, '5/1s', 200],
    [daily, '500/1d', 86_399_000],
    [{ ...daily, windowMs: 5_400_000 }, '500/90m', 5_399_000],
    [{ ...daily, windowMs: 7_000 }, '500/7s', 6_000],
  ])('a bucket of the limit %j is written %s, and full again in %i ms', (limit, written, fullMs) => {
    const bucket = { level: limit.burst - 4, atMs: 1_000 };
    expect([writtenLimit(limit), untilFullMs(bucket, limit)]).toEqual([written, fullMs]);
    for (const level of [limit.burst - 3, limit.burst - 2, limit.burst - 1, limit.burst, limit.burst]) {
      putOne(bucket, limit);
      expect(bucket.level).toBe(level);
    }
  });
});

describe("a caller's own limit", () => {
  it("a caller's limit lets a burst through, then as many as come back", () => {
    const limits = new CallerLimits();
    const a = caller({ perSecond: 2, burst: 3 });
    const spend = () => limits.spend(a);
    expect([spend(), spend(), spend()].map((spent) => spent?.remaining)).toEqual([2, 1, 0]);
    expect(spend()).toEqual({
      ok: false,
      limit: a.limits?.[0],
      remaining: 0,
      resetSeconds: 1,
      retryAfterMs: 500,
    });
    vi.advanceTimersByTime(500);
    expect(spend()).toMatchObject({ ok: true, remaining: 0, retryAfterMs: 0 });
    expect(spend()).toMatchObject({ ok: false, retryAfterMs: 500 });
    vi.advanceTimersByTime(3_600_000);
    expect(spend()).toMatchObject({ ok: true, remaining: 2 });
  });

  it('a request that waits exactly as long as Retry-After says passes', () => {
    const limits = new CallerLimits();
    const a = caller({ perSecond: 0.7, burst: 1 });
    limits.spend(a);
    for (let round = 0; round < 50; round++) {
      vi.advanceTimersByTime(limits.spend(a)?.retryAfterMs ?? 0);
      expect(limits.spend(a)?.ok).toBe(true);
    }
  });

  it("a caller's limit is not used up by refused requests", () => {
    const limits = new CallerLimits();
    const a = caller({ perSecond: 1, burst: 1 });
    for (let tries = 0; tries < 100; tries++) limits.spend(a);
    vi.advanceTimersByTime(1_000);
    expect(limits.spend(a)?.ok).toBe(true);
  });

  it('each caller has a limit of its own', () => {
    const limits = new CallerLimits();
    limits.spend(caller({ perSecond: 1, burst: 1 }));
    expect(limits.spend(caller({ perSecond: 1, burst: 1 }, 'b'))?.ok).toBe(true);
  });

  it("a caller's limit survives a new version of the file, and follows its limit", () => {
    const limits = new CallerLimits();
    const wide = caller({ perSecond: 1, burst: 100 });
    limits.spend(wide);
    expect(limits.spend(caller({ perSecond: 1, burst: 2 }))).toMatchObject({ ok: true, remaining: 1 });
    limits.spend(caller({ perSecond: 1, burst: 2 }));
    expect(limits.spend(caller({ perSecond: 1, burst: 2 }))?.ok).toBe(false);
  });

  it("a caller's limit is none where the file gives none", () => {
    expect(new CallerLimits().spend(caller())).toBeUndefined();
  });

  it('the limit is shown in the fields of draft-ietf-httpapi-ratelimit-headers', () => {
    const limits = new CallerLimits();
    const spent = limits.spend(caller({ perSecond: 20, burst: 40 }));
    expect(spent && rateLimitFields(spent)).toEqual({
      ratelimit: '"caller";r=39;t=1',
      'ratelimit-policy': '"caller";q=40;w=2',
    });
  });

  it('the shown reset is at least a second, however soon one more request may come', () => {
    const limits = new CallerLimits();
    const fast = caller({ perSecond: 1_000, burst: 3 });
    const now = vi.spyOn(performance, 'now').mockReturnValue(0);
    limits.spend(fast);
    now.mockReturnValue(0.999999998);
    const spent = limits.spend(fast);
    expect(spent && rateLimitFields(spent).ratelimit).toBe('"caller";r=1;t=1');
  });

  it('the shown reset is never later than Retry-After', () => {
    const limits = new CallerLimits();
    const slow = caller({ perSecond: 0.1, burst: 1 });
    limits.spend(slow);
    const spent = limits.spend(slow);
    expect(spent?.resetSeconds).toBe(Math.ceil((spent?.retryAfterMs ?? 0) / 1000));
  });
});

describe('several limits of one caller', () => {
  const many = (written: string, name = 'a') =>
    makeCaller({ name, operations: new Set(), limits: parseLimits(written) });

  beforeEach(() => vi.setSystemTime(new Date('2026-03-01T23:59:50Z')));

  it('several limits all hold, and Retry-After is as long as the last of them takes', () => {
    const limits = new CallerLimits();
    const a = many('3/1s,5/1d');
    const passed = (count: number) => Array.from({ length: count }, () => limits.spend(a)?.ok);
    expect(passed(4)).toEqual([true, true, true, false]);
    expect(limits.spend(a)).toMatchObject({ remaining: 0, retryAfterMs: 1_000, resetSeconds: 1 });
    vi.advanceTimersByTime(1_000);
    expect(passed(3)).toEqual([true, true, false]);
    expect(limits.spend(a)).toMatchObject({ ok: false, limit: { burst: 5 }, retryAfterMs: 9_000 });
    vi.advanceTimersByTime(8_999);
    expect(limits.spend(a)?.ok).toBe(false);
    vi.advanceTimersByTime(1);
    expect(passed(4)).toEqual([true, true, true, false]);
  });

  it('several limits: one that refuses takes nothing of the others', () => {
    const limits = new CallerLimits();
    const a = many('1/1s,5/1d');
    for (let tries = 0; tries < 100; tries++) limits.spend(a);
    expect(limits.left(a)).toMatchObject([{ remaining: 0 }, { remaining: 4, resetSeconds: 10 }]);
  });

  it('several limits are all shown, the windows of days until midnight UTC', () => {
    const spent = new CallerLimits().spend(many('20/1s,300/15m,5000/1d'));
    expect(spent && rateLimitFields(spent)).toEqual({
      ratelimit: '"20/1s";r=19;t=1, "300/15m";r=299;t=10, "5000/1d";r=4999;t=10',
      'ratelimit-policy': '"20/1s";q=20;w=1, "300/15m";q=300;w=900, "5000/1d";q=5000;w=86400',
    });
  });

  it('several limits follow a new version of the file: what was used of a window stays used', () => {
    const limits = new CallerLimits();
    for (let tries = 0; tries < 4; tries++) limits.spend(many('5/1d'));
    expect(limits.left(many('3/1h,7/1d'))).toMatchObject([{ remaining: 3 }, { remaining: 3 }]);
    expect(limits.left(many('2/1d'))).toMatchObject([{ remaining: 0 }]);
  });

  it('several limits are counted with other gateways, each by itself', async () => {
    const taken: (number | undefined)[][] = [];
    const take = (_: string, { burst, windowMs }: CallerLimit, count: number) => {
      taken.push([burst, windowMs, count]);
      return Promise.resolve(burst === 5 ? 1 : 2);
    };
    const limits = new CallerLimits({ inUse: true, take });
    const a = many('3/1s,5/1d');
    limits.spend(a);
    limits.spend(a);
    await vi.advanceTimersByTimeAsync(40);
    expect(taken).toEqual([
      [3, 1_000, 2],
      [5, 86_400_000, 2],
    ]);
    expect(limits.left(a)).toMatchObject([{ remaining: 2 }, { remaining: 1 }]);
  });
});

describe('the limits of people', () => {
  const staff = makeCaller({ name: 'staff', operations: new Set(), limits: parseLimits('10/1d') });
  const person = (index: number) => makePerson(staff, index.toString(16).padStart(12, '0'));
  const use = (limits: CallerLimits, index: number, requests: number) => {
    for (let one = 0; one < requests; one++) limits.spend(person(index));
  };
  const leftOf = (limits: CallerLimits, index: number) => limits.left(person(index))[0]?.remaining;

  beforeEach(() => vi.setSystemTime(new Date('2026-03-01T12:00:00Z')));

  it('the limits of people are each their own, and not that of the entry', () => {
    const limits = new CallerLimits();
    use(limits, 1, 10);
    expect(limits.spend(person(1))?.ok).toBe(false);
    expect(limits.spend(person(2))).toMatchObject({ ok: true, remaining: 9 });
    expect(limits.spend(staff)).toMatchObject({ ok: true, remaining: 9 });
  });

  it('the limits of people are not reset by a flood of invented people, and those are forgotten', () => {
    const limits = new CallerLimits();
    const real = 50;
    for (let index = 0; index < real; index++) use(limits, index, 9);
    for (let invented = 0; invented < 30_000; invented++) use(limits, real + invented, 1);
    for (let index = 0; index < real; index++) expect(leftOf(limits, index)).toBe(1);
    // The first of the flood are new again: only so many are remembered.
    expect(leftOf(limits, real + 1)).toBe(10);
  });

  it('the limits of people of one entry are not forgotten for those of another', () => {
    const limits = new CallerLimits();
    use(limits, 1, 1);
    const others = makeCaller({ name: 'others', operations: new Set(), limits: parseLimits('10/1d') });
    for (let invented = 0; invented < 10_001; invented++)
      for (let one = 0; one < 2; one++) limits.spend(makePerson(others, String(invented)));
    expect(leftOf(limits, 1)).toBe(9);
  });
});

describe('failed authentications', () => {
  const token = mintToken();
  const file = () => writeCallers([{ name: 'a', tokens: [{ sha256: digestOf(token) }] }]);
  const fail = (authenticator: ReturnType<typeof open>['authenticator'], address: string | undefined) =>
    refusal(() => authenticator.authenticate(bearer(mintToken(), address)));

  it('failed authentications are limited per address, with the time to wait', async () => {
    const { authenticator } = open(file(), { failuresPerMinute: 3 });
    for (let failed = 0; failed < 3; failed++)
      expect((await fail(authenticator, '10.0.0.1')).status).toBe(401);
    const error = await fail(authenticator, '10.0.0.1');
    expect(error).toMatchObject({
      ...{ code: 'caller-rate-limited', status: 429, retryAfterMs: 20_000 },
      detail: 'Too many requests from this address had no valid credential.',
    });
    expect(error.message).toMatch(/^too many failed authentications from this address; this one: .*token/);
    expect((await fail(authenticator, '10.0.0.2')).status).toBe(401);
    vi.advanceTimersByTime(20_000);
    expect((await fail(authenticator, '10.0.0.1')).status).toBe(401);
  });

  it('failed authentications are not limited with 0', async () => {
    const { authenticator } = open(file(), { failuresPerMinute: 0 });
    for (let failed = 0; failed < 500; failed++)
      expect((await fail(authenticator, '10.0.0.1')).status).toBe(401);
  });
});
