import { KeyObject, sign as signBytes } from 'node:crypto';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { exportJWK, exportSPKI, generateKeyPair, type JWK, type JWTPayload, SignJWT } from 'jose';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Authenticated } from '../../src/callers/caller.ts';
import { digestOf, mintToken } from '../../src/callers/token.ts';
import { bearer, cleanUp, credentials, open, refusal, writeCallers } from '../support/callers-fixture.ts';

const issuer = 'https://login.example.com';

interface Signer {
  readonly kid: string;
  readonly privateKey: CryptoKey;
  readonly publicKey: CryptoKey;
  readonly jwk: JWK;
}

async function signer(kid: string, alg = 'RS256'): Promise<Signer> {
  const { privateKey, publicKey } = await generateKeyPair(alg, { extractable: true });
  return { kid, privateKey, publicKey, jwk: { ...(await exportJWK(publicKey)), kid, alg, use: 'sig' } };
}

function sign(by: Signer, claims: JWTPayload = {}, header: Record<string, unknown> = {}): Promise<string> {
  const now = Math.floor(Date.now() / 1000);
  const payload = { iss: issuer, aud: 'gateway', exp: now + 300, email: 'ann@example.com', ...claims };
  return new SignJWT(payload)
    .setProtectedHeader({ alg: 'RS256', kid: by.kid, ...header })
    .sign(by.privateKey);
}

/** An issuer's key set over loopback, and what was asked of it. */
const idp = {
  keys: [] as unknown[],
  status: 200,
  body: undefined as string | undefined,
  asked: 0,
  /** What an answer waits for. */
  until: undefined as Promise<void> | undefined,
  /** An address that is answered with 503. */
  awayFor: undefined as string | undefined,
};
let server: Server;
let jwks = '';
const fieldsOf: Readonly<Record<number, Record<string, string>>> = {
  101: { connection: 'upgrade', upgrade: 'websocket' },
  302: { location: '/elsewhere' },
};
let one: Signer;
let two: Signer;
let stranger: Signer;

beforeAll(async () => {
  [one, two, stranger] = await Promise.all([signer('one'), signer('two'), signer('one')]);
  server = createServer(async ({ url }, response) => {
    idp.asked++;
    await idp.until;
    const isAway = url !== undefined && idp.awayFor?.endsWith(url);
    response.writeHead(isAway ? 503 : idp.status, fieldsOf[idp.status] ?? {});
    response.end(idp.body ?? JSON.stringify({ keys: idp.keys }));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  jwks = `http://127.0.0.1:${(server.address() as AddressInfo).port}/keys`;
});

afterAll(() => new Promise((resolve) => server.close(resolve)));

beforeEach(() => {
  Object.assign(idp, {
    keys: [one.jwk],
    status: 200,
    body: undefined,
    asked: 0,
    until: undefined,
    awayFor: undefined,
  });
});

afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
  cleanUp();
});

/** Callers that know JWTs of the issuer; `more` changes the rule. */
function staff(more: object = {}, others: readonly object[] = [], options: Parameters<typeof open>[1] = {}) {
  const jwt = { issuer, audience: 'gateway', jwks, match: { email: '*@example.com' }, ...more };
  const file = writeCallers([...others, { name: 'staff', jwt }]);
  return { file, ...open(file, options) };
}

