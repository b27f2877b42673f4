import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { parseStoreAddress } from '../../src/config/store-address.ts';
import { FleetMember, tryStore } from '../../src/fleet/fleet.ts';
import { SharedStore } from '../../src/fleet/store.ts';
import { StoreServers } from '../../src/fleet/store-servers.ts';
import { payloadOf } from '../../src/http/payload.ts';
import { Key } from '../../src/key/key.ts';
import { makeCertificate } from '../support/certificate.ts';
import { redisProgram } from '../support/redis.ts';
import {
  type RedisNode,
  type RedisSetOptions,
  speaksTls,
  startCluster,
  startSentinels,
  startServer,
} from '../support/redis-sets.ts';
import { contextFor, requestWith } from '../support/requests.ts';

const patiently = { timeout: 60_000 };
/** Slower than any answer of a busy machine. */
const limitMs = 2_000;

function open(address: string, options: { password?: string; sentinelPassword?: string } = {}) {
  const { password, sentinelPassword } = options;
  const reader = (text: string | undefined) => (text === undefined ? undefined : () => Promise.resolve(text));
  const servers = new StoreServers({
    address: parseStoreAddress(address),
    readPassword: reader(password),
    readSentinelPassword: reader(sentinelPassword),
    limitMs,
  });
  onTestFinished(() => servers.close());
  const join = (prefix: string) => new SharedStore({ servers, prefix, limitMs, onChange() {} });
  return { servers, join };
}

/** Writes and reads until both are done by the store, and a message comes. */
async function worksAt(store: SharedStore, news: string[], word: string): Promise<void> {
  await vi.waitFor(async () => {
    await store.tryAgain();
    const name = store.name('record');
    expect(await store.call((client) => client.set(name, word))).toBe('OK');
    expect(await store.call((client) => client.get(name))).toBe(word);
    await store.call((client) => client.publish(store.name('news'), word));
    expect(news).toContain(word);
  }, patiently);
}

function listen(store: SharedStore): string[] {
  const news: string[] = [];
  store.subscribe(store.name('news'), (message) => news.push(message.toString()));
  return news;
}

const gateOptions = {
  ...{ maxClosedMs: 300_000, baseMs: 500, capMs: 8_000, initialWindow: 10, maxInFlight: 64 },
  ...{ maxWaiting: 40, maxWaitingPerCaller: 15, random: () => 0.5 },
};

const at = ({ port }: RedisNode): string => `127.0.0.1:${port}`;

describe.skipIf(redisProgram === undefined)('a store behind sentinels', () => {
  it('is the master, and after its death the replica that takes its place, with passwords of both', async () => {
    const passwords = { password: 'of-the-store', sentinelPassword: 'of-the-sentinels' };
    await using set = await startSentinels(passwords);
    const { servers, join } = open(set.address, passwords);
    const store = join('test');
    const news = listen(store);
    await worksAt(store, news, 'before');
    const master = await set.master();
    expect(servers.servers).toEqual([at(master)]);
    await master.kill();
    await worksAt(store, news, 'after');
    expect(servers.servers).toEqual([at(await set.master())]);
    expect(servers.servers).not.toEqual([at(master)]);
  });

  it('says that the sentinels want a password, and nothing of the one that was wrong', async () => {
    await using set = await startSentinels({ sentinelPassword: 'of-the-sentinels' });
    const store = open(set.address, { sentinelPassword: 'a-wrong-word' }).join('test');
    await vi.waitFor(() => expect(store.snapshot().reason).toBe('the sentinels: WRONGPASS'), patiently);
    expect(JSON.stringify(store.snapshot())).not.toContain('word');
  });

  it('says what is wrong where the address names another kind of server, master or database, or its user lacks a right', async () => {
    await using set = await startSentinels();
    const [sentinel, master] = [at(set.sentinels[0] as RedisNode), at(set.nodes[0] as RedisNode)];
    const user = ['gateway', 'on', '>a-word', '~test:*', '&test:*', '+@all', '-info'];
    await set.nodes[0]?.command('ACL', 'SETUSER', ...user);
    for (const [address, said] of [
      [`redis+sentinel://${sentinel}/other`, 'the sentinels: no master has that name'],
      [`redis+sentinel://${master}/mymaster`, 'the sentinels: it does not know the command SENTINEL'],
      [`redis://${sentinel}`, 'it is a sentinel: SHARED_STORE is to begin with redis+sentinel://'],
      [`redis+cluster://${master}`, 'the nodes: it is no node of a cluster'],
      [`redis://${master}/99`, 'it has no database of that number'],
      [`redis://gateway@${master}`, 'its user may not run info'],
    ] as const) {
      const password = address.includes('@') ? { password: 'a-word' } : {};
      const store = open(address, password).join('test');
      await vi.waitFor(() => expect(store.snapshot().reason).toBe(said), patiently);
    }
  });

  it('is left where the sentinels name another master while the old one still answers', async () => {
    await using set = await startSentinels({ downAfterMs: 60_000 });
    const { servers, join } = open(set.address);
    const store = join('test');
    const news = listen(store);
    await worksAt(store, news, 'before');
    const old = await set.master();
    await set.sentinels[0]?.command('SENTINEL', 'FAILOVER', 'mymaster');
    await vi.waitFor(() => expect(servers.servers).not.toEqual([at(old)]), patiently);
    await worksAt(store, news, 'after');
  });
});

