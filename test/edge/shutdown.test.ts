import { once } from 'node:events';
import type { RequestListener, Server } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { closeServer } from '../../src/edge/listen.ts';
import { createHttpServer, type ServerLimits } from '../../src/edge/server.ts';
import { makeCertificate } from '../support/certificate.ts';

/** Far longer than a test may take. */
const graceMs = 600_000;

/** The server of both listeners, which would keep its idle connections open for as long, and a connection to it. */
async function startServer(
  answer: RequestListener,
  more: Partial<ServerLimits> = {},
): Promise<{ server: Server; socket: Socket; socketThere: Socket; refused: unknown[] }> {
  const refused: unknown[] = [];
  const server = createHttpServer(
    answer,
    {
      ...{ headersTimeoutMs: graceMs, maxConnections: 1_000, stillMs: graceMs },
      isSecret: () => false,
      isEnding: () => true,
      ...more,
    },
    { onRefused: (refusal) => refused.push(refusal), onListenerError: () => {} },
  );
  onTestFinished(() => server.closeAllConnections());
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const socket = dial(server);
  const [socketThere] = (await once(server, 'connection')) as [Socket];
  return { server, socket, socketThere, refused };
}

function dial(server: Server): Socket {
  const { port } = server.address() as AddressInfo;
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  onTestFinished(() => void socket.destroy());
  return socket.setEncoding('latin1').on('error', () => {});
}

const request = 'GET / HTTP/1.1\r\nHost: a\r\n\r\n';

describe('a server that stops', () => {
  it('a server that stops answers a request that has arrived and was not read yet', async () => {
    const { server, socket } = await startServer((_request, response) => response.end('an answer'));
    let came = '';
    socket.on('data', (text: string) => (came += text));
    socket.write(request);
    socket.once('end', () => socket.end());
    await Promise.all([closeServer(server, graceMs, () => {}), once(socket, 'close')]);
    expect(came).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
  });

  it('a server that stops cuts no reply that its caller is still reading, and ends the connection afterwards', async () => {
    // More than the operating system takes of a connection whose other end does not read.
    const body = 'x'.repeat(32 * 2 ** 20);
    const { server, socket } = await startServer((_request, response) => response.end(body));
    socket.write(request);
    await once(socket, 'readable');
    let ended = false;
    const closed = closeServer(server, graceMs, () => {}).then(() => {
      ended = true;
    });
    await expect.poll(() => server.listening).toBe(false);
    // Of several looks at idle connections.
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(ended).toBe(false);
    let characters = 0;
    socket.on('data', (text: string) => (characters += text.length)).once('end', () => socket.end());
    await Promise.all([closed, once(socket, 'close')]);
    expect(characters).toBeGreaterThan(body.length);
  });

  it('a server that stops ends a connection whose reply had begun before, once the reply has left', async () => {
    const rest = Promise.withResolvers<void>();
    const { server, socket } = await startServer(async (_request, response) => {
      response.writeHead(200, { 'content-length': '2' }).write('a');
      await rest.promise;
      response.end('b');
    });
    socket.write(request);
    socket.once('end', () => socket.end());
    const [text] = await once(socket, 'data');
    expect(text).toContain('Connection: keep-alive');
    const closed = closeServer(server, graceMs, () => {});
    await expect.poll(() => server.listening).toBe(false);
    rest.resolve();
    await closed;
  });

  it('a server that stops accepts all connections that wait for it, and answers them', async () => {
    const { server } = await startServer((_request, response) => response.end('an answer'));
    // Node accepts one in a turn of the event loop.
    const waiting = Array.from({ length: 300 }, () => dial(server));
    const replies = waiting.map(async (socket) => {
      socket.write(request);
      let came = '';
      socket.on('data', (text: string) => (came += text)).once('end', () => socket.end());
      await once(socket, 'close');
      return came.slice(0, 15);
    });
    await closeServer(server, graceMs, () => {});
    expect(new Set(await Promise.all(replies))).toEqual(new Set(['HTTP/1.1 200 OK']));
  });

  it('a server whose socket others hold leaves them what waits there', async () => {
    const { server } = await startServer((_request, response) => response.end('an answer'));
    let taken = 0;
    server.on('connection', () => (taken += 1));
    const waiting = Array.from({ length: 300 }, () => once(dial(server), 'connect').catch(() => {}));
    await closeServer(server, graceMs, () => {}, true);
    await Promise.all(waiting);
    // What one turn of the event loop brings.
    expect(taken).toBeLessThan(10);
  });

  it.each([
    ['has sent nothing', '', false, graceMs],
    ['has sent half a head', 'GET / HTTP/1.1\r\nHo', false, graceMs],
    ['awaits nothing', request, false, graceMs],
    ['has not begun its handshake', '', true, graceMs],
    ['stops in the middle of its handshake for longer than its limit', '\x16\x03\x01', true, 500],
  ])(
    'a server that stops does not wait for a caller that %s',
    async (_name, bytes, isTls, headersTimeoutMs) => {
      const { key, cert } = makeCertificate();
      const certificate = { key, cert } as ServerLimits['certificate'];
      const { server, socket } = await startServer(
        (_request, response) => response.end('an answer'),
        isTls ? { certificate, headersTimeoutMs } : { isEnding: () => false },
      );
      if (bytes !== '') socket.write(bytes, 'latin1');
      if (bytes === request) await once(socket, 'data');
      socket.resume().once('end', () => socket.end());
      await closeServer(server, graceMs, () => {});
    },
  );

  it('a server that stops waits for the end of a handshake that has begun', async () => {
    const { key, cert } = makeCertificate();
    const { server, socket } = await startServer(() => {}, {
      certificate: { key, cert } as ServerLimits['certificate'],
    });
    socket.write('\x16\x03\x01', 'latin1');
    let ended = false;
    const closed = closeServer(server, graceMs, () => {}).then(() => {
      ended = true;
    });
    // Of several looks at idle connections.
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    expect(ended).toBe(false);
    socket.destroy();
    await closed;
  });

  it('a server that stops reads what a caller sends behind its last reply, and answers it no more', async () => {
    let answered = 0;
    const { server, socket, socketThere, refused } = await startServer((_request, response) => {
      answered += 1;
      response.writeHead(200, { connection: 'close' }).end('an answer');
    });
    const closed = closeServer(server, graceMs, () => {});
    socket.write(request);
    socket.resume();
    await once(socket, 'end');
    // Else it is closed, and what comes now is answered with a reset.
    socket.write(`${request}${request}`);
    await expect.poll(() => socketThere.bytesRead).toBe(3 * request.length);
    socket.end();
    await closed;
    expect(answered).toBe(1);
    expect(refused).toEqual([]);
  });

  it('a server that stops cuts what is still open when its time is over', async () => {
    const overdue: string[] = [];
    const { server, socket } = await startServer(() => {});
    socket.write(request);
    await once(server, 'request');
    const cut = once(socket.resume(), 'end');
    await closeServer(server, 200, () => overdue.push('overdue'));
    await cut;
    expect(overdue).toEqual(['overdue']);
  });
});
