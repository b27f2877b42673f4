import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import type { RequestListener, ServerResponse } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { describe, expect, it, onTestFinished } from 'vitest';
import { noteCallerKnown } from '../../src/edge/connections.ts';
import { createHttpServer, type ServerLimits } from '../../src/edge/server.ts';
import { makeCertificate } from '../support/certificate.ts';

const kib = 1_024;
const answerOnce: RequestListener = (_incoming, outgoing) => void outgoing.end('x');

/** The server of both listeners, before a listener of the test's own. */
async function serve(
  limits: Partial<ServerLimits>,
  answer: RequestListener = answerOnce,
  at: object = { host: '127.0.0.1', port: 0 },
) {
  const codes: string[] = [];
  const server = createHttpServer(
    answer,
    {
      headersTimeoutMs: 60_000,
      maxConnections: 100,
      stillMs: 60_000,
      isSecret: () => false,
      isEnding: () => false,
      ...limits,
    },
    { onRefused: ({ code }) => codes.push(code), onListenerError: () => {} },
  );
  await new Promise<void>((resolve) => server.listen(at, resolve));
  onTestFinished(async () => {
    await new Promise((resolve) => {
      server.close(resolve);
      server.closeAllConnections();
    });
  });
  return { server, port: (server.address() as AddressInfo).port, codes };
}

interface Peer {
  readonly socket: Socket;
  /** How it ended: the code of its error, or `end`; `undefined` while it stands. */
  ending(): string | undefined;
  came(): string;
}

function watch(socket: Socket): Peer {
  let ending: string | undefined;
  let came = '';
  socket.setEncoding('latin1').on('data', (text: string) => {
    came += text;
  });
  socket.on('error', (error: NodeJS.ErrnoException) => {
    ending = error.code;
  });
  socket.on('close', () => {
    ending ??= 'end';
  });
  onTestFinished(() => void socket.destroy());
  return { socket, ending: () => ending, came: () => came };
}

/** Opens a connection and sends something. Resolves when it stands. */
async function open(port: number, text = '', localAddress = '127.0.0.1'): Promise<Peer> {
  const peer = watch(connect({ host: '127.0.0.1', port, localAddress }));
  await new Promise((resolve) => peer.socket.once('connect', resolve));
  if (text !== '') peer.socket.write(text);
  return peer;
}

async function openAll(count: number, port: number, text = '', localAddress?: string): Promise<Peer[]> {
  const peers: Peer[] = [];
  for (let at = 0; at < count; at++) peers.push(await open(port, text, localAddress));
  return peers;
}

const endings = (peers: readonly Peer[]): (string | undefined)[] => peers.map((peer) => peer.ending());
const standing = (peers: readonly Peer[]): number =>
  peers.filter((peer) => peer.ending() === undefined).length;
const request = 'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n';
const endlessHead = `GET / HTTP/1.1\r\nHost: localhost\r\nX: ${'b'.repeat(15_000)}`;

describe('heads that never end', () => {
  it('heads that never end take the room of the same address alone, and its oldest goes first', async () => {
    // An idle connection is priced at 12 KiB, such a head at 30 KiB more.
    const { port, codes } = await serve({ maxConnectionBytes: 200 * kib });
    const other = await open(port, request, '127.0.0.2');
    await expect.poll(() => other.came()).toMatch(/^HTTP\/1.1 200/);
    const strangers = await openAll(10, port, endlessHead);
    await expect.poll(() => codes.length).toBe(6);
    await expect.poll(() => endings(strangers.slice(0, 6))).toEqual(Array(6).fill('ECONNRESET'));
    expect(standing(strangers)).toBe(4);
    expect(new Set(codes)).toEqual(new Set(['CONNECTION_MEMORY']));
    expect(other.ending()).toBeUndefined();
    other.socket.write(request);
    await expect.poll(() => other.came().match(/200 OK/g)?.length).toBe(2);
  });

  it.each([
    ['a head that begins behind a whole request', `${request}${endlessHead}`, 4],
    ['a head that begins later on a connection that was used', '', 4],
    ['pipelined requests with a head behind them', `${request.repeat(12)}${endlessHead}`, 4],
  ])('%s counts as one that comes first', async (_name, text, most) => {
    const { port } = await serve({ maxConnectionBytes: 200 * kib });
    const strangers = await openAll(10, port, text === '' ? request : text);
    for (const { came } of strangers) await expect.poll(came).toMatch(/200 OK/);
    if (text === '') for (const { socket } of strangers) socket.write(endlessHead);
    await expect.poll(() => standing(strangers)).toBeLessThanOrEqual(most);
    expect(standing(strangers)).toBeGreaterThan(0);
  });

  it('a head that has ended counts no more', async () => {
    const { port, codes } = await serve({ maxConnectionBytes: 220 * kib });
    // Each of them would take 42 KiB for a moment, and 12 KiB with its next short request.
    for (let count = 0; count < 10; count++) {
      const peer = await open(port, endlessHead);
      peer.socket.write('\r\n\r\n');
      await expect.poll(() => peer.came()).toMatch(/200 OK/);
      peer.socket.write(request);
      await expect.poll(() => peer.came().match(/200 OK/g)?.length).toBe(2);
    }
    expect(codes).toEqual([]);
  });
});

