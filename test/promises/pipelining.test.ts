import { connect, type Socket } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { accounts, startPair } from '../support/gateway.ts';

describe('a caller that sends 64 KiB of requests in one go', () => {
  it.each([
    ['with a reset', 40, (socket: Socket) => void socket.resetAndDestroy()],
    ['by closing its connection', 40, (socket: Socket) => void socket.destroy()],
  ])(
    'a caller that leaves %s behind %i pipelined requests is noticed: those begun end with 499',
    async (_way, count, leave) => {
      const pair = await startPair();
      const { promise: until, resolve: release } = Promise.withResolvers<void>();
      onTestFinished(() => release());
      pair.standIn.behave({ until });
      const socket = connect(pair.port, '127.0.0.1');
      onTestFinished(() => void socket.destroy());
      const sent = Array.from(
        { length: count },
        (_, at) => `GET ${accounts}?n=${at} HTTP/1.1\r\nHost: a.localhost\r\n\r\n`,
      );
      socket.write(sent.join(''));
      await expect.poll(() => pair.gateway.waiting).toBe(16);
      leave(socket);
      await expect.poll(() => pair.gateway.waiting).toBe(0);
      const lines = pair.logLines().filter(({ operation }) => operation === 'list-accounts');
      expect(lines.map(({ status }) => status)).toEqual(Array.from({ length: 16 }, () => 499));
    },
    20_000,
  );

  it('a caller that asks for another protocol and sends more in one go is told that its connection ends, on both listeners', async () => {
    const pair = await startPair({ ADMIN_PORT: '0' });
    for (const url of [pair.url, pair.gateway.adminUrl ?? '']) {
      const asking = 'GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n';
      const socket = connect(Number(new URL(url).port), '127.0.0.1');
      onTestFinished(() => void socket.destroy());
      let came = '';
      const replies = () => came.match(/HTTP\/1\.1 /g)?.length ?? 0;
      socket.setEncoding('latin1').on('data', (text: string) => {
        came += text;
      });
      // Alone it is a request like every other.
      socket.write(asking);
      await expect.poll(replies).toBe(1);
      expect(came).toContain('Connection: keep-alive');
      const ended = new Promise((resolve) => socket.once('close', resolve));
      socket.write(`${asking}GET /readyz HTTP/1.1\r\nHost: localhost\r\nX-Rest: `);
      await expect.poll(replies).toBe(2);
      // The rest of what is lost would be a request.
      socket.write('GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n');
      await ended;
      expect(replies()).toBe(2);
      expect(came.split('HTTP/1.1 ').at(-1)?.toLowerCase()).toContain('connection: close');
    }
  });

  it.each([
    ['a line feed', '\n'],
    ['an empty line', '\r\n'],
    ['a line feed and an empty line', '\n\r\n'],
  ])(
    'a caller that asks for another protocol, and sends %s as the end of that head with more behind it, is told that its connection ends',
    async (_end, end) => {
      const { port } = await startPair();
      const plain = 'GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n';
      const asking = `${plain.slice(0, -2)}Connection: upgrade\r\nUpgrade: h2c\r\n\r\n`;
      const socket = connect(port, '127.0.0.1');
      onTestFinished(() => void socket.destroy());
      let came = '';
      const replies = () => came.match(/HTTP\/1\.1 /g)?.length ?? 0;
      socket.setEncoding('latin1').on('data', (text: string) => {
        came += text;
      });
      const ended = new Promise((resolve) => socket.once('close', resolve));
      // The reply to the first request says that the head behind it was read up to its end.
      socket.write(plain + asking.slice(0, -end.length));
      await expect.poll(replies).toBe(1);
      socket.write(end + plain);
      await ended;
      expect(replies()).toBe(2);
      expect(came.split('HTTP/1.1 ').at(-1)?.toLowerCase()).toContain('connection: close');
    },
  );
});
