import {
  closeSync,
  existsSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { Agent, request } from 'node:http';
import { connect } from 'node:net';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { beforeAll, describe, expect, it } from 'vitest';
import { failedStart } from '../support/command-line.ts';
import { accounts, ask, startPair } from '../support/gateway.ts';
import {
  type Served,
  serve,
  settingsFor,
  standInFor,
  start,
  temporaryFolder,
  until,
} from '../support/process.ts';
import { sharedOwner } from '../support/shared-owner.ts';
import { standInKey } from '../support/stand-in/stand-in.ts';

/** Something that is decided by the test. */
function gateFor(): { opened: Promise<void>; open: () => void } {
  let open = (): void => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

/** How connecting ends: `open`, or the code of the error. */
function knock(port: number): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    socket.on('connect', () => {
      socket.destroy();
      resolve('open');
    });
    socket.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? ''));
  });
}

describe('probes are answered to every client', () => {
  it('probes are answered for every Host, method, version and credential', async () => {
    const { exchange, logLines } = await startPair({ ALLOWED_HOSTS: 'gateway.internal' });
    const asked = ['/livez', '/readyz'].flatMap((path) => [
      `GET ${path} HTTP/1.1\r\nHost: gateway.internal\r\nConnection: close\r\n\r\n`,
      `GET ${path} HTTP/1.1\r\nHost: 10.1.2.3:8080\r\nConnection: close\r\n\r\n`,
      `GET ${path} HTTP/1.1\r\nHost: 1.2.3.4.5\r\nConnection: close\r\n\r\n`,
      `GET ${path}?x=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer unknown\r\nConnection: close\r\n\r\n`,
      `GET ${path} HTTP/1.0\r\n\r\n`,
    ]);
    const came = await Promise.all(asked.map((bytes) => exchange(bytes, 5_000)));
    for (const text of came) expect(text).toMatch(/^HTTP\/1\.1 200 OK\r\n[\s\S]*\r\n\r\nok\n$/);
    const head = await exchange('HEAD /readyz HTTP/1.0\r\n\r\n', 5_000);
    expect(head).toMatch(/^HTTP\/1\.1 200 OK\r\n[\s\S]*\r\n\r\n$/);
    expect(logLines().filter(({ status }) => status !== undefined)).toEqual([]);
  });
});

