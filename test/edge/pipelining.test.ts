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
  it('the server begins no more than 16 pipelined requests before the first reply has left, and answers all in order', async () => {
    const { port, begun } = await serveByHand();
    const { socket, came } = open(port);
    const count = 2_000;
    socket.write(requests(count));
    let answered = 0;
    for (; answered < count; answered++) {
      await expect.poll(() => begun.length).toBeGreaterThan(answered);
      expect(begun.length - answered).toBeLessThanOrEqual(maxBegun);
      const next = begun[answered];
      await new Promise((resolve) => next?.outgoing.once('close', resolve).end(next.url));
    }
    await expect.poll(() => bodiesOf(came()).length).toBe(count);
    expect(bodiesOf(came())).toEqual(urls(count));
  }, 30_000);

  it('pipelined requests are answered in order, wherever the network cuts them', async () => {
    const { port } = await serve((incoming, outgoing) => void setImmediate(() => outgoing.end(incoming.url)));
    const { socket, came, ended } = open(port);
    socket.setNoDelay(true);
    const text = requests(300) + request(300, 'Connection: close\r\n');
    for (let at = 0, size = 1; at < text.length; at += size, size = (size * 7 + 3) % 997) {
      socket.write(text.slice(at, at + size));
      await new Promise((resolve) => setImmediate(resolve));
    }
    await ended;
    expect(bodiesOf(came())).toEqual(urls(301));
  });

  it('requests that arrive while 16 are under way are answered as well', async () => {
    const { port, begun } = await serveByHand();
    const { socket, came } = open(port);
    socket.write(requests(maxBegun));
    await expect.poll(() => begun.length).toBe(maxBegun);
    socket.write(requests(10, maxBegun));
    for (const { url, outgoing } of begun.splice(0)) outgoing.end(url);
    await expect.poll(() => begun.length).toBe(10);
    for (const { url, outgoing } of begun.splice(0)) outgoing.end(url);
    await expect.poll(() => bodiesOf(came())).toEqual(urls(maxBegun + 10));
  });

  it('the server keeps at most 128 KiB of what a caller sends behind 16 requests, and answers all of it', async () => {
    const { port, begun } = await serveByHand();
    const { socket, came } = open(port);
    const count = 10_000;
    socket.write(requests(count));
    await expect.poll(() => begun.length).toBe(maxBegun);
    const held = begun[0]?.outgoing.socket;
    await expect.poll(() => held?.readableLength).toBeGreaterThan(64 * 1_024 - 1);
    // More would have come by the time that a whole exchange takes.
    const other = open(port);
    other.socket.write(requests(1, 1_000_000));
    await expect.poll(() => begun.length).toBe(maxBegun + 1);
    expect(held?.readableLength).toBeLessThanOrEqual(128 * 1_024);
    begun.pop();
    let answered = 0;
    for (; answered < count; answered++) {
      while (begun[answered] === undefined) await new Promise((resolve) => setImmediate(resolve));
      begun[answered]?.outgoing.end(begun[answered]?.url);
    }
    await expect.poll(() => bodiesOf(came()).length, { timeout: 10_000 }).toBe(count);
    expect(bodiesOf(came())).toEqual(urls(count));
  }, 60_000);

  it.each([
    ['something that is no request', 'foul\r\n\r\n', 'HPE_INVALID_METHOD'],
    ['a tunnel', 'CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n', 'CONNECT'],
  ])('%s is refused after the replies to the requests before it', async (_name, bytes, code) => {
    for (const count of [1, 3, maxBegun - 1, maxBegun, maxBegun + 1]) {
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