describe('replies that are not read', () => {
  const large = Buffer.alloc(8 * 2 ** 20);

  it('a reply that is not read counts with what has not left, and the oldest is reset', async () => {
    const { port, codes } = await serve({ maxConnectionBytes: 20 * 2 ** 20 }, (_incoming, outgoing) =>
      outgoing.end(large),
    );
    const strangers: Peer[] = [];
    for (let count = 0; count < 8; count++) {
      const peer = await open(port);
      peer.socket.pause();
      peer.socket.write(request);
      strangers.push(peer);
    }
    await expect.poll(() => codes.length).toBeGreaterThanOrEqual(3);
    for (const { socket } of strangers) socket.resume();
    await expect.poll(() => strangers[0]?.ending()).toBe('ECONNRESET');
    await expect.poll(() => strangers.at(-1)?.came().length).toBeGreaterThan(large.length);
  });

  it('the last reply of a connection that is not read makes room as well', async () => {
    const { port, codes } = await serve({ maxConnectionBytes: 20 * 2 ** 20 }, (_incoming, outgoing) =>
      outgoing.writeHead(200, { connection: 'close' }).end(large),
    );
    const strangers: Peer[] = [];
    for (let count = 0; count < 8; count++) {
      const peer = await open(port);
      peer.socket.pause();
      peer.socket.write(request);
      strangers.push(peer);
    }
    await expect.poll(() => codes.length).toBeGreaterThanOrEqual(3);
    for (const { socket } of strangers) socket.resume();
    await expect.poll(() => standing(strangers)).toBe(0);
    expect(new Set(codes)).toEqual(new Set(['CONNECTION_MEMORY']));
  });

  it('a reply that is read in time costs no connection', async () => {
    const { port, codes } = await serve({ maxConnectionBytes: 20 * 2 ** 20 }, (_incoming, outgoing) =>
      outgoing.end(large),
    );
    for (let count = 0; count < 8; count++) {
      const peer = await open(port, request);
      await expect.poll(() => peer.came().length).toBeGreaterThan(large.length);
    }
    expect(codes).toEqual([]);
  });

  it('a reply that is not read ends its connection in time, also where a tunnel was asked for behind it', async () => {
    const { port, server } = await serve({ stillMs: 300 }, (_incoming, outgoing) => outgoing.end(large));
    const peer = await open(port);
    peer.socket.pause();
    peer.socket.write(`${request}CONNECT localhost:1 HTTP/1.1\r\nHost: localhost:1\r\n\r\n`);
    const connections = () =>
      new Promise((resolve) => server.getConnections((_error, count) => resolve(count)));
    await expect.poll(connections).toBe(1);
    await expect.poll(connections).toBe(0);
  });

  it('replies that wait behind one that is not read count as well', async () => {
    const { port, codes } = await serve({ maxConnectionBytes: 60 * 2 ** 20 }, (_incoming, outgoing) =>
      outgoing.end(large),
    );
    const peer = await open(port);
    peer.socket.pause();
    peer.socket.write(request.repeat(12));
    await expect.poll(() => codes).toEqual(['CONNECTION_MEMORY']);
  });
});

describe('a request under way', () => {
  it('a request under way keeps its connection, however many others come', async () => {
    const begun: ServerResponse[] = [];
    const { port, codes } = await serve(
      { maxConnectionBytes: 50 * kib, maxConnections: 8 },
      (_incoming, outgoing) => void begun.push(outgoing),
    );
    const asking = await openAll(4, port, request);
    await expect.poll(() => begun.length).toBe(4);
    const idle = await openAll(20, port);
    await expect.poll(() => codes.length).toBe(16);
    expect(standing(asking)).toBe(4);
    await expect.poll(() => standing(idle)).toBe(4);
    for (const outgoing of begun) outgoing.end('x');
    for (const { came } of asking) await expect.poll(came).toMatch(/200 OK/);
  });
});

