import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { describe, expect, it } from 'vitest';
import { accounts } from '../support/gateway.ts';
import { serve, settingsFor, standInFor, until } from '../support/process.ts';

const tunnel = 'CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\n\r\n';

async function open(port: number, bytes: string): Promise<Socket> {
  const socket = connect(port, '127.0.0.1');
  socket.on('error', () => {}).resume();
  await once(socket, 'connect');
  socket.write(bytes);
  return socket;
}

describe('a caller that asks for a tunnel', () => {
  it('a caller that asks for a tunnel and breaks off does not end the gateway, whatever was under way', async (owner) => {
    const standIn = await standInFor(owner);
    const gateway = await serve(owner, { settings: { ...settingsFor(standIn.url), ADMIN_PORT: '0' } });
    const { promise: answered, resolve: answer } = Promise.withResolvers<void>();
    standIn.behave({ until: answered });
    const [, adminPort] = await gateway.printed(/"adminUrl":"http:[^"]*:(\d+)"/);
    const held = await open(gateway.port, `GET ${accounts} HTTP/1.1\r\nHost: localhost\r\n\r\n${tunnel}`);
    await until(() => standIn.requests.length === 1);
    for (const port of [gateway.port, Number(adminPort)]) {
      for (let times = 0; times < 20; times++) (await open(port, tunnel)).resetAndDestroy();
    }
    held.resetAndDestroy();
    await until(() => gateway.stdout().includes('CONNECT'));
    answer();
    standIn.behave(undefined);
    for (let times = 0; times < 5; times++)
      expect((await gateway.ask(`${accounts}?${times}`)).status).toBe(200);
  });
});
