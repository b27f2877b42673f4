import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { openKeyring } from '../../src/key/keyring.ts';
import { KeyStoreError } from '../../src/key/store.ts';
import {
  down,
  FakeStore,
  inUse,
  key1,
  key2,
  key3,
  keyringOf,
  otherAfterRefusal,
  readOf,
  unwatched,
  within,
} from '../support/fake-store.ts';

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const kinds = (events: ReadonlyArray<{ kind: string }>) => events.map((event) => event.kind);

describe('the start', () => {
  const open = (from: string, environment: Record<string, string> = {}) =>
    openKeyring({
      ...{ from, environment, refreshMs: 60_000 },
      check: () => Promise.resolve(undefined),
      onEvent: () => {},
    });

  it.each([
    ['', /names no store/],
    ['my-secret-key-0123456789', /names no store/],
    ['env:', /name of an environment variable/],
    ['env:NOT=A=NAME', /name of an environment variable/],
    ['file:relative/path', /absolute path/],
    ['env:KEY', /env:KEY: the environment variable is not set/],
    ['file:/no/such/file', /file:\/no\/such\/file: the file does not exist/],
  ])(
    'of the keyring is refused with the setting %j, whose value is not in the message',
    async (from, text) => {
      const failure = await open(from).catch((error: unknown) => error);
      expect(failure).toBeInstanceOf(KeyStoreError);
      expect(String(failure)).toMatch(text);
      expect(String(failure)).not.toContain('my-secret');
    },
  );

  it.each([
    ['env:sk_live_0123456789abcdef', /env:\(not a variable\): the environment variable is not set$/],
    ['env:Secret0123456789', /env:\(not a variable\): the environment variable is not set$/],
  ])(
    'the keyring at its start with %s repeats no name that looks like the key itself',
    async (from, text) => {
      const failure = await open(from).catch((error: unknown) => error);
      expect(String(failure)).toMatch(text);
      expect(String(failure)).not.toContain(from.slice(4));
      await expect(open(from, { [from.slice(4)]: key1 })).resolves.toMatchObject({
        current: expect.anything(),
      });
    },
  );

  it.each(['', ' \n', 'short', `${key1}\nX-Evil: 1`, `\uFEFF${key1}`, `${key1}\u00e9`, 'k'.repeat(65_536)])(
    'of the keyring is refused when a local store holds the malformed key %#, and no word of it is repeated',
    async (value) => {
      const failure = await open('env:KEY', { KEY: value }).catch((error: unknown) => error);
      expect(failure).toBeInstanceOf(KeyStoreError);
      expect(String(failure)).not.toMatch(/first-key|Evil|kkkk|short$/);
    },
  );

  it('the keyring at its start is ready with the first key of a local store', async () => {
    const { keyring, events } = await keyringOf(new FakeStore(`${key1}\n`));
    expect(keyring.current?.hasValue(key1)).toBe(true);
    expect(keyring.generation()).toBe(1);
    await expect(keyring.ready).resolves.toBe(true);
    expect(kinds(events)).toEqual(['loaded']);
    expect(JSON.stringify(events)).not.toContain(key1);
  });

  it('the keyring at its start goes on without a key while a network store is down, and becomes ready when it is back', async () => {
    const store = new FakeStore(down, false);
    const { keyring, events } = await keyringOf(store);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(keyring.current).toBeUndefined();
    expect(kinds(events)).toEqual(['waiting']);
    expect(store.loads).toBeLessThan(10);
    store.value = key1;
    await vi.advanceTimersByTimeAsync(4_000);
    await expect(keyring.ready).resolves.toBe(true);
    expect(kinds(events)).toEqual(['waiting', 'loaded']);
  });

  it('the keyring of one workspace of several goes on asking after 30 s without a key, and takes the one that comes', async () => {
    const store = new FakeStore(down, false);
    const { keyring, events } = await keyringOf(store, { retriesForever: true });
    expect(keyring.isAwaited).toBe(true);
    await vi.advanceTimersByTimeAsync(30_000);
    await expect(keyring.ready).resolves.toBe(false);
    expect(keyring.isAwaited).toBe(false);
    store.value = key1;
    await vi.advanceTimersByTimeAsync(4_000);
    expect(keyring.generation()).toBe(1);
    expect(kinds(events)).toEqual(['waiting', 'gave-up', 'loaded']);
  });

  it('the keyring at its start gives up after 30 s without a key from a network store, and says why', async () => {
    const { keyring, events } = await keyringOf(new FakeStore(down, false));
    await vi.advanceTimersByTimeAsync(30_000);
    await expect(keyring.ready).resolves.toBe(false);
    expect(events.at(-1)).toMatchObject({ kind: 'gave-up', level: 'error', reason: down.message });
  });

  it('the keyring at its start gives up on a network store that hangs', async () => {
    const { keyring } = await keyringOf(new FakeStore(new Promise(() => {}), false));
    await vi.advanceTimersByTimeAsync(30_000);
    await expect(keyring.ready).resolves.toBe(false);
  });
});

