import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { ErrorReply } from '@redis/client';
import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import type { SharedBuckets } from '../../src/callers/limit.ts';
import { parseStoreAddress, passwordInClear } from '../../src/config/store-address.ts';
import { FleetMember, tryStore } from '../../src/fleet/fleet.ts';
import { Membership } from '../../src/fleet/membership.ts';
import type { KeySealing } from '../../src/fleet/sealing.ts';
import { createSealing } from '../../src/fleet/sealing.ts';
import { shareBuckets } from '../../src/fleet/shared-buckets.ts';
import { SharedStore, type StoreChange } from '../../src/fleet/store.ts';
import { describeError } from '../../src/fleet/store-connection.ts';
import { StoreServers } from '../../src/fleet/store-servers.ts';
import { Key } from '../../src/key/key.ts';
import { checkHere } from '../support/command-line.ts';
import { type RedisServer, redisProgram, startRedis } from '../support/redis.ts';
import { contextFor, requestWith } from '../support/requests.ts';

/** A store that is only slow, because the machine is, must not seem away. */
const patientMs = 10_000;
const opened: StoreServers[] = [];
afterEach(() => {
  for (const servers of opened.splice(0)) servers.close();
});

function open(
  server: Pick<RedisServer, 'address'>,
  password?: string,
  limitMs?: number,
): { store: SharedStore; servers: StoreServers; changes: StoreChange[] } {
  const changes: StoreChange[] = [];
  const servers = new StoreServers({
    address: parseStoreAddress(server.address),
    ...(password === undefined ? {} : { readPassword: () => Promise.resolve(password) }),
    limitMs,
  });
  const store = new SharedStore({
    ...{ servers, prefix: 'test', limitMs },
    onChange: (change) => changes.push(change),
  });
  opened.push(servers);
  return { store, servers, changes };
}

const inUse = (store: SharedStore): Promise<void> =>
  vi.waitFor(() => expect(store.snapshot().inUse).toBe(true));
const away = (store: SharedStore): Promise<void> =>
  vi.waitFor(() => expect(store.snapshot().inUse).toBe(false));
const get = (store: SharedStore): Promise<string | null | undefined> =>
  store.call((client) => client.get(store.name('record')));