/** A sentinel that names this master, as elected the so-manieth time. */
async function fakeSentinel(master: RedisPlace, epoch: number): Promise<string> {
  const words = [
    'name',
    'mymaster',
    'ip',
    '127.0.0.1',
    'port',
    String(master.port),
    'config-epoch',
    String(epoch),
  ];
  const reply = `%4\r\n${words.map((word) => `$${word.length}\r\n${word}\r\n`).join('')}`;
  return serve((command) => (command.includes('SENTINEL') ? reply : undefined));
}

interface RedisPlace {
  readonly port: number;
}

/** A server that greets as a store does, and answers the rest like this. */
async function serve(answer: (command: string) => string | undefined): Promise<string> {
  const server: Server = createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', (bytes) => {
      for (const command of bytes.toString('latin1').split(/(?=\*\d+\r\n\$)/)) {
        const own = answer(command);
        if (own !== undefined) socket.write(own);
        else if (command.includes('HELLO')) socket.write('%1\r\n+server\r\n+redis\r\n');
        else if (command.includes('INFO')) socket.write('$19\r\nredis_version:7.2.0\r\n');
        else if (command.includes('TIME')) socket.write('*2\r\n$1\r\n5\r\n$1\r\n0\r\n');
        else socket.write('_\r\n');
      }
    });
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  onTestFinished(() => void server.close());
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const portOf = (server: string): number => Number(server.split(':')[1]);

describe('sentinels that do not agree', () => {
  it('a sentinel that was cut off names the master of before, and the latest election counts', async () => {
    const [old, current] = [await serve(() => undefined), await serve(() => undefined)];
    const sentinels = [
      await fakeSentinel({ port: portOf(old) }, 3),
      await fakeSentinel({ port: portOf(current) }, 4),
    ];
    const { servers, join } = open(`redis+sentinel://${sentinels.join(',')}/mymaster`);
    join('test');
    await vi.waitFor(() => expect(servers.servers).toEqual([current]), patiently);
  });
});