describe('a JWT', () => {
  it('a JWT is verified once and then authenticated without a promise', async () => {
    const { authenticator } = staff();
    const token = await sign(one);
    const first = authenticator.authenticate(bearer(token));
    expect(first).toBeInstanceOf(Promise);
    expect(await first).toMatchObject({ by: 'jwt', caller: { name: 'staff' } });
    expect(authenticator.authenticate(bearer(token))).toBe(await first);
  });

  it('a JWT shares one verification among requests that come together', async () => {
    const { authenticator } = staff();
    const token = await sign(one);
    const all = await Promise.all(
      Array.from({ length: 20 }, () => authenticator.authenticate(bearer(token))),
    );
    expect(new Set(all).size).toBe(1);
    expect(idp.asked).toBe(1);
  });

  it('a JWT authenticates the first caller in file order whose rule it matches', async () => {
    const first = {
      name: 'admins',
      jwt: { issuer, audience: ['x', 'gateway'], jwks, match: { groups: ['ops', 'admin*'] } },
    };
    const { authenticator } = staff({}, [first]);
    const name = async (claims: JWTPayload) =>
      (await authenticator.authenticate(bearer(await sign(one, claims)))).caller.name;
    expect(await name({ groups: ['staff', 'administrators'] })).toBe('admins');
    expect(await name({ groups: ['staff'] })).toBe('staff');
  });

  it('a JWT is read from the field that the file names, bare, and only from there', async () => {
    const { authenticator } = staff({ header: 'X-Goog-IAP-JWT-Assertion' });
    const token = await sign(one);
    expect(
      await authenticator.authenticate(credentials([['x-goog-iap-jwt-assertion', token]])),
    ).toMatchObject({
      by: 'jwt',
    });
    for (const sent of [
      bearer(token),
      credentials([['X_Goog_IAP_JWT_Assertion', token]]),
      credentials([['X-API-Key', token]]),
      credentials([
        ['X-Goog-IAP-JWT-Assertion', token],
        ['X-Goog-IAP-JWT-Assertion', token],
      ]),
      credentials([
        ['X-Goog-IAP-JWT-Assertion', token],
        ['Authorization', `Bearer ${mintToken()}`],
      ]),
      credentials([['X-Goog-IAP-JWT-Assertion', `Bearer ${token}`]]),
      credentials([['X-Goog-IAP-JWT-Assertion', '']]),
    ]) {
      expect((await refusal(() => authenticator.authenticate(sent))).code).toBe('caller-unauthenticated');
    }
  });

  it('a JWT that was remembered is forgotten when it expires', async () => {
    vi.useFakeTimers({ toFake: ['Date'] });
    const { authenticator } = staff();
    const token = await sign(one);
    await authenticator.authenticate(bearer(token));
    vi.setSystemTime(Date.now() + 331_000);
    expect((await refusal(() => authenticator.authenticate(bearer(token)))).message).toContain(
      'a JWT that has expired (',
    );
  });

  it('a JWT that was remembered is refused while the clock stands before its nbf', async () => {
    vi.useFakeTimers({ toFake: ['Date'] });
    const { authenticator } = staff();
    const token = await sign(one, { nbf: Math.floor(Date.now() / 1_000) - 60 });
    await authenticator.authenticate(bearer(token));
    vi.setSystemTime(Date.now() - 3_600_000);
    expect((await refusal(() => authenticator.authenticate(bearer(token)))).message).toContain('("nbf")');
  });

  it('a JWT that was remembered is forgotten within a second when the file changes', async () => {
    const { authenticator, file } = staff();
    const token = await sign(one);
    await authenticator.authenticate(bearer(token));
    writeCallers(
      [{ name: 'staff', jwt: { issuer, audience: 'gateway', jwks, match: { email: 'bob@example.com' } } }],
      file,
    );
    await vi.waitFor(
      async () =>
        expect((await refusal(() => authenticator.authenticate(bearer(token)))).message).toContain(
          'fits no caller',
        ),
      { timeout: 1_000, interval: 20 },
    );
  });
});

describe('a JWT that waits for keys while the file changes', () => {
  const rule = (more: object = {}) => ({
    issuer,
    audience: 'gateway',
    jwks,
    match: { email: '*@example.com' },
    ...more,
  });

  /** Presents a JWT, changes the file while its keys are on their way, and gives them. */
  async function meanwhile(callers: () => readonly object[]) {
    let release = (): void => {};
    idp.until = new Promise((resolve) => {
      release = resolve;
    });
    const { authenticator, events, file } = staff();
    const token = await sign(one);
    const waiting = Promise.resolve(authenticator.authenticate(bearer(token))).catch(
      (error: unknown) => error,
    );
    await vi.waitFor(() => expect(idp.asked).toBe(1));
    writeCallers(callers(), file);
    await vi.waitFor(() => expect(events).toContainEqual(expect.objectContaining({ kind: 'reloaded' })));
    release();
    return { came: await waiting, authenticator, token };
  }

  it('a JWT that waits for keys is refused, then and later, when its caller was removed', async () => {
    const { came, authenticator, token } = await meanwhile(() => []);
    expect(came).toMatchObject({ code: 'caller-unauthenticated' });
    await refusal(() => authenticator.authenticate(bearer(token)));
  });

  it('a JWT that waits for keys authenticates the caller that the new version says, then and later', async () => {
    const { came, authenticator, token } = await meanwhile(() => [
      { name: 'ann', jwt: rule({ match: { email: 'ann@example.com' } }) },
      { name: 'staff', jwt: rule() },
    ]);
    expect(came).toMatchObject({ caller: { name: 'ann' } });
    expect((await authenticator.authenticate(bearer(token))).caller.name).toBe('ann');
  });

  it('a JWT that waits for keys is refused where the new version wants it in another field', async () => {
    const { came } = await meanwhile(() => [{ name: 'staff', jwt: rule({ header: 'X-Assertion' }) }]);
    expect(came).toMatchObject({ code: 'caller-unauthenticated' });
  });
});

