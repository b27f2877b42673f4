/** Redis servers of a test's own that stand together: a master with its replica and sentinels, or a cluster. */
import { type ChildProcess, execFile, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { redisProgram } from './redis.ts';

const run = promisify(execFile);

/** One server on a loopback port. */
export interface RedisNode {
  readonly port: number;
  /** Its sockets stay open, and nothing is answered. */
  freeze(): void;
  thaw(): void;
  kill(): Promise<void>;
  start(): Promise<void>;
  /** One command by `redis-cli`. Resolves with what it prints. */
  command(...words: readonly string[]): Promise<string>;
}

export interface RedisSet extends AsyncDisposable {
  /** For `SHARED_STORE`. */
  readonly address: string;
  readonly nodes: readonly RedisNode[];
}

export interface SentinelSet extends RedisSet {
  readonly sentinels: readonly RedisNode[];
  /** The one that the sentinels name now. */
  master(): Promise<RedisNode>;
}

export interface ClusterSet extends RedisSet {
  /** Moves the slot of this name from one master to another while it is in use. */
  moveSlot(name: string, from: RedisNode, to: RedisNode): Promise<void>;
  /** Moves all slots of one master to another while it is in use. */
  moveSlots(from: RedisNode, to: RedisNode): Promise<void>;
  /** A master that is not this one. A node that has given all its slots away is none any more. */
  otherMaster(node: RedisNode): Promise<RedisNode>;
  /** The master that has the slot of this name now. */
  owner(name: string): Promise<RedisNode>;
}

export interface RedisSetOptions {
  readonly password?: string | undefined;
  /** Of the sentinels. */
  readonly sentinelPassword?: string;
  /** After which a server that does not answer is taken to be down. */
  readonly downAfterMs?: number;
  /** All of them speak nothing but TLS, to each other as well, with this certificate. */
  readonly certificate?: { readonly key: string; readonly cert: string };
}

/** Beside the server, or any: a Valkey that comes without one speaks with that of Redis. */
const cliProgram =
  ['valkey-cli', 'redis-cli']
    .map((name) => join(dirname(redisProgram ?? ''), name))
    .find((path) => existsSync(path)) ?? 'redis-cli';

/** Whether the server was built with TLS. */
export const speaksTls = redisProgram !== undefined && hasTls(redisProgram);

function hasTls(program: string): boolean {
  const { stdout } = spawnSync(program, ['--port', '0', '--tls-port', '1', '--tls-cert-file', '/nowhere'], {
    encoding: 'utf8',
    timeout: 10_000,
  });
  const isBuiltIn = !/TLS support/i.test(stdout);
  if (!isBuiltIn && process.env['REQUIRE_REDIS'] === 'true') throw new Error(`${program} has no TLS`);
  if (!isBuiltIn) process.stderr.write('left out: TLS to the shared store, which this server cannot\n');
  return isBuiltIn;
}

/** Free now, with the port of a cluster's bus, which is 10,000 higher. */
async function freePort(): Promise<number> {
  for (;;) {
    const server = createServer();
    const port = 12_000 + Math.floor(Math.random() * 10_000);
    const isFree = await new Promise((resolve) => {
      server.once('error', () => resolve(false)).listen(port, '127.0.0.1', () => resolve(true));
    });
    if (!isFree) continue;
    const { port: taken } = server.address() as AddressInfo;
    server.close();
    await once(server, 'close');
    return taken;
  }
}

/** What servers and `redis-cli` are told of the certificate, which lies in this folder. */
function tlsOptions(folder: string, { certificate }: RedisSetOptions) {
  if (certificate === undefined) return { server: [], cli: [] };
  const [keyFile, certFile] = [join(folder, 'tls.key'), join(folder, 'tls.crt')];
  writeFileSync(keyFile, certificate.key);
  writeFileSync(certFile, certificate.cert);
  const server = [
    ...[`tls-key-file ${keyFile}`, `tls-cert-file ${certFile}`, `tls-ca-cert-file ${certFile}`],
    ...['tls-auth-clients no', 'tls-replication yes'],
  ];
  return { server, cli: ['--tls', '--cacert', certFile] };
}

async function openNode(folder: string, setOptions: RedisSetOptions, ...options: readonly string[]) {
  const { password, certificate } = setOptions;
  const port = await freePort();
  const name = `node-${port}`;
  let child: ChildProcess | undefined;
  const secret = password === undefined ? [] : ['--requirepass', password, '--masterauth', password];
  const tls = tlsOptions(folder, setOptions);
  const listens =
    certificate === undefined ? [`port ${port}`] : ['port 0', `tls-port ${port}`, ...tls.server];
  const common = [
    ...listens.flatMap((line) => `--${line}`.split(' ')),
    '--bind',
    '127.0.0.1',
    '--save',
    '',
    '--dir',
    folder,
    ...secret,
    '--repl-diskless-sync-delay',
    '0',
  ];
  async function command(...words: readonly string[]): Promise<string> {
    const login = password === undefined ? [] : ['-a', password, '--no-auth-warning'];
    const asked = ['-p', String(port), ...tls.cli, ...login, ...words];
    const { stdout } = await run(cliProgram, asked, { timeout: 20_000 });
    return stdout.trim();
  }
  async function answers(): Promise<void> {
    for (let tries = 0; tries < 500; tries += 1) {
      const reply = await command('PING').catch(() => '');
      if (reply === 'PONG') return;
      await sleep(20);
    }
    throw new Error(`the server on port ${port} does not answer`);
  }
  const isSentinel = options.includes('--sentinel');
  return {
    port,
    command,
    async start() {
      // A sentinel writes its file anew: what it has learned stays there.
      const own = isSentinel ? [join(folder, `${name}.conf`), '--sentinel'] : [...common, ...options];
      const tail = options.includes('--cluster-enabled') ? ['--cluster-config-file', `${name}.conf`] : [];
      child = spawn(redisProgram ?? '', [...own, ...tail], { stdio: 'ignore' });
      await answers();
    },
    freeze: () => void child?.kill('SIGSTOP'),
    thaw: () => void child?.kill('SIGCONT'),
    async kill() {
      if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
      const ended = once(child, 'exit');
      child.kill('SIGCONT');
      child.kill('SIGKILL');
      await ended;
    },
    write(lines: readonly string[]) {
      const login = password === undefined ? [] : [`requirepass ${password}`];
      const text = [...listens, 'bind 127.0.0.1', `dir ${folder}`, ...login, ...lines].join('\n');
      writeFileSync(join(folder, `${name}.conf`), `${text}\n`);
    },
  };
}

/** A single server. */
export async function startServer(): Promise<RedisSet> {
  const folder = mkdtempSync(join(tmpdir(), 'gateway-server-'));
  const node = await openNode(folder, {});
  await node.start();
  return {
    address: `redis://127.0.0.1:${node.port}`,
    nodes: [node],
    async [Symbol.asyncDispose]() {
      await node.kill();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** A master, its replica, and three sentinels. */
export async function startSentinels(options: RedisSetOptions = {}): Promise<SentinelSet> {
  const { password, sentinelPassword, downAfterMs = 1_000, certificate } = options;
  const scheme = certificate === undefined ? 'redis' : 'rediss';
  const folder = mkdtempSync(join(tmpdir(), 'gateway-sentinels-'));
  const [first, second] = [await openNode(folder, options), await openNode(folder, options)];
  await Promise.all([first.start(), second.start()]);
  await second.command('REPLICAOF', '127.0.0.1', String(first.port));
  const sentinels: Awaited<ReturnType<typeof openNode>>[] = [];
  for (let count = 0; count < 3; count += 1) {
    const sentinel = await openNode(folder, { ...options, password: sentinelPassword }, '--sentinel');
    sentinel.write([
      `sentinel monitor mymaster 127.0.0.1 ${first.port} 2`,
      ...(password === undefined ? [] : [`sentinel auth-pass mymaster ${password}`]),
      ...(sentinelPassword === undefined ? [] : [`sentinel sentinel-pass ${sentinelPassword}`]),
      `sentinel down-after-milliseconds mymaster ${downAfterMs}`,
      'sentinel failover-timeout mymaster 5000',
    ]);
    sentinels.push(sentinel);
  }
  await Promise.all(sentinels.map((sentinel) => sentinel.start()));
  const nodes = [first, second];
  const named = async (): Promise<string> =>
    (await sentinels[0]?.command('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', 'mymaster')) ?? '';
  // Each knows the other sentinels and the replica, else no failover is agreed upon.
  for (let tries = 0; tries < 500; tries += 1) {
    const known = await Promise.all(
      sentinels.map((sentinel) => sentinel.command('SENTINEL', 'MASTER', 'mymaster').catch(() => '')),
    );
    if (known.every((one) => /num-slaves\n1\n/.test(one) && /num-other-sentinels\n2\n/.test(one))) break;
    await sleep(50);
  }
  return {
    address: `${scheme}+sentinel://${sentinels.map(({ port }) => `127.0.0.1:${port}`).join(',')}/mymaster`,
    nodes,
    sentinels,
    async master() {
      const port = Number((await named()).split('\n')[1]);
      return nodes.find((node) => node.port === port) ?? first;
    },
    async [Symbol.asyncDispose]() {
      await Promise.all([...sentinels, ...nodes].map((node) => node.kill()));
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Three masters; with `replicas`, each has one. */
export async function startCluster(
  options: RedisSetOptions & { readonly replicas?: boolean } = {},
): Promise<ClusterSet> {
  const { password, replicas = false, downAfterMs = 1_000, certificate } = options;
  const scheme = certificate === undefined ? 'redis' : 'rediss';
  const folder = mkdtempSync(join(tmpdir(), 'gateway-cluster-'));
  const nodes: Awaited<ReturnType<typeof openNode>>[] = [];
  const settings = ['--cluster-enabled', 'yes', '--cluster-node-timeout', String(downAfterMs)];
  if (certificate !== undefined) settings.push('--tls-cluster', 'yes');
  for (let count = 0; count < (replicas ? 6 : 3); count += 1) {
    nodes.push(await openNode(folder, options, ...settings));
  }
  await Promise.all(nodes.map((node) => node.start()));
  const login = password === undefined ? [] : ['-a', password, '--no-auth-warning'];
  const servers = nodes.map(({ port }) => `127.0.0.1:${port}`);
  // Moving a slot prints a line.
  const cluster = (...words: readonly string[]) =>
    run(cliProgram, [...tlsOptions(folder, options).cli, ...login, '--cluster', ...words, '--cluster-yes'], {
      ...{ timeout: 60_000, maxBuffer: 2 ** 26 },
    });
  await cluster('create', ...servers, '--cluster-replicas', replicas ? '1' : '0');
  const isWhole = async (): Promise<boolean> => {
    const all = await Promise.all(nodes.map((node) => node.command('CLUSTER', 'INFO').catch(() => '')));
    const count = `cluster_known_nodes:${nodes.length}`;
    const links = await Promise.all(nodes.map((node) => node.command('INFO', 'replication').catch(() => '')));
    // A replica that has never been in step is not elected.
    const isInStep = links.filter((one) => one.includes('master_link_status:up')).length === nodes.length - 3;
    return isInStep && all.every((one) => one.includes('cluster_state:ok') && one.includes(count));
  };
  for (let tries = 0; tries < 500 && !(await isWhole()); tries += 1) await sleep(50);
  return {
    address: `${scheme}+cluster://${servers.slice(0, 3).join(',')}`,
    nodes,
    async moveSlot(name, from, to) {
      const slot = await from.command('CLUSTER', 'KEYSLOT', name);
      const [source, target] = await Promise.all([
        from.command('CLUSTER', 'MYID'),
        to.command('CLUSTER', 'MYID'),
      ]);
      await to.command('CLUSTER', 'SETSLOT', slot, 'IMPORTING', source);
      await from.command('CLUSTER', 'SETSLOT', slot, 'MIGRATING', target);
      const keys = (await from.command('CLUSTER', 'GETKEYSINSLOT', slot, '1000')).split('\n').filter(Boolean);
      for (const key of keys) await from.command('MIGRATE', '127.0.0.1', String(to.port), key, '0', '5000');
      for (const node of [to, from]) await node.command('CLUSTER', 'SETSLOT', slot, 'NODE', target);
    },
    async moveSlots(from, to) {
      const [source, target] = await Promise.all([
        from.command('CLUSTER', 'MYID'),
        to.command('CLUSTER', 'MYID'),
      ]);
      await cluster(
        ...['reshard', `127.0.0.1:${from.port}`, '--cluster-from', source, '--cluster-to', target],
        ...['--cluster-slots', String(await slotCount(from))],
      );
    },
    async otherMaster(node) {
      for (const other of nodes) {
        if (other !== node && (await other.command('ROLE')).startsWith('master')) return other;
      }
      throw new Error('there is no other master');
    },
    async owner(name) {
      const alive = nodes[0] as RedisNode;
      const slot = Number(await alive.command('CLUSTER', 'KEYSLOT', name));
      const lines = (await alive.command('CLUSTER', 'NODES')).split('\n');
      const found = lines.find((line) => {
        const [, , flags = '', , , , , , ...ranges] = line.split(' ');
        return flags.includes('master') && ranges.some((range) => isIn(range, slot));
      });
      const port = Number(/:(\d+)@/.exec(found ?? '')?.[1]);
      return nodes.find((node) => node.port === port) ?? alive;
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(nodes.map((node) => node.kill()));
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** How many hash slots a master has. */
async function slotCount(node: RedisNode): Promise<number> {
  const lines = (await node.command('CLUSTER', 'NODES')).split('\n');
  const [, , , , , , , , ...ranges] = lines.find((line) => line.includes('myself'))?.split(' ') ?? [];
  return ranges.reduce((sum, range) => {
    const [first = 0, last = first] = range.split('-').map(Number);
    return sum + last - first + 1;
  }, 0);
}

function isIn(range: string, slot: number): boolean {
  const [first = Number.NaN, last = first] = range.split('-').map(Number);
  return slot >= first && slot <= last;
}
