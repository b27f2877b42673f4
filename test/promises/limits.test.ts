import { readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { WorkspaceConfig } from '../../src/config/workspaces.ts';
import {
  bodyBytesWithin,
  connectionBytesWithin,
  connectionsWithin,
} from '../../src/edge/connection-budget.ts';
import { bodyBudget } from '../../src/gateway/workspace.ts';
import { accounts, startPair } from '../support/gateway.ts';
import { serve, settingsFor, standInFor, until } from '../support/process.ts';

interface Opened {
  readonly socket: Socket;
  /** What came, once the connection has ended. */
  readonly ended: Promise<string>;
}

function open(port: number): Opened {
  const socket = connect(port, '127.0.0.1');
  onTestFinished(() => void socket.destroy());
  let came = '';
  socket.on('data', (chunk: Buffer) => {
    came += chunk.toString('latin1');
  });
  socket.on('error', () => {});
  return { socket, ended: new Promise((resolve) => socket.once('close', () => resolve(came))) };
}

/** Sends the text byte by byte, with a wait after each, until the connection ends. */
function drip({ socket }: Opened, text: string): void {
  let at = 0;
  const timer = setInterval(() => socket.write(text.charAt(at++ % text.length)), 20);
  socket.once('close', () => clearInterval(timer));
}

describe('a slow sender is cut off', () => {
  it('a slow sender is cut off HEADERS_TIMEOUT after it began, and no more than 3.5 s later', async () => {
    const { port, logLines, standIn } = await startPair({ HEADERS_TIMEOUT: '400ms' });
    const openedMs = performance.now();
    const head = `GET ${accounts} HTTP/1.1\r\nHost: localhost\r\n`;
    const silent = open(port);
    const half = open(port);
    half.socket.write(head);
    const dripping = open(port);
    dripping.socket.write(head);
    drip(dripping, 'X-A: aaaaaaaaaaaaaaaaaaaaaaaa\r\n');
    const first = open(port);
    drip(first, 'GET ');
    const body = open(port);
    body.socket.write(`${head}Content-Length: 100000\r\n\r\n`);
    drip(body, 'x');
    const second = open(port);
    second.socket.write(`GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\nGET /li`);

    const came = await Promise.all([silent, half, dripping, first, body, second].map(({ ended }) => ended));
    expect(performance.now() - openedMs).toBeLessThan(400 + 3_500);
    const [fromSilent, fromHalf, fromDripping, fromFirst, fromBody, fromSecond] = came;
    for (const text of [fromSilent, fromHalf, fromDripping, fromFirst]) {
      expect(text).toMatch(/^HTTP\/1\.1 4\d\d .*\r\nConnection: close\r\n/);
    }
    expect(fromHalf).toMatch(/^HTTP\/1\.1 408 /);
    expect(fromBody).toMatch(/^HTTP\/1\.1 400 /);
    expect(fromSecond).toMatch(/^HTTP\/1\.1 200 [\s\S]*HTTP\/1\.1 408 /);
    expect(logLines().filter(({ status }) => status === 408).length).toBeGreaterThanOrEqual(3);
    expect(standIn.requests).toHaveLength(0);
  });
});

describe('a caller that does not read its answers', () => {
  it('a caller that does not read its answers is cut off', async () => {
    const { port, ask, standIn } = await startPair({
      HEADERS_TIMEOUT: '200ms',
      REQUEST_TIMEOUT: '600ms',
      MAX_CONNECTIONS: '1',
    });
    standIn.behave({ body: { bytes: 3 * 2 ** 20 } });
    // One connection at a time: the one before may not have ended yet.
    await until(() =>
      ask(accounts).then(
        ({ headers }) => headers['cache-status']?.includes('hit') === true,
        () => false,
      ),
    );
    // More than the system's own buffers take; read up to its first bytes.
    const deaf = (): Promise<boolean> =>
      new Promise((resolve) => {
        const { socket, ended } = open(port);
        socket.write(`GET ${accounts} HTTP/1.1\r\nHost: localhost\r\n\r\n`.repeat(12));
        socket.once('data', () => resolve(socket.pause() === socket));
        void ended.then(() => resolve(false));
      });
    await until(deaf);
    // It holds the one connection there may be.
    await until(() =>
      ask('/readyz').then(
        ({ status }) => status === 200,
        () => false,
      ),
    );
  });
});

describe('connections are bounded', () => {
  it('connections are bounded by MAX_CONNECTIONS; the others are closed at once, with a line each', async () => {
    const { port, ask, logLines } = await startPair({ MAX_CONNECTIONS: '20' });
    const all = Array.from({ length: 60 }, () => open(port));
    let closed = 0;
    for (const { ended } of all) void ended.then(() => closed++);
    await expect.poll(() => closed).toBe(40);
    expect(logLines().filter(({ code }) => code === 'MAX_CONNECTIONS')).toHaveLength(40);
    for (const { socket } of all) socket.destroy();
    await expect
      .poll(() =>
        ask(accounts).then(
          ({ status }) => status,
          () => 0,
        ),
      )
      .toBe(200);
  });

  it.each([
    ['the wanted, where the limit is far', 1_048_576, 10_000, 64, [10_000, 64, 32]],
    ['what the limit leaves', 1_024, 10_000, 64, [896, 64, 32]],
    ['half and half, where it leaves little', 64, 10_000, 64, [16, 16, 4]],
    ['half and half, where much is wanted upstream', 1_024, 10_000, 5_000, [480, 480, 32]],
    ['one of each at the least', 16, 10_000, 64, [1, 1, 4]],
    ['fewer, when fewer are wanted', 1_024, 10, 64, [10, 64, 32]],
  ])(
    'callers, upstream and admin listener have as many connections as descriptors allow: %s',
    (_name, limit, wanted, most, [callers, upstream, admin]) => {
      const text = `Max cpu time  unlimited\nMax open files            ${limit}              ${limit}  files\n`;
      expect(connectionsWithin(text, { callers: wanted, upstream: most })).toEqual({
        callers,
        upstream,
        admin,
      });
    },
  );

  it.each(['', 'Max open files            unlimited            unlimited            files'])(
    'the gateway takes as many connections as wanted where no limit of descriptors is known (%j)',
    (text) => expect(connectionsWithin(text, { callers: 10_000, upstream: 64 }).callers).toBe(10_000),
  );

  it.each([
    ['a quarter of its control group’s limit', 2 ** 34, 2 ** 28, 2 ** 32, 2 ** 26],
    ['a quarter of the machine’s, where there is no limit', 2 ** 30, 0, 2 ** 32, 2 ** 28],
    ['a quarter of the machine’s, where the limit is higher', 2 ** 30, 2 ** 63, 2 ** 32, 2 ** 28],
    ['half of V8’s heap, where that is less', 2 ** 34, 0, 2 ** 26, 2 ** 25],
  ])(
    'connections that ask for nothing may hold %s',
    (_name, totalBytes, limitBytes, heapBytes, connectionBytes) => {
      expect(connectionBytesWithin({ totalBytes, limitBytes, heapBytes })).toBe(connectionBytes);
    },
  );

  it.each([
    ['64 MiB', 2 ** 34, 0, 2 ** 26],
    ['a sixteenth of its control group’s limit, where that is less', 2 ** 34, 2 ** 28, 2 ** 24],
    ['a sixteenth of the machine’s, where that is less', 2 ** 29, 2 ** 63, 2 ** 25],
  ])(
    'answers in flight, and replies that are not read, may hold %s',
    (_name, totalBytes, limitBytes, bytes) => {
      expect(bodyBytesWithin({ totalBytes, limitBytes, heapBytes: 2 ** 32 })).toBe(bytes);
    },
  );

  it.each([
    ['one workspace', 1, 64, [64, 64]],
    ['one in 256 MiB', 1, 16, [16, 16]],
    ['one in 64 MiB, with two of the largest', 1, 4, [16, 16]],
    ['two', 2, 64, [64, 40]],
    ['a hundred', 100, 64, [64, 24.32]],
    ['a hundred in 256 MiB, with half of it besides two of the largest', 100, 16, [24, 8.08]],
  ])(
    'answers in flight of all workspaces together have the same bound: %s',
    (_name, count, mebibytes, bounds) => {
      const workspaces = Array<WorkspaceConfig>(count);
      const budget = bodyBudget({ UPSTREAM_MAX_BODY: 8, workspaces }, mebibytes);
      const { own, common, mostCommon } = budget;
      expect([own * count + common, own + mostCommon]).toEqual(bounds);
    },
  );

  it('where memory holds fewer idle connections than MAX_CONNECTIONS, a line says so, and strangers end each other', async (owner) => {
    const standIn = await standInFor(owner);
    const flags = ['--max-old-space-size=40', '--max-semi-space-size=2'];
    const gateway = await serve(owner, { settings: settingsFor(standIn.url), flags });
    const warned = gateway.lines().find(({ idleConnections }) => idleConnections !== undefined);
    expect(warned).toMatchObject({ level: 'warn', maxConnectionBytes: 23 * 2 ** 20 });
    expect(warned?.['idleConnections']).toBeLessThan(2_000);
    const other = connect({ host: '127.0.0.1', port: gateway.port, localAddress: '127.0.0.2' });
    owner.onTestFinished(() => void other.destroy());
    // Each of them is priced at 42 KiB.
    for (let count = 0; count < 700; count++) {
      open(gateway.port).socket.write(`GET / HTTP/1.1\r\nHost: localhost\r\nX: ${'b'.repeat(15_500)}`);
    }
    await gateway.printed(/"code":"CONNECTION_MEMORY","peer":"127.0.0.1"/);
    expect((await gateway.ask('/livez')).status).toBe(200);
    const replied = new Promise<string>((resolve) => other.once('data', (data) => resolve(String(data))));
    other.write('GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n');
    expect(await replied).toMatch(/^HTTP\/1.1 200 /);
    expect(gateway.stdout()).not.toMatch(/"peer":"127.0.0.2"/);
  });

  it('slow or idle connections do not hurt the others', async () => {
    const { port, ask, standIn } = await startPair();
    for (let count = 0; count < 300; count++) open(port);
    for (let count = 0; count < 60; count++) drip(open(port), `GET ${accounts} HTTP/1.1\r\nX: aaaaaaaa`);
    const came = await Promise.all(Array.from({ length: 100 }, (_, at) => ask(`${accounts}?n=${at}`)));
    expect(came.filter(({ status }) => status === 200)).toHaveLength(100);
    expect(standIn.requests).toHaveLength(100);
  });
});

describe('a sick upstream does not hurt healthy reads', () => {
  it('healthy reads are all answered while a third of all reads stalls or is reset', async () => {
    const patient = { UPSTREAM_TIMEOUT: '5m', REQUEST_TIMEOUT: '5m' };
    const { ask, standIn, gateway } = await startPair({ RETRY_LIMIT: '1', ...patient });
    const allHaveCome = Promise.withResolvers<void>();
    const released = Promise.withResolvers<void>();
    const kindOf = (number: number) => (['stalled', 'reset'] as const)[number % 6] ?? 'healthy';
    standIn.behave(({ target }) => {
      const kind = kindOf(Number(/n=(\d+)/.exec(target)?.[1]));
      if (kind === 'stalled') return { until: released.promise };
      // The first are held until the last waits: only an upstream that is kept busy gets more at once.
      return { until: allHaveCome.promise, ...(kind === 'reset' ? { resetAt: 'after-headers' } : {}) };
    });
    const asked = Array.from({ length: 120 }, (_, at) => ({
      kind: kindOf(at),
      came: ask(`${accounts}?n=${at}`),
    }));
    const statusesOf = async (wanted: string): Promise<number[]> => {
      const came = await Promise.all(asked.filter(({ kind }) => kind === wanted).map((one) => one.came));
      return [...new Set(came.map(({ status }) => status))];
    };
    await until(() => gateway.waiting === 120);
    allHaveCome.resolve();
    expect(await statusesOf('healthy')).toEqual([200]);
    expect(await statusesOf('reset')).toEqual([502]);
    released.resolve();
    expect(await statusesOf('stalled')).toEqual([200]);
  });
});

describe('memory is bounded', () => {
  it('of 240 MB of one caller’s bodies at once, without lengths, what has no room waits unread until its time is over', {
    timeout: 90_000,
  }, async (owner) => {
    const standIn = await standInFor(owner);
    const settings = { ...settingsFor(standIn.url), RETRY_LIMIT: '0', REQUEST_TIMEOUT: '8s' };
    const gateway = await serve(owner, { settings });
    // One caller may have so many attempts in flight once the gate knows that the upstream takes them.
    await Promise.all(Array.from({ length: 64 }, (_, at) => gateway.ask(`${accounts}?before=${at}`)));
    const before = peakMiB(gateway.pid);
    // Just not too large, and then they stall, so that all of them would be held at the same time.
    standIn.behave({ body: { bytes: 9 * 2 ** 20 }, framing: 'chunked', stallAt: 7.9 * 2 ** 20 });
    const came = await Promise.all(Array.from({ length: 30 }, (_, at) => gateway.ask(`${accounts}?n=${at}`)));
    expect(came.filter(({ status }) => status !== 503 && status !== 504)).toEqual([]);
    expect(peakMiB(gateway.pid) - before).toBeLessThan(160);
    // All room is back. (On a machine so slow that ten were still being read at their end, the circuit is open for a second.)
    standIn.behave({ body: { bytes: 7 * 2 ** 20 }, framing: 'chunked' });
    await until(async () => (await gateway.ask(`${accounts}?after`)).status === 200);
  });

  it('240 MB of bodies that are too large take less than 160 MiB', async (owner) => {
    const standIn = await standInFor(owner);
    const gateway = await serve(owner, { settings: { ...settingsFor(standIn.url), RETRY_LIMIT: '0' } });
    await gateway.ask(accounts);
    const before = peakMiB(gateway.pid);
    standIn.behave({ body: { bytes: 9 * 2 ** 20 } });
    const came = await Promise.all(Array.from({ length: 27 }, (_, at) => gateway.ask(`${accounts}?n=${at}`)));
    expect(came.filter(({ status }) => status !== 502)).toEqual([]);
    expect(peakMiB(gateway.pid) - before).toBeLessThan(160);
  });
});

/** The most memory a process has ever had resident (proc(5)). */
function peakMiB(pid: number): number {
  const [, kib] = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1')) ?? [];
  return Number(kib) / 1_024;
}