describe('a request whose caller is not known yet', () => {
  it('a request whose caller is not known yet keeps no connection, and one whose caller is known again does', async () => {
    const begun: ServerResponse[] = [];
    // Two connections with heads of 15 KB fit.
    const { port, codes } = await serve({ maxConnectionBytes: 200 * kib }, (_incoming, outgoing) => {
      noteCallerKnown(outgoing, false);
      begun.push(outgoing);
    });
    const known = await open(port, `${endlessHead}\r\n\r\n`);
    await expect.poll(() => begun.length).toBe(1);
    noteCallerKnown(begun[0] as ServerResponse, true);
    const unknown = await openAll(6, port, `${endlessHead}\r\n\r\n`);
    await expect.poll(() => codes).toEqual(Array(4).fill('CONNECTION_MEMORY'));
    await expect.poll(() => standing(unknown)).toBe(2);
    expect(known.ending()).toBeUndefined();
    begun[0]?.end('x');
    await expect.poll(() => known.came()).toMatch(/200 OK/);
  });

  it('what is pipelined behind a request under way counts, and has no right to stay', async () => {
    const { port, codes } = await serve({ maxConnectionBytes: 2 * 2 ** 20 }, () => {});
    const large = `${endlessHead}\r\n\r\n`.repeat(16);
    // Each 960 KiB.
    const strangers = await openAll(5, port, large);
    await expect.poll(() => codes).toEqual(Array(3).fill('CONNECTION_MEMORY'));
    await expect.poll(() => standing(strangers)).toBe(2);
  });
});

describe('the number of connections', () => {
  it('one address cannot keep another out', async () => {
    const { port, codes } = await serve({ maxConnections: 10 });
    const strangers = await openAll(30, port);
    const others = await openAll(3, port, request, '127.0.0.2');
    for (const { came } of others) await expect.poll(came).toMatch(/200 OK/);
    await expect.poll(() => standing(strangers)).toBe(7);
    expect(standing(others)).toBe(3);
    expect(codes).toEqual(Array(23).fill('MAX_CONNECTIONS'));
  });

  it('on a Unix socket, where all have one address, the oldest idle connection makes room', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'gateway-connections-'));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const path = join(folder, 'socket');
    const { codes } = await serve({ maxConnections: 5 }, answerOnce, { path });
    const peers: Peer[] = [];
    for (let count = 0; count < 8; count++) {
      const peer = watch(connect(path));
      await new Promise((resolve) => peer.socket.once('connect', resolve));
      peers.push(peer);
    }
    await expect.poll(() => standing(peers)).toBe(5);
    expect(peers.slice(0, 3).map((peer) => peer.ending() !== undefined)).toEqual([true, true, true]);
    expect(codes).toEqual(Array(3).fill('MAX_CONNECTIONS'));
  });
});

