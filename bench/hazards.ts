/**
 * What a stranger can take of memory: the built gateway, with the image's flags, in a control group of 256 MiB, and
 * 10,000 connections of each kind from one address, one kind after the other, plain and by TLS. Meanwhile a caller from
 * another address has to be answered, and so has `/livez`.
 *
 *   npm run hazards [-- KIND…] [--connections N] [--memory MIB] [--scheme plain|tls]   (all: eight minutes on two cores)
 *
 * `--memory 0` sets no limit: what a connection of each kind costs. Exit status 1 where a check is broken.
 */
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, request as requestPlain } from 'node:http';
import { request as requestTls } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { makeCertificate } from '../test/support/certificate.ts';
import { standInKey, startStandIn } from '../test/support/stand-in/stand-in.ts';
import { type MemoryGroup, makeMemoryGroup } from './cgroup.ts';
import { type Deployed, startDeployed } from './deployed.ts';
import {
  isStrangerKind,
  type StrangerCounts,
  type StrangerKind,
  slowIssuer,
  stalledRead,
  strangerKinds,
} from './hazards/kinds.ts';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    connections: { type: 'string', default: '10000' },
    memory: { type: 'string', default: '256' },
    scheme: { type: 'string' },
  },
});
const connections = Number(values.connections);
const memoryMiB = Number(values.memory);
const kinds = positionals.length > 0 ? positionals.filter(isStrangerKind) : strangerKinds;
const schemes = values.scheme === undefined ? ['plain', 'tls'] : [values.scheme];
if (!(connections > 0) || !(memoryMiB >= 0) || kinds.length < positionals.length) {
  throw new TypeError(`npm run hazards [-- ${strangerKinds.join('|')}] [--connections N] [--memory MIB]`);
}

/**
 * A network of its own, with packets of Ethernet's size and buffers for sending of 64 KiB: by loopback alone the system
 * would take 3 MiB of what a caller does not read, and the other programs of the machine would feel it. `tcp_wmem` holds
 * for one network (tcp(7)).
 */
function startInOwnNetwork(): number | undefined {
  const script =
    '(ip link set lo up mtu 1500 || ifconfig lo 127.0.0.1 mtu 1500 up) && ' +
    'echo 4096 16384 65536 >/proc/sys/net/ipv4/tcp_wmem && exec "$@"';
  const program = ['sh', process.execPath, ...process.argv.slice(1)];
  const made = spawnSync('unshare', ['--net', 'true']);
  if (made.status !== 0) return undefined;
  const env = { ...process.env, [ownNetwork]: 'true' };
  return (
    spawnSync('unshare', ['--net', 'sh', '-c', script, ...program], { stdio: 'inherit', env }).status ?? 1
  );
}

const ownNetwork = 'GATEWAY_HAZARDS_NETWORK';
const accounts = '/api/analytics/accounts/';
/** Ten thousand connections that begin at once keep a processor busy for seconds. */
const mayTakeMs = 15_000;
/** How long the connections are held once the last of them was begun. */
const heldMs = 500;

interface Kept {
  readonly asked: number;
  readonly failures: readonly string[];
  readonly worstMs: number;
}

/** Asks from another address than the stranger's, one request after the other, each on a connection of its own. */
function startCaller(port: number, scheme: string): { end(): Promise<Kept> } {
  let asked = 0;
  let worstMs = 0;
  let isEnded = false;
  const failures: string[] = [];
  const askOnce = (path: string): Promise<void> =>
    new Promise((resolve) => {
      const startMs = performance.now();
      const done = (failure?: string): void => {
        if (failure !== undefined) failures.push(`${path}: ${failure}`);
        worstMs = Math.max(worstMs, performance.now() - startMs);
        asked += 1;
        resolve();
      };
      const options = { host: '127.0.0.1', port, path, localAddress: '127.0.0.2', agent: false };
      const outgoing =
        scheme === 'tls' ? requestTls({ ...options, rejectUnauthorized: false }) : requestPlain(options);
      outgoing
        .setTimeout(mayTakeMs, () => outgoing.destroy(new Error('no answer in time')))
        .on('response', (incoming) => {
          incoming
            .resume()
            .once('end', () => done(incoming.statusCode === 200 ? undefined : `${incoming.statusCode}`));
          incoming.once('error', (error) => done(error.message));
        })
        .on('error', (error: NodeJS.ErrnoException) => done(error.code ?? error.message))
        .end();
    });
  const run = (async () => {
    for (let round = 0; !isEnded; round++) {
      await askOnce('/livez');
      await askOnce(`${accounts}?round=${round}`);
      await sleep(20);
    }
  })();
  return {
    async end() {
      isEnded = true;
      await run;
      return { asked, failures, worstMs };
    },
  };
}

/** Starts an issuer whose keys never come. @returns the callers file that names it, and how to end it */
async function startSlowIssuer(folder: string): Promise<{ file: string; end(): void }> {
  const server = createServer(() => {});
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const jwks = `http://127.0.0.1:${(server.address() as AddressInfo).port}/keys`;
  const jwt = { issuer: slowIssuer, audience: 'gateway', jwks, match: { email: '*@example.com' } };
  const file = join(folder, 'callers.json');
  const callers = [
    { name: 'all', anonymous: true, operations: ['list-accounts'] },
    { name: 'staff', jwt },
  ];
  writeFileSync(file, JSON.stringify({ callers }));
  return {
    file,
    end() {
      server.close();
      server.closeAllConnections();
    },
  };
}

const strangerFile = fileURLToPath(new URL('./hazards/stranger.ts', import.meta.url));

