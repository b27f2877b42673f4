/**
 * The wiring of deploy/compose.yaml, tried with plain processes: gateways with the settings of the file, HAProxy and
 * Prometheus with the files that it mounts. Names and ports of its network become free ports of loopback.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeAll, describe, expect, it } from 'vitest';
import { digestOf, mintToken } from '../../src/callers/token.ts';
import { readConfig } from '../../src/config/config.ts';
import { hasLibraries, importLibrary } from '../libraries/import-library.ts';
import { findOnPath } from '../support/find-on-path.ts';
import { accounts, ask } from '../support/gateway.ts';
import { type Owner, type Running, standInFor, start, temporaryFolder, until } from '../support/process.ts';
import { redisProgram } from '../support/redis.ts';
import { sharedOwner } from '../support/shared-owner.ts';
import { standInKey } from '../support/stand-in/stand-in.ts';

interface Service {
  readonly environment?: Readonly<Record<string, string>>;
  readonly volumes?: readonly string[];
  readonly ports?: readonly string[];
  readonly depends_on?: readonly string[];
  readonly stop_grace_period?: string;
  readonly command?: readonly string[];
}

const folder = new URL('../../deploy/', import.meta.url);
const read = (path: string): string => readFileSync(new URL(path, folder), 'utf8');
const gateways = ['gateway-1', 'gateway-2', 'gateway-3'];

async function composeServices(): Promise<Readonly<Record<string, Service>>> {
  const { parse } = (await importLibrary('yaml')) as {
    parse: (text: string, options: object) => { services: Record<string, Service> };
  };
  return parse(read('compose.yaml'), { merge: true }).services;
}

/** Long enough that no other text of a command line has it by chance. */
const storePassword = '0123456789abcdef'.repeat(4);