describe.concurrent('on SIGTERM and SIGINT', () => {
  it('on a stop readiness fails first, and all else goes on for SHUTDOWN_DELAY', async (owner) => {
    const standIn = await standInFor(owner);
    const settings = { ...settingsFor(standIn.url), SHUTDOWN_DELAY: '10m', SHUTDOWN_GRACE: '11m' };
    const gateway = await serve(owner, { settings });
    expect((await gateway.ask('/readyz')).status).toBe(200);
    gateway.signal('SIGTERM');
    await until(async () => (await gateway.ask('/readyz')).status === 503);
    const came = await gateway.ask(accounts);
    expect(came.status).toBe(200);
    expect(came.headers.connection).toBe('close');
    expect((await gateway.ask('/livez')).status).toBe(200);
    // A second SIGTERM changes nothing, nor does the first Ctrl-C after it; the second one means it.
    gateway.signal('SIGTERM');
    gateway.signal('SIGINT');
    expect((await gateway.ask(accounts)).status).toBe(200);
    gateway.signal('SIGINT');
    expect(await gateway.exited).toBe(130);
  });

  it.for(['SIGTERM', 'SIGINT'] as const)(
    '%s ends a command that does not serve, and the command of its exec: store too',
    async (signal, owner) => {
      const file = join(temporaryFolder(owner), 'pid');
      const from = `exec:sh -c 'echo $$ >"${file}"; exec sleep 600'`;
      const { UPSTREAM_API_KEY: _, ...settings } = settingsFor('http://127.0.0.1:9/api');
      const check = start(owner, ['check'], { settings: { ...settings, UPSTREAM_API_KEY_FROM: from } });
      await until(() => existsSync(file) && readFileSync(file, 'utf8').endsWith('\n'));
      check.signal(signal);
      expect(await check.exited).toBe(signal);
      const pid = Number(readFileSync(file, 'utf8'));
      await until(
        () => !existsSync(`/proc/${pid}/cmdline`) || readFileSync(`/proc/${pid}/cmdline`, 'utf8') === '',
      );
    },
  );

  it.for(['SIGTERM', 'SIGINT'] as const)(
    'after %s the listener closes, and what runs is finished with Connection: close',
    async (signal, owner) => {
      const standIn = await standInFor(owner);
      const { opened, open } = gateFor();
      const gateway = await serve(owner, { settings: { ...settingsFor(standIn.url), SHUTDOWN_GRACE: '5m' } });
      const idle = connect(gateway.port, '127.0.0.1');
      const idleEnded = new Promise((resolve) => idle.once('close', resolve));
      idle.on('error', () => {}).resume();
      standIn.behave({ until: opened });
      const agent = new Agent({ keepAlive: true });
      const running = new Promise<string | undefined>((resolve, reject) => {
        const where = { host: '127.0.0.1', port: gateway.port, path: accounts, agent };
        request(where, (response) => {
          response.resume().on('end', () => resolve(`${response.statusCode} ${response.headers.connection}`));
        })
          .on('error', reject)
          .end();
      });
      await standIn.received(1);
      gateway.signal(signal);
      await until(async () => (await knock(gateway.port)) === 'ECONNREFUSED');
      await idleEnded;
      gateway.signal('SIGTERM');
      open();
      expect(await running).toBe('200 close');
      expect(await gateway.exited).toBe(0);
      expect(gateway.lines().at(-1)).toMatchObject({ msg: 'stopped' });
      expect(gateway.stderr()).toBe('');
    },
  );

  it('on a stop a caller that waits for a stalled upstream gets a problem, within SHUTDOWN_GRACE', async (owner) => {
    const standIn = await standInFor(owner);
    standIn.behave({ stallAt: 'before-headers' });
    const gateway = await serve(owner, {
      settings: {
        ...settingsFor(standIn.url),
        SHUTDOWN_GRACE: '1s',
        UPSTREAM_TIMEOUT: '5m',
        REQUEST_TIMEOUT: '5m',
      },
    });
    const waiting = [accounts, accounts, `${accounts}?a`].map((path) => gateway.ask(path));
    await standIn.received(2);
    gateway.signal('SIGTERM');
    for (const came of await Promise.all(waiting)) {
      expect(came.json()).toMatchObject({ status: 503, code: 'shutting-down' });
      expect(came.headers.connection).toBe('close');
    }
    expect(await gateway.exited).toBe(0);
  });

  it('a stop under load cuts no reply, and loses no request that was sent before', async (owner) => {
    const standIn = await standInFor(owner, { latencyMs: 15 });
    const gateway = await serve(owner, { settings: { ...settingsFor(standIn.url), CACHE_TTL: '0s' } });
    const agent = new Agent({ keepAlive: true, maxSockets: 20 });
    const sent: { atMs: number; outcome: string }[] = [];
    let stopped = false;
    const read = (query: string): Promise<string> =>
      new Promise((resolve) => {
        const one = { atMs: Number.POSITIVE_INFINITY, outcome: 'pending' };
        const settle = (outcome: string): void => {
          one.outcome = outcome;
          resolve(outcome);
        };
        const where = { host: '127.0.0.1', port: gateway.port, path: accounts + query, agent };
        const outgoing = request(where, (response) => {
          response.resume();
          response.on('end', () => settle(response.complete ? String(response.statusCode) : 'cut'));
          response.on('error', () => settle('cut'));
        });
        outgoing.on('finish', () => {
          one.atMs = performance.now();
          sent.push(one);
        });
        outgoing.on('error', () => settle('refused'));
        outgoing.end();
      });
    const callers = Array.from({ length: 20 }, async (_, caller) => {
      for (let count = 0; !stopped; count++) {
        // A refused caller comes back, but not at once: asking in vain would take the time of all others.
        if ((await read(`?${caller}-${count}`)) === 'refused') await pause(5);
      }
    });
    await standIn.received(200);
    const signalMs = performance.now();
    gateway.signal('SIGTERM');
    expect(await gateway.exited).toBe(0);
    stopped = true;
    await Promise.all(callers);
    agent.destroy();
    const outcomes = (list: typeof sent) => [...new Set(list.map(({ outcome }) => outcome))];
    expect(outcomes(sent.filter(({ atMs }) => atMs <= signalMs))).toEqual(['200']);
    expect(outcomes(sent)).not.toContain('cut');
    expect(outcomes(sent).filter((outcome) => outcome !== '200' && outcome !== 'refused')).toEqual([]);
    // Each request that was answered has its line.
    const lines = gateway.lines().filter(({ msg, status }) => msg === 'request' && status === 200);
    expect(lines).toHaveLength(sent.filter(({ outcome }) => outcome === '200').length);
  });
});

