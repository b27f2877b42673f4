import type { RequestListener, ServerResponse } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { maxBegun } from '../../src/edge/pipelining.ts';
import { createHttpServer } from '../../src/edge/server.ts';

/** The server of both listeners, before a listener of the test's own. */
async function serve(answer: RequestListener) {
  const refused: (readonly [number, string])[] = [];
  const server = createHttpServer(
    answer,
    {
      headersTimeoutMs: 60_000,
      maxConnections: 10,
      stillMs: 60_000,
      isSecret: () => false,
      isEnding: () => false,
    },
    { onRefused: ({ status, code }) => refused.push([status, code]), onListenerError: () => {} },
  );
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(async () => {
    await new Promise((resolve) => {
      server.close(resolve);
      server.closeAllConnections();
    });
  });
  return { port: (server.address() as AddressInfo).port, refused };
}

/** Keeps every request until the test answers it. */
async function serveByHand() {
  const begun: { url: string; outgoing: ServerResponse }[] = [];
  const served = await serve((incoming, outgoing) => void begun.push({ url: incoming.url ?? '', outgoing }));
  return { ...served, begun };
}

function open(port: number): { socket: Socket; came: () => string; ended: Promise<void> } {
  const socket = connect(port, '127.0.0.1');
  let came = '';
  socket.setEncoding('latin1').on('data', (text: string) => {
    came += text;
  });
  socket.on('error', () => {});
  onTestFinished(() => void socket.destroy());
  return {
    socket,
    came: () => came,
    ended: new Promise((resolve) => socket.once('close', () => resolve())),
  };
}

const request = (at: number, fields = '') => `GET /${at} HTTP/1.1\r\nHost: a\r\n${fields}\r\n`;
const requests = (count: number, from = 0) =>
  Array.from({ length: count }, (_, at) => request(from + at)).join('');
const bodiesOf = (came: string) => [...came.matchAll(/\r\n\r\n(\/\d+)/g)].map(([, url]) => url);
const urls = (count: number) => Array.from({ length: count }, (_, at) => `/${at}`);

describe('pipelined requests', () => {
  it('of any number sixteen are begun and answered in order, and the last says that the connection ends', async () => {
    const { port, begun, refused } = await serveByHand();
    const { socket, came, ended } = open(port);
    socket.write(requests(2_000));
    await expect.poll(() => begun.length).toBe(maxBegun);
    for (const { url, outgoing } of begun) outgoing.end(url);
    await ended;
    expect(begun).toHaveLength(maxBegun);
    expect(bodiesOf(came())).toEqual(urls(maxBegun));
    const replies = came().split('HTTP/1.1 200 OK').slice(1);
    expect(replies.map((reply) => /Connection: (\S+)/.exec(reply)?.[1])).toEqual([
      ...Array.from({ length: maxBegun - 1 }, () => 'keep-alive'),
      'close',
    ]);
    expect(refused).toEqual([]);
  });

  it('sixteen are answered where the last of them was answered before more came', async () => {
    const { port, begun } = await serveByHand();
    const { socket, came, ended } = open(port);
    socket.write(requests(maxBegun));
    await expect.poll(() => begun.length).toBe(maxBegun);
    for (const { url, outgoing } of begun.slice(1)) outgoing.end(url);
    socket.write(requests(10, maxBegun));
    // Another exchange takes longer than those ten need to come.
    open(port).socket.write(request(1_000_000));
    await expect.poll(() => begun.length).toBe(maxBegun + 1);
    begun[0]?.outgoing.end('/0');
    await ended;
    expect(bodiesOf(came())).toEqual(urls(maxBegun));
  });

  it('a connection goes on where no more than sixteen are under way at once', async () => {
    const { port, begun } = await serveByHand();
    const { socket, came } = open(port);
    for (const from of [0, maxBegun, 2 * maxBegun]) {
      socket.write(requests(maxBegun, from));
      await expect.poll(() => begun.length).toBe(maxBegun);
      for (const { url, outgoing } of begun.splice(0)) outgoing.end(url);
      await expect.poll(() => bodiesOf(came()).length).toBe(from + maxBegun);
    }
    expect(bodiesOf(came())).toEqual(urls(3 * maxBegun));
    expect(came()).not.toContain('Connection: close');
  });

  it('pipelined requests are answered in order, wherever the network cuts them', async () => {
    const { port } = await serve((incoming, outgoing) => void setImmediate(() => outgoing.end(incoming.url)));
    const { socket, came, ended } = open(port);
    socket.setNoDelay(true);
    const text = requests(maxBegun - 1) + request(maxBegun - 1, 'Connection: close\r\n');
    for (let at = 0, size = 1; at < text.length; at += size, size = (size * 7 + 3) % 97) {
      socket.write(text.slice(at, at + size));
      await new Promise((resolve) => setImmediate(resolve));
    }
    await ended;
    expect(bodiesOf(came())).toEqual(urls(maxBegun));
  });

  it.each([
    ['something that is no request', 'foul\r\n\r\n', 'HPE_INVALID_METHOD'],
    ['a tunnel', 'CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n', 'CONNECT'],
  ])('%s is refused after the replies to the requests before it', async (_name, bytes, code) => {
    for (const count of [1, 3, maxBegun - 1]) {
      const { port, begun, refused } = await serveByHand();
      const { socket, came, ended } = open(port);
      socket.write(requests(count) + bytes);
      for (let answered = 0; answered < count; answered++) {
        await expect.poll(() => begun.length).toBeGreaterThan(answered);
        begun[answered]?.outgoing.end(begun[answered]?.url);
      }
      await ended;
      const statuses = [...came().matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => Number(status));
      expect(statuses).toEqual([...Array.from({ length: count }, () => 200), 400]);
      expect(refused).toEqual([[400, code]]);
    }
  });

  it('requests behind a reply that ends the connection are dropped (RFC 9112 section 9.6)', async () => {
    const { port, begun } = await serveByHand();
    const { socket, came, ended } = open(port);
    socket.write(requests(40));
    await expect.poll(() => begun.length).toBe(maxBegun);
    begun[0]?.outgoing.end('/0');
    begun[1]?.outgoing.setHeader('connection', 'close').end('/1');
    await ended;
    expect(bodiesOf(came())).toEqual(['/0', '/1']);
    expect(begun).toHaveLength(maxBegun);
  });
});
