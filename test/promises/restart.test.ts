/** A gateway that is replaced while callers go on: behind a socket that is held for it, and beside its successor. */
import * as net from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { enrol, writeCallersFile } from '../support/callers-files.ts';
import { findOnPath } from '../support/find-on-path.ts';
import { accounts, ask } from '../support/gateway.ts';
import {
  linesOf,
  type Owner,
  type Running,
  run,
  settingsFor,
  standInFor,
  start,
  temporaryFolder,
  until,
} from '../support/process.ts';
import { applySteadyLoad } from '../support/steady-load.ts';

const restarts = 10;
const host = '127.0.0.1';

interface BoundHandle {
  readonly fd: number;
  getsockname(out: { port?: number }): number;
  close(): void;
}

/** A bound socket, as a supervisor holds it: nothing accepts on it here. */
function holdSocket({ onTestFinished }: Owner): { fd: number; port: number } {
  const { _createServerHandle: bind } = net as unknown as {
    _createServerHandle(address: string, port: number, family: 4): BoundHandle | number;
  };
  const handle = bind(host, 0, 4);
  if (typeof handle === 'number') throw new Error(`the socket cannot be bound: ${handle}`);
  const out: { port?: number } = {};
  handle.getsockname(out);
  onTestFinished(() => handle.close());
  return { fd: handle.fd, port: out.port ?? 0 };
}

const { token, entry } = enrol('script');
const headers = { authorization: `Bearer ${token}` };

async function settingsOf(owner: Owner, more: Record<string, string>): Promise<Record<string, string>> {
  const standIn = await standInFor(owner);
  const callers = writeCallersFile([entry], owner.onTestFinished);
  return { ...settingsFor(standIn.url), CALLERS_FILE: callers, ...more };
}

const listening = (gateway: Running) => gateway.printed(/"url":"([^"]+)","version"/);

/** Ends one, and finds that it answered all that it took. */
async function end(gateway: Running): Promise<void> {
  gateway.signal('SIGTERM');
  expect(await gateway.exited).toBe(0);
  const stopped = linesOf(gateway.stdout()).at(-1) as { started: number; finished: number };
  expect(stopped).toMatchObject({ msg: 'stopped', aborted: 0, finished: stopped.started });
}

describe('HOST=fd:3', () => {
  it('none of the requests during ten restarts is lost or refused', { timeout: 120_000 }, async (owner) => {
    const socket = holdSocket(owner);
    const settings = await settingsOf(owner, { HOST: 'fd:3' });
    const serve = () => start(owner, ['serve'], { settings, passed: socket.fd });
    let gateway = serve();
    expect((await listening(gateway))[1]).toBe(`http://${host}:${socket.port}`);
    const load = applySteadyLoad({ host, port: socket.port, path: accounts, headers }, { fresh: 8, kept: 4 });
    for (let count = 0; count < restarts; count++) {
      const { answered } = load;
      await until(() => load.answered > answered + 100);
      await end(gateway);
      gateway = serve();
      await listening(gateway);
    }
    await load.stop();
    expect(load.failures).toEqual([]);
    await end(gateway);
  });

  it('what waits while no process runs is answered by the next', async (owner) => {
    const socket = holdSocket(owner);
    const settings = await settingsOf(owner, { HOST: 'fd:3' });
    const serve = () => start(owner, ['serve'], { settings, passed: socket.fd });
    const first = serve();
    await listening(first);
    await end(first);
    const waiting = Array.from({ length: 50 }, () => ask({ host, port: socket.port }, '/readyz', {}));
    const next = serve();
    expect((await Promise.all(waiting)).map(({ status }) => status)).toEqual(Array(50).fill(200));
    await end(next);
  });

  it('a socket that was not passed, or passed and not named, is told of', async (owner) => {
    const settings = await settingsOf(owner, { HOST: 'fd:7' });
    const { status, stderr } = await run(owner, ['serve'], { settings });
    expect(status).toBe(2);
    expect(stderr).toContain('HOST=fd:7 names no socket that this process was started with');
    const { CALLERS_FILE: _, ...without } = settings;
    expect((await run(owner, ['serve'], { settings: without })).stderr).toContain('CALLERS_FILE is not set');
  });

  const activate = findOnPath('systemd-socket-activate');
  if (activate === undefined && process.env['REQUIRE_SYSTEMD'] === 'true') throw new Error('no systemd');
  it.skipIf(activate === undefined)('systemd’s own program passes a socket', async (owner) => {
    const path = join(temporaryFolder(owner), 'socket');
    const settings = await settingsOf(owner, { HOST: 'fd:3' });
    const names = Object.keys({ ...settings, ADMIN_PORT: '', NODE_COMPILE_CACHE: '' });
    const under = [activate ?? '', '--listen', path, ...names.flatMap((name) => ['--setenv', name])];
    const gateway = start(owner, ['serve'], { settings, under });
    await until(() => gateway.stderr().includes('Listening on'));
    expect((await ask({ socketPath: path }, '/readyz', {})).status).toBe(200);
    expect((await listening(gateway))[1]).toBe('fd:3');
    const unnamed = await settingsOf(owner, { HOST: host });
    const other = start(owner, ['serve'], {
      settings: unnamed,
      under: [...under.slice(0, 2), `${path}2`, ...under.slice(3)],
    });
    await until(() => other.stderr().includes('Listening on'));
    await ask({ socketPath: `${path}2` }, '/readyz', { signal: AbortSignal.timeout(1) }).catch(() => {});
    await other.printed(/LISTEN_FDS is ignored/);
  });
});

describe('REUSE_PORT=on', () => {
  it('a successor starts beside its predecessor ten times, and nothing that was accepted is lost', {
    timeout: 120_000,
  }, async (owner) => {
    const { port } = holdSocket({ onTestFinished: (close) => void close() });
    const settings = await settingsOf(owner, { REUSE_PORT: 'on', PORT: String(port) });
    const serve = () => start(owner, ['serve'], { settings });
    let gateway = serve();
    await listening(gateway);
    const load = applySteadyLoad({ host, port, path: accounts, headers }, { fresh: 8, kept: 4 });
    for (let count = 0; count < restarts; count++) {
      const { answered } = load;
      await until(() => load.answered > answered + 100);
      const next = serve();
      await listening(next);
      await end(gateway);
      gateway = next;
    }
    await load.stop();
    // What waited in the queue of a listener at the moment when it closed: never taken, so safe to repeat.
    expect(load.failures.filter((failure) => failure !== 'fresh ECONNRESET')).toEqual([]);
    await end(gateway);
  });

  it('without it the second process is told why, and a socket that has no port of its own cannot be shared', async (owner) => {
    const settings = await settingsOf(owner, { REUSE_PORT: 'on' });
    const first = start(owner, ['serve'], { settings });
    const [, url = ''] = await listening(first);
    const alone = { ...settings, PORT: new URL(url).port, REUSE_PORT: 'off' };
    const second = await run(owner, ['serve'], { settings: alone });
    expect(second.status).toBe(1);
    expect(second.stderr).toContain('is in use');
    for (const socket of ['fd:3', 'unix:/run/gateway.sock']) {
      const { status, stderr } = await run(owner, ['check'], { settings: { ...settings, HOST: socket } });
      expect({ status, stderr }).toMatchObject({ status: 2 });
    }
    expect((await ask({ host, port: Number(new URL(url).port) }, accounts, {})).status).toBe(401);
  });
});
