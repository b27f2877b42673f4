import { once } from 'node:events';
import { createServer, type RequestListener, type Server } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { closeServer, keepUnsent } from '../../src/edge/shutdown.ts';

/** Far longer than a test may take. */
const graceMs = 600_000;

/** A server that would keep its idle connections open for as long, and a connection to it. */
async function startServer(answer: RequestListener): Promise<{ server: Server; socket: Socket }> {
  const server = createServer({ keepAliveTimeout: graceMs }, answer);
  keepUnsent(server, 'connection');
  onTestFinished(() => server.closeAllConnections());
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1').setEncoding('latin1');
  await once(server, 'connection');
  return { server, socket };
}

const request = 'GET / HTTP/1.1\r\nHost: a\r\n\r\n';

describe('a server that stops', () => {
  it('a server that stops answers a request that has arrived and was not read yet', async () => {
    const { server, socket } = await startServer((_request, response) => response.end('an answer'));
    let came = '';
    socket.on('data', (text: string) => (came += text));
    socket.write(request);
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
    socket.on('data', (text: string) => (characters += text.length));
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
    const [text] = await once(socket, 'data');
    expect(text).toContain('Connection: keep-alive');
    const closed = closeServer(server, graceMs, () => {});
    await expect.poll(() => server.listening).toBe(false);
    rest.resolve();
    await closed;
  });
});