describe.skipIf(redisProgram === undefined)('the shared store', () => {
  it('a store answers calls and tells its clock once it is reached', async () => {
    await using server = await startRedis();
    const { store } = open(server, undefined, patientMs);
    await inUse(store);
    expect(await store.call((client) => client.set(store.name('record'), 'value'))).toBe('OK');
    expect(await get(store)).toBe('value');
    expect(await store.call((client) => client.get(store.name('no', 'such')))).toBeNull();
    const here = store.clock.at(performance.now()) ?? Number.NaN;
    expect(Math.abs(here - Date.now())).toBeLessThan(1_000);
  });

  it('a store delivers the messages of a channel, also to a store that subscribed before it was reached', async () => {
    await using server = await startRedis();
    const { store } = open(server);
    const messages: string[] = [];
    store.subscribe('test:news', (message) => messages.push(message.toString()));
    await inUse(store);
    await vi.waitFor(async () => {
      await store.call((client) => client.publish('test:news', 'hello'));
      expect(messages).toContain('hello');
    });
  });

  it('a store gives no answer, and no error, while it is not reached, and is used once it is', async () => {
    await using server = await startRedis();
    await server.kill();
    const { store } = open(server, undefined, patientMs);
    expect(await get(store)).toBeUndefined();
    await server.start();
    await inUse(store);
    expect(await get(store)).toBeNull();
  });

  it('a store delivers the messages of a channel to a store that subscribed long before it was reached', async () => {
    await using server = await startRedis();
    await server.kill();
    const { store } = open(server);
    const messages: string[] = [];
    store.subscribe('test:news', (message) => messages.push(message.toString()));
    await vi.waitFor(() => expect(store.snapshot().reason).not.toBe('it was not reached yet'));
    await server.start();
    await inUse(store);
    await vi.waitFor(async () => {
      await store.call((client) => client.publish('test:news', 'late'));
      expect(messages).toContain('late');
    });
  });

  it('a store is away when its process is killed, and used again with its subscriptions when it returns', async () => {
    await using server = await startRedis();
    const { store, changes } = open(server);
    const messages: string[] = [];
    store.subscribe('test:news', (message) => messages.push(message.toString()));
    await inUse(store);
    await server.kill();
    await away(store);
    expect(await get(store)).toBeUndefined();
    await server.start();
    await inUse(store);
    await vi.waitFor(async () => {
      await store.call((client) => client.publish('test:news', 'again'));
      expect(messages).toContain('again');
    });
    expect(changes.map(({ state }) => state)).toEqual(['in use', 'away', 'in use']);
  });

  it('a store that stands still is asked twice and then once a second until it answers', async () => {
    await using server = await startRedis();
    const { store } = open(server);
    await inUse(store);
    const callsBefore = store.snapshot().calls;
    server.freeze();
    expect(await get(store)).toBeUndefined();
    expect(await get(store)).toBeUndefined();
    expect(store.snapshot()).toMatchObject({ inUse: false, reason: 'it did not answer within 50 ms' });
    for (let call = 0; call < 100; call += 1) expect(await get(store)).toBeUndefined();
    expect(store.snapshot().calls - callsBefore).toBeLessThanOrEqual(3);
    server.thaw();
    await vi.waitFor(async () => expect(await get(store)).toBeNull());
    expect(store.snapshot().inUse).toBe(true);
  });

  it('a store that answers a process which stalled for longer than the limit is not away', async () => {
    await using server = await startRedis();
    const { store } = open(server, undefined, 800);
    await inUse(store);
    const asked = store.call((client) => client.blPop('test:nothing', 0.05));
    // The process stalls.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1_000);
    // A call that fails gives `undefined`.
    expect(await asked).toBeNull();
    expect(store.snapshot().failures).toBe(0);
  });

  it('a store that refuses the password says so and nothing of the password', async () => {
    await using server = await startRedis('--requirepass', 'the-right-password');
    const { store } = open(server, 'a-wrong-password');
    await vi.waitFor(() => expect(store.snapshot().reason).toBe('WRONGPASS'));
    expect(await get(store)).toBeUndefined();
    expect(JSON.stringify(store.snapshot())).not.toContain('password');
    const { store: right } = open(server, 'the-right-password');
    await inUse(right);
  });

  it('a store that is full refuses writes without harm', async () => {
    await using server = await startRedis('--maxmemory', '1mb', '--maxmemory-policy', 'noeviction');
    const { store } = open(server);
    await inUse(store);
    expect(
      await store.call((client) => client.set(store.name('large'), 'x'.repeat(2_000_000))),
    ).toBeUndefined();
    expect(store.snapshot().failures).toBeGreaterThanOrEqual(1);
  });

  it('a store that holds data of another kind under a name fails that call alone', async () => {
    await using server = await startRedis();
    const { store } = open(server);
    await inUse(store);
    await server.command('LPUSH', 'test:record', 'x');
    for (let call = 0; call < 5; call += 1) expect(await get(store)).toBeUndefined();
    expect(await store.call((client) => client.get('test:other'))).toBeNull();
    expect(store.snapshot().inUse).toBe(true);
  });
});

/** What the store's client asks for when it connects, answered as Valkey and Redis do. */
function greeting(command: string): string | undefined {
  const [, name, channel = ''] = command.split('\r\n').filter((_, index) => index % 2 === 0);
  if (name === 'HELLO') return '%1\r\n+server\r\n+redis\r\n';
  if (name === 'INFO') return '$19\r\nredis_version:7.2.0\r\n';
  if (name === 'subscribe') return `>3\r\n+subscribe\r\n$${channel.length}\r\n${channel}\r\n:1\r\n`;
  return undefined;
}

