import { rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { isGranted } from '../../src/callers/caller.ts';
import { CallersFileError } from '../../src/callers/callers-file.ts';
import { digestOf, mintToken } from '../../src/callers/token.ts';
import { bearer, cleanUp, credentials, open, refusal, writeCallers } from '../support/callers-fixture.ts';

afterEach(() => {
  vi.useRealTimers();
  cleanUp();
});

const token = mintToken();
const other = mintToken();
const script = { name: 'reports-script', tokens: [{ sha256: digestOf(token) }] };

describe('a static token', () => {
  it('a static token authenticates its caller in Authorization and in X-API-Key, without a promise', () => {
    const { authenticator } = open(
      writeCallers([{ ...script, weight: 2, limit: { perSecond: 5, burst: 9 } }]),
    );
    for (const sent of [bearer(token), credentials([['x-api-key', token]])]) {
      expect(authenticator.authenticate(sent)).toMatchObject({
        by: 'token',
        caller: {
          name: 'reports-script',
          weight: 2,
          limits: [{ perSecond: 5, burst: 9 }],
          flow: { name: 'reports-script', weight: 2, background: false },
        },
      });
    }
  });

  it('a static token gives the same objects each time, made once', () => {
    const { authenticator } = open(writeCallers([script]));
    expect(authenticator.authenticate(bearer(token))).toBe(authenticator.authenticate(bearer(token)));
  });

  it('a caller may list accounts, and the API keys only where that is granted by name', async () => {
    const keys = { name: 'keys', tokens: [{ sha256: digestOf(other) }], operations: ['list-api-keys'] };
    const { authenticator } = open(writeCallers([script, keys]));
    const { caller: plain } = await authenticator.authenticate(bearer(token));
    const { caller: granted } = await authenticator.authenticate(bearer(other));
    expect(['list-accounts', 'list-api-keys'].map((operation) => isGranted(plain, operation))).toEqual([
      true,
      false,
    ]);
    expect(['list-accounts', 'list-api-keys'].map((operation) => isGranted(granted, operation))).toEqual([
      false,
      true,
    ]);
  });

  it('an older token leaves a note for the log, and an event once an hour', async () => {
    vi.useFakeTimers({ toFake: ['Date'] });
    const tokens = [{ sha256: digestOf(token) }, { sha256: digestOf(other).toUpperCase() }];
    const { authenticator, events } = open(writeCallers([{ name: 'two', tokens }]));
    expect((await authenticator.authenticate(bearer(other))).note).toBeUndefined();
    for (let uses = 0; uses < 3; uses++) {
      expect((await authenticator.authenticate(bearer(token))).note).toContain('older token');
    }
    expect(events).toEqual([{ kind: 'older-token-used', caller: 'two', token: digestOf(token).slice(0, 8) }]);
    vi.setSystemTime(Date.now() + 3_600_001);
    await authenticator.authenticate(bearer(token));
    expect(events).toHaveLength(2);
    // A clock that was put right must not silence it for as long as it was wrong.
    vi.setSystemTime(Date.now() - 86_400_000);
    await authenticator.authenticate(bearer(token));
    await authenticator.authenticate(bearer(token));
    expect(events).toHaveLength(3);
  });
});

describe('a credential that fails', () => {
  // `credential.test.ts` has what is malformed.
  const lines: [string, [string, string][]][] = [
    ['an unknown token', [['Authorization', `Bearer ${mintToken()}`]]],
    ['a damaged token', [['Authorization', `Bearer ${token.slice(0, -1)}`]]],
    ['the digest in place of the token', [['Authorization', `Bearer ${digestOf(token)}`]]],
    ['another scheme', [['Authorization', `Basic ${token}`]]],
    [
      'two different tokens',
      [
        ['Authorization', `Bearer ${token}`],
        ['X-API-Key', other],
      ],
    ],
  ];

  it.each(lines)('a credential that fails is 401 and never anonymous: %s', async (_, sent) => {
    const both = [script, { name: 'other', tokens: [{ sha256: digestOf(other) }] }];
    const { authenticator } = open(writeCallers([...both, { name: 'sidecar', anonymous: true }]));
    const error = await refusal(() => authenticator.authenticate(credentials(sent)));
    expect(error.code).toBe('caller-unauthenticated');
    expect(error.headers).toEqual({
      'www-authenticate': 'Bearer realm="analytics-gateway", error="invalid_token"',
    });
    expect(error.detail).toBeUndefined();
  });

  it('a credential that fails gives the same answer whether name, token or expiry is wrong, and tells them apart in the log', async () => {
    const expired = { name: 'late', tokens: [{ sha256: digestOf(other), expires: '2020-01-01T00:00:00Z' }] };
    const { authenticator } = open(writeCallers([script, expired]));
    const errors = await Promise.all(
      [mintToken(), 'guess', other].map((value) => refusal(() => authenticator.authenticate(bearer(value)))),
    );
    expect(
      new Set(errors.map(({ code, detail, headers }) => JSON.stringify({ code, detail, headers }))).size,
    ).toBe(1);
    expect(new Set(errors.map(({ message }) => message)).size).toBe(3);
    expect(errors.map(({ message }) => message).join()).not.toContain('guess');
  });

  it('a token fails from its expiry on', async () => {
    vi.useFakeTimers({ toFake: ['Date'], now: Date.parse('2027-01-01T00:59:59.999+01:00') });
    const tokens = [{ sha256: digestOf(token), expires: '2027-01-01T01:00:00+01:00' }];
    const { authenticator } = open(writeCallers([{ name: 'a', tokens }]));
    expect(authenticator.authenticate(bearer(token))).toMatchObject({ by: 'token' });
    vi.setSystemTime(Date.parse('2027-01-01T00:00:00Z'));
    expect((await refusal(() => authenticator.authenticate(bearer(token)))).message).toContain('expired');
  });

  it('a token that stands in both fields is one credential', () => {
    const { authenticator } = open(writeCallers([script]));
    const sent = credentials([
      ['Authorization', `bEaReR  ${token}`],
      ['X-API-Key', token],
    ]);
    expect(authenticator.authenticate(sent)).toMatchObject({ caller: { name: 'reports-script' } });
  });
});

describe('a field that carries no credential', () => {
  it.each([
    ['X_API_Key', token],
    ['Cookie', `token=${token}`],
    ['Fly-Src', 'instance=1;app=a;org=o;ts=1'],
  ])('the field %s carries no credential', async (name, value) => {
    const { authenticator } = open(writeCallers([script]));
    const error = await refusal(() => authenticator.authenticate(credentials([[name, value]])));
    expect(error.code).toBe('caller-unauthenticated');
    // RFC 6750 section 3.1: nothing was presented, so there is no error to name.
    expect(error.headers?.['www-authenticate']).toBe('Bearer realm="analytics-gateway"');
  });

  it('a token in the URL is no credential', async () => {
    const { authenticator } = open(writeCallers([script]));
    const sent = credentials([], '127.0.0.1', `/api/analytics/accounts/?access_token=${token}`);
    const error = await refusal(() => authenticator.authenticate(sent));
    expect(error.code).toBe('caller-unauthenticated');
    expect(error.message).toContain('in the URL');
    expect(error.message).not.toContain(token);
  });
});

describe('the anonymous caller', () => {
  it('without a callers file every request is from the anonymous caller, whatever it carries', () => {
    const { authenticator } = open(undefined);
    for (const sent of [credentials([]), bearer('anything'), credentials([['Authorization', 'Basic x']])]) {
      const authenticated = authenticator.authenticate(sent);
      expect(authenticated).toMatchObject({ by: 'anonymous', caller: { operations: 'every' } });
    }
    expect(authenticator.admitsAnonymous).toBe(true);
  });

  it('a request without credential is from the anonymous caller where the file has one, with what the file grants', async () => {
    const { authenticator } = open(writeCallers([script, { name: 'sidecar', anonymous: true }]));
    const { caller } = await authenticator.authenticate(credentials([]));
    expect(caller.name).toBe('sidecar');
    expect(isGranted(caller, 'list-api-keys')).toBe(false);
  });

  it('the anonymous caller exists only on loopback or a Unix socket', () => {
    const file = writeCallers([{ name: 'sidecar', anonymous: true }]);
    expect(() => open(file, { loopbackOnly: false })).toThrow(/callers\[0\]\.anonymous/);
    expect(() => open(undefined, { loopbackOnly: false })).toThrow(CallersFileError);
  });

  it('the anonymous caller does not exist in a file that has none', () => {
    expect(open(writeCallers([script])).authenticator.admitsAnonymous).toBe(false);
  });
});

describe('a new version of the callers file', () => {
  const revoked = { name: 'reports-script', tokens: [] };
  const within = { timeout: 1_000, interval: 20 };

  function isRefused(authenticator: ReturnType<typeof open>['authenticator']): void {
    expect(() => authenticator.authenticate(bearer(token))).toThrow();
  }

  it('a new version of the callers file refuses a revoked token within a second, written in place', async () => {
    const file = writeCallers([script]);
    const { authenticator, events } = open(file);
    expect(authenticator.authenticate(bearer(token))).toMatchObject({ by: 'token' });
    writeCallers([revoked], file);
    await vi.waitFor(() => isRefused(authenticator), within);
    expect(events).toEqual([{ kind: 'reloaded', callers: 1 }]);
  });

  it('a new version with problems is refused as a whole, with an event, and the old one stays', async () => {
    const file = writeCallers([script]);
    const { authenticator, events } = open(file);
    writeFileSync(file, '{ "callers": [ { "name": "x" ');
    await vi.waitFor(() => expect(events).toHaveLength(1), { timeout: 5_000 });
    expect(events[0]).toMatchObject({ kind: 'version-refused' });
    expect(authenticator.snapshot().problems).toHaveLength(1);
    expect(authenticator.authenticate(bearer(token))).toMatchObject({ by: 'token' });
    writeCallers([revoked], file);
    await vi.waitFor(() => isRefused(authenticator), within);
    expect(authenticator.snapshot().problems).toEqual([]);
  });

  it('a callers file that is away for a while leaves the old version in force, with one event', async () => {
    const file = writeCallers([script]);
    const { authenticator, events } = open(file);
    rmSync(file);
    await vi.waitFor(() => expect(events).toHaveLength(1), { timeout: 5_000 });
    writeFileSync(join(dirname(file), 'wakes-the-watch'), '');
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(events).toMatchObject([{ kind: 'file-unreadable', cause: { code: 'ENOENT' } }]);
    expect(authenticator.authenticate(bearer(token))).toMatchObject({ by: 'token' });
    writeCallers([revoked], file);
    await vi.waitFor(() => isRefused(authenticator), within);
    expect(events.map(({ kind }) => kind)).toEqual(['file-unreadable', 'file-readable-again', 'reloaded']);
  });

  it('a reload reads the callers file at once, changed or not', async () => {
    const file = writeCallers([script]);
    const { authenticator, events } = open(file);
    for (let asked = 1; asked <= 2; asked++) {
      authenticator.reload();
      await vi.waitFor(() => expect(events).toHaveLength(asked), { timeout: 5_000 });
    }
    expect(events).toEqual(Array(2).fill({ kind: 'reloaded', callers: 1 }));
    expect(authenticator.authenticate(bearer(token))).toMatchObject({ by: 'token' });
    open(undefined).authenticator.reload();
  });

  it('a new version cannot bring an anonymous caller to a listener beyond loopback', async () => {
    const file = writeCallers([script]);
    const { authenticator, events } = open(file, { loopbackOnly: false });
    writeCallers([script, { name: 'sidecar', anonymous: true }], file);
    await vi.waitFor(() => expect(events).toMatchObject([{ kind: 'version-refused' }]), { timeout: 5_000 });
    expect(authenticator.admitsAnonymous).toBe(false);
  });
});

describe('the start', () => {
  it('a callers file that is missing or wrong stops the start', () => {
    expect(() => open('/nowhere/callers.json')).toThrow(/can't be read \(ENOENT\)/);
    expect(() => open(writeCallers([{ name: 'x', tokens: [{ sha256: 'x' }] }]))).toThrow(CallersFileError);
  });

  it('the snapshot has the day on which each token was last used, also after a new version of the file', async () => {
    const other = mintToken();
    const tokens = [{ sha256: digestOf(token) }, { sha256: digestOf(other) }];
    const file = writeCallers([{ ...script, tokens }]);
    const { authenticator, events } = open(file);
    await authenticator.authenticate(bearer(other));
    const used = () => authenticator.snapshot().list[0]?.lastUse.map(({ lastUsed }) => lastUsed);
    const today = new Date().toISOString().slice(0, 10);
    expect(used()).toEqual([null, today]);
    writeCallers([{ ...script, tokens: tokens.toReversed() }], file);
    authenticator.reload();
    await vi.waitFor(() => expect(events).toContainEqual(expect.objectContaining({ kind: 'reloaded' })));
    expect(used()).toEqual([today, null]);
  });

  it('tokens that end within 14 days are told of at the start and once a day, with every name', () => {
    vi.useFakeTimers({ now: new Date('2026-03-01T00:00:00Z') });
    try {
      const tokenOf = (expires: string) => ({ sha256: digestOf(mintToken()), expires });
      const { events } = open(
        writeCallers([
          { name: 'later', tokens: [tokenOf('2026-03-15T00:00:01Z')] },
          { name: 'soon', tokens: [tokenOf('2026-03-15T00:00:00Z'), tokenOf('2026-03-14T00:00:00Z')] },
          { name: 'ended', tokens: [tokenOf('2026-02-20T00:00:00Z')] },
          { name: 'long-ended', tokens: [tokenOf('2026-02-14T00:00:00Z')] },
          { name: 'replaced', tokens: [tokenOf('2026-02-20T00:00:00Z'), tokenOf('2027-01-01T00:00:00Z')] },
        ]),
      );
      const told = () => events.filter(({ kind }) => kind === 'tokens-ending');
      const first = '2026-02-20T00:00:00.000Z';
      expect(told()).toEqual([{ kind: 'tokens-ending', names: ['ended', 'soon'], first }]);
      vi.advanceTimersByTime(86_400_000);
      expect(told()).toHaveLength(2);
      expect(told()[1]).toMatchObject({ names: ['ended', 'soon', 'later'] });
    } finally {
      vi.useRealTimers();
    }
  });

  it('the snapshot shows names, grants, and ends of tokens, nothing of a digest', () => {
    const tokens = [{ sha256: digestOf(token), expires: '2099-01-01T00:00:00Z' }];
    const { authenticator } = open(writeCallers([{ ...script, tokens }]));
    const shown = authenticator.snapshot();
    expect(shown.list).toEqual([
      {
        name: 'reports-script',
        operations: ['list-accounts'],
        workspaces: [null],
        weight: 1,
        by: ['token'],
        tokens: 1,
        nextExpiry: '2099-01-01T00:00:00.000Z',
        lastUse: [{ token: 1, expires: '2099-01-01T00:00:00.000Z', lastUsed: null }],
        limits: [],
        each: null,
        enforce: true,
      },
    ]);
    expect(shown.beside.expiries).toEqual([
      { caller: 'reports-script', expiresAt: Date.parse('2099-01-01T00:00:00Z'), isLast: true },
    ]);
    expect(JSON.stringify(shown)).not.toContain(digestOf(token).slice(0, 8));
  });
});