/** @returns once all connections were begun, and were held for a moment */
async function actAsStranger(kind: StrangerKind, port: number, scheme: string) {
  const args = [strangerFile, kind, String(connections), String(port), scheme];
  const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  const exited = new Promise((resolve) => child.once('exit', resolve));
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const counts = async (): Promise<StrangerCounts> => {
    child.stdin.write('\n');
    return JSON.parse((await lines.next()).value as string) as StrangerCounts;
  };
  let now = await counts();
  for (let tries = 0; tries < 600 && now.held + now.ended < connections; tries++) {
    await sleep(100);
    now = await counts();
  }
  await sleep(heldMs);
  return {
    counts: await counts(),
    async end() {
      child.stdin.end();
      await exited;
    },
  };
}

function residentKiB(pid: number): number {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8');
    return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1] ?? 0);
  } catch {
    return 0;
  }
}

/** One kind of stranger, before a gateway of its own. @returns whether all checks are kept */
async function tryKind(
  folder: string,
  group: MemoryGroup | undefined,
  upstreamUrl: string,
  callersFile: string,
  kind: StrangerKind,
  scheme: string,
): Promise<boolean> {
  const lines = new Map<string, number>();
  const gateway: Deployed = await startDeployed({
    folder,
    within: group?.command ?? [],
    settings: {
      UPSTREAM_BASE_URL: upstreamUrl,
      UPSTREAM_API_KEY: standInKey,
      UPSTREAM_API_KEY_CHECK: 'off',
      ...(kind === 'waiting-login' ? { CALLERS_FILE: callersFile } : {}),
      ...(scheme === 'tls'
        ? { TLS_CERT_FILE: join(folder, 'cert.pem'), TLS_KEY_FILE: join(folder, 'key.pem') }
        : {}),
    },
    onLine(line) {
      const code = /"code":"(\w+)"/.exec(line)?.[1];
      if (code !== undefined) lines.set(code, (lines.get(code) ?? 0) + 1);
    },
  });
  let status: number | NodeJS.Signals | undefined;
  void gateway.exited.then((exit) => {
    status = exit;
  });
  const warming = startCaller(gateway.port, scheme);
  await sleep(300);
  await warming.end();
  const beforeKiB = residentKiB(gateway.pid);
  const startMs = performance.now();
  const caller = startCaller(gateway.port, scheme);
  const stranger = await actAsStranger(kind, gateway.port, scheme);
  const duringKiB = residentKiB(gateway.pid);
  const { asked, failures, worstMs } = await caller.end();
  await stranger.end();
  const isAlive = status === undefined;
  gateway.signal('SIGTERM');
  const exit = await Promise.race([gateway.exited, sleep(35_000, 'SIGKILL' as const)]);
  const { held } = stranger.counts;
  const kept = isAlive && exit === 0 && failures.length === 0;
  const each = held === 0 ? 0 : (duringKiB - beforeKiB) / held;
  process.stdout.write(
    `${kept ? 'kept  ' : 'BROKEN'} ${kind}, ${scheme}: ${connections} opened, ${held} held; ` +
      `${(beforeKiB / 1_024).toFixed(0)} → ${(duringKiB / 1_024).toFixed(0)} MiB, ${each.toFixed(1)} KiB each held; ` +
      `other caller: ${asked} asked, ${failures.length} failed, worst ${worstMs.toFixed(0)} ms; ` +
      `${((performance.now() - startMs) / 1_000).toFixed(1)} s; exit ${isAlive ? exit : status}; ` +
      `${[...lines].map(([code, count]) => `${count} × ${code}`).join(', ')}\n`,
  );
  for (const failure of failures.slice(0, 5)) process.stdout.write(`  ${failure}\n`);
  if (!kept && gateway.errors() !== '') process.stdout.write(`${gateway.errors().slice(0, 1_000)}\n`);
  return kept;
}

async function tryAll(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'gateway-hazards-'));
  const { cert, key } = makeCertificate();
  writeFileSync(join(folder, 'cert.pem'), cert);
  writeFileSync(join(folder, 'key.pem'), key, { mode: 0o600 });
  const group = memoryMiB === 0 ? undefined : makeMemoryGroup('gateway-hazards', memoryMiB * 2 ** 20);
  const standIn = await startStandIn();
  standIn.behave(({ target }) => (target.includes(stalledRead) ? { stallAt: 'before-headers' } : undefined));
  const issuer = await startSlowIssuer(folder);
  try {
    if (memoryMiB > 0 && group === undefined) {
      if (process.env['REQUIRE_CGROUP'] === 'true') throw new Error('no control group of memory can be made');
      process.stdout.write(
        'left out: hazards, for no control group of memory can be made here (it takes root)\n',
      );
      return;
    }
    for (const scheme of schemes) {
      for (const kind of kinds) {
        // Without TLS it is nothing but a malformed head.
        if (kind === 'long-hello' && scheme !== 'tls') continue;
        const isKept = await tryKind(folder, group, standIn.url, issuer.file, kind, scheme);
        if (!isKept) process.exitCode = 1;
      }
    }
    if (group !== undefined) {
      process.stdout.write(`the most that the group held: ${(group.peakBytes() / 2 ** 20).toFixed(0)} MiB\n`);
    }
  } finally {
    await standIn.close();
    issuer.end();
    group?.remove();
    rmSync(folder, { recursive: true });
  }
}

const status = process.env[ownNetwork] === undefined ? startInOwnNetwork() : undefined;
if (status === undefined) await tryAll();
else process.exitCode = status;
