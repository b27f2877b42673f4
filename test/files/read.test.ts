import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { readText, readTextSync } from '../../src/files/read.ts';

function folder(): string {
  const made = mkdtempSync(join(tmpdir(), 'read-file-'));
  onTestFinished(() => rmSync(made, { recursive: true, force: true }));
  return made;
}

const ways = [
  ['at once', async (path: string) => readTextSync(path)],
  ['later', readText],
] as const;

describe.skipIf(process.platform === 'win32')('the reading of a file', () => {
  it.for(ways)('the reading of a file, %s, gives its text', async ([, read]) => {
    const file = join(folder(), 'file');
    writeFileSync(file, 'grüße\n');
    expect(await read(file)).toBe('grüße\n');
  });

  it.for(ways)(
    'the reading of a file, %s, refuses a pipe without a writer, a device and a socket, and does not wait',
    async ([, read]) => {
      const fifo = join(folder(), 'fifo');
      execFileSync('mkfifo', [fifo]);
      await expect(read(fifo)).rejects.toThrow('is a pipe, not a file');
      await expect(read('/dev/zero')).rejects.toThrow('is a device, not a file');
      const socket = join(folder(), 'socket');
      const server = createServer();
      await new Promise<void>((resolve) => server.listen(socket, resolve));
      onTestFinished(() => void server.close());
      await expect(read(socket)).rejects.toMatchObject({ code: 'ENXIO' });
    },
  );

  it.for(ways)('the reading of a file, %s, fails as the system says', async ([, read]) => {
    const made = folder();
    mkdirSync(join(made, 'in'));
    await expect(read(join(made, 'in'))).rejects.toMatchObject({ code: 'EISDIR' });
    await expect(read(join(made, 'none'))).rejects.toMatchObject({ code: 'ENOENT' });
  });
});