/** A store that answers its scripts like this. */
async function serveStore(answer: (command: string, write: (reply: string) => void) => void) {
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', (bytes) => {
      for (const command of bytes.toString('latin1').split(/(?=\*\d+\r\n\$)/)) {
        const known = greeting(command);
        if (known !== undefined) socket.write(known);
        else answer(command, (reply) => void socket.write(reply));
      }
    });
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  onTestFinished(() => void server.close());
  return { address: `redis://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

/** A gateway's side of such a store. */
async function joinServer(answer: (command: string) => string) {
  const { address } = await serveStore((command, write) => write(answer(command)));
  return joinAt(address);
}

function joinAt(address: string) {
  const key = new Key('a-key-of-this-team', 1);
  const member = new FleetMember({
    ...{ address: parseStoreAddress(address), passwordFrom: undefined, prefix: 'test' },
    ...{ environment: {}, host: 'here', version: '0', startedAt: 0, limitMs: 10_000 },
  });
  const fleet = member.join({
    ...{ name: '', scope: '', operations: ['list-accounts'], key: () => key, onChange() {} },
  });
  onTestFinished(() => fleet.close());
  return fleet;
}

describe('a store that answers in another form', () => {
  it.each([
    ['a number', ':5\r\n'],
    ['nothing', '_\r\n'],
    ['a text', '+text\r\n'],
    ['an empty list', '*0\r\n'],
    ['a list of other things', '*4\r\n*0\r\n*0\r\n_\r\n_\r\n'],
  ])('a store that answers %s to everything is away', async (_, answer) => {
    const fleet = await joinServer(() => answer);
    // Heartbeats alone tell so, and no fault of them ends the process.
    await vi.waitFor(
      () =>
        expect(fleet.snapshot()).toMatchObject({
          inUse: false,
          reason: 'it answers in another form than Valkey and Redis do',
        }),
      { timeout: 20_000 },
    );
    expect(await fleet.buckets.take('caller', { perSecond: 1, burst: 1 }, 1)).toBeUndefined();
  });

  it.each([
    ['a number', ':5\r\n'],
    ['an empty list', '*0\r\n'],
  ])('a look at a store that answers %s to everything says that it cannot be used', async (_, answer) => {
    const { address } = await serveStore((_command, write) => write(answer));
    const options = {
      address: parseStoreAddress(address),
      ...{ prefix: 'test', passwordFrom: undefined, environment: {}, limitMs: 10_000 },
    };
    expect(await tryStore(options, 20_000)).toMatchObject({
      ok: false,
      problem: 'it answers in another form than Valkey and Redis do',
    });
  });

  it('a store that says of a turn that something has it which is no exchange of a gateway lets no read wait', async () => {
    const fleet = await joinServer((command) =>
      command.includes('list-accounts')
        ? '*5\r\n_\r\n_\r\n_\r\n_\r\n$5\r\nhello\r\n'
        : '-ERR nothing else\r\n',
    );
    const look = () =>
      fleet.reads.look(requestWith(contextFor()), { mayFind: false, awaited: undefined, mayTake: true });
    await vi.waitFor(
      async () => expect(await look()).toMatchObject({ stored: undefined, other: undefined }),
      { timeout: 20_000 },
    );
  });
});

describe.skipIf(redisProgram === undefined)("a caller's bucket in the shared store", () => {
  const limit = { perSecond: 0.01, burst: 60 };
  const keys: KeySealing = { sealing: createSealing(() => Buffer.alloc(32)), generation: 1 };
  const gatewaysOf = async (server: RedisServer, count: number) => {
    const stores = Array.from({ length: count }, () => open(server, undefined, 10_000).store);
    await Promise.all(stores.map(inUse));
    // One clock: on a busy machine a greeting of more than half a second would leave a clock far off.
    const [{ clock } = expect.unreachable()] = stores;
    return stores.map((store) => {
      const { name, run } = store;
      return shareBuckets({ clock, inUse: true, name: name.bind(store), run: run.bind(store) }, () => keys);
    });
  };
  const nameIn = async (server: RedisServer) => (await server.command('KEYS', '*:limit:*')).trim();

  it("a caller's bucket in the shared store counts what all gateways let through, also at the same time", async () => {
    await using server = await startRedis();
    const gateways = await gatewaysOf(server, 3);
    await Promise.all([...gateways, ...gateways].map((one) => one.take('a', limit, 5)));
    const left = await Promise.all(gateways.map((one) => one.take('a', limit, 15)));
    // Three bursts at once: what is too much is missing.
    expect(Math.min(...left.map(Number))).toBeCloseTo(-15, 0);
  });

  it("a caller's bucket in the shared store is one for each window, and kept until it ends", async () => {
    await using server = await startRedis();
    const [one, other] = (await gatewaysOf(server, 2)) as [SharedBuckets, SharedBuckets];
    const day = { perSecond: 1, burst: 86_400, windowMs: 86_400_000 };
    expect(await one.take('a', day, 20)).toBe(86_380);
    expect(await other.take('a', day, 5)).toBe(86_375);
    const keptMs = Number((await server.command('PTTL', await nameIn(server))).replace(/\D/g, ''));
    expect(keptMs).toBeLessThanOrEqual(day.windowMs - (Date.now() % day.windowMs) + 2_000);
    expect(await one.take('a', limit, 1)).toBeCloseTo(59, 0);
    expect((await nameIn(server)).split(/\s+/)).toHaveLength(2);
  });

  it.each<[string, (name: string) => readonly string[]]>([
    ['a level of its own', (name) => ['SET', name, '-3600 1 x']],
    [
      'a level of its own with the signature of ours',
      (name) => [
        'EVAL',
        `local v = redis.call('GET', KEYS[1]) redis.call('SET', KEYS[1], '-3600' .. string.sub(v, string.find(v, ' '), -1))`,
        '1',
        name,
      ],
    ],
    ['no number', (name) => ['SET', name, 'nan nan nan']],
    [
      'data of another kind',
      (name) => [
        'EVAL',
        `redis.call('DEL', KEYS[1]) redis.call('HSET', KEYS[1], 'level', '-3600', 'at', '1')`,
        '1',
        name,
      ],
    ],
    ['nothing any more', (name) => ['DEL', name]],
    ['what we wrote before', (name) => ['COPY', 'before', name, 'REPLACE']],
  ])(
    "a caller's bucket in the shared store in whose place another program puts %s is no emptier for it, nor fuller for gateways that know it",
    async (_, words) => {
      await using server = await startRedis();
      const [one, late] = (await gatewaysOf(server, 2)) as [SharedBuckets, SharedBuckets];
      await one.take('a', limit, 20);
      const name = await nameIn(server);
      await server.command('COPY', name, 'before');
      await one.take('a', limit, 20);
      await server.command(...words(name));
      // It comes new, and believes what was signed.
      const level = (await late.take('a', limit, 1)) ?? Number.NaN;
      expect(level).toBeGreaterThan(18);
      await server.command(...words(name));
      expect(await one.take('a', limit, 1)).toBeCloseTo(19, 0);
    },
  );
});

describe.skipIf(redisProgram === undefined)('a read in the shared store', () => {
  const read = requestWith(contextFor());
  const find = { mayFind: false, awaited: undefined, mayTake: true } as const;

  it.each<[string, (id: string) => string, endsFirst: boolean]>([
    ['an exchange that there never was', () => randomUUID(), false],
    ['what looks like a turn of ours', (id) => `${id} ${Date.now()} ${'A'.repeat(43)}`, false],
    ['a turn of an exchange that has ended', () => '', true],
    ['a turn of a gateway that has renewed none for a second', () => '', false],
  ])(
    'a read in the shared store whose turn another program gives to %s is held up by nothing',
    async (_, forged, endsFirst) => {
      await using server = await startRedis();
      const [one, late] = [joinAt(server.address), joinAt(server.address)];
      for (const fleet of [one, late]) await vi.waitFor(() => expect(fleet.snapshot().inUse).toBe(true));
      const taken = (await one.reads.look(read, find))?.exchange;
      const { other = 'none' } = (await late.reads.look(read, find)) ?? {};
      expect(other).toMatch(/^[0-9a-f-]{36}$/);
      const turn = (await server.command('KEYS', '*:turn:*')).trim();
      const before = await server.command('GET', turn);
      await server.command('DEL', turn);
      if (endsFirst) {
        taken?.release();
        await late.reads.wait(other, contextFor());
      } else await new Promise((resolve) => setTimeout(resolve, 1_100));
      await server.command('SET', turn, forged(other) || before, 'PX', '799');
      expect(await late.reads.look(read, find)).toMatchObject({ stored: undefined, other: undefined });
    },
  );
});

describe.skipIf(redisProgram === undefined)('gateways in the shared store', () => {
  it('gateways in the shared store share a limit with those alone that have the same key and said so lately, whatever another program adds', async () => {
    await using server = await startRedis();
    const store = open(server, undefined, 10_000).store;
    await inUse(store);
    const join = (purpose: string) => {
      const keys = { sealing: createSealing(() => Buffer.alloc(32, purpose)), generation: 1 };
      const member = new Membership({ host: 'here', version: '0', startedAt: 0, store });
      member.join({ name: 'eu', sealing: () => keys });
      const workspace = { name: '', sealing: () => keys };
      member.join(workspace);
      return Object.assign(member, { workspace });
    };
    const [one, two, other] = [join('a'), join('a'), join('b')];
    for (const member of [one, two, other, one]) await member.beat();
    const sharing = () => one.sharing(one.workspace);
    expect([one.members.length, sharing()]).toEqual([3, 2]);
    const said = await server.command('GET', `test:gateway:${two.id}`);
    const future = String(Number.MAX_SAFE_INTEGER);
    const add = async (id: string, facts: string) => {
      await server.command('ZADD', 'test:gateways', future, id);
      await server.command('SET', `test:gateway:${id}`, facts);
    };
    for (let made = 10; made < 60; made += 1) await add(`000000${made}`, said);
    await add(
      '00000060',
      JSON.stringify({ host: 'x', version: '0', startedAt: 0, proof: `${Date.now()} x` }),
    );
    await one.beat();
    expect([one.members.length, sharing()]).toEqual([54, 2]);
    // It has gone, and what it last said is kept alive.
    const lives = async (): Promise<number> => {
      await add(two.id, said);
      await one.beat();
      return sharing();
    };
    await expect.poll(lives, { timeout: 30_000, interval: 500 }).toBe(1);
  });
});

describe.skipIf(redisProgram === undefined)('a long text in the shared store', () => {
  it('a long text in the shared store, which no gateway has written, is not sent to one, whatever its name', async () => {
    await using server = await startRedis();
    const { store } = open(server, undefined, 10_000);
    await inUse(store);
    for (const name of ['answer', 'turn', 'outcome', 'test:gateway:00000001', 'bucket', 'lease', 'known'])
      await server.command('SETRANGE', name, '4000000', 'x');
    await server.command('EXPIRE', 'turn', '1');
    await server.command('EXPIRE', 'lease', '1');
    const long = 'x'.repeat(100_000);
    await server.command('HSET', 'purges', '*', long, 'list-accounts', long);
    await server.command('ZADD', 'gateways', '9e15', '00000001', '9e15', long);
    const bytes = (part: unknown): number =>
      Array.isArray(part) ? part.reduce((sum, one) => sum + bytes(one), 0) : String(part ?? '').length;
    const sent = await Promise.all([
      store.run(
        'look',
        ['answer', 'turn', 'outcome', 'purges'],
        ['a', '9000', 'list-accounts', '1', '0'],
        bytes,
      ),
      store.run('heartbeat', ['gateways'], ['00000002', 'facts', '3000', 'test:gateway:'], bytes),
      store.run('purges', ['purges'], ['*', 'list-accounts'], bytes),
      store.run('lease', ['lease', 'known'], ['a', '9000', 'look', '', '1000', ''], bytes),
      store.run('bucket', ['bucket'], ['', 'b', '1000'], bytes),
    ]);
    for (const size of sent) expect(size).toBeLessThan(200);
  });
});

describe.skipIf(redisProgram === undefined)('what is of another kind in the shared store', () => {
  it('what is of another kind in the shared store gives way to what gateways write', async () => {
    await using server = await startRedis();
    const { store } = open(server, undefined, 10_000);
    await inUse(store);
    const others = ['answer', 'turn', 'outcome', 'purges', 'gateways', 'lease', 'known', 'bucket'];
    for (const name of others) await server.command('RPUSH', name, 'x');
    const looked = ['answer', 'turn', 'outcome', 'purges'];
    const run = async (...call: Parameters<typeof store.run>): Promise<unknown> =>
      JSON.parse(
        JSON.stringify(await store.run(...call), (_, one) => (one?.data ? String(Buffer.from(one)) : one)),
      );
    expect(await run('look', looked, ['mine', '800', 'list-accounts', '1', '1'])).toEqual([
      ...[null, null, null, null],
      'mine',
    ]);
    expect(await run('purges', ['purges'], ['*'])).toEqual([null]);
    expect(await run('purge', ['purges'], ['*', 'part', 'channel'])).toMatch(/-part$/);
    expect(await run('heartbeat', ['gateways'], ['00000002', 'facts', '3000', 'of:'])).toEqual([
      ['00000002'],
      ['facts'],
    ]);
    const [held] = (await run(
      'lease',
      ['lease', 'known'],
      ['one', '990', 'take', '', '1000', ''],
    )) as string[];
    expect(held).toMatch(/^one \d+$/);
    expect(await run('bucket', ['bucket'], ['', 'b', '1000'])).toBe('b');
    expect(await run('renew', ['turn'], ['mine', '800', 'mine later'])).toBe(1);
    expect(store.snapshot().failures).toBe(0);
  });
});

describe.skipIf(redisProgram === undefined)('the lease in the shared store', () => {
  it.each(['5', '9e15', 'nonsense'])(
    'the lease in the shared store keeps its term where another program writes the term %s into it',
    async (forged) => {
      await using server = await startRedis();
      const { store } = open(server, undefined, 10_000);
      await inUse(store);
      const take = async (term = ''): Promise<number> => {
        const values = ['one', '990', 'take', '', '1000', term];
        const reply = (held: (Buffer | null)[]) => Number(held[0]?.toString().split(' ')[1]);
        return (await store.run('lease', ['lease', 'known'], values, reply)) ?? Number.NaN;
      };
      const first = await take();
      await server.command('SET', 'lease', `one ${forged}`, 'PX', '990');
      expect(await take(String(first))).toBe(first);
      // One that does not lead yet believes none either.
      await server.command('SET', 'lease', `one ${forged}`, 'PX', '990');
      const term = await take();
      expect(term).toBeGreaterThanOrEqual(first);
      expect(term).toBeLessThan(first + 3_600_000);
    },
  );
});

describe('a store that is of no use at first', () => {
  it.each<[string, string, string | undefined]>([
    ['does not greet', 'HELLO', undefined],
    ['does not say which version it is', 'INFO', undefined],
    ['is loading', 'INFO', '-LOADING the data\r\n'],
  ])('a store that %s at first is greeted anew, and used then', async (_, name, first) => {
    let connections = 0;
    const server = createServer((socket) => {
      connections += 1;
      const isFirst = connections === 1;
      socket.on('error', () => {});
      socket.on('data', (bytes) => {
        for (const command of bytes.toString('latin1').split(/(?=\*\d+\r\n\$)/)) {
          if (isFirst && command.includes(name)) socket.write(first ?? '');
          else socket.write(greeting(command) ?? '*2\r\n$1\r\n5\r\n$1\r\n0\r\n');
        }
      });
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    onTestFinished(() => void server.close());
    const address = `redis://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const { store } = open({ address }, undefined, 20);
    await inUse(store);
    expect(connections).toBeGreaterThan(1);
  });
});

