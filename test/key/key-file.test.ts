import { appendFileSync, chmodSync, statSync, writeFileSync } from 'node:fs';
import { mkdir, mkdtemp, rename, rm, symlink, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { openStore } from '../../src/key/open-store.ts';
import type { KeyStore } from '../../src/key/store.ts';

const readKeyFile = (path: string): KeyStore => openStore(`file:${path}`, {}, 'UPSTREAM_API_KEY_FROM');

const never = new AbortController().signal;
let directory = '';
let stop: () => void = () => {};

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'key-file-'));
});
afterEach(async () => {
  stop();
  await rm(directory, { recursive: true, force: true });
});

/** Lays a value out as the kubelet does: `key → ..data/key`, `..data → ..<n>`, replaced by one rename. */
async function mount(value: string, version: number): Promise<string> {
  const data = join(directory, `..${version}`);
  await mkdir(data);
  await writeFile(join(data, 'key'), value);
  await symlink(`..${version}`, join(directory, '..data_tmp'));
  await rename(join(directory, '..data_tmp'), join(directory, '..data'));
  if (version === 1) await symlink('..data/key', join(directory, 'key'));
  else await rm(join(directory, `..${version - 1}`), { recursive: true });
  return join(directory, 'key');
}

/** Watches, and reads on every call-back, as the keyring does. */
function follow(path: string): () => string | undefined {
  const store = readKeyFile(path);
  let last: string | undefined;
  stop =
    store.watch?.(() => {
      store.load(never).then(
        (text) => {
          last = text;
        },
        (error: Error) => {
          last = error.message;
        },
      );
    }) ?? stop;
  return () => last;
}

const soon = { timeout: 60_000, interval: 5 };

describe('a file that may not be read', () => {
  it('a key file that may not be read is refused with its owner and mode, and with the user of this process', async () => {
    const path = join(directory, 'key');
    writeFileSync(path, 'a-key-0123456789', { mode: 0 });
    chmodSync(directory, 0o755);
    // Root may read every file.
    const isRoot = process.geteuid?.() === 0;
    if (isRoot) process.seteuid?.(65_534);
    const failure = await readKeyFile(path)
      .load(never)
      .then(String, (error: Error) => error.message);
    if (isRoot) process.seteuid?.(0);
    const { uid, gid } = statSync(path);
    expect(failure).toBe(
      `file:${path}: the file may not be used by this user: it belongs to user ${uid} and group ${gid}, mode 0000; this process is user ${process.getuid?.()}`,
    );
  });
});

describe('a file that is written in place, slowly', () => {
  it('a key file that is written in place, slowly, is never read by half', async () => {
    const path = join(directory, 'key');
    writeFileSync(path, 'first-half-0123456789');
    vi.useFakeTimers({ toFake: ['Date'], now: statSync(path).mtimeMs });
    const later = globalThis.setTimeout;
    const waits: unknown[] = [];
    vi.spyOn(globalThis, 'setTimeout').mockImplementation(((run: () => void, ms: number) => {
      // The rest comes while the store waits to see whether more comes.
      if (waits.push(ms) === 1) appendFileSync(path, '-and-the-rest');
      return later(run, 0);
    }) as typeof setTimeout);
    expect(await readKeyFile(path).load(never)).toBe('first-half-0123456789-and-the-rest');
    expect(waits[0]).toBe(50);
    vi.useRealTimers();
  });

  it('a key file that was written a while ago is read without a wait', async () => {
    const path = join(directory, 'key');
    await writeFile(path, 'whole-0123456789');
    const old = new Date(Date.now() - 1_000);
    await utimes(path, old, old);
    // A wait would never end.
    vi.useFakeTimers({ toFake: ['setTimeout'] });
    try {
      expect(await readKeyFile(path).load(never)).toBe('whole-0123456789');
    } finally {
      vi.useRealTimers();
    }
  });
});

describe('a watched key file', () => {
  it('is seen through every swap of a Kubernetes mount', async () => {
    const last = follow(await mount('value-1', 1));
    for (const version of [2, 3, 4, 5]) {
      await mount(`value-${version}`, version);
      await vi.waitFor(() => expect(last()).toBe(`value-${version}`), soon);
    }
  });
});

describe('a key file that cannot be read', () => {
  it('is explained in plain words', async () => {
    await expect(readKeyFile(join(directory, 'no')).load(never)).rejects.toThrow(/the file does not exist$/);
    await expect(readKeyFile(directory).load(never)).rejects.toThrow(/the file is a directory$/);
    await writeFile(join(directory, 'big'), 'k'.repeat(1024 * 1024));
    await expect(readKeyFile(join(directory, 'big')).load(never)).rejects.toThrow(/too large/);
  });
});
