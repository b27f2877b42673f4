import { writeFileSync } from 'node:fs';
import { afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { CallersFileError } from '../../src/callers/callers-file.ts';
import { digestOf, mintToken } from '../../src/callers/token.ts';
import { ConfigError, readConfig } from '../../src/config/config.ts';
import { problems } from '../../src/errors.ts';
import { startGateway } from '../../src/gateway/gateway.ts';
import { bearer, enrol, startWith, textOf, writeCallersFile } from '../support/callers-files.ts';
import { accounts, ask as askWhere, type Came, sharedPair, startPair } from '../support/gateway.ts';
import {
  audience,
  issuerName,
  makeSigningKey,
  type SigningKey,
  signJwt,
  startIssuer,
} from '../support/issuer.ts';
import { sendRaw } from '../support/raw-request.ts';
import { standInKey } from '../support/stand-in/stand-in.ts';

const apiKeys = '/api/users/api-keys/';

/** The whole of what an unrecognised caller may learn: nothing in it depends on what was asked for. */
const refused = {
  type: '/problems/caller-unauthenticated',
  title: 'The gateway does not know this caller',
  detail: problems['caller-unauthenticated'].help,
  status: 401,
  code: 'caller-unauthenticated',
  requestId: expect.any(String),
};

const stranger = mintToken();

/** However many failures come from one address. */
const unlimited = { CALLER_FAILURES_PER_MINUTE: '0' };

/** For what is promised to come, but not when. */
const patient = { timeout: 60_000 };
/** For what is promised within a second. A machine that was busy elsewhere for as long gets another try. */
const withinASecond = { timeout: 1_000, interval: 100 };
const retry = 2;

describe('without a valid credential everything under /api is 401, and nothing is asked of the upstream', () => {
  const shared = sharedPair((atEnd) => startWith([enrol('script').entry], unlimited, {}, atEnd));
  beforeEach(() => shared().standIn.reset());

  it.each([
    '/api',
    '/api/',
    accounts,
    apiKeys,
    '/api/analytics/accounts',
    '/api/nothing/here',
    '/api/analytics/accounts/../../secret',
    '/api/%2e%2e/readyz',
    '/api//analytics/accounts/',
    '/api/analytics/accounts/%00',
    '/api/analytics\\accounts/',
    '/api/?',
    `${accounts}?api_key=x`,
    `${accounts}#fragment`,
    `/api/${'x'.repeat(9_000)}`,
    'http://localhost/api/analytics/accounts/',
    'http://evil.example/api/analytics/accounts/',
    'https://evil.example/api/readyz',
  ])('a request without a valid credential is refused with 401 for the target %s', async (target) => {
    const pair = shared();
    for (const lines of [[], [`Authorization: Bearer ${stranger}`], [`X-API-Key: ${stranger}`]]) {
      const came = await sendRaw(pair, target, { lines });
      expect(came.status).toBe(401);
      expect(JSON.parse(came.body)).toEqual(refused);
      expect(Object.keys(came.fields).sort()).toEqual([
        'cache-control',
        'connection',
        'content-length',
        'content-security-policy',
        'content-type',
        'cross-origin-resource-policy',
        'date',
        'via',
        'www-authenticate',
        'x-content-type-options',
        'x-request-id',
      ]);
    }
    expect(pair.standIn.requests).toHaveLength(0);
  });

  it.each(['POST', 'PUT', 'DELETE', 'OPTIONS', 'TRACE', 'QUERY', 'HEAD'])(
    'a request without a valid credential is refused with 401 for the method %s',
    async (method) => {
      const { ask, standIn } = shared();
      for (const path of [accounts, '/api/nothing']) {
        const came = await ask(path, { method });
        expect(came.status).toBe(401);
        if (method !== 'HEAD') expect(came.json()).toEqual(refused);
      }
      expect(standIn.requests).toHaveLength(0);
    },
  );

  it('a request without a valid credential is refused with 401 before any other reason', async () => {
    const { ask, standIn } = shared();
    const bodied = { method: 'POST', headers: { 'content-length': '2' }, body: '{}' };
    for (const options of [bodied, { headers: { 'cache-control': 'only-if-cached' } }]) {
      expect((await ask(accounts, options)).json()).toEqual(refused);
    }
    expect(standIn.requests).toHaveLength(0);
  });

  it('a request without a valid credential is refused with 401 where the answer is stored', async () => {
    const { token, entry } = enrol('script');
    const { ask, standIn } = await startWith([entry]);
    const first = await ask(accounts, { headers: bearer(token) });
    const hit = await ask(accounts, { headers: bearer(token) });
    expect(hit.headers['cache-status']).toContain('; hit');
    for (const headers of [{}, bearer(stranger), { 'if-none-match': first.headers.etag ?? '' }]) {
      const came = await ask(accounts, { headers });
      expect(came.json()).toEqual(refused);
      for (const name of ['cache-status', 'age', 'etag']) expect(came.headers).not.toHaveProperty(name);
    }
    expect(standIn.requests).toHaveLength(1);
  });

  it('a request without a valid credential is refused with 401 while the answer is on its way to another caller', async () => {
    const { token, entry } = enrol('script');
    const { ask, standIn, gateway } = await startWith([entry]);
    let release = (): void => {};
    standIn.behave({ until: new Promise<void>((resolve) => (release = resolve)) });
    const flight = ask(accounts, { headers: bearer(token) });
    await standIn.received(1);
    expect((await ask(accounts)).json()).toEqual(refused);
    expect((await ask(accounts, { headers: bearer(stranger) })).json()).toEqual(refused);
    expect(gateway.waiting).toBe(1);
    release();
    expect((await flight).status).toBe(200);
    expect(standIn.requests).toHaveLength(1);
  });
});

describe('whatever is wrong with a credential, the caller is told the same and the log knows more', () => {
  const expired = mintToken();
  const { token, entry } = enrol('script');
  const old = { name: 'old', tokens: [{ sha256: digestOf(expired), expires: '2026-01-01T00:00:00Z' }] };
  const shared = sharedPair((atEnd) => startWith([entry, old], unlimited, {}, atEnd));
  beforeEach(() => shared().standIn.reset());

  // Three of many, which `callers/credential.test.ts` has.
  it.each<[string, string, RegExp]>([
    ['unknown', stranger, /unknown token/],
    ['expired', expired, /^an expired token \([0-9a-f]{8}\) of old$/],
    ['cut', token.slice(0, -1), /damaged token/],
    ['the upstream’s key', standInKey, /Authorization is not|unknown credential/],
  ])(
    'a caller learns nothing of what is wrong with its credential, and the log knows: %s',
    async (_name, value, reason) => {
      const { ask, logLines, logText } = shared();
      const came = await ask(accounts, { headers: { authorization: `Bearer ${value}` } });
      expect(came.json()).toEqual(refused);
      expect(came.headers['www-authenticate']).toBe(
        'Bearer realm="analytics-gateway", error="invalid_token"',
      );
      const line = logLines().findLast(({ problem }) => problem !== undefined);
      expect(line).toMatchObject({
        status: 401,
        problem: 'caller-unauthenticated',
        reason: expect.stringMatching(reason),
      });
      expect(line).not.toHaveProperty('caller');
      if (value.length > 10) expect(logText()).not.toContain(value);
    },
  );
});

describe('a request has one credential', () => {
  const { token, entry } = enrol('script');
  const shared = sharedPair((atEnd) => startWith([entry], unlimited, {}, atEnd));
  beforeEach(() => shared().standIn.reset());

  it.each([
    ['Authorization', [`Authorization: Bearer ${token}`]],
    ['X-API-Key, as a script for the upstream has it', [`X-API-Key: ${token}`]],
    ['the same one in both', [`X-API-Key: ${token}`, `Authorization: Bearer ${token}`]],
  ])('a credential in %s is accepted, and never goes up', async (_name, lines) => {
    const pair = await startWith([entry]);
    expect((await sendRaw(pair, accounts, { lines })).status).toBe(200);
    const [request] = pair.standIn.requests;
    expect(request?.key).toBe(standInKey);
    expect(request?.headers).not.toHaveProperty('authorization');
    expect(JSON.stringify(request)).not.toContain(token);
    expect(pair.logText()).not.toContain(token);
  });

  it.each([
    ['two different ones', [`Authorization: Bearer ${token}`, `X-API-Key: ${stranger}`]],
    ['X-API-Key sent twice', [`X-API-Key: ${token}`, `x-api-key: ${token}`]],
    ['X_API_KEY', [`X_API_KEY: ${token}`]],
    ['a cookie', [`Cookie: token=${token}; X-API-Key=${token}`]],
    ['Authorization as a trailer announces it', ['TE: trailers', 'Trailer: Authorization']],
  ])('a request has one credential, so not: %s', async (_name, lines) => {
    const pair = shared();
    const came = await sendRaw(pair, accounts, { lines });
    expect(came.status).toBe(401);
    expect(JSON.parse(came.body)).toEqual(refused);
    expect(pair.standIn.requests).toHaveLength(0);
    expect(pair.logText()).not.toContain(token);
  });

  it('a credential folded over two lines is refused before there is a request', async () => {
    const pair = await startWith([entry]);
    const came = await sendRaw(pair, accounts, { lines: ['Authorization: Bearer', ` ${token}`] });
    expect([400, 401]).toContain(came.status);
    expect(pair.standIn.requests).toHaveLength(0);
    expect(pair.logText()).not.toContain(token);
  });
});

describe('a caller does what it was granted', () => {
  it('a caller may do list-api-keys only where it is granted by name, also when the answer is stored', async () => {
    const plain = enrol('plain');
    const granted = enrol('granted', { operations: ['list-api-keys'] });
    const { ask, standIn, logLines } = await startWith([plain.entry, granted.entry]);
    expect((await ask(apiKeys, { headers: bearer(granted.token) })).status).toBe(200);
    const came = await ask(apiKeys, { headers: { ...bearer(plain.token), 'x-request-id': 'r-plain' } });
    expect(came.json()).toMatchObject({ status: 403, code: 'caller-forbidden' });
    expect(came.headers).not.toHaveProperty('cache-status');
    expect((await ask(accounts, { headers: bearer(granted.token) })).status).toBe(403);
    expect((await ask(accounts, { headers: bearer(plain.token) })).status).toBe(200);
    expect(standIn.requests.map(({ target }) => target)).toEqual([apiKeys, accounts]);
    expect(logLines()).toContainEqual(
      expect.objectContaining({
        requestId: 'r-plain',
        caller: 'plain',
        by: 'token',
        operation: 'list-api-keys',
        status: 403,
        problem: 'caller-forbidden',
        reason: 'not granted: list-api-keys',
      }),
    );
  });
});

describe('a caller whose rules are not enforced', () => {
  const rules = { limits: ['2/1d'], enforce: false };
  const tried = enrol('tried', rules);
  const held = enrol('held', { ...rules, enforce: true });

  it('a caller whose rules are not enforced passes where it would be refused, and the log and a count say so', async () => {
    const { ask, logLines } = await startWith([tried.entry, held.entry]);
    const statuses = async (token: string) => [
      (await ask(accounts, { headers: bearer(token) })).status,
      (await ask(apiKeys, { headers: bearer(token) })).status,
      (await ask(apiKeys, { headers: bearer(token) })).status,
    ];
    expect(await statuses(held.token)).toEqual([200, 403, 429]);
    expect(await statuses(tried.token)).toEqual([200, 200, 200]);
    const lines = logLines().filter(({ caller }) => caller === 'tried');
    expect(lines.map(({ would, problem }) => [would, problem])).toEqual([
      [undefined, undefined],
      ['caller-forbidden', undefined],
      ['caller-rate-limited caller-forbidden', undefined],
    ]);
    // What is no read of a gateway passes in no case.
    expect((await ask('/api/nothing', { headers: bearer(tried.token) })).status).toBe(404);
    expect((await ask(accounts, { headers: bearer(tried.token), method: 'POST' })).status).toBe(405);
  });
});

describe('a caller’s own limit', () => {
  const limited = enrol('limited', { limit: { perSecond: 0.01, burst: 6 } });
  const free = enrol('free');

  it('a caller’s own limit is in every reply, and ends in 429 with Retry-After, for this caller alone', async () => {
    const { ask, standIn, logLines } = await startWith([limited.entry, free.entry]);
    const etag = (await ask(accounts, { headers: bearer(free.token) })).headers.etag ?? '';
    const headers = bearer(limited.token);
    const statuses: [number, string | string[] | undefined][] = [];
    const note = (came: Came): Came => {
      statuses.push([came.status, came.headers['ratelimit']]);
      expect(came.headers['ratelimit-policy']).toBe('"caller";q=6;w=600');
      return came;
    };
    note(await ask(accounts, { headers }));
    note(await ask(accounts, { headers: { ...headers, 'if-none-match': etag } }));
    note(await ask(accounts, { headers, method: 'HEAD' }));
    note(await ask(accounts, { headers, method: 'DELETE' }));
    note(await ask('/api/nothing', { headers }));
    note(await ask(apiKeys, { headers }));
    const came = note(await ask(accounts, { headers }));
    expect(statuses).toEqual([
      [200, '"caller";r=5;t=100'],
      [304, '"caller";r=4;t=100'],
      [200, '"caller";r=3;t=100'],
      [405, '"caller";r=2;t=100'],
      [404, '"caller";r=1;t=100'],
      [403, '"caller";r=0;t=100'],
      [429, '"caller";r=0;t=100'],
    ]);
    expect(came.headers['retry-after']).toBe('100');
    expect(came.json()).toMatchObject({ status: 429, code: 'caller-rate-limited', retryAfter: 100 });
    const other = await ask(accounts, { headers: bearer(free.token) });
    expect(other.status).toBe(200);
    expect(other.headers).not.toHaveProperty('ratelimit');
    expect(standIn.requests).toHaveLength(1);
    expect(logLines()).toContainEqual(
      expect.objectContaining({
        caller: 'limited',
        by: 'token',
        status: 429,
        problem: 'caller-rate-limited',
      }),
    );
  });
});

describe('failures are limited per address', () => {
  it('failures are limited per address without harm to callers behind the same one', async () => {
    const { token, entry } = enrol('script');
    const { ask, port, logLines } = await startWith([entry], { CALLER_FAILURES_PER_MINUTE: '3' });
    const statuses = [];
    const sent = [bearer(stranger), {}, { 'x-api-key': 'x' }, bearer(stranger), bearer(stranger), {}, {}, {}];
    for (const headers of sent) {
      statuses.push((await ask(accounts, { headers })).status);
      expect((await ask(accounts, { headers: bearer(token) })).status).toBe(200);
    }
    // Three of each kind: bad tokens use up nothing of those that send none.
    expect(statuses).toEqual([401, 401, 401, 401, 429, 401, 401, 429]);
    const came = await ask('/api/nothing');
    expect(came.json()).toMatchObject({
      status: 429,
      code: 'caller-rate-limited',
      detail: 'Too many requests from this address had no valid credential.',
    });
    expect(Number(came.headers['retry-after'])).toBeGreaterThan(0);
    expect(Number(came.headers['retry-after'])).toBeLessThanOrEqual(20);
    expect(logLines().at(-1)?.['reason']).toMatch(/^too many failed authentications .* no credential$/);
    if (process.platform === 'linux') {
      const elsewhere = { host: '127.0.0.1', port, localAddress: '127.0.0.2' };
      expect((await askWhere(elsewhere, accounts, {})).status).toBe(401);
    }
  });
});

describe('a new version of the callers file is in force within a second', () => {
  const first = enrol('first');
  const second = enrol('second');

  it('a revoked token is refused, also for a stored answer', { retry }, async () => {
    const { ask, file, standIn } = await startWith([first.entry]);
    expect((await ask(accounts, { headers: bearer(first.token) })).status).toBe(200);
    writeFileSync(file, textOf([second.entry]));
    await expect
      .poll(async () => (await ask(accounts, { headers: bearer(first.token) })).status, withinASecond)
      .toBe(401);
    expect((await ask(accounts, { headers: bearer(second.token) })).status).toBe(200);
    expect(standIn.requests).toHaveLength(1);
  });

  it('a version of the callers file with a problem is refused loudly, and the one before stays', async () => {
    const { ask, file, logLines, logText } = await startWith([first.entry]);
    writeFileSync(
      file,
      textOf([
        { ...first.entry, tokens: [{ sha256: 'nope' }] },
        { name: 'x', anonymous: true, limitt: {} },
      ]),
    );
    await expect.poll(() => logText(), patient).toContain('the new version of the callers file is refused');
    const line = logLines().find(({ problems }) => problems !== undefined);
    expect(line?.['level']).toBe('error');
    expect(line?.['problems']).toEqual([
      expect.stringMatching(/^\/.*\.json: callers\[0\]\.tokens\[0\]\.sha256: /),
      expect.stringMatching(/^\/.*\.json: callers\[1\]\.limitt: .*did you mean/),
    ]);
    expect((await ask(accounts, { headers: bearer(first.token) })).status).toBe(200);
  });

  it('a new version of the callers file is in force at once after SIGHUP', async () => {
    const { gateway, logText } = await startWith([first.entry]);
    await gateway.reload();
    await expect.poll(() => logText(), patient).toContain('the callers file was read again');
  });

  it('a token is replaced without a gap by a second one, and the log says when the older is used', async () => {
    const older = mintToken();
    const newer = mintToken();
    const tokens = [{ sha256: digestOf(older) }, { sha256: digestOf(newer) }];
    const { ask, logLines } = await startWith([{ name: 'script', tokens }]);
    for (const token of [newer, older]) {
      expect((await ask(accounts, { headers: bearer(token) })).status).toBe(200);
    }
    const notes = logLines().flatMap(({ note }) => (note === undefined ? [] : [note]));
    expect(notes).toEqual([`an older token (${digestOf(older).slice(0, 8)}) is still used`]);
  });
});

describe('a company login', () => {
  let one: SigningKey;
  beforeAll(async () => {
    one = await makeSigningKey('one');
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  const rule = (jwks: string) => ({ issuer: issuerName, audience, jwks, match: { email: '*@example.com' } });

  async function startStaff(keys = [one]) {
    const issuer = await startIssuer(keys.map(({ jwk }) => jwk));
    return { issuer, ...(await startWith([{ name: 'staff', jwt: rule(issuer.jwks) }])) };
  }

  it('a company login is a caller, and stays one without asking the issuer again', async () => {
    const { ask, issuer, standIn, logLines, logText } = await startStaff();
    const jwt = await signJwt(one);
    for (let round = 0; round < 3; round++) {
      expect((await ask(accounts, { headers: bearer(jwt) })).status).toBe(200);
    }
    expect((await ask(apiKeys, { headers: bearer(jwt) })).status).toBe(403);
    expect(issuer.asked).toBe(1);
    expect(standIn.requests).toHaveLength(1);
    expect(JSON.stringify(standIn.requests)).not.toContain(jwt.split('.')[2]);
    expect(logLines().filter(({ caller, by }) => caller === 'staff' && by === 'jwt')).toHaveLength(4);
    for (const part of jwt.split('.')) expect(logText()).not.toContain(part);
    expect(logText()).not.toContain('ann@');
  });

  it('a company login has a line in the log when its keys cannot be fetched, and when they can be again', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    const { ask, issuer, logLines } = await startStaff();
    const headers = bearer(await signJwt(one));
    expect((await ask(accounts, { headers })).status).toBe(200);
    const about = () => logLines().filter(({ address }) => address === issuer.jwks);
    for (const [status, lines] of [
      [503, 1],
      [200, 2],
    ] as const) {
      issuer.status = status;
      vi.advanceTimersByTime(11 * 60_000);
      expect((await ask(accounts, { headers })).status).toBe(200);
      await expect.poll(about).toHaveLength(lines);
    }
    expect(about()).toMatchObject([
      { level: 'warn', err: { message: expect.stringContaining('503') } },
      { level: 'info' },
    ]);
  });
});

/** What is wrong where a gateway does not start; empty where it does. */
async function startFailure(settings: Record<string, string>): Promise<string> {
  const environment = {
    UPSTREAM_BASE_URL: 'http://127.0.0.1:9/api',
    UPSTREAM_API_KEY: standInKey,
    PORT: '0',
    ADMIN_PORT: 'off',
    LOG_LEVEL: 'silent',
    ...settings,
  };
  try {
    const gateway = await startGateway({ config: readConfig(environment), environment });
    await gateway.drain();
    return '';
  } catch (error) {
    if (error instanceof ConfigError || error instanceof CallersFileError) return error.problems.join('\n');
    throw error;
  }
}

describe('no credential goes up', () => {
  it('the gateway does not start where JWTs come in a field that goes up', async () => {
    const jwt = {
      issuer: issuerName,
      audience,
      jwks: 'http://127.0.0.1:9/keys',
      match: { sub: '*' },
      header: 'X-Team',
    };
    const settings = { CALLERS_FILE: writeCallersFile([{ name: 'staff', jwt }]) };
    expect(await startFailure(settings)).toBe('');
    expect(await startFailure({ ...settings, FORWARD_REQUEST_HEADERS: 'Accept-Language, x-team' })).toMatch(
      /\.json: callers\[0\]\.jwt\.header: goes up/,
    );
  });
});

describe('a request without credential', () => {
  const { token, entry } = enrol('script', { operations: ['list-accounts', 'list-api-keys'] });
  const sidecar = { name: 'sidecar', anonymous: true };

  it('a request without credential is from the anonymous caller where the file has one; a credential that fails never is', async () => {
    const { ask, standIn, logLines } = await startWith([entry, sidecar]);
    expect((await ask(accounts)).status).toBe(200);
    expect((await ask(apiKeys)).status).toBe(403);
    for (const headers of [
      bearer(stranger),
      { 'x-api-key': '' },
      { authorization: '' },
      { authorization: 'Basic eA==' },
      { ...bearer(token), 'x-api-key': stranger },
    ]) {
      expect((await ask(accounts, { headers })).json()).toEqual(refused);
    }
    expect((await ask(apiKeys, { headers: bearer(token) })).status).toBe(200);
    expect(standIn.requests).toHaveLength(2);
    expect(logLines()).toContainEqual(
      expect.objectContaining({
        caller: 'sidecar',
        by: 'anonymous',
        status: 200,
        operation: 'list-accounts',
      }),
    );
  });

  it('any request is from the anonymous caller without a callers file, and its credential stays here', async () => {
    const { ask, standIn } = await startPair();
    const came = await ask(apiKeys, { headers: { ...bearer(stranger), 'x-api-key': 'x' } });
    expect(came.status).toBe(200);
    expect(JSON.stringify(standIn.requests)).not.toContain(stranger);
  });
});

describe('a Fly machine', () => {
  const source = `instance=a;app=reports;org=acme;ts=${Math.floor(Date.now() / 1_000)}`;
  const fields = { 'fly-src': source, 'fly-src-signature': Buffer.alloc(64).toString('base64') };

  it('a Fly machine is refused where no caller is one, and its fields do not go up', async () => {
    const { token, entry } = enrol('script');
    const { ask, standIn } = await startWith([entry]);
    expect((await ask(accounts, { headers: fields })).json()).toEqual(refused);
    expect((await ask(accounts, { headers: { ...fields, ...bearer(token) } })).status).toBe(200);
    expect(standIn.requests).toHaveLength(1);
    expect(JSON.stringify(standIn.requests)).not.toMatch(/fly-src/i);
  });
});
