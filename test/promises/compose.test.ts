/**
 * The wiring of deploy/compose.yaml, tried with plain processes: gateways with the settings of the file, HAProxy and
 * Prometheus with the files that it mounts. Names and ports of its network become free ports of loopback.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeAll, describe, expect, it } from 'vitest';
import { digestOf, mintToken } from '../../src/callers/token.ts';
import { readConfig } from '../../src/config.ts';
import { standInKey } from '../../src/stand-in/stand-in.ts';
import { hasLibraries, importLibrary } from '../libraries/import-library.ts';
import { findOnPath } from '../support/find-on-path.ts';
import { accounts, ask } from '../support/gateway.ts';
import { type Owner, type Running, standInFor, start, temporaryFolder, until } from '../support/process.ts';
import { redisProgram, startRedis } from '../support/redis.ts';
import { sharedOwner } from '../support/shared-owner.ts';

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

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address() as { port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Starts another program; it ends with the test. */
function startProgram({ onTestFinished }: Owner, program: string, words: readonly string[]): ChildProcess {
  const child = spawn(program, words, { stdio: 'ignore' });
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

/** The store with the options of the file, where a program for it is installed. */
async function startStore(owner: Owner, { command = [] }: Service): Promise<string | undefined> {
  if (redisProgram === undefined) return undefined;
  const store = await startRedis(...command.slice(1));
  owner.onTestFinished(async () => store[Symbol.asyncDispose]());
  return store.address;
}

/** The three gateways and their store with the settings of the file, but for what names its network or its volumes. */
async function startGateways(owner: Owner, secret: string): Promise<Wired[]> {
  const standIn = await standInFor(owner);
  const secrets = temporaryFolder(owner);
  writeFileSync(join(secrets, 'upstream-key'), standInKey);
  const callers = [{ name: 'one', tokens: [{ sha256: digestOf(secret) }] }];
  writeFileSync(join(secrets, 'callers.json'), JSON.stringify({ callers }));
  const services = await composeServices();
  const sharedStore = await startStore(owner, services['valkey'] ?? {});
  return Promise.all(
    gateways.map(async (name) => {
      const [port, adminPort] = [await freePort(), await freePort()];
      const { environment = {} } = services[name] ?? {};
      const { SHARED_STORE: _, ...others } = environment;
      const settings = sharedStore === undefined ? others : { ...others, SHARED_STORE: sharedStore };
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
  beforeAll(async () => {
    wired = await startGateways(owner, token);
  });

  it.skipIf(redisProgram === undefined)(
    'the store of deploy/compose.yaml is used by all three gateways, with the options that the file starts it with',
    async () => {
      expect((await composeServices())['valkey']?.command?.[0]).toBe('valkey-server');
      for (const { running } of wired) await running.printed(/the shared store is in use/);
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
