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