describe('a server that is there and not in charge', () => {
  it('a server that loads its data is not taken to be of use each time that it greets, and is used once it has', async () => {
    let isLoading = true;
    const info = () => `redis_version:7.2.0\r\nloading:${isLoading ? 1 : 0}\r\n`;
    const address = await serve((command) =>
      command.includes('INFO') ? `$${info().length}\r\n${info()}\r\n` : undefined,
    );
    const store = open(`redis://${address}`).join('test');
    await vi.waitFor(
      () => expect(store.snapshot()).toMatchObject({ inUse: false, reason: 'LOADING' }),
      patiently,
    );
    isLoading = false;
    await vi.waitFor(() => expect(store.snapshot().inUse).toBe(true), patiently);
  });

  it.each([
    ['READONLY', "-READONLY You can't write against a read only replica.\r\n"],
    ['LOADING', '-LOADING Redis is loading the dataset in memory\r\n'],
    ['MASTERDOWN', '-MASTERDOWN Link with MASTER is down\r\n'],
    ['NOAUTH', '-NOAUTH Authentication required.\r\n'],
    ['CLUSTERDOWN', '-CLUSTERDOWN The cluster is down\r\n'],
    ['NOREPLICAS', '-NOREPLICAS Not enough good replicas to write.\r\n'],
  ])('a server that answers %s is away, and used once it answers', async (code, refusal) => {
    let isInCharge = true;
    const address = await serve((command) =>
      command.includes('\r\nGET\r\n') && !isInCharge ? refusal : undefined,
    );
    const store = open(`redis://${address}`).join('test');
    const get = () => store.call((client) => client.get('any'));
    await vi.waitFor(async () => expect(await get()).toBeNull(), patiently);
    isInCharge = false;
    await get();
    await get();
    expect(store.snapshot()).toMatchObject({ inUse: false, reason: code });
    isInCharge = true;
    await vi.waitFor(async () => {
      await store.tryAgain();
      expect(store.snapshot().inUse).toBe(true);
    }, patiently);
  });

  it.skipIf(redisProgram === undefined)(
    'a replica is not used, for it answers what was true a moment ago',
    async () => {
      await using set = await startSentinels({ downAfterMs: 60_000 });
      const replica = set.nodes.find((node) => node !== set.nodes[0]) as RedisNode;
      const store = open(`redis://${at(replica)}`).join('test');
      await vi.waitFor(() => expect(store.snapshot().reason).toBe('it is a replica'), patiently);
      expect(await store.call((client) => client.get('any'))).toBeUndefined();
      await replica.command('REPLICAOF', 'NO', 'ONE');
      await vi.waitFor(() => expect(store.snapshot().inUse).toBe(true), patiently);
    },
  );
});

describe.skipIf(redisProgram === undefined)('a store that is a cluster', () => {
  it('has all names of a workspace on one node, and the workspaces on all, with one connection a node', async () => {
    await using set = await startCluster();
    const member = new FleetMember({
      ...{ address: parseStoreAddress(set.address), passwordFrom: undefined, prefix: 'test', limitMs },
      ...{ environment: {}, host: 'here', version: '0', startedAt: 0 },
    });
    const key = new Key('a-key-of-this-team', 1);
    const fleets = Array.from({ length: 100 }, (_, at) =>
      member.join({ ...{ name: `team-${at}`, scope: '', operations: [], key: () => key }, onChange() {} }),
    );
    onTestFinished(async () => void (await Promise.all(fleets.map((fleet) => fleet.close()))));
    await vi.waitFor(() => expect(fleets.every((fleet) => fleet.snapshot().inUse)).toBe(true), patiently);
    // A record ends when its bucket would be full: in a quarter of an hour.
    const limit = { perSecond: 0.001, burst: 5 };
    for (const fleet of fleets) expect(await fleet.buckets.take('caller', limit, 1)).toBeDefined();
    expect(fleets[0]?.snapshot().nodes).toHaveLength(3);
    for (const node of set.nodes) {
      // Those of the test itself come and go; the gateway's is the one that listens.
      const listeners = (await node.command('CLIENT', 'LIST', 'TYPE', 'pubsub')).split('\n').filter(Boolean);
      expect(listeners).toHaveLength(1);
      const names = (await node.command('KEYS', '{test:workspace:*}:limit:*')).split('\n').filter(Boolean);
      expect(names.length).toBeGreaterThan(10);
    }
    // One heartbeat for all of them.
    const beats = await Promise.all(set.nodes.map((node) => node.command('KEYS', '*:gateway:*')));
    expect(beats.join('\n').split('\n').filter(Boolean)).toHaveLength(1);
  }, 60_000);

  it('goes on where the slot of a workspace moves to another node, and misses no message', async () => {
    await using set = await startCluster();
    const { servers, join } = open(set.address);
    const store = join('test');
    const news = listen(store);
    await worksAt(store, news, 'before');
    const from = await set.owner('{test}');
    const to = set.nodes.find((node) => node !== from) as RedisNode;
    await set.moveSlot('{test}', from, to);
    await worksAt(store, news, 'after');
    expect(servers.servers).toEqual([at(to)]);
  });

  it('goes on with the replica of a node that is lost', async () => {
    await using set = await startCluster({ replicas: true });
    const { servers, join } = open(set.address);
    const store = join('test');
    const news = listen(store);
    await worksAt(store, news, 'before');
    const lost = await set.owner('{test}');
    await lost.kill();
    await worksAt(store, news, 'after');
    expect(servers.servers).not.toContain(at(lost));
  });

  it('is told of where one of its nodes is named as a single server', async () => {
    await using set = await startCluster();
    const address = parseStoreAddress(`redis://${at(set.nodes[0] as RedisNode)}`);
    const options = { ...{ address, prefix: 'test', passwordFrom: undefined, environment: {} }, limitMs };
    const { ok, problem } = await tryStore(options, 20_000);
    expect([ok, problem]).toEqual([false, expect.stringContaining('redis+cluster://')]);
  });
});

