import { setTimeout as wait } from 'node:timers/promises';
import { describe, it } from 'vitest';
import { bearer, enrol, startWith } from '../support/callers-files.ts';
import { accounts, startPair } from '../support/gateway.ts';

const once = { CACHE_TTL: '0s', RETRY_LIMIT: '0' };

describe.concurrent('an upstream that is down', () => {
  it('an upstream that is down is not waited for: queued requests end when that is known', async ({
    expect,
    onTestFinished,
  }) => {
    const { ask, standIn } = await startPair(once, {}, onTestFinished);
    // Ten at a time, each failing after 600 ms: a second after the first failure there are some thirty.
    standIn.behave({ status: 503, latencyMs: 600, body: '{}' });
    const all = await Promise.all(Array.from({ length: 100 }, (_, i) => ask(`${accounts}?n=${i}`)));
    const home = all.filter(({ status }) => status === 502);
    expect(home.length).toBe(100 - standIn.requests.length);
    expect(standIn.requests.length).toBeLessThan(60);
    for (const came of home) {
      expect(came.json()['code']).toBe('upstream-unreachable');
      expect(Number(came.headers['retry-after'])).toBeGreaterThanOrEqual(1);
    }
  });

  it('an upstream is not down where one read answers 500: its body passes, and the others are served', async ({
    expect,
    onTestFinished,
  }) => {
    const { ask, standIn } = await startPair(once, {}, onTestFinished);
    const body = '{"detail":"it broke"}';
    standIn.behave(({ target }) => (target.includes('api-keys') ? { status: 500, body } : undefined));
    const broken = '/api/users/api-keys/';
    for (let i = 0; i < 10; i++) {
      const came = await ask(`${broken}?n=${i}`);
      expect([came.status, came.body.toString()]).toEqual([500, body]);
      // The tenth failure is the last, a second after the first.
      if (i === 8) await wait(1100);
    }
    const told = await ask(`${broken}?last`);
    expect([told.status, told.json()['code']]).toEqual([502, 'upstream-unreachable']);
    for (let i = 0; i < 5; i++) expect((await ask(`${accounts}?n=${i}`)).status).toBe(200);
    expect(standIn.requests.filter(({ target }) => target.includes('api-keys'))).toHaveLength(10);
  });

  it('an upstream is not down where one caller’s reads hang: the others are served in every operation', async ({
    expect,
    onTestFinished,
  }) => {
    const operations = ['list-accounts', 'list-api-keys'];
    const [slow, quick] = [enrol('slow'), enrol('quick', { operations })];
    const settings = { ...once, UPSTREAM_TIMEOUT: '300ms' };
    const { ask, standIn } = await startWith([slow.entry, quick.entry], settings, {}, onTestFinished);
    standIn.behave(({ target }) => (target.includes('hang') ? { stallAt: 'before-headers' } : undefined));
    const hang = (round: number) =>
      Array.from({ length: 8 }, (_, i) =>
        ask(`${accounts}?hang=${round}-${i}`, { headers: bearer(slow.token) }),
      );
    for (let round = 0; round < 6; round++) {
      for (const came of await Promise.all(hang(round))) expect(came.status).toBe(504);
    }
    const told = await Promise.all(hang(7));
    expect(told.some(({ headers }) => headers['retry-after'] !== undefined)).toBe(true);
    const paths = ['/api/users/api-keys/?n=', `${accounts}?n=`];
    const others = Array.from({ length: 10 }, (_, n) =>
      ask(`${paths[n % 2]}${n}`, { headers: bearer(quick.token) }),
    );
    expect((await Promise.all(others)).map(({ status }) => status)).toEqual(Array(10).fill(200));
  });
});