describe('a credential of one kind', () => {
  it('a JWT is refused in another field than its caller names', async () => {
    const assertion = { issuer, audience: 'gateway', jwks, header: 'X-Assertion', match: { sub: 'robot' } };
    const { authenticator } = staff({}, [{ name: 'robot', jwt: assertion }]);
    const token = await sign(one, { sub: 'robot', email: 'robot@other.example' });
    await refusal(() => authenticator.authenticate(bearer(token)));
    expect((await authenticator.authenticate(credentials([['X-Assertion', token]]))).caller.name).toBe(
      'robot',
    );
  });

  it('a static token is refused in a field for JWTs', async () => {
    const token = mintToken();
    const { authenticator } = staff({ header: 'X-Assertion' }, [
      { name: 'script', tokens: [{ sha256: digestOf(token) }] },
    ]);
    expect(authenticator.authenticate(bearer(token))).toMatchObject({ caller: { name: 'script' } });
    await refusal(() => authenticator.authenticate(credentials([['X-Assertion', token]])));
  });

  it.each(['a b.c.d', 'a.b.c, d', 'ä.b.c', '', 'a.b.c d'])(
    'a credential is one word of the characters that tokens have, in X-API-Key and in a field for JWTs: %j',
    async (value) => {
      const { authenticator } = staff({ header: 'X-Assertion' });
      for (const [name, what] of [
        ['X-API-Key', 'X-API-Key is not one token'],
        ['X-Assertion', 'x-assertion is not one JWT'],
      ] as const) {
        const error = await refusal(() => authenticator.authenticate(credentials([[name, value]])));
        expect(error.message).toContain(what);
      }
    },
  );
});