describe.skipIf(!speaksTls)('a store over TLS', () => {
  it.each([
    ['behind sentinels', startSentinels],
    ['that is a cluster', (options: RedisSetOptions) => startCluster({ ...options, replicas: true })],
  ] as const)(
    'a store over TLS %s is used with passwords from files, also after its server is lost, and not before its certificate is trusted',
    async (_, start) => {
      const certificate = makeCertificate();
      const [password, sentinelPassword] = ['of-the-store', 'of-the-sentinels'];
      await using set = await start({ certificate, password, sentinelPassword });
      const folder = mkdtempSync(join(tmpdir(), 'gateway-passwords-'));
      onTestFinished(() => rmSync(folder, { recursive: true }));
      const [storeFile, sentinelFile] = [join(folder, 'store'), join(folder, 'sentinels')];
      writeFileSync(storeFile, `${password}\n`);
      writeFileSync(sentinelFile, `${sentinelPassword}\n`);
      const options = {
        ...{ address: parseStoreAddress(set.address), prefix: 'test', environment: {}, limitMs },
        ...{ passwordFrom: `file:${storeFile}`, sentinelPasswordFrom: `file:${sentinelFile}` },
      };
      expect(set.address).toMatch(/^rediss\+/);
      const { ok, problem } = await tryStore(options, 20_000);
      expect([ok, problem]).toEqual([false, expect.stringContaining('DEPTH_ZERO_SELF_SIGNED_CERT')]);
      const trusted = getCACertificates('default');
      setDefaultCACertificates([...trusted, certificate.cert]);
      onTestFinished(() => setDefaultCACertificates(trusted));
      const member = new FleetMember({ ...options, host: 'here', version: '0', startedAt: 0 });
      const key = new Key('a-key-of-this-team', 1);
      const fleet = member.join({ name: '', scope: '', operations: [], key: () => key, onChange() {} });
      onTestFinished(() => fleet.close());
      const take = () => fleet.buckets.take('caller', { perSecond: 1, burst: 50 }, 1);
      await vi.waitFor(async () => expect(await take()).toBeDefined(), patiently);
      const [before] = fleet.snapshot().nodes;
      await set.nodes.find((node) => at(node) === before)?.kill();
      await vi.waitFor(async () => {
        expect(await take()).toBeDefined();
        expect(fleet.snapshot().nodes).not.toContain(before);
      }, patiently);
    },
    90_000,
  );
});

/** What `docs/shared-store.md` names. */
const documented = readFileSync(new URL('../../docs/shared-store.md', import.meta.url), 'utf8');
const [rights = '', clusterRights = ''] = [
  ...documented.matchAll(/^ {2}(\+[^\n]*(?:\n {2}\+[^\n]*)*)$/gm),
].map(([, found]) => found);