describe('a change of the store', () => {
  it('makes a generation of every new value, and of one that comes back', async () => {
    const store = new FakeStore(key1);
    const { keyring, events } = await keyringOf(store);
    for (const [value, generation] of [
      [key1, 1],
      [key2, 2],
      [`${key2}\n`, 2],
      [key1, 3],
    ] as const) {
      store.swap(value);
      await vi.advanceTimersByTimeAsync(0);
      expect(keyring.generation()).toBe(generation);
    }
    expect(kinds(events)).toEqual(['loaded', 'rotated', 'rotated']);
  });

  it.each(['', '\n', 'two\nlines', `\uFEFF${key2}`, `${key2}é`, `${key2}\r\nx`, 'k'.repeat(1024 * 1024)])(
    'to the bad value %# keeps the last good key and says so once',
    async (value) => {
      const store = new FakeStore(key1);
      const { keyring, events } = await keyringOf(store);
      store.swap(value);
      await vi.advanceTimersByTimeAsync(10_000);
      expect(keyring.current?.hasValue(key1)).toBe(true);
      expect(kinds(events)).toEqual(['loaded', 'reload-failed']);
      expect(keyring.health().reloadFailures).toBeGreaterThan(1);
      store.swap(key2);
      await vi.advanceTimersByTimeAsync(0);
      expect(keyring.current?.hasValue(key2)).toBe(true);
      expect(kinds(events)).toEqual(['loaded', 'reload-failed', 'reload-recovered', 'rotated']);
    },
  );

  it('is found by asking again where the store has no watch', async () => {
    const store = new FakeStore(key1);
    const { keyring } = await keyringOf(unwatched(store), { refreshMs: 5_000 });
    store.value = key2;
    await vi.advanceTimersByTimeAsync(5_000);
    expect(keyring.generation()).toBe(2);
  });

  it('that comes while a read is under way is read again', async () => {
    const store = new FakeStore(key1);
    const { keyring } = await keyringOf(store);
    let finish: (text: string) => void = () => {};
    store.value = new Promise((resolve) => {
      finish = resolve;
    });
    void keyring.reload();
    store.swap(key2);
    finish(key1);
    await vi.advanceTimersByTimeAsync(0);
    expect(keyring.current?.hasValue(key2)).toBe(true);
  });

  it('leaves the store that hangs with the last good key, and asks it again later', async () => {
    const store = new FakeStore(key1, false);
    const { keyring, events } = await keyringOf(unwatched(store), { refreshMs: 5_000 });
    await vi.advanceTimersByTimeAsync(0);
    store.value = new Promise(() => {});
    await vi.advanceTimersByTimeAsync(20_000);
    expect(keyring.current?.hasValue(key1)).toBe(true);
    expect(events.at(-1)?.reason).toMatch(/did not answer within 15 s/);
    store.value = key2;
    await vi.advanceTimersByTimeAsync(20_000);
    expect(keyring.current?.hasValue(key2)).toBe(true);
  });
});

