/** A gateway that is replaced while callers go on: behind a socket that is held for it, and beside its successor. */
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { findOnPath } from '../support/find-on-path.ts';
import { accounts, ask } from '../support/gateway.ts';
import { run, start, temporaryFolder, until } from '../support/process.ts';
import { end, holdSocket, host, listening, restartUnderLoad, settingsOf } from '../support/restarts.ts';

const ten = { restarts: 10, requestsEach: 100 };

describe('HOST=fd:3', () => {
  it('none of the requests during ten restarts is lost or refused', { timeout: 120_000 }, async (owner) => {
    expect((await restartUnderLoad(owner, 'HOST=fd:3', ten)).failures).toEqual([]);
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

  it('a systemd that waits for it is told once the gateway listens, by a program that gets no secret', async (owner) => {
    const folder = temporaryFolder(owner);
    const [program, told] = [join(folder, 'systemd-notify'), join(folder, 'told')];
    writeFileSync(program, `#!/bin/sh\n(echo "$@"; export) >${told}.new; mv ${told}.new ${told}\n`, {
      mode: 0o755,
    });
    const waiting = { NOTIFY_SOCKET: '/run/notify', PATH: `${folder}:/bin:/usr/bin` };
    const settings = await settingsOf(owner, { HOST: host, ...waiting });
    const gateway = start(owner, ['serve'], { settings });
    await listening(gateway);
    await until(() => existsSync(told));
    expect(readFileSync(told, 'utf8')).toMatch(/^--ready\n[\s\S]*NOTIFY_SOCKET='?\/run\/notify/);
    expect(readFileSync(told, 'utf8')).not.toContain('UPSTREAM_API_KEY');
    rmSync(program);
    await end(gateway);
    const unable = start(owner, ['serve'], { settings: { ...settings, PATH: folder } });
    await unable.printed(/systemd could not be told that the gateway listens/);
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
    expect(await listening(gateway)).toBe('fd:3');
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
    const { failures } = await restartUnderLoad(owner, 'REUSE_PORT=on', ten);
    // What waited in the queue of a listener at the moment when it closed: never taken, so safe to repeat.
    expect(failures.filter((failure) => failure !== 'fresh ECONNRESET')).toEqual([]);
  });

  it('without it the second process is told why, and a socket that has no port of its own cannot be shared', async (owner) => {
    const settings = await settingsOf(owner, { REUSE_PORT: 'on' });
    const first = start(owner, ['serve'], { settings });
    const url = await listening(first);
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