/** What the store answers to one command on a connection of its own. */
async function askStore(store: Store | undefined, command: string): Promise<string> {
  const socket = connect(store?.path ?? '');
  socket.write(`${command}\r\n`);
  const [bytes] = (await once(socket, 'data')) as [Buffer];
  socket.destroy();
  return bytes.toString();
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address() as { port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Starts another program; it ends with the test. */
function startProgram(
  { onTestFinished }: Owner,
  program: string,
  words: readonly string[],
  env: NodeJS.ProcessEnv = process.env,
): ChildProcess {
  const child = spawn(program, words, { stdio: 'ignore', env });
  const exited = new Promise((resolve) => child.once('close', resolve));
  onTestFinished(async () => {
    child.kill('SIGKILL');
    await exited;
  });
  return child;
}

interface Wired {
  readonly name: string;
  readonly port: number;
  readonly adminPort: number;
  readonly running: Running;
}

/**
 * The store as the file starts it, where a program for it is installed: on a socket of its own and not a port, and with
 * the entry point of its image left out.
 */
async function startStore(
  owner: Owner,
  { command = [] }: Service,
  passwordFile: string,
): Promise<Store | undefined> {
  if (redisProgram === undefined) return undefined;
  const bin = temporaryFolder(owner);
  const path = join(bin, 'store.sock');
  const shims = {
    'docker-entrypoint.sh': 'exec "$@"',
    'valkey-server': `exec ${redisProgram} "$@" --port 0 --unixsocket ${path} --dir ${bin}`,
  };
  for (const [name, text] of Object.entries(shims)) {
    writeFileSync(join(bin, name), `#!/bin/sh\n${text}\n`, { mode: 0o755 });
  }
  // Compose reads $$ as $.
  const [program = '', ...words] = command.map((word) =>
    word.replaceAll('$$', '$').replaceAll('/run/secrets/store-password', passwordFile),
  );
  const child = startProgram(owner, program, words, { PATH: `${bin}:${process.env['PATH']}` });
  await until(() => existsSync(path) || child.exitCode !== null);
  return { child, address: `unix:${path}`, path };
}

interface Store {
  readonly child: ChildProcess;
  readonly address: string;
  readonly path: string;
}

/** The three gateways and their store with the settings of the file, but for what names its network or its volumes. */
async function startGateways(
  owner: Owner,
  secret: string,
): Promise<{ wired: Wired[]; store: Store | undefined }> {
  const standIn = await standInFor(owner);
  const secrets = temporaryFolder(owner);
  writeFileSync(join(secrets, 'upstream-key'), standInKey);
  const callers = [{ name: 'one', tokens: [{ sha256: digestOf(secret) }] }];
  writeFileSync(join(secrets, 'callers.json'), JSON.stringify({ callers }));
  const services = await composeServices();
  writeFileSync(join(secrets, 'store-password'), `${storePassword}\n`);
  const store = await startStore(owner, services['valkey'] ?? {}, join(secrets, 'store-password'));
  const wired = await Promise.all(
    gateways.map(async (name) => {
      const [port, adminPort] = [await freePort(), await freePort()];
      const { environment = {} } = services[name] ?? {};
      const { SHARED_STORE: _, SHARED_STORE_PASSWORD_FROM: from = '', ...others } = environment;
      const passwordFrom = from.replace('/run/secrets/gateway', secrets);
      const settings =
        store === undefined
          ? others
          : { ...others, SHARED_STORE: store.address, SHARED_STORE_PASSWORD_FROM: passwordFrom };
      const running = start(owner, ['serve'], {
        settings: {
          ...settings,
          UPSTREAM_BASE_URL: standIn.url,
          UPSTREAM_API_KEY_FROM: `file:${secrets}/upstream-key`,
          CALLERS_FILE: `${secrets}/callers.json`,
          HOST: '127.0.0.1',
          PORT: String(port),
          ADMIN_HOST: '127.0.0.1',
          ADMIN_PORT: String(adminPort),
        },
      });
      await running.printed(/"msg":"listening"/);
      return { name, port, adminPort, running };
    }),
  );
  return { wired, store };
}

describe.skipIf(!hasLibraries)('deploy/compose.yaml', () => {
  it('deploy/compose.yaml gives all gateways settings that they take, and more time to end than they take', async () => {
    const services = await composeServices();
    for (const name of gateways) {
      const { environment = {}, stop_grace_period = '' } = services[name] ?? {};
      const config = readConfig({
        ...environment,
        UPSTREAM_BASE_URL: environment['UPSTREAM_BASE_URL']?.replace(/^\$\{\w+:-(.*)\}$/, '$1'),
      });
      expect(Number.parseInt(stop_grace_period, 10) * 1_000).toBeGreaterThan(config.SHUTDOWN_GRACE);
      expect(config.CALLERS_FILE).toBe('/run/secrets/gateway/callers.json');
      expect(config.SHARED_STORE_PASSWORD_FROM).toBe('file:/run/secrets/gateway/store-password');
    }
  });

  it('deploy/compose.yaml publishes ports on loopback alone, and not one of a gateway', async () => {
    for (const [name, { ports = [] }] of Object.entries(await composeServices())) {
      if (gateways.includes(name)) expect(ports).toEqual([]);
      for (const port of ports) expect(port, name).toMatch(/^127\.0\.0\.1:/);
    }
  });

  it('deploy/compose.yaml mounts files that exist, and names services that exist', async () => {
    const services = await composeServices();
    for (const { volumes = [], depends_on = [] } of Object.values(services)) {
      const files = volumes.map((volume) => volume.split(':')[0] ?? '').filter((file) => /\.\w+$/.test(file));
      for (const file of files) expect(existsSync(new URL(file, folder)), file).toBe(true);
      for (const name of depends_on) expect(services).toHaveProperty([name]);
    }
  });
});

describe.skipIf(!hasLibraries)('the gateways of deploy/compose.yaml', () => {
  const token = mintToken();
  const owner = sharedOwner();
  let wired: readonly Wired[];
  let store: Store | undefined;
  beforeAll(async () => {
    ({ wired, store } = await startGateways(owner, token));
  });

  it.skipIf(redisProgram === undefined)(
    'the store of deploy/compose.yaml is used by all three gateways, with the password of the file and by none without',
    async () => {
      for (const { running } of wired) await running.printed(/the shared store is in use/);
      expect(await askStore(store, 'PING')).toMatch(/^-NOAUTH/);
      const commandLine = readFileSync(`/proc/${store?.child.pid}/cmdline`, 'utf8');
      expect(commandLine).not.toContain(storePassword);
      expect(await askStore(store, `AUTH ${storePassword}`)).toBe('+OK\r\n');
    },
  );

  it.skipIf(redisProgram === undefined)(
    'the store of deploy/compose.yaml does not start without a password',
    async (owner) => {
      const none = join(temporaryFolder(owner), 'store-password');
      for (const text of [undefined, '', '\n']) {
        if (text !== undefined) writeFileSync(none, text);
        const started = await startStore(owner, (await composeServices())['valkey'] ?? {}, none);
        expect(started?.child.exitCode).toBe(1);
      }
    },
  );

  it.skipIf(findOnPath('prometheus') === undefined)(
    'Prometheus of deploy/compose.yaml finds all three gateways up',
    async (owner) => {
      const data = temporaryFolder(owner);
      const file = join(data, 'prometheus.yaml');
      const config = wired.reduce(
        (text, { name, adminPort }) => text.replace(`${name}:9091`, `127.0.0.1:${adminPort}`),
        read('compose/prometheus.yaml').replace('scrape_interval: 15s', 'scrape_interval: 1s'),
      );
      const rules = fileURLToPath(new URL('prometheus', folder));
      writeFileSync(file, config.replace('/etc/prometheus/rules', rules));
      const port = await freePort();
      startProgram(owner, 'prometheus', [
        `--config.file=${file}`,
        `--storage.tsdb.path=${join(data, 'tsdb')}`,
        `--web.listen-address=127.0.0.1:${port}`,
      ]);
      const address = { host: '127.0.0.1', port };
      await until(async () => {
        const came = await ask(address, '/api/v1/query?query=sum(up)', {}).catch(() => undefined);
        return came?.status === 200 && came.body.includes('"3"');
      });
    },
  );

  // The last one: a gateway leaves.
  it.skipIf(findOnPath('haproxy') === undefined)(
    'the balancer of deploy/compose.yaml spreads reads, and loses none while a gateway drains and leaves',
    async (owner) => {
      const port = await freePort();
      const config = wired.reduce(
        (text, { name, port: its }) => text.replace(`${name}:8080`, `127.0.0.1:${its}`),
        read('compose/haproxy.cfg').replace('bind :8080', `bind 127.0.0.1:${port}`),
      );
      const file = join(temporaryFolder(owner), 'haproxy.cfg');
      writeFileSync(file, config);
      startProgram(owner, 'haproxy', ['-db', '-f', file]);
      const once = async (): Promise<number> => {
        const address = { host: '127.0.0.1', port };
        return (await ask(address, accounts, { headers: { authorization: `Bearer ${token}` } })).status;
      };
      await until(() =>
        once()
          .then((status) => status === 200)
          .catch(() => false),
      );
      const isServing = ({ running }: Wired): boolean =>
        /"msg":"request"|"caller":"one"/.test(running.stdout());
      await until(async () => (await once()) === 200 && wired.every(isServing));
      const [leaving] = wired;
      leaving?.running.signal('SIGTERM');
      let ended = false;
      void leaving?.running.exited.then(() => {
        ended = true;
      });
      const statuses = new Set<number>();
      await until(async () => {
        statuses.add(await once());
        return ended;
      });
      statuses.add(await once());
      expect([...statuses]).toEqual([200]);
      expect(await leaving?.running.exited).toBe(0);
    },
  );
});