describe('a forged or foreign JWT', () => {
  const b64 = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const hour = 3_600;
  const now = () => Math.floor(Date.now() / 1000);

  const forgeries: Record<string, () => Promise<string>> = {
    'alg confusion: HMAC with the public key as secret': async () => {
      const secret = new TextEncoder().encode(await exportSPKI(one.publicKey));
      const claims = { iss: issuer, aud: 'gateway', exp: now() + hour, email: 'ann@example.com' };
      return new SignJWT(claims).setProtectedHeader({ alg: 'HS256', kid: 'one' }).sign(secret);
    },
    'alg confusion: HMAC with a symmetric key of the set': async () => {
      idp.keys = [
        one.jwk,
        { kty: 'oct', kid: 'mac', alg: 'HS256', k: 'c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LTEyMzQ' },
      ];
      const secret = new TextEncoder().encode('secret-secret-secret-secret-1234');
      const claims = { iss: issuer, aud: 'gateway', exp: now() + hour, email: 'ann@example.com' };
      return new SignJWT(claims).setProtectedHeader({ alg: 'HS256', kid: 'mac' }).sign(secret);
    },
    'none, without a signature': async () => {
      const [, payload] = (await sign(one)).split('.');
      return `${b64({ alg: 'none' })}.${payload}.`;
    },
    'none, with a signature': async () => {
      const [, payload, signature] = (await sign(one)).split('.');
      return `${b64({ alg: 'none', kid: 'one' })}.${payload}.${signature}`;
    },
    'NoNe in another case': async () => {
      const [, payload, signature] = (await sign(one)).split('.');
      return `${b64({ alg: 'NoNe', kid: 'one' })}.${payload}.${signature}`;
    },
    'claims changed after the signature': async () => {
      const [header, , signature] = (await sign(one, { email: 'ann@other.example' })).split('.');
      const claims = { iss: issuer, aud: 'gateway', exp: now() + hour, email: 'ann@example.com' };
      return `${header}.${b64(claims)}.${signature}`;
    },
    'another key under the same key id': () => sign(stranger),
    'a key that the token brings along': () => sign(stranger, {}, { jwk: stranger.jwk, kid: undefined }),
    'a key that the token points to': () => sign(stranger, {}, { jku: `${jwks}/mine` }),
    'a critical extension that is unknown': async () => {
      const claims = { iss: issuer, aud: 'gateway', exp: now() + hour, email: 'ann@example.com' };
      const body = `${b64({ alg: 'RS256', kid: 'one', crit: ['x'], x: 1 })}.${b64(claims)}`;
      const signature = signBytes('sha256', Buffer.from(body), KeyObject.from(one.privateKey));
      return `${body}.${signature.toString('base64url')}`;
    },
    expired: () => sign(one, { exp: now() - 31 }),
    'without expiry': () => sign(one, { exp: undefined as unknown as number }),
    'with an expiry that is no number': () => sign(one, { exp: '9999999999' as unknown as number }),
    'not valid yet': () => sign(one, { nbf: now() + 61 }),
    'a wrong audience': () => sign(one, { aud: 'another' }),
    'no audience': () => sign(one, { aud: undefined as unknown as string }),
    'an audience that only begins alike': () => sign(one, { aud: 'gateway.evil' }),
    'another issuer': () => sign(one, { iss: `${issuer}.evil` }),
    'two parts': async () => (await sign(one)).split('.').slice(0, 2).join('.'),
    'nothing in its parts': async () => 'e30.e30.e30',
    'no JSON': async () => 'YQ.YQ.YQ',
  };

  it.each(Object.keys(forgeries))('a forged or foreign JWT is 401: %s', async (name) => {
    const { authenticator } = staff({}, [{ name: 'sidecar', anonymous: true }]);
    const token = (await forgeries[name]?.()) ?? '';
    const error = await refusal(() => authenticator.authenticate(bearer(token)));
    expect(error.code).toBe('caller-unauthenticated');
    expect(error.headers?.['www-authenticate']).toBe(
      'Bearer realm="analytics-gateway", error="invalid_token"',
    );
    expect(error.message).not.toContain(token);
    // Words of a library name no cause and nothing to do.
    expect(error.message).not.toMatch(/ERR_|Error/);
  });

  it.each([
    ['expired', /^a JWT that has expired \(20\d\d-.*Z\): its caller has to log in again$/],
    ['without expiry', 'a JWT that has no "exp"; the login has to set it'],
    ['with an expiry that is no number', 'a JWT that has a member "exp" that is no number'],
    ['not valid yet', 'a JWT that is not valid yet ("nbf"): do the clocks of login and gateway differ?'],
    [
      'a wrong audience',
      'a JWT that is for another audience: its "aud" is "another", and "audience" in the callers file is gateway',
    ],
    ['no audience', 'a JWT that has no "aud"; the login has to set it'],
    [
      'another key under the same key id',
      /^a JWT that has a signature that its key did not make: it is forged, or "jwks"/,
    ],
    ['a key that the token brings along', /^a JWT that /],
    ['another issuer', 'a JWT of an issuer that no caller names'],
  ])('a refused JWT has its cause in the log, and what to do: %s', async (name, reason) => {
    const { authenticator } = staff({}, [{ name: 'sidecar', anonymous: true }]);
    const token = (await forgeries[name]?.()) ?? '';
    const { message } = await refusal(() => authenticator.authenticate(bearer(token)));
    if (typeof reason === 'string') expect(message).toBe(reason);
    else expect(message).toMatch(reason);
  });

  // `jwt-rule.test.ts` has every type and claim of them.
  it('a JWT that its issuer has signed for something else than a login is 401', async () => {
    const { authenticator } = staff();
    const token = await sign(one, {}, { typ: 'logout+jwt' });
    const error = await refusal(() => authenticator.authenticate(bearer(token)));
    expect(error.code).toBe('caller-unauthenticated');
    expect(error.message).toContain('a JWT that is refused: its typ is');
  });

  it('a JWT with another signature than the rule pins is refused, whatever key the issuer has', async () => {
    const { alg: _, ...anyUse } = one.jwk;
    idp.keys = [anyUse];
    const { authenticator } = staff({ algorithms: ['PS256', 'ES256'] });
    const error = await refusal(async () => authenticator.authenticate(bearer(await sign(one))));
    expect(error.message).toContain('is signed in another way than "algorithms" allows (PS256, ES256)');
  });

  it('a JWT within 30 s of its times is accepted: clocks differ', async () => {
    const { authenticator } = staff();
    const token = await sign(one, { exp: now() - 20, nbf: now() + 20 });
    expect(await authenticator.authenticate(bearer(token))).toMatchObject({ by: 'jwt' });
  });

  it('a forged JWT counts as a failure of its address, which is then refused before a signature is verified', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    const { authenticator } = staff({}, [], { failuresPerMinute: 3 });
    const remembered = await sign(one);
    await authenticator.authenticate(bearer(remembered));
    // Three of the limit, and two hundred that any address has each second.
    for (let failed = 0; failed < 203; failed++) {
      const forged = await sign(stranger, { jti: `${failed}` });
      expect((await refusal(() => authenticator.authenticate(bearer(forged)))).status).toBe(401);
    }
    const asked = idp.asked;
    idp.until = new Promise(() => {});
    const verified = vi.spyOn(crypto.subtle, 'verify');
    const fresh = await sign(one, { jti: 'new' });
    for (const unverified of [await sign(stranger), fresh]) {
      const error = await refusal(() => authenticator.authenticate(bearer(unverified)));
      expect(error).toMatchObject({ code: 'caller-rate-limited', retryAfterMs: 5 });
    }
    expect({ asked: idp.asked, verified: verified.mock.calls.length }).toEqual({ asked, verified: 0 });
    expect((await refusal(() => authenticator.authenticate(bearer('a.b.c', '10.9.9.9')))).status).toBe(401);
    expect(authenticator.authenticate(bearer(remembered))).toMatchObject({ by: 'jwt' });
    vi.advanceTimersByTime(5);
    expect(await authenticator.authenticate(bearer(fresh))).toMatchObject({ by: 'jwt' });
  });

  it.each<[string, () => ReturnType<typeof bearer>]>([
    ['without a credential', () => credentials([])],
    ['with a bad token', () => bearer(mintToken())],
    ['with what is no JWT', () => bearer('a.b.c')],
  ])(
    'a good JWT is accepted for the first time behind an address that fails %s without end',
    async (_what, sent) => {
      const { authenticator } = staff({}, [], { failuresPerMinute: 3 });
      for (let failed = 0; failed < 100; failed++) await refusal(() => authenticator.authenticate(sent()));
      expect((await refusal(() => authenticator.authenticate(sent()))).status).toBe(429);
      for (let logins = 0; logins < 10; logins++) {
        const token = await sign(one, { jti: `${logins}` });
        expect(await authenticator.authenticate(bearer(token))).toMatchObject({ by: 'jwt' });
      }
    },
  );

  it.each<[string, JWTPayload]>([
    ['that is not verified', { email_verified: false }],
    ['of another domain', { email: 'ann@example.com.evil' }],
  ])('a valid JWT with an e-mail %s is 403, and the log names the claim alone', async (_, claims) => {
    const { authenticator } = staff({}, [{ name: 'sidecar', anonymous: true }]);
    const token = await sign(one, claims);
    const error = await refusal(() => authenticator.authenticate(bearer(token)));
    expect(error).toMatchObject({ code: 'caller-forbidden', status: 403, headers: undefined });
    expect(error.message).toBe('a valid JWT that fits no caller: not staff (claim "email")');
    expect(error.detail).not.toContain('email');
    expect(error.detail).toContain('Ask the operator; the log says which claim does not fit.');
  });

  it('a valid JWT that many entries do not fit has a few of them in the log', async () => {
    const entries = Array.from({ length: 9 }, (_, index) => ({
      name: `team-${index}`,
      jwt: { issuer, audience: 'gateway', jwks, match: { groups: `team-${index}` } },
    }));
    const { authenticator } = staff({}, entries);
    const foreign = await sign(one, { email: 'ann@other.example' });
    const { message } = await refusal(() => authenticator.authenticate(bearer(foreign)));
    expect(message).toMatch(
      /not team-0 \(claim "groups"\), team-1 .*, team-4 \(claim "groups"\) and 5 more$/,
    );
  });

  it('people of an entry with "each" are callers of one name with a flow each, and those without the claim are one', async () => {
    const { authenticator } = open(
      writeCallers([
        {
          name: 'staff',
          jwt: { issuer, audience: 'gateway', jwks, match: { email: '*' } },
          each: 'sub',
          weight: 3,
        },
      ]),
    );
    const flowOf = async (sub: unknown) => {
      const token = await sign(one, { sub: sub as string });
      const { caller, expiresAt } = await authenticator.authenticate(bearer(token));
      expect(caller).toMatchObject({ name: 'staff', weight: 3, flow: { weight: 3 } });
      expect(expiresAt).toBeGreaterThan(Date.now());
      return caller.flow.name;
    };
    const ann = await flowOf('ann');
    expect(ann).toMatch(/^staff\/[0-9a-f]{12}$/);
    expect(await flowOf('ann')).toBe(ann);
    expect(await flowOf('bob')).not.toBe(ann);
    expect(await flowOf(undefined)).toBe('staff');
    expect(await flowOf('')).toBe('staff');
  });

  it('a valid JWT of no caller is verified once, and takes no more from others however often it comes', async () => {
    const { authenticator, events, file } = staff({}, [], { failuresPerMinute: 3 });
    const verified = vi.spyOn(crypto.subtle, 'verify');
    const foreign = await sign(one, { email: 'ann@other.example' });
    for (let tries = 0; tries < 6; tries++) {
      const { status, message } = await refusal(() => authenticator.authenticate(bearer(foreign)));
      expect([status, message]).toEqual([403, 'a valid JWT that fits no caller: not staff (claim "email")']);
    }
    expect(verified).toHaveBeenCalledTimes(1);
    const jwt = { issuer, audience: 'gateway', jwks, match: { email: '*@other.example' } };
    writeCallers([{ name: 'others', jwt }], file);
    authenticator.reload();
    await vi.waitFor(() => expect(events).toContainEqual(expect.objectContaining({ kind: 'reloaded' })));
    expect(await authenticator.authenticate(bearer(foreign))).toMatchObject({ caller: { name: 'others' } });
  });

  it('a valid JWT of no caller is looked at again where the keys of another rule for its issuer could not be had', async () => {
    const elsewhere = `${jwks}/elsewhere`;
    const other = { issuer, audience: 'gateway', jwks: elsewhere, match: { email: '*@other.example' } };
    // Before there is an authenticator: it fetches each key set at once.
    idp.awayFor = elsewhere;
    const { authenticator } = staff({}, [{ name: 'others', jwt: other }]);
    const foreign = await sign(one, { email: 'ann@other.example' });
    await refusal(() => authenticator.authenticate(bearer(foreign)));
    idp.awayFor = undefined;
    await vi.waitFor(
      async () =>
        expect(await authenticator.authenticate(bearer(foreign))).toMatchObject({
          caller: { name: 'others' },
        }),
      { interval: 200 },
    );
  });

  it('an expired JWT is refused without a look at its signature, and takes none from others', async () => {
    const { authenticator } = staff({}, [], { failuresPerMinute: 3 });
    const verified = vi.spyOn(crypto.subtle, 'verify');
    const ended = await sign(one, { exp: Math.floor(Date.now() / 1_000) - 31 });
    for (const status of [401, 401, 401, 429]) {
      expect((await refusal(() => authenticator.authenticate(bearer(ended)))).status).toBe(status);
    }
    expect(verified).not.toHaveBeenCalled();
    expect(await authenticator.authenticate(bearer(await sign(one)))).toMatchObject({ by: 'jwt' });
  });

  it('an address has no more forged JWTs verified than it may have failures and two hundred a second, however many come at once', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    const { authenticator } = staff({}, [], { failuresPerMinute: 3 });
    const forged = await Promise.all(
      Array.from({ length: 205 }, (_, index) => sign(stranger, { jti: `${index}` })),
    );
    const verified = vi.spyOn(crypto.subtle, 'verify');
    const all = forged.map((token) => refusal(() => authenticator.authenticate(bearer(token))));
    const statuses = (await Promise.all(all)).map(({ status }) => status);
    expect(statuses).toEqual([...Array(203).fill(401), 429, 429]);
    expect(verified).toHaveBeenCalledTimes(203);
  });

  it('a new JWT of someone whose login was verified before is accepted, however many forged ones come from the address', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    const { authenticator } = staff({}, [], { failuresPerMinute: 3 });
    await authenticator.authenticate(bearer(await sign(one, { sub: 'known', jti: 'before' })));
    const flood = async (count: number, sub: string): Promise<readonly number[]> => {
      const tokens = Array.from({ length: count }, (_, index) => sign(stranger, { sub, jti: `${index}` }));
      const all = (await Promise.all(tokens)).map((token) =>
        refusal(() => authenticator.authenticate(bearer(token))),
      );
      return (await Promise.all(all)).map(({ status }) => status);
    };
    expect((await flood(250, 'guessed')).at(-1)).toBe(429);
    for (const jti of ['one', 'two']) {
      const token = await sign(one, { sub: 'known', jti });
      expect(await authenticator.authenticate(bearer(token))).toMatchObject({ by: 'jwt' });
    }
    const other = await sign(one, { sub: 'new' });
    expect((await refusal(() => authenticator.authenticate(bearer(other)))).status).toBe(429);
    // Who knows the name gets no more than that verified either.
    expect((await flood(205, 'known')).filter((status) => status === 401)).toHaveLength(200);
  });

  it('good JWTs of two thousand callers behind one address are all accepted at once, also while the keys are on their way', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    idp.until = promise;
    const { authenticator } = staff({}, [], { failuresPerMinute: 300 });
    // Signed at a tenth of what RSA takes.
    const quick = await signer('quick', 'ES256');
    idp.keys = [quick.jwk];
    const tokens = await Promise.all(
      Array.from({ length: 2_000 }, (_, index) => sign(quick, { sub: `${index}` }, { alg: 'ES256' })),
    );
    const all = tokens.map((token) => authenticator.authenticate(bearer(token)));
    resolve();
    for (const authenticated of await Promise.all(all)) expect(authenticated).toMatchObject({ by: 'jwt' });
  });

  it('JWTs that wait for the keys of a slow issuer are bounded in bytes, with a share for each address', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    idp.until = promise;
    const { authenticator } = staff();
    const encode = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');
    const forge = (jti: number): string => {
      const claims = { iss: issuer, exp: Date.now() / 1000 + 300, jti: String(jti).padEnd(11_000, 'x') };
      return `${encode({ alg: 'RS256', kid: 'one' })}.${encode(claims)}.AAAA`;
    };
    let settled = 0;
    const ask = (jti: number, address: string) =>
      refusal(() => authenticator.authenticate(bearer(forge(jti), address))).finally(() => settled++);
    const many = Array.from({ length: 350 }, (_, at) => ask(at, '10.0.0.1'));
    // 15.4 KB each: 272 of them take 4 MiB.
    await expect.poll(() => settled).toBeGreaterThan(50);
    const other = ask(1_000, '10.0.0.2');
    const good = authenticator.authenticate(bearer(await sign(one), '10.0.0.3'));
    expect(settled).toBeLessThan(120);
    resolve();
    const statuses = (await Promise.all(many)).map(({ status }) => status);
    expect(statuses.filter((status) => status === 503)).toHaveLength(350 - statuses.indexOf(503));
    expect((await other).status).toBe(401);
    expect(await good).toMatchObject({ by: 'jwt' });
    // What has waited counts no more.
    expect((await ask(1_001, '10.0.0.1')).status).toBe(401);
  });

  it('a good JWT is accepted from an address within its limit while another address over its limit sends it', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    const { authenticator } = staff({}, [], { failuresPerMinute: 1 });
    for (let failed = 0; failed < 201; failed++) {
      const forged = await sign(stranger, { jti: `${failed}` });
      await refusal(() => authenticator.authenticate(bearer(forged, '10.9.9.9')));
    }
    const token = await sign(one);
    const refused = refusal(() => authenticator.authenticate(bearer(token, '10.9.9.9')));
    expect(await authenticator.authenticate(bearer(token))).toMatchObject({ by: 'jwt' });
    expect((await refused).status).toBe(429);
  });

  it('a good JWT is not counted as a failure, however many requests bring it at once', async () => {
    const { authenticator } = staff({}, [], { failuresPerMinute: 2 });
    for (let logins = 0; logins < 5; logins++) {
      const token = await sign(one, { jti: `${logins}` });
      const all = Array.from({ length: 10 }, () => authenticator.authenticate(bearer(token)));
      for (const authenticated of await Promise.all(all)) expect(authenticated).toMatchObject({ by: 'jwt' });
    }
  });

  it("a JWT is not counted as a failure where the issuer's keys cannot be had", async () => {
    idp.status = 500;
    const { authenticator } = staff({}, [], { failuresPerMinute: 1 });
    for (let tries = 0; tries < 5; tries++) {
      const token = await sign(one, { jti: `${tries}` });
      expect((await refusal(() => authenticator.authenticate(bearer(token)))).status).toBe(401);
    }
  });
});