describe('a refused key', () => {
  it('is replaced by what the store has by now, with one read for all', async () => {
    const store = new FakeStore(key1);
    const { keyring } = await keyringOf(store);
    await vi.advanceTimersByTimeAsync(0);
    const old = inUse(keyring);
    const loads = store.loads;
    store.value = key2;
    const replaced = Array.from({ length: 20 }, () => {
      keyring.refused(old, readOf('list-accounts'));
      return keyring.replace(old, within(25_000));
    });
    await vi.advanceTimersByTimeAsync(0);
    for (const key of await Promise.all(replaced)) expect(key?.hasValue(key2)).toBe(true);
    expect(store.loads - loads).toBe(1);
  });

  it('waits 2 s for a swap, then is rejected; checks come at growing intervals', async () => {
    const { keyring, checkWith, events } = await keyringOf(new FakeStore(key1));
    const checks: number[] = [];
    checkWith(() => {
      checks.push(performance.now());
      return Promise.resolve(401);
    });
    const old = inUse(keyring);
    keyring.refused(old, readOf('list-accounts'));
    const replaced = keyring.replace(old, within(25_000));
    await vi.advanceTimersByTimeAsync(1_900);
    expect(keyring.standingOf(old)).toBe('suspect');
    expect(keyring.health()).toMatchObject({ beside: { suspect: true }, rejected: false });
    const rejectedMs = performance.now() + 100;
    await vi.advanceTimersByTimeAsync(100);
    await expect(replaced).resolves.toBeUndefined();
    expect(keyring.standingOf(old)).toBe('rejected');
    expect(keyring.health()).toMatchObject({ beside: { suspect: false }, rejected: true });
    await vi.advanceTimersByTimeAsync(200_000);
    // The first tells whether the 401 was about the key at all.
    expect(checks.map((atMs) => Math.round((atMs - rejectedMs) / 100) * 100)).toEqual([
      -2000, 1000, 3000, 7000, 15000, 31000, 63000, 123000, 183000,
    ]);
    expect(kinds(events)).toEqual(['loaded', 'rejected']);
  });

  it('does not hold a request beyond its deadline', async () => {
    const { keyring } = await keyringOf(new FakeStore(key1));
    const old = inUse(keyring);
    keyring.refused(old, readOf('list-accounts'));
    const replaced = keyring.replace(old, within(300));
    await vi.advanceTimersByTimeAsync(300);
    await expect(replaced).resolves.toBeUndefined();
    expect(keyring.standingOf(old)).toBe('suspect');
  });

  it('a request that waits for a refused key gets the 401 as its reason, and not its own deadline', async () => {
    const { keyring } = await keyringOf(new FakeStore(key1));
    const old = inUse(keyring);
    keyring.refused(old, readOf('list-accounts'));
    const late = new AbortController();
    setTimeout(() => late.abort('too late'), 300);
    const replaced = keyring.replace(old, { signal: late.signal, deadlineMs: performance.now() + 300 });
    const outcome = replaced.catch((reason: unknown) => reason);
    await vi.advanceTimersByTimeAsync(300);
    expect(await outcome).toBeUndefined();
  });

  it('is good when a check is answered, and the refused operation holds up no request for a minute', async () => {
    const store = new FakeStore(key1);
    store.previous = key2;
    const { keyring, checkWith, events } = await keyringOf(store);
    checkWith(() => Promise.resolve(200));
    const old = inUse(keyring);
    keyring.refused(old, readOf('/odd/'));
    keyring.refused(old, readOf('/other-odd/'));
    expect(keyring.standingOf(old)).toBe('suspect');
    const replaced = keyring.replace(old, within(25_000));
    await vi.advanceTimersByTimeAsync(0);
    expect(keyring.standingOf(old)).toBe('healthy');
    await expect(replaced).resolves.toBe(old);
    expect(events.slice(1)).toMatchObject([
      { kind: 'operation-refused', level: 'warn', message: expect.stringContaining('/odd/, /other-odd/') },
    ]);
    const { loads } = store;
    for (const operation of ['/odd/', '/other-odd/']) {
      keyring.refused(old, readOf(operation));
      expect(keyring.standingOf(old)).toBe('healthy');
    }
    await vi.advanceTimersByTimeAsync(0);
    // One look at the store, for both.
    expect(store.loads).toBe(loads + 1);
    await expect(keyring.replace(old, within(25_000))).resolves.toBe(old);
    await vi.advanceTimersByTimeAsync(59_000);
    keyring.refused(old, readOf('/odd/'));
    expect(keyring.standingOf(old)).toBe('healthy');
    await vi.advanceTimersByTimeAsync(1_000);
    keyring.refused(old, readOf('/odd/'));
    expect(keyring.standingOf(old)).toBe('suspect');
    await vi.advanceTimersByTimeAsync(0);
    keyring.refused(old, readOf('list-accounts'));
    expect(keyring.standingOf(old)).toBe('suspect');
  });

  it('tells nothing of the one after it: neither which operation is to blame, nor which read was accepted', async () => {
    const store = new FakeStore(key1);
    const { keyring, checkWith } = await keyringOf(store);
    const asked: string[] = [];
    checkWith((_key, { path }) => {
      asked.push(path);
      return Promise.resolve(200);
    });
    const old = inUse(keyring);
    keyring.accepted(old, 200, performance.now(), readOf('posts'));
    keyring.refused(old, readOf('/odd/'));
    await vi.advanceTimersByTimeAsync(0);
    expect(keyring.standingOf(old)).toBe('healthy');
    store.swap(key2);
    await vi.advanceTimersByTimeAsync(0);
    const next = inUse(keyring);
    keyring.refused(next, readOf('/odd/'));
    expect(keyring.standingOf(next)).toBe('suspect');
    await vi.advanceTimersByTimeAsync(0);
    expect(asked).toEqual(['/posts/', '/users/api-keys/']);
  });

  it('is rejected, and the log says why, where the previous one cannot be read', async () => {
    const { keyring, events } = await keyringOf(new FakeStore(key2), {
      previousFrom: 'old:',
      open: (from) => new FakeStore(from === 'old:' ? down : key2),
    });
    const newest = inUse(keyring);
    keyring.refused(newest, readOf('list-accounts'));
    await vi.advanceTimersByTimeAsync(2_000);
    expect(events.slice(1)).toMatchObject([
      { kind: 'previous-failed', level: 'warn', reason: expect.stringContaining('refused the connection') },
      { kind: 'rejected' },
    ]);
  });

  it('is accepted again when a later check is answered, and then no operation is to blame', async () => {
    const { keyring, checkWith, events } = await keyringOf(new FakeStore(key1));
    let status = 401;
    checkWith(() => Promise.resolve(status));
    const old = inUse(keyring);
    keyring.refused(old, readOf('list-accounts'));
    await vi.advanceTimersByTimeAsync(2_000);
    expect(keyring.standingOf(old)).toBe('rejected');
    status = 200;
    await vi.advanceTimersByTimeAsync(1_000);
    expect(keyring.standingOf(old)).toBe('healthy');
    expect(kinds(events)).toEqual(['loaded', 'rejected', 'accepted-again']);
    keyring.refused(old, readOf('list-accounts'));
    expect(keyring.standingOf(old)).toBe('suspect');
  });

  it.each([
    [204, 'healthy'],
    [304, 'healthy'],
    [403, 'healthy'],
    [300, 'suspect'],
    [404, 'suspect'],
    [429, 'suspect'],
    [500, 'suspect'],
  ] as const)('that the upstream answers with %i afterwards is %s', async (status, standing) => {
    const { keyring } = await keyringOf(new FakeStore(key1));
    const key = inUse(keyring);
    keyring.refused(key, readOf('list-accounts'));
    await vi.advanceTimersByTimeAsync(10);
    keyring.accepted(key, status, performance.now(), readOf('list-accounts'));
    expect(keyring.standingOf(key)).toBe(standing);
    expect(keyring.health().lastAcceptedAt === null).toBe(standing === 'suspect');
  });

  it('stays suspect when a request sent before the refusal is answered late', async () => {
    const { keyring } = await keyringOf(new FakeStore(key1));
    const old = inUse(keyring);
    const sentMs = performance.now();
    await vi.advanceTimersByTimeAsync(10);
    keyring.refused(old, readOf('list-accounts'));
    await vi.advanceTimersByTimeAsync(10);
    keyring.accepted(old, 200, sentMs, readOf('list-accounts'));
    expect(keyring.standingOf(old)).toBe('suspect');
    keyring.accepted(old, 200, performance.now(), readOf('list-accounts'));
    expect(keyring.standingOf(old)).toBe('healthy');
  });

  const provesNothing: readonly [name: string, check: () => Promise<number | undefined>][] = [
    ['hang', () => new Promise<number>(() => {})],
    ['are answered with a fault', () => Promise.resolve(503)],
    ['are answered with 404', () => Promise.resolve(404)],
    ['are answered with 429', () => Promise.resolve(429)],
    ['are not answered', () => Promise.reject(new Error('unreachable'))],
  ];

  it.each(provesNothing)('stays in use, and nothing falls back, while checks %s', async (_, check) => {
    const store = new FakeStore(key1);
    store.previous = key2;
    const { keyring, checkWith, events } = await keyringOf(store);
    checkWith(check);
    const old = inUse(keyring);
    keyring.refused(old, readOf('odd'));
    expect(keyring.standingOf(old)).toBe('suspect');
    const replaced = keyring.replace(old, within(25_000));
    await vi.advanceTimersByTimeAsync(2_000);
    // The one that was refused waited for a swap; others go up.
    await expect(replaced).resolves.toBe(old);
    expect(keyring.standingOf(old)).toBe('healthy');
    await vi.advanceTimersByTimeAsync(60_000);
    expect(keyring.standingOf(old)).toBe('healthy');
    expect(keyring.current).toBe(old);
    expect(kinds(events)).toEqual(['loaded', 'operation-refused']);
  });

  it.each(provesNothing)(
    'is rejected while checks %s once reads of two operations were refused and none is accepted',
    async (_, check) => {
      const { keyring, checkWith, events } = await keyringOf(new FakeStore(key1));
      checkWith(check);
      const old = inUse(keyring);
      keyring.refused(old, readOf('one'));
      await vi.advanceTimersByTimeAsync(1_900);
      keyring.refused(old, readOf('other'));
      await vi.advanceTimersByTimeAsync(100);
      expect(keyring.standingOf(old)).toBe('rejected');
      expect(kinds(events)).toEqual(['loaded', 'rejected']);
    },
  );

  it('stays in use when two operations are refused, a third was accepted before, and checks prove nothing', async () => {
    const { keyring, checkWith } = await keyringOf(new FakeStore(key1));
    checkWith(() => Promise.resolve(500));
    const old = inUse(keyring);
    keyring.accepted(old, 200, performance.now(), readOf('third'));
    keyring.refused(old, readOf('one'));
    keyring.refused(old, readOf('other'));
    await vi.advanceTimersByTimeAsync(1_900);
    expect(keyring.standingOf(old)).toBe('healthy');
    // The third is refused as well: nothing is left that speaks for the key.
    keyring.refused(old, readOf('third'));
    expect(keyring.standingOf(old)).toBe('suspect');
    await vi.advanceTimersByTimeAsync(100);
    expect(keyring.standingOf(old)).toBe('rejected');
  });

  it('gives way to the previous one, and is not rejected, where the only operation is refused twice', async () => {
    const store = new FakeStore(key1);
    store.previous = key2;
    const { keyring, checkWith, events } = await keyringOf(store);
    checkWith((_key, { operation }) => Promise.resolve(operation === 'only' ? 401 : 500));
    const old = inUse(keyring);
    keyring.refused(old, readOf('only'));
    await vi.advanceTimersByTimeAsync(2_000);
    const previous = await keyring.replace(old, within(25_000));
    if (previous === undefined) throw new Error('nothing to fall back to');
    expect(previous.hasValue(key2)).toBe(true);
    // That one is refused as well: it says nothing about other operations.
    keyring.refused(previous, readOf('only'));
    expect(keyring.standingOf(old)).toBe('healthy');
    expect(keyring.current).toBe(old);
    expect(kinds(events)).toEqual(['loaded', 'operation-refused']);
  });

  it('is checked with the read that was accepted last, then with the specification’s, then with the refused one', async () => {
    const { keyring, checkWith } = await keyringOf(new FakeStore(key1));
    const asked: string[] = [];
    checkWith((_key, { path, query }) => {
      asked.push(path + query);
      return Promise.resolve(500);
    });
    const old = inUse(keyring);
    for (const [atMs, read] of [
      [1, { ...readOf('a'), query: '?first' }],
      [3, { ...readOf('b'), query: '?last' }],
      [2, { ...readOf('c'), query: '?second' }],
    ] as const) {
      keyring.accepted(old, 200, atMs, read);
    }
    keyring.refused(old, { ...readOf('a'), query: '?refused' });
    await vi.advanceTimersByTimeAsync(500);
    // Of the refused operation the read that was accepted before.
    expect(asked).toEqual(['/b/?last', '/users/api-keys/', '/analytics/accounts/', '/a/?first']);
  });

  it.each([
    ['is rejected where both reads of the specification are refused', 401, 'rejected'],
    ['stays in use where only the read that lists the keys is refused', 403, 'healthy'],
  ] as const)('a refused key %s', async (_, toAccounts, standing) => {
    const { keyring, checkWith } = await keyringOf(new FakeStore(key1));
    checkWith((_key, { path }) => Promise.resolve(path === '/analytics/accounts/' ? toAccounts : 401));
    const old = inUse(keyring);
    keyring.refused(old, { ...readOf('list-api-keys'), path: '/users/api-keys/' });
    await vi.advanceTimersByTimeAsync(2_000);
    expect(keyring.standingOf(old)).toBe(standing);
  });

  it('stays in use where all is refused but the one read of the specification that was asked last', async () => {
    const store = new FakeStore(key1);
    store.previous = key2;
    const { keyring, checkWith, events } = await keyringOf(store);
    checkWith((_key, { operation }) => Promise.resolve(operation === 'list-accounts' ? 200 : 401));
    const old = inUse(keyring);
    keyring.refused(old, readOf('posts'));
    await vi.advanceTimersByTimeAsync(100);
    keyring.refused(old, readOf('comments'));
    await vi.advanceTimersByTimeAsync(5_000);
    expect(keyring.standingOf(old)).toBe('healthy');
    expect(keyring.current).toBe(old);
    expect(kinds(events)).not.toContain('rejected');
  });

  it('stays in use where a read of the specification was accepted before and its check proves nothing', async () => {
    const { keyring, checkWith } = await keyringOf(new FakeStore(key1));
    let toAccounts = 503;
    checkWith((_key, { operation }) => Promise.resolve(operation === 'list-accounts' ? toAccounts : 401));
    const old = inUse(keyring);
    keyring.accepted(old, 200, performance.now(), readOf('list-accounts'));
    keyring.refused(old, readOf('posts'));
    await vi.advanceTimersByTimeAsync(3_000);
    expect(keyring.standingOf(old)).toBe('healthy');
    // It is refused as well: no read is left that may be accepted.
    toAccounts = 401;
    keyring.refused(old, readOf('list-accounts'));
    await vi.advanceTimersByTimeAsync(3_000);
    expect(keyring.standingOf(old)).toBe('rejected');
  });

  it('that was rejected is checked with each read of the specification again and again, however many others were refused', async () => {
    const { keyring, checkWith } = await keyringOf(new FakeStore(key1));
    let asked: string[] = [];
    checkWith((_key, { operation }) => {
      asked.push(operation);
      return Promise.resolve(401);
    });
    const old = inUse(keyring);
    for (let at = 0; at < 50; at++) keyring.refused(old, readOf(`read-${at}`));
    await vi.advanceTimersByTimeAsync(2_000);
    expect(keyring.standingOf(old)).toBe('rejected');
    for (let turn = 0; turn < 3; turn++) {
      asked = [];
      await vi.advanceTimersByTimeAsync(4 * 60_000);
      expect(asked).toEqual(expect.arrayContaining(['list-api-keys', 'list-accounts']));
      expect(asked.some((operation) => operation.startsWith('read-'))).toBe(true);
    }
  });

  it('is rejected, or gives way, also when the upstream takes longer than two seconds to refuse a check', async () => {
    for (const previous of [undefined, key2]) {
      const store = new FakeStore(key1);
      store.previous = previous;
      const { keyring, checkWith } = await keyringOf(store);
      checkWith(() => new Promise((resolve) => setTimeout(() => resolve(401), 5_000)));
      const old = inUse(keyring);
      keyring.refused(old, readOf('list-accounts'));
      await vi.advanceTimersByTimeAsync(4_900);
      expect(keyring.standingOf(old)).toBe('healthy');
      await vi.advanceTimersByTimeAsync(1_000);
      expect(keyring.standingOf(old)).toBe(previous === undefined ? 'rejected' : 'suspect');
      const other = await keyring.replace(old, within(25_000));
      expect(other?.hasValue(key2)).toBe(previous === undefined ? undefined : true);
    }
  });

  it('that was rejected has a way out though the specification’s read never works', async () => {
    const { keyring, checkWith, events } = await keyringOf(new FakeStore(key1));
    let accepted = false;
    checkWith((_key, { operation }) => Promise.resolve(accepted && operation === 'b' ? 200 : 401));
    const old = inUse(keyring);
    keyring.accepted(old, 200, performance.now(), readOf('b'));
    keyring.refused(old, readOf('a'));
    await vi.advanceTimersByTimeAsync(10_000);
    expect(keyring.standingOf(old)).toBe('rejected');
    accepted = true;
    await vi.advanceTimersByTimeAsync(60_000);
    expect(keyring.standingOf(old)).toBe('healthy');
    expect(kinds(events)).toEqual(['loaded', 'rejected', 'accepted-again']);
  });

  it('holds up no request for longer while the store hangs; what it gives in the end is used', async () => {
    const store = new FakeStore(key1, false);
    const { keyring, checkWith, events } = await keyringOf(unwatched(store), { refreshMs: 600_000 });
    await vi.advanceTimersByTimeAsync(0);
    const checks: number[] = [];
    checkWith(() => {
      checks.push(performance.now());
      return Promise.resolve(401);
    });
    const old = inUse(keyring);
    let give: (text: string) => void = () => {};
    store.value = new Promise((resolve) => {
      give = resolve;
    });
    const loads = store.loads;
    keyring.refused(old, readOf('list-accounts'));
    const replaced = keyring.replace(old, within(25_000));
    await vi.advanceTimersByTimeAsync(2_000);
    await expect(replaced).resolves.toBeUndefined();
    expect(keyring.standingOf(old)).toBe('rejected');
    // Nor does it hold up the checks.
    await vi.advanceTimersByTimeAsync(5_000);
    expect(checks.length).toBeGreaterThanOrEqual(3);
    expect(store.loads - loads).toBe(1);
    give(key2);
    await vi.advanceTimersByTimeAsync(0);
    expect(keyring.current?.hasValue(key2)).toBe(true);
    expect(kinds(events)).toEqual(['loaded', 'rejected', 'rotated']);
  });

  it('holds up no request for longer while the store of the previous key hangs, which is tried when it comes', async () => {
    const store = new FakeStore(key2);
    const { keyring, checkWith, events } = await keyringOf(store);
    let give: (text: string) => void = () => {};
    store.loadPrevious = () =>
      new Promise((resolve) => {
        give = resolve;
      });
    checkWith(() => Promise.resolve(401));
    const newest = inUse(keyring);
    keyring.refused(newest, readOf('list-accounts'));
    const replaced = keyring.replace(newest, within(25_000));
    await vi.advanceTimersByTimeAsync(2_000);
    await expect(replaced).resolves.toBeUndefined();
    expect(keyring.standingOf(newest)).toBe('rejected');
    give(key1);
    await vi.advanceTimersByTimeAsync(0);
    expect(keyring.standingOf(newest)).toBe('suspect');
    const previous = await keyring.replace(newest, within(25_000));
    if (previous === undefined) throw new Error('nothing to fall back to');
    keyring.accepted(previous, 200, performance.now(), readOf('list-accounts'));
    expect(keyring.current?.hasValue(key1)).toBe(true);
    expect(kinds(events)).toEqual(['loaded', 'rejected', 'fell-back']);
  });

  it('gives way to the previous one, which is adopted when the upstream takes it', async () => {
    const store = new FakeStore(key2);
    store.previous = key1;
    const { keyring, events } = await keyringOf(store);
    const newest = inUse(keyring);
    const previous = await otherAfterRefusal(keyring);
    expect(previous.hasValue(key1)).toBe(true);
    expect(keyring.current).toBe(newest);
    keyring.accepted(previous, 200, performance.now(), readOf('list-accounts'));
    expect(keyring.current).toBe(previous);
    expect(kinds(events)).toEqual(['loaded', 'fell-back']);
    // The store still offers the refused value: that is no change.
    await keyring.reload();
    expect(keyring.current).toBe(previous);
    // Searched for as long as the store offers it, and ten minutes more.
    await vi.advanceTimersByTimeAsync(11 * 60_000);
    expect(keyring.scrub.redact(key2)).not.toBe(key2);
    store.swap(key3);
    await vi.advanceTimersByTimeAsync(0);
    expect(keyring.current?.hasValue(key3)).toBe(true);
    await vi.advanceTimersByTimeAsync(11 * 60_000);
    expect(keyring.scrub.redact(key2)).toBe(key2);
  });

  it('is replaced for good when its store goes back to the key that was fallen back to', async () => {
    const store = new FakeStore(key2);
    store.previous = key1;
    const { keyring, events } = await keyringOf(store);
    const previous = await otherAfterRefusal(keyring);
    keyring.accepted(previous, 200, performance.now(), readOf('list-accounts'));
    expect(keyring.health()).toMatchObject({ fallenBack: true, source: 'fake:store (previous)' });
    store.swap(key1);
    await vi.advanceTimersByTimeAsync(0);
    expect(keyring.current).toBe(previous);
    expect(keyring.health()).toMatchObject({ fallenBack: false, source: 'fake:store', generation: 2 });
    expect(kinds(events)).toEqual(['loaded', 'fell-back']);
  });

  it('does not give way to a previous one of the same value', async () => {
    const store = new FakeStore(key2);
    store.previous = key2;
    const { keyring } = await keyringOf(store);
    const newest = inUse(keyring);
    keyring.refused(newest, readOf('list-accounts'));
    const replaced = keyring.replace(newest, within(25_000));
    await vi.advanceTimersByTimeAsync(2_000);
    await expect(replaced).resolves.toBeUndefined();
    expect(keyring.standingOf(newest)).toBe('rejected');
  });

  it('gives way to the key of another store, which is then named as the source', async () => {
    const newest = new FakeStore(key2);
    const { keyring, events } = await keyringOf(newest, {
      previousFrom: 'old:',
      open: (from) =>
        from === 'old:' ? { describe: 'old:place', local: true, load: async () => key1 } : newest,
    });
    expect(keyring.health().source).toBe('fake:store');
    const previous = await otherAfterRefusal(keyring);
    keyring.accepted(previous, 200, performance.now(), readOf('list-accounts'));
    expect(events.at(-1)).toMatchObject({ kind: 'fell-back', source: 'old:place' });
    expect(keyring.health().source).toBe('old:place');
    // A failure is that of the store that was asked.
    newest.swap(down);
    await vi.advanceTimersByTimeAsync(0);
    expect(events.at(-1)).toMatchObject({ kind: 'reload-failed', source: 'fake:store' });
    newest.swap(key3);
    await vi.advanceTimersByTimeAsync(0);
    expect(events.at(-1)).toMatchObject({ kind: 'rotated', source: 'fake:store' });
    expect(keyring.health()).toMatchObject({ source: 'fake:store', reloadFailure: null });
  });

  it('is tried again when the one fallen back to is refused, and that is no fall', async () => {
    const store = new FakeStore(key2);
    store.previous = key1;
    const { keyring, events } = await keyringOf(store);
    const tryOther = async () => {
      const other = await otherAfterRefusal(keyring);
      keyring.accepted(other, 200, performance.now(), readOf('list-accounts'));
      return other;
    };
    expect((await tryOther()).hasValue(key1)).toBe(true);
    expect(keyring.health().source).toBe('fake:store (previous)');
    await vi.advanceTimersByTimeAsync(11 * 60_000);
    expect((await tryOther()).hasValue(key2)).toBe(true);
    expect(keyring.health().source).toBe('fake:store');
    expect(keyring.generation()).toBe(3);
    expect(events.slice(1)).toMatchObject([
      { kind: 'fell-back', level: 'warn', source: 'fake:store (previous)', generation: 2 },
      { kind: 'went-back', level: 'info', source: 'fake:store', generation: 3 },
    ]);
    // It is what the store offers: searched for as long as that.
    await vi.advanceTimersByTimeAsync(11 * 60_000);
    expect(keyring.scrub.redact(key2)).not.toBe(key2);
    expect(keyring.scrub.redact(key1)).toBe(key1);
    expect(keyring.health().fallenBack).toBe(false);
    store.swap(key3);
    await vi.advanceTimersByTimeAsync(11 * 60_000);
    expect(keyring.scrub.redact(key2)).toBe(key2);
  });

  it('is rejected when the previous one is refused too', async () => {
    const store = new FakeStore(key2);
    store.previous = key1;
    const { keyring } = await keyringOf(store);
    const newest = inUse(keyring);
    const previous = await otherAfterRefusal(keyring);
    keyring.refused(previous, readOf('list-accounts'));
    expect(keyring.standingOf(newest)).toBe('rejected');
    await expect(keyring.replace(previous, within(25_000))).resolves.toBeUndefined();
  });

  it('is distinguished from one that was replaced already', async () => {
    const store = new FakeStore(key1);
    const { keyring } = await keyringOf(store);
    const old = inUse(keyring);
    store.swap(key2);
    await vi.advanceTimersByTimeAsync(0);
    keyring.refused(old, readOf('list-accounts'));
    const key = await keyring.replace(old, within(25_000));
    expect(key?.hasValue(key2)).toBe(true);
    expect(keyring.health().rejected).toBe(false);
  });
});