describe('it lives on', () => {
  const shared = sharedOwner();
  let gateway: Served;
  beforeAll(async () => {
    const standIn = await standInFor(shared);
    const keyFile = join(temporaryFolder(shared), 'key');
    writeFileSync(keyFile, `${standInKey}\n`);
    gateway = await serve(shared, {
      settings: { ...settingsFor(standIn.url), UPSTREAM_API_KEY_FROM: `file:${keyFile}` },
      under: ['sh', '-c', 'ulimit -n 100 && exec "$@"', 'sh'],
    });
  });

  it('the gateway lives on through SIGHUP, which reads the key again, and SIGUSR1, which opens no inspector', async () => {
    const before = listeningSockets(gateway.pid);
    gateway.signal('SIGPIPE');
    gateway.signal('SIGUSR1');
    await gateway.printed(/SIGUSR1 is ignored/);
    gateway.signal('SIGHUP');
    await gateway.printed(/SIGHUP: reading the key again/);
    expect((await gateway.ask(accounts)).status).toBe(200);
    expect(before).toHaveLength(1);
    expect(listeningSockets(gateway.pid)).toEqual(before);
    expect(gateway.stderr()).toBe('');
  });

  it('the gateway lives on when callers take up all descriptors it may have, and says so', async () => {
    const sockets = Array.from({ length: 150 }, () => connect(gateway.port, '127.0.0.1'));
    for (const socket of sockets) socket.on('error', () => {});
    await gateway.printed(/"code":"MAX_CONNECTIONS"/);
    for (const socket of sockets) socket.destroy();
    await until(() =>
      // Not stored, so that this shows a connection to the upstream, too.
      gateway.ask(`${accounts}?descriptors`).then(
        ({ status }) => status === 200,
        () => false,
      ),
    );
    const [fewer] = await gateway.printed(/.*"maxConnections":.*/);
    expect(JSON.parse(fewer)).toMatchObject({ level: 'warn', maxConnections: 25 });
  });

  it('the gateway lives on when the reader of its log has gone (EPIPE)', async () => {
    gateway.child.stdout?.destroy();
    // Each has a connection of its own and a call of the upstream: fifty took half a minute on a busy machine.
    for (let round = 0; round < 10; round++) {
      expect((await gateway.ask(`${accounts}?n=${round}`)).status).toBe(200);
    }
    // The last of those that share the gateway.
    gateway.signal('SIGTERM');
    expect(await gateway.exited).toBe(0);
  });

  it('the gateway lives on when its log’s disk is full (ENOSPC)', async (owner) => {
    const standIn = await standInFor(owner);
    const full = openSync('/dev/full', 'w');
    const path = join(temporaryFolder(owner), 'socket');
    const gateway = start(owner, ['serve'], {
      settings: { ...settingsFor(standIn.url), HOST: `unix:${path}` },
      stdout: full,
    });
    closeSync(full);
    await listeningAt(path);
    for (let round = 0; round < 100; round++) {
      const came = await ask({ socketPath: path }, `${accounts}?n=${round}`, {
        headers: { host: 'localhost' },
      });
      expect(came.status).toBe(200);
    }
    gateway.signal('SIGTERM');
    expect(await gateway.exited).toBe(0);
    expect(gateway.stderr()).toBe('');
  });
});

describe.concurrent('a Unix socket', () => {
  it('a Unix socket is for its owner and group, replaced when stale, and gone after the end', async (owner) => {
    const standIn = await standInFor(owner);
    const path = join(temporaryFolder(owner), 'socket');
    const settings = { ...settingsFor(standIn.url), HOST: `unix:${path}` };
    const killed = start(owner, ['serve'], { settings });
    await listeningAt(path);
    killed.signal('SIGKILL');
    await killed.exited;
    expect(existsSync(path)).toBe(true);

    const gateway = start(owner, ['serve'], { settings });
    await listeningAt(path);
    await gateway.printed(/"url":"unix:/);
    expect(statSync(path).mode & 0o777).toBe(0o660);
    expect((await ask({ socketPath: path }, accounts, { headers: { host: 'localhost' } })).status).toBe(200);

    const second = await failedStart(settings);
    expect(second.status).toBe(1);
    expect(second.text).toMatch(/in use/);
    expect((await ask({ socketPath: path }, '/readyz', {})).status).toBe(200);

    gateway.signal('SIGTERM');
    expect(await gateway.exited).toBe(0);
    expect(existsSync(path)).toBe(false);
  });

  it('a Unix socket never replaces what is no socket', async (owner) => {
    const path = join(temporaryFolder(owner), 'precious');
    writeFileSync(path, 'data');
    const { status } = await failedStart({
      ...settingsFor('http://127.0.0.1:9/api'),
      HOST: `unix:${path}`,
    });
    expect(status).toBe(1);
    expect(readFileSync(path, 'utf8')).toBe('data');
  });
});

/** Waits until a server answers there. */
function listeningAt(socketPath: string): Promise<void> {
  return until(() =>
    ask({ socketPath }, '/readyz', {}).then(
      ({ status }) => status === 200,
      () => false,
    ),
  );
}

/** The TCP sockets on which a process listens, by inode (proc(5)). */
function listeningSockets(pid: number): string[] {
  const own = new Set(
    readdirSync(`/proc/${pid}/fd`).map((fd) => {
      try {
        return /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/${pid}/fd/${fd}`))?.[1];
      } catch {
        return undefined;
      }
    }),
  );
  return ['tcp', 'tcp6'].flatMap((table) =>
    readFileSync(`/proc/${pid}/net/${table}`, 'utf8')
      .split('\n')
      .map((line) => line.trim().split(/\s+/))
      .filter((columns) => columns[3] === '0A' && own.has(columns[9]))
      .map((columns) => columns[9] ?? ''),
  );
}