describe.skipIf(redisProgram === undefined)('the smallest rights', () => {
  it('without the right to subscribe are none: the store is not used, and check says so, where its user may not listen: each gateway would lead by itself', async () => {
    await using set = await startServer();
    const [node] = set.nodes as [RedisNode];
    const user = ['gateway', 'on', '>a-word', '~test:*', '&test:*', '+@all', '-subscribe'];
    await node.command('ACL', 'SETUSER', ...user);
    const address = `redis://gateway@${at(node)}`;
    const trial = { prefix: 'test', passwordFrom: 'env:WORD', environment: { WORD: 'a-word' }, limitMs };
    const { problem } = await tryStore({ ...trial, address: parseStoreAddress(address) }, 20_000);
    expect(problem).toBe('its user may not run subscribe');
    const store = open(address, { password: 'a-word' }).join('test');
    const news = listen(store);
    await vi.waitFor(() => expect(store.snapshot().reason).toBe('its user may not run subscribe'), patiently);
    await node.command('ACL', 'SETUSER', 'gateway', '+subscribe');
    await worksAt(store, news, 'after');
  });

  it.each([
    ['one server', startServer, 'analytics-gateway:*'],
    ['a cluster', startCluster, '{analytics-gateway*'],
  ] as const)(
    'are enough for all that a gateway does with %s, and none is left over',
    async (kind, start, names) => {
      await using set = await start();
      const isCluster = kind === 'a cluster';
      const allowed = `${rights} ${isCluster ? clusterRights : ''}`.split(/\s+/).filter(Boolean);
      for (const node of set.nodes) {
        const user = ['gateway', 'on', '>the-word', `~${names}`, `&${names}`, '-@all', ...allowed];
        expect(await node.command('ACL', 'SETUSER', ...user)).toBe('OK');
        await node.command('CONFIG', 'RESETSTAT');
      }
      const member = new FleetMember({
        address: parseStoreAddress(set.address.replace('//', '//gateway@')),
        ...{
          passwordFrom: 'env:WORD',
          environment: { WORD: 'the-word' },
          prefix: 'analytics-gateway',
          limitMs,
        },
        ...{ host: 'here', version: '0', startedAt: 0 },
      });
      const key = new Key('a-key-of-this-team', 1);
      const fleet = member.join({
        ...{ name: '', scope: '', operations: ['list-accounts'], key: () => key, onChange() {} },
      });
      await vi.waitFor(() => expect(fleet.snapshot().inUse).toBe(true), patiently);
      const read = requestWith(contextFor());
      const exchange = await vi.waitFor(async () => {
        const look = await fleet.reads.look(read, { mayFind: true, awaited: undefined, mayTake: true });
        return look?.exchange ?? expect.unreachable();
      }, patiently);
      const answer = {
        ...{ status: 200, headers: {}, body: payloadOf(Buffer.from('{}')), generation: 1 },
        ...{ sentMs: performance.now(), receivedMs: performance.now(), receivedAt: Date.now() },
      };
      // While its turn is renewed.
      await new Promise((resolve) => setTimeout(resolve, 600));
      const outcome = { kind: 'answered', answer, forwardStatus: undefined } as const;
      exchange.publish({ kind: 'outcome', outcome, replaces: true });
      fleet.reads.purge(undefined);
      await fleet.buckets.take('caller', { perSecond: 1, burst: 5 }, 1);
      const limits = [{ count: 10, windowMs: 1_000 }];
      fleet.makeScheduler({ ...gateOptions, limits: limits as never }, () => undefined);
      await vi.waitFor(() => expect(fleet.snapshot().gate.role).toBe('leads'), patiently);
      await fleet.close();
      const logs = await Promise.all(set.nodes.map((node) => node.command('ACL', 'LOG')));
      expect(logs.join('')).toBe('');
      const stats = await Promise.all(set.nodes.map((node) => node.command('INFO', 'commandstats')));
      const called = new Set(
        [...stats.join('\n').matchAll(/^cmdstat_([^:]+):/gm)].map(([, name]) => `+${name}`),
      );
      // Only with a database of its own, and where a workspace moves to another server.
      const rare = ['+select', '+unsubscribe'];
      expect(allowed.filter((right) => !called.has(right) && !rare.includes(right))).toEqual([]);
    },
  );
});