describe('a store that is asked to be read again during a read', () => {
  it('is read once more, however often it was asked', async () => {
    const store = new FakeStore(key1);
    const { keyring } = await keyringOf(unwatched(store));
    const { promise: slow, resolve } = Promise.withResolvers<string>();
    store.value = slow;
    void keyring.reload();
    // The read under way saw the old key.
    store.value = key2;
    for (let signals = 0; signals < 50; signals++) void keyring.reload();
    resolve(key1);
    await keyring.reload();
    expect(keyring.current?.hasValue(key2)).toBe(true);
    expect(store.loads).toBe(3);
  });
});

describe('a replaced key', () => {
  it('is searched for as long as an answer that was asked for with it may take', async () => {
    const store = new FakeStore(key1);
    const { keyring } = await keyringOf(store, { longestAnswerMs: 30 * 60_000 });
    store.swap(key2);
    await vi.advanceTimersByTimeAsync(29 * 60_000);
    expect(keyring.scrub.redact(key1)).not.toBe(key1);
    expect(keyring.health().beside.previousForgottenInSeconds).toBe(60);
    await vi.advanceTimersByTimeAsync(60_000);
    expect(keyring.scrub.redact(key1)).toBe(key1);
  });

  it('is searched for ten minutes more', async () => {
    const store = new FakeStore(key1);
    const { keyring } = await keyringOf(store);
    store.swap(key2);
    await vi.advanceTimersByTimeAsync(9 * 60_000);
    expect(keyring.scrub.redact(`${key1} ${key2}`)).not.toMatch(/-key-/);
    expect(keyring.health()).toMatchObject({ ageSeconds: 540, beside: { previousForgottenInSeconds: 60 } });
    // The machine's clock is set back.
    vi.setSystemTime(0);
    expect(keyring.health()).toMatchObject({ ageSeconds: 540 });
    await vi.advanceTimersByTimeAsync(60_000);
    expect(keyring.scrub.redact(key1)).toBe(key1);
    expect(keyring.scrub.redact(key2)).not.toBe(key2);
    expect(keyring.health().beside.previousForgottenInSeconds).toBeNull();
  });
});
