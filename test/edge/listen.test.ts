import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { listen } from '../../src/edge/listen.ts';

describe('a socket file', () => {
  it('a socket file belongs to its owner and group from the moment it exists', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'gateway-socket-'));
    const path = join(folder, 'socket');
    const server = createServer();
    const before = process.umask(0o002);
    onTestFinished(async () => {
      process.umask(before);
      await new Promise((resolve) => server.close(resolve));
      rmSync(folder, { recursive: true });
    });
    const modes: number[] = [];
    const mode = () => modes.push(statSync(path).mode & 0o777);
    const plain = server.listen;
    server.listen = ((...args: Parameters<typeof plain>) => {
      plain.apply(server, args);
      mode();
      return server;
    }) as typeof plain;
    expect(await listen(server, `unix:${path}`, 0)).toBe(`unix:${path}`);
    mode();
    expect(modes).toEqual([0o660, 0o660]);
    expect(process.umask()).toBe(0o002);
  });
});

describe('a machine that lacks something', () => {
  it.each(['EMFILE', 'ENFILE', 'ENOBUFS', 'ENOMEM'])(
    'a listener that the system refuses with %s blames the machine, and no setting',
    async (code) => {
      const server = createServer();
      server.listen = () => {
        queueMicrotask(() => server.emit('error', Object.assign(new Error(code), { code })));
        return server;
      };
      await expect(listen(server, '127.0.0.1', 0)).rejects.toMatchObject({
        isSetting: false,
        message: expect.stringMatching(/^127\.0\.0\.1:0 cannot be listened on: the (process|machine) has /),
      });
    },
  );
});
