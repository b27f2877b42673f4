/**
 * A machine's clock that is set, forward and back, while the gateway runs (libfaketime; the clock that cannot be set goes
 * on). What ends at a date is judged by the date; what lasts so long, by time that passed.
 */
import { globSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { exportJWK, generateKeyPair, SignJWT } from 'jose';
import { redisProgram } from '../../test/support/redis.ts';
import { freePort, startProgram } from '../process.ts';
import { startPair } from './pair.ts';
import { accounts, expectAll, expectThat, type Subject, startSubject } from './subject.ts';
import { packageVersion, Suite } from './suite.ts';

const [library] = globSync('/usr/lib/*/faketime/libfaketimeMT.so.1');
if (library === undefined) throw new Error('libfaketimeMT.so.1 is missing (apt-get install faketime)');
const version = packageVersion('libfaketime');
const suite = new Suite('libfaketime: the gateway’s clock', version);

const issuerName = 'https://login.example.com';
const { privateKey, publicKey } = await generateKeyPair('ES256', { extractable: true });
const jwk = { ...(await exportJWK(publicKey)), kid: 'one', alg: 'ES256', use: 'sig' };
const issuer = createServer((_request, response) => void response.end(JSON.stringify({ keys: [jwk] })));
await new Promise<void>((resolve) => issuer.listen(0, '127.0.0.1', resolve));
const jwks = `http://127.0.0.1:${(issuer.address() as AddressInfo).port}/keys`;

const nowSeconds = Math.floor(Date.now() / 1_000);
const signJwt = (fromSeconds: number, toSeconds: number): Promise<string> =>
  new SignJWT({
    ...{ iss: issuerName, aud: 'gateway', email: 'ann@example.com' },
    ...{ nbf: nowSeconds + fromSeconds, exp: nowSeconds + toSeconds },
  })
    .setProtectedHeader({ alg: 'ES256', kid: 'one' })
    .sign(privateKey);

const staff = { issuer: issuerName, audience: 'gateway', jwks, match: { email: '*@example.com' } };
const callers = [
  { name: 'staff', jwt: staff },
  { name: 'all', anonymous: true, limits: ['30/1h'] },
];

interface Clock {
  readonly subject: Subject;
  /** Sets the clock, so many seconds from the true time. */
  set(seconds: number): Promise<void>;
}

async function startWithClock(): Promise<Clock> {
  let offsetFile = '';
  const subject = await startSubject({
    async prepare(folder) {
      offsetFile = join(folder, 'offset');
      writeFileSync(offsetFile, '+0');
      const file = join(folder, 'callers.json');
      writeFileSync(file, JSON.stringify({ callers }));
      return {
        CALLERS_FILE: file,
        CACHE_TTL: '30s',
        ...clockFrom(offsetFile),
      };
    },
  });
  return { subject, set: (seconds) => setClock(offsetFile, seconds) };
}

/** The environment of a program whose clock is as far from the true one as a file says. */
const clockFrom = (offsetFile: string): Record<string, string> => ({
  LD_PRELOAD: library ?? '',
  FAKETIME_TIMESTAMP_FILE: offsetFile,
  FAKETIME_NO_CACHE: '1',
  FAKETIME_DONT_FAKE_MONOTONIC: '1',
  NO_FAKE_STAT: '1',
});

async function setClock(offsetFile: string, seconds: number): Promise<void> {
  writeFileSync(offsetFile, seconds < 0 ? String(seconds) : `+${seconds}`);
  await sleep(300);
}

const hour = 3_600;
const now = await signJwt(-60, 300);
const later = await signJwt(hour - 60, hour + 300);

await suite.try('a JWT is good between its dates, whichever way the clock goes', async () => {
  const { subject, set } = await startWithClock();
  for (const [offset, nowIs, laterIs] of [
    [0, 200, 401],
    [hour, 401, 200],
    [-hour, 401, 401],
    [0, 200, 401],
  ] as const) {
    await set(offset);
    expectAll(await subject.ask(2, { token: now }), nowIs);
    expectAll(await subject.ask(2, { token: later }), laterIs);
  }
  await subject.stop();
});

await suite.try('a stored answer stays as old as it is, and ends no sooner and no later', async () => {
  const { subject, set } = await startWithClock();
  const path = '/api/analytics/accounts/?stored';
  const ageAfter = async (): Promise<string> => {
    const { headers } = await fetch(`http://127.0.0.1:${subject.gateway.port}${path}`);
    return `${headers.get('cache-status')?.split(';')[1]?.trim()} ${Number(headers.get('age')) < 20}`;
  };
  await ageAfter();
  for (const offset of [hour, -hour, -24 * hour, 10 * 365 * 24 * hour, 0]) {
    await set(offset);
    const found = await ageAfter();
    expectThat(found === 'hit true', `at ${offset} s: ${found}`);
  }
  await subject.stop();
});

await suite.try(
  'a caller’s window limits are its own again after each jump: none locks it out for long',
  async () => {
    const { subject, set } = await startWithClock();
    expectThat((await subject.ask(31)).includes(429), 'the limit does not hold');
    for (const offset of [24 * hour, -24 * hour]) {
      await set(offset);
      expectAll(await subject.ask(5), 200);
    }
    await subject.stop();
  },
);

await suite.try('uptime and the key’s age are what passed', async () => {
  const { subject, set } = await startWithClock();
  for (const offset of [hour, -hour, 10 * 365 * 24 * hour]) {
    await set(offset);
    for (const path of [['uptimeSeconds'], ['key', 'ageSeconds']]) {
      const seconds = Number(await subject.status(...path));
      expectThat(seconds >= 0 && seconds < 60, `${path.join('.')} at ${offset} s: ${seconds}`);
    }
  }
  await subject.stop();
});

await suite.try('a key is rotated, and it stops, while the clock stands an hour back', async () => {
  const { subject, set } = await startWithClock();
  await set(-hour);
  const fresh = 'fresh-key-8c41b2f07e93';
  writeFileSync(subject.keyFile, fresh);
  subject.standIn.keys.clear();
  subject.standIn.keys.add(fresh);
  expectAll(await subject.ask(10), 200);
  subject.standIn.behave({ latencyMs: 300 });
  const asked = subject.ask(5, { atOnce: 5 });
  await sleep(150);
  await set(hour);
  const stopped = subject.stop();
  expectAll(await asked, 200);
  await stopped;
});

suite.end();
issuer.close();
issuer.closeAllConnections();

const storeFolder = mkdtempSync(join(tmpdir(), 'gateway-prove-'));
const offsetFile = join(storeFolder, 'offset');
writeFileSync(offsetFile, '+0');
const storePort = await freePort();
const store = await startProgram({
  command: redisProgram ?? '',
  args: ['--port', String(storePort), '--bind', '127.0.0.1', '--save', ''],
  // Its own jemalloc and libfaketime end each other: glibc's memory takes its place.
  env: { ...clockFrom(offsetFile), LD_PRELOAD: `${library} libc.so.6` },
  speaks: false,
});
const jumps = [hour, -hour, 10 * 365 * 24 * hour, 0];
const shared = new Suite('libfaketime: the shared store’s clock', version);
const storeAddress = `redis://127.0.0.1:${storePort}`;

await shared.try('two gateways share answers again after each jump, as old as they are', async () => {
  const pair = await startPair(storeAddress);
  await pair.untilShared();
  for (const offset of jumps) {
    await setClock(offsetFile, offset);
    for (const { ask } of [pair.one, pair.two]) expectAll(await ask(50, { atOnce: 8 }), 200);
    // What time it is there each learns within a few heartbeats.
    await sleep(6_000);
    await pair.untilShared();
    const path = `${accounts}?aged=${offset}`;
    const ages: number[] = [];
    for (const { gateway } of [pair.one, pair.two]) {
      await sleep(1_100);
      const { headers } = await fetch(`http://127.0.0.1:${gateway.port}${path}`);
      ages.push(Number(headers.get('age')));
    }
    expectThat(ages[1] !== undefined && ages[1] >= 1 && ages[1] < 20, `ages at ${offset} s: ${ages.join()}`);
  }
  await pair.stop();
});

await shared.try(
  'a told limit is held together through each jump, and every read goes up in its turn',
  async () => {
    const pair = await startPair(storeAddress, { settings: { UPSTREAM_LIMIT: '20/1s', CACHE_TTL: '0s' } });
    await pair.untilLed();
    for (const offset of jumps) {
      const asked = [pair.one, pair.two].map(({ ask }) => ask(60, { atOnce: 6 }));
      await sleep(1_000);
      await setClock(offsetFile, offset);
      for (const got of await Promise.all(asked)) expectAll(got, 200);
    }
    const times = pair.one.standIn.requests.map(({ at }) => at);
    const most = Math.max(
      ...times.map((from) => times.filter((at) => at >= from && at < from + 1_000).length),
    );
    expectThat(most <= 20, `${most} reads went up in a second`);
    await pair.stop();
  },
);

await shared.try('the lead is taken over while the clock stands an hour back', async () => {
  const pair = await startPair(storeAddress, { settings: { UPSTREAM_LIMIT: '20/1s', CACHE_TTL: '0s' } });
  await pair.untilLed();
  await setClock(offsetFile, -hour);
  await pair.two.stop();
  expectAll(await pair.one.ask(60, { atOnce: 6 }), 200);
  await pair.one.stop();
});
shared.end();
await store.end();
rmSync(storeFolder, { recursive: true });
// A case that failed leaves its gateways.
process.exit();