describe('the code that verifies JWTs', () => {
  afterEach(() => {
    vi.doUnmock('../../src/callers/jwt.ts');
    vi.resetModules();
  });

  it('the code that verifies JWTs is imported again after an import that failed', async () => {
    let imports = 0;
    vi.resetModules();
    vi.doMock('../../src/callers/jwt.ts', async (importOriginal) => {
      imports++;
      if (imports <= 2) throw Object.assign(new Error('too many open files'), { code: 'EMFILE' });
      return importOriginal();
    });
    const { open: openAnew } = await import('../support/callers-fixture.ts');
    const jwt = { issuer, audience: 'gateway', jwks, match: { email: '*@example.com' } };
    const { authenticator } = openAnew(writeCallers([{ name: 'staff', jwt }]), { failuresPerMinute: 1 });
    const token = await sign(one);
    await vi.waitFor(() => expect(imports).toBe(1));
    await expect(authenticator.authenticate(bearer(token))).rejects.toThrow();
    expect(await authenticator.authenticate(bearer(token))).toMatchObject({ by: 'jwt' });
    authenticator.close();
  });
});

describe('the keys of an issuer', () => {
  const minutes = (count: number) => vi.advanceTimersByTime(count * 60_000);

  function fakeMonotonicClock(): void {
    vi.useFakeTimers({ toFake: ['performance'] });
  }

  async function authenticateOne(authenticator: {
    authenticate(sent: ReturnType<typeof bearer>): Authenticated | Promise<Authenticated>;
  }) {
    return authenticator.authenticate(bearer(await sign(one)));
  }

  it('a new key id of an issuer is fetched, at most once in 30 s however many ask', async () => {
    fakeMonotonicClock();
    const { authenticator } = staff();
    await authenticateOne(authenticator);
    idp.keys = [one.jwk, two.jwk];
    const newer = await sign(two);
    for (let tries = 0; tries < 5; tries++) await refusal(() => authenticator.authenticate(bearer(newer)));
    expect(idp.asked).toBe(1);
    vi.advanceTimersByTime(30_001);
    expect(await authenticator.authenticate(bearer(newer))).toMatchObject({ by: 'jwt' });
    expect(await authenticateOne(authenticator)).toMatchObject({ by: 'jwt' });
    const unknown = await sign({ ...stranger, kid: 'unknown' });
    for (let tries = 0; tries < 5; tries++) await refusal(() => authenticator.authenticate(bearer(unknown)));
    expect(idp.asked).toBe(2);
  });

  it('a JWT with the id of a removed key is refused, remembered or not', async () => {
    fakeMonotonicClock();
    const { authenticator } = staff();
    const token = await sign(one);
    await authenticator.authenticate(bearer(token));
    idp.keys = [two.jwk];
    minutes(11);
    expect((await refusal(() => authenticator.authenticate(bearer(token)))).message).toContain(
      `names a key that "jwks" (${jwks}) does not have`,
    );
  });

  it('the keys of an issuer are refreshed in the background while a remembered token is used', async () => {
    fakeMonotonicClock();
    const { authenticator } = staff();
    const token = await sign(one);
    await authenticator.authenticate(bearer(token));
    idp.keys = [two.jwk];
    minutes(6);
    expect(authenticator.authenticate(bearer(token))).toMatchObject({ by: 'jwt' });
    await vi.waitFor(async () => await refusal(() => authenticator.authenticate(bearer(token))));
    expect(idp.asked).toBe(2);
  });

  it('the keys of an issuer survive an outage of an hour, with one event', async () => {
    fakeMonotonicClock();
    const { authenticator, events } = staff();
    const token = await sign(one);
    await authenticator.authenticate(bearer(token));
    idp.status = 503;
    for (let passed = 0; passed < 90; passed += 15) {
      minutes(15);
      expect(await authenticator.authenticate(bearer(token))).toMatchObject({ by: 'jwt' });
      expect(authenticator.authenticate(bearer(token))).toMatchObject({ by: 'jwt' });
      expect(await authenticateOne(authenticator)).toMatchObject({ by: 'jwt' });
    }
    expect(events).toMatchObject([{ kind: 'keys-unavailable', address: jwks, hasKeys: true }]);
    idp.status = 200;
    minutes(1);
    await authenticateOne(authenticator);
    expect(events.at(-1)).toEqual({ kind: 'keys-available-again', address: jwks });
  });

  it('the keys of an issuer that is away are asked for every 30 s though no login asks, and shown with what is wrong', async () => {
    vi.useFakeTimers({ toFake: ['performance', 'setTimeout', 'clearTimeout', 'Date'] });
    const shown = () => authenticator.snapshot().beside.logins;
    idp.status = 404;
    const since = Date.now();
    const { authenticator, events } = staff();
    await vi.waitFor(() => expect(events).toHaveLength(1));
    expect(shown()).toEqual([
      {
        ...{ address: jwks, callers: ['staff'], keys: undefined, servesUntil: undefined },
        ...{ failure: "the key set's address answered 404", failingSince: expect.any(Number) },
      },
    ]);
    expect(shown()[0]?.failingSince).toBeGreaterThanOrEqual(since);
    for (let asked = 2; asked < 5; asked++) {
      vi.advanceTimersByTime(30_000);
      await vi.waitFor(() => expect(idp.asked).toBe(asked));
    }
    Object.assign(idp, { status: 200, keys: [one.jwk, { kty: 'oct', k: 'AA' }, { ...two.jwk, use: 'enc' }] });
    vi.advanceTimersByTime(30_000);
    await vi.waitFor(() => expect(events.at(-1)).toMatchObject({ kind: 'keys-available-again' }));
    expect(shown()).toMatchObject([{ keys: 1, failure: undefined, failingSince: undefined }]);
    const dayLater = Date.now() + 86_400_000;
    expect(Math.abs((shown()[0]?.servesUntil ?? 0) - dayLater)).toBeLessThan(60_000);
    // In use, it is refreshed by logins alone.
    vi.advanceTimersByTime(31_000);
    await fetch(jwks);
    expect(idp.asked).toBe(6);
  });

  it('the keys of an issuer that no caller names any more are asked for no longer', async () => {
    vi.useFakeTimers({ toFake: ['performance', 'setTimeout', 'clearTimeout'] });
    idp.status = 500;
    const { authenticator, events, file } = staff();
    await vi.waitFor(() => expect(events).toHaveLength(1));
    writeCallers([{ name: 'sidecar', anonymous: true }], file);
    authenticator.reload();
    await vi.waitFor(() => expect(authenticator.snapshot().beside.logins).toEqual([]));
    vi.advanceTimersByTime(31_000);
    // Two reads of our own, one after the other: whatever else was asked for has arrived by then.
    await fetch(jwks);
    await fetch(jwks);
    expect(idp.asked).toBe(3);
  });

  it('the keys of an issuer serve no longer than a day without it', async () => {
    fakeMonotonicClock();
    const { authenticator } = staff();
    await authenticateOne(authenticator);
    idp.status = 503;
    minutes(25 * 60);
    await refusal(() => authenticateOne(authenticator));
  });

  it.each([
    ['answers 500', { status: 500 }],
    ['redirects', { status: 302 }],
    ['changes the protocol (101)', { status: 101 }],
    ['sends no JSON', { body: '<html>' }],
    ['sends no key set', { body: '{"keys":7}' }],
    ['sends too much', { body: JSON.stringify({ keys: [], x: 'x'.repeat(300_000) }) }],
  ])(
    'JWTs are refused from the start when the issuer %s, and static tokens are accepted',
    async (_, fault) => {
      Object.assign(idp, fault);
      const token = mintToken();
      const { authenticator, events } = staff({}, [{ name: 's', tokens: [{ sha256: digestOf(token) }] }], {
        failuresPerMinute: 1,
      });
      for (let tries = 0; tries < 3; tries++) {
        // Not the callers' fault, so not counted as their failure.
        expect((await refusal(() => authenticateOne(authenticator))).code).toBe('caller-unauthenticated');
      }
      expect(authenticator.authenticate(bearer(token))).toMatchObject({ by: 'token' });
      expect(events).toMatchObject([{ kind: 'keys-unavailable', hasKeys: false }]);
      expect(idp.asked).toBe(1);
    },
  );
});