describe('TLS connections', () => {
  const { cert, key } = makeCertificate();
  const certificate = { cert, key, validFrom: '', validTo: '' };

  async function openTls(port: number): Promise<Peer> {
    const peer = watch(connectTls({ host: '127.0.0.1', port, rejectUnauthorized: false }));
    await new Promise((resolve) => {
      peer.socket.once('secureConnect', resolve);
      peer.socket.once('close', resolve);
    });
    return peer;
  }

  it('idle TLS connections count with what OpenSSL holds for them', async () => {
    const { port, codes, server } = await serve({ certificate, maxConnectionBytes: 260 * kib });
    const peers: Peer[] = [];
    for (let count = 0; count < 7; count++) {
      // During a handshake a connection counts with what has come of it.
      const secured = once(server, 'secureConnection');
      peers.push(await openTls(port));
      await secured;
    }
    await expect.poll(() => standing(peers)).toBe(4);
    expect(codes).toEqual(Array(3).fill('CONNECTION_MEMORY'));
    // What is gone for the peer is gone for the server too.
    await expect
      .poll(() => new Promise((resolve) => server.getConnections((_error, count) => resolve(count))))
      .toBe(4);
    const last = peers.at(-1);
    last?.socket.write(request);
    await expect.poll(() => last?.came()).toMatch(/200 OK/);
  });

  it('connections that begin no handshake count as much', async () => {
    const { port } = await serve({ certificate, maxConnectionBytes: 260 * kib });
    const peers = await openAll(7, port);
    await expect.poll(() => standing(peers)).toBe(4);
  });

  it('the greeting of a handshake counts with what has come of it', async () => {
    const { port, codes } = await serve({ certificate, maxConnectionBytes: 800 * kib });
    // A message of 131,000 bytes, of which seven records of 16 KiB come: 64 KiB and 224 KiB each.
    const records = Array.from({ length: 7 }, (_, at) => {
      const message = Buffer.alloc(16 * kib, 1);
      if (at === 0) message.writeUInt32BE(0x01_00_00_00 + 131_000);
      return Buffer.concat([Buffer.from([0x16, 3, 1, 0x40, 0]), message]);
    });
    const peers = await openAll(6, port);
    for (const { socket } of peers) socket.write(Buffer.concat(records));
    await expect.poll(() => standing(peers)).toBe(2);
    expect(codes).toEqual(Array(4).fill('CONNECTION_MEMORY'));
  });

  it('no second handshake begins on a connection', async () => {
    const { port } = await serve({ certificate });
    const options = { host: '127.0.0.1', port, rejectUnauthorized: false, maxVersion: 'TLSv1.2' } as const;
    const socket = connectTls(options);
    onTestFinished(() => void socket.destroy());
    await new Promise((resolve) => socket.once('secureConnect', resolve));
    const outcome = await new Promise((resolve) => {
      socket.once('error', ({ code }: NodeJS.ErrnoException) => resolve(code));
      socket.renegotiate({ rejectUnauthorized: false }, () => resolve('another handshake'));
    });
    expect(outcome).toBe('ERR_SSL_NO_RENEGOTIATION');
  });

  it('a reply by TLS that is not read has one line when its connection is ended', async () => {
    const large = Buffer.alloc(8 * 2 ** 20);
    const { port, codes } = await serve(
      { certificate, maxConnectionBytes: 20 * 2 ** 20 },
      (_incoming, outgoing) => outgoing.end(large),
    );
    const peers: Peer[] = [];
    for (let count = 0; count < 6; count++) {
      const peer = await openTls(port);
      peer.socket.pause();
      peer.socket.write(request);
      peers.push(peer);
    }
    await expect.poll(() => codes.length).toBeGreaterThanOrEqual(3);
    for (const { socket } of peers) socket.resume();
    await expect.poll(() => peers.at(-1)?.came().length).toBeGreaterThan(large.length);
    expect(new Set(codes)).toEqual(new Set(['CONNECTION_MEMORY']));
  });

  it('a large reply by TLS is given to OpenSSL in pieces: as much as it gets at once, a connection keeps while it lives', async () => {
    const bodies = [Buffer.alloc(300_001, 'a'), 'b'.repeat(40_000), 'c'];
    let at = 0;
    const { port, server } = await serve({ certificate }, (_incoming, outgoing) => {
      outgoing.write('first', 'latin1');
      outgoing.end(bodies[at++], 'latin1');
    });
    const given: number[] = [];
    server.prependListener('secureConnection', (socket: Socket) => {
      const { _handle: handle } = socket as Socket & {
        _handle: Record<string, (...all: unknown[]) => unknown>;
      };
      for (const name of ['writeBuffer', 'writeLatin1String', 'writev']) {
        const write = handle[name] as (...all: unknown[]) => unknown;
        handle[name] = (request: unknown, ...rest: unknown[]) => {
          const [written] = rest as [string | (string | Buffer)[]];
          const parts = typeof written === 'string' || Buffer.isBuffer(written) ? [written] : written;
          given.push(parts.reduce((sum, { length }, place) => sum + (place % 2 === 0 ? length : 0), 0));
          return write.call(handle, request, ...rest);
        };
      }
    });
    const peer = await openTls(port);
    for (const body of bodies) {
      const before = peer.came().length;
      peer.socket.write(request);
      await expect.poll(() => peer.came().length).toBeGreaterThan(before + body.length);
      await expect.poll(() => peer.came().slice(before)).toMatch(/\r\n0\r\n\r\n$/);
      expect(peer.came().slice(before)).toContain(String(body));
    }
    expect(Math.max(...given)).toBeLessThanOrEqual(16 * kib);
    expect(given.reduce((sum, one) => sum + one, 0)).toBeGreaterThan(340_000);
  });

  it('heads that never end count by TLS too', async () => {
    const { port } = await serve({ certificate, maxConnectionBytes: 260 * kib });
    const peers: Peer[] = [];
    for (let count = 0; count < 4; count++) {
      const peer = await openTls(port);
      peer.socket.write(endlessHead);
      peers.push(peer);
    }
    await expect.poll(() => standing(peers)).toBe(2);
  });
});