describe('a store that greets and hangs up', () => {
  it('a store that greets and hangs up is connected to less and less often', async () => {
    let connections = 0;
    const server = createServer((socket) => {
      connections += 1;
      socket.on('error', () => {});
      socket.on('data', (bytes) => {
        for (const command of bytes.toString('latin1').split(/(?=\*\d+\r\n\$)/)) {
          socket.write(greeting(command) ?? '*2\r\n$1\r\n5\r\n$1\r\n0\r\n');
          if (command.includes('INFO')) setImmediate(() => socket.destroy());
        }
      });
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    onTestFinished(() => void server.close());
    const { store, changes } = open({
      address: `redis://127.0.0.1:${(server.address() as AddressInfo).port}`,
    });
    await vi.waitFor(() => expect(connections).toBeGreaterThan(1));
    await new Promise((resolve) => setTimeout(resolve, 3_000));
    // After 50, 100, 200, 400, 800 and 1600 ms.
    expect(connections).toBeLessThan(9);
    expect(store.snapshot().inUse).toBe(false);
    expect(changes.length).toBeLessThan(20);
  });
});

it('a store that is closed while it connects leaves no connection, which would keep the process alive', async () => {
  const ended: boolean[] = [];
  const server = createServer((socket) => {
    socket.on('error', () => {}).resume();
    socket.on('close', () => ended.push(true));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const { servers, changes } = open({ address: `redis://127.0.0.1:${port}` }, undefined, 10_000);
  servers.close();
  await vi.waitFor(() => expect(ended).toHaveLength(1));
  expect(changes).toEqual([]);
});

it('a reply to TIME that comes too late does not set the clock', async () => {
  const held: (() => void)[] = [];
  const server = await serveStore((command, write) => {
    if (command.includes('\r\nTIME\r\n')) held.push(() => write('*2\r\n$1\r\n5\r\n$1\r\n0\r\n'));
    else write(command.includes('PING') ? '+PONG\r\n' : '-ERR nothing else\r\n');
  });
  const { store } = open(server, undefined, 500);
  await vi.waitFor(() => expect(store.inUse).toBe(true));
  for (const send of held) send();
  // Replies come in order.
  await vi.waitFor(async () => expect(await store.call((client) => client.ping())).toBe('PONG'), {
    timeout: 20_000,
  });
  expect(store.clock.at(0)).toBeUndefined();
});

describe('the gateways that the store names', () => {
  it.each([
    [0, ['1970-01-01T00:00:00.000Z']],
    [1e300, []],
    ['0', []],
  ])(
    'a gateway that says it started at %j is shown only where that is a moment',
    async (startedAt, shown) => {
      const said = JSON.stringify({ host: 'other', version: '0', startedAt });
      const heard = `*2\r\n*1\r\n$8\r\n0011aabb\r\n*1\r\n$${said.length}\r\n${said}\r\n`;
      const server = await serveStore((command, write) => {
        if (command.includes('EVALSHA')) write(heard);
        else write(command.includes('PING') ? '+PONG\r\n' : '-ERR nothing else\r\n');
      });
      const { store } = open(server, undefined, 10_000);
      await vi.waitFor(() => expect(store.inUse).toBe(true));
      const membership = new Membership({ store, host: 'here', version: '0', startedAt: 0 });
      await membership.beat();
      expect(membership.members.map((member) => member.startedAt)).toEqual(shown);
    },
  );
});

describe.skipIf(redisProgram === undefined)('a look at the shared store', () => {
  it('a look at the store is made once more where the first answer is late, and not a third time', async () => {
    await using server = await startRedis();
    const run = vi.spyOn(SharedStore.prototype, 'run');
    const options = {
      address: parseStoreAddress(server.address),
      ...{ prefix: 'test', passwordFrom: undefined, environment: {}, limitMs: 20_000 },
    };
    run.mockResolvedValueOnce(undefined);
    expect(await tryStore(options, 20_000)).toMatchObject({ ok: true });
    run.mockReset().mockResolvedValue(undefined);
    expect(await tryStore(options, 20_000)).toMatchObject({ ok: false, problem: 'it did not answer' });
    expect(run).toHaveBeenCalledTimes(2);
    run.mockRestore();
  });
});

describe('the address of the shared store', () => {
  it.each([
    [
      'redis://store:6380/2',
      { kind: 'tcp', host: 'store', port: 6380, tls: false, username: undefined, database: 2 },
    ],
    [
      'rediss://gate@store',
      { kind: 'tcp', host: 'store', port: 6379, tls: true, username: 'gate', database: 0 },
    ],
    [
      'redis://[::1]:7000',
      { kind: 'tcp', host: '::1', port: 7000, tls: false, username: undefined, database: 0 },
    ],
    ['unix:/run/store.sock', { kind: 'unix', path: '/run/store.sock' }],
    [
      'redis+sentinel://gate@one:26380,two,[::1]/my-master/3',
      {
        ...{ kind: 'sentinel', tls: false, username: 'gate', master: 'my-master', database: 3 },
        servers: [
          { host: 'one', port: 26_380 },
          { host: 'two', port: 26_379 },
          { host: '::1', port: 26_379 },
        ],
      },
    ],
    [
      'rediss+cluster://one,two:7000',
      {
        ...{ kind: 'cluster', tls: true, username: undefined },
        servers: [
          { host: 'one', port: 6_379 },
          { host: 'two', port: 7_000 },
        ],
      },
    ],
  ])('%s is understood', (text, address) => {
    expect(parseStoreAddress(text)).toEqual(address);
  });

  it.each([
    'store:6379',
    'http://store',
    'redis://',
    'redis://user:secret@store',
    'redis+sentinel://user:secret@one,two/master',
    'redis+sentinel://one,two',
    'redis+cluster://one,two/1',
    'redis+cluster://one,,two',
    'redis+cluster://one:secret',
    'redis://one,two',
    'redis://store/x',
    'redis://store?x=1',
    'unix:here',
  ])('%s is refused with a reason that does not repeat it', (text) => {
    const refused = expect(() => parseStoreAddress(text));
    refused.toThrow(TypeError);
    refused.not.toThrow(/secret/);
  });
});

describe('what a store answers in place of a reply', () => {
  it.each([
    [
      "ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'x'",
      'it does not know the command HELLO',
    ],
    ["NOPERM User x has no permissions to run the 'config|get' command", 'its user may not run config|get'],
    [
      'NOPERM this user has no permissions to access one of the keys used as arguments',
      'its user may not use these names',
    ],
    [
      "ERR ACL failure in script: User x has no permissions to run the 'set' command script: x",
      'its user may not run set',
    ],
    [
      "ERR The user executing the script can't run this command or subcommand script: x",
      'its user may not run a command of a script',
    ],
    [
      "ERR The user executing the script can't access at least one of the keys mentioned",
      'its user may not use these names',
    ],
    [
      "ERR The user executing the script can't publish to the channel mentioned",
      'its user may not use these channels',
    ],
    ["OOM command not allowed when used memory > 'maxmemory'.", 'OOM'],
    ['ERR value x is not an integer', 'ERR'],
  ])('what a store answers in place of a reply, as %s, is told without its arguments', (text, told) => {
    expect(describeError(new ErrorReply(text))).toBe(told);
  });
});

describe('the password of the shared store', () => {
  it.each([
    ['redis://store', 'env:PASSWORD', true],
    ['redis://gateway@10.0.0.7:6380', 'file:/run/secrets/password', true],
    ['redis://[fd00::7]', 'env:PASSWORD', true],
    ['redis://store', undefined, false],
    ['rediss://store', 'env:PASSWORD', false],
    ['redis://localhost', 'env:PASSWORD', false],
    ['redis://127.0.0.1', 'env:PASSWORD', false],
    ['redis://[::1]', 'env:PASSWORD', false],
    ['unix:/run/store.sock', 'env:PASSWORD', false],
    ['redis+sentinel://127.0.0.1,10.0.0.7/master', 'env:PASSWORD', true],
    ['redis+cluster://127.0.0.1:7000,localhost', 'env:PASSWORD', false],
    ['rediss+cluster://one,two', 'env:PASSWORD', false],
  ])('the password of the shared store at %s from %s is warned of: %s', (text, from, isWarnedOf) => {
    const warning = passwordInClear(parseStoreAddress(text), from);
    expect(warning !== undefined).toBe(isWarnedOf);
    if (isWarnedOf) expect(warning).toContain('to another machine in clear');
  });

  it('check says that the password of the shared store goes in clear, also where the store cannot be reached', async () => {
    const { stdout, report } = await checkHere({
      UPSTREAM_BASE_URL: 'http://127.0.0.1:9/api',
      UPSTREAM_API_KEY: 'a-key-of-this-team',
      SHARED_STORE: 'redis://store.invalid',
      SHARED_STORE_PASSWORD_FROM: 'env:PASSWORD',
      PASSWORD: 'the-password',
      REQUEST_TIMEOUT: '1s',
      UPSTREAM_TIMEOUT: '500ms',
    });
    expect(stdout).toContain(
      'Warning: SHARED_STORE: redis:// sends the password to another machine in clear',
    );
    expect(report.sharedStore?.warning).toContain('in clear');
    expect(stdout).not.toContain('the-password');
  });
});
