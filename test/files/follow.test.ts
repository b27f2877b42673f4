import { execFileSync } from 'node:child_process';
import {
  appendFileSync,
  mkdirSync,
  mkdtempSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { FollowedFiles, type ReadFile, watchForChanges } from '../../src/files/read.ts';

afterEach(() => vi.useRealTimers());

function makeFile(): string {
  const folder = mkdtempSync(join(tmpdir(), 'file-watch-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, 'watched');
  writeFileSync(file, 'one');
  return file;
}

/** Watches and counts the calls. */
function watch(file: string) {
  const seen = { calls: 0 };
  const watching = watchForChanges(file, () => {
    seen.calls++;
  });
  onTestFinished(() => watching.close());
  return { seen, watching };
}

describe('a watched file', () => {
  it('a watched file is reported when it is written, replaced, removed, and there again', async () => {
    const file = makeFile();
    const { seen } = watch(file);
    // The call soon after the start, which no change has caused.
    await expect.poll(() => seen.calls, { timeout: 5_000 }).toBe(1);
    const changes = [
      () => writeFileSync(file, 'other'),
      () => {
        writeFileSync(`${file}.new`, 'third');
        renameSync(`${file}.new`, file);
      },
      () => rmSync(file),
      () => writeFileSync(file, 'third'),
    ];
    for (const change of changes) {
      const before = seen.calls;
      change();
      await expect.poll(() => seen.calls, { timeout: 5_000 }).toBeGreaterThan(before);
    }
  });

  it('a watched file is reported at every swap of the links of a Kubernetes volume', async () => {
    const folder = dirname(makeFile());
    const point = (version: number): void => {
      mkdirSync(join(folder, `..${version}`));
      writeFileSync(join(folder, `..${version}`, 'mounted'), `${version}`);
      symlinkSync(`..${version}`, join(folder, '..data_tmp'));
      renameSync(join(folder, '..data_tmp'), join(folder, '..data'));
      rmSync(join(folder, `..${version - 1}`), { recursive: true, force: true });
    };
    point(1);
    symlinkSync('..data/mounted', join(folder, 'mounted'));
    const { seen } = watch(join(folder, 'mounted'));
    await expect.poll(() => seen.calls, { timeout: 5_000 }).toBe(1);
    for (const version of [2, 3, 4]) {
      const before = seen.calls;
      point(version);
      await expect.poll(() => seen.calls, { timeout: 5_000 }).toBeGreaterThan(before);
    }
  });

  it('a watched file is reported when its folder is renamed away and made anew', async () => {
    const folder = dirname(makeFile());
    const file = join(folder, 'sub', 'watched');
    mkdirSync(join(folder, 'sub'));
    writeFileSync(file, 'one');
    const { seen } = watch(file);
    await expect.poll(() => seen.calls, { timeout: 5_000 }).toBe(1);
    renameSync(join(folder, 'sub'), join(folder, 'away'));
    await expect.poll(() => seen.calls, { timeout: 5_000 }).toBeGreaterThan(1);
    const before = seen.calls;
    mkdirSync(join(folder, 'sub'));
    writeFileSync(file, 'two');
    await expect.poll(() => seen.calls, { timeout: 5_000 }).toBeGreaterThan(before);
  });

  it('a watched file is reported once more when its time stamp can be trusted', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const file = makeFile();
    const { seen } = watch(file);
    vi.advanceTimersByTime(250);
    expect(seen.calls).toBe(1);
    let time = 0;
    await vi.waitFor(
      () => {
        // Again and again: the first change may come before the first look.
        utimesSync(file, ++time, time);
        expect(seen.calls).toBeGreaterThan(1);
      },
      { timeout: 5_000 },
    );
    const { calls } = seen;
    vi.advanceTimersByTime(2_000);
    expect(seen.calls).toBe(calls + 1);
  });

  it('a watched file is reported to a second watch of it when the first is closed', async () => {
    const file = makeFile();
    const first = watch(file);
    const second = watch(file);
    first.watching.close();
    await expect.poll(() => second.seen.calls, { timeout: 5_000 }).toBe(1);
    writeFileSync(file, 'other');
    await expect.poll(() => second.seen.calls, { timeout: 5_000 }).toBeGreaterThan(1);
    expect(first.seen.calls).toBe(0);
  });

  it('a watched file does not keep the process alive', () => {
    const module = fileURLToPath(new URL('../../src/files/read.ts', import.meta.url));
    const script = `
      const { watchForChanges } = await import(${JSON.stringify(`file://${module}`)});
      watchForChanges(${JSON.stringify(makeFile())}, () => {});`;
    execFileSync(process.execPath, ['--input-type=module', '-e', script], { timeout: 30_000 });
  });
});

describe('followed files', () => {
  /** Follows two files, and calls `meanwhile` in place of the first wait for a file to stand. */
  function follow(meanwhile: () => void = () => {}) {
    const files = [makeFile(), makeFile()];
    for (const file of files) utimesSync(file, 1, 1);
    const changes: string[] = [];
    const said = (one: ReadFile): string => (one.status === 'fulfilled' ? one.value : one.reason.code);
    const followed = new FollowedFiles({
      files,
      texts: ['one', 'one'],
      onChange: (found) => void changes.push(found.map(said).join(' ')),
    });
    onTestFinished(() => followed.close());
    const later = globalThis.setTimeout;
    let waits = 0;
    vi.spyOn(globalThis, 'setTimeout').mockImplementation(((run: () => void, ms: number) => {
      if (ms !== 50) return later(run, 1e9);
      if (++waits === 1) meanwhile();
      return later(run, 0);
    }) as typeof setTimeout);
    onTestFinished(() => void vi.restoreAllMocks());
    const [first = '', second = ''] = files;
    return { first, second, changes, readNow: () => followed.readNow() };
  }

  it('are handed over together, when asked for also unchanged', async () => {
    const { second, changes, readNow } = follow();
    await readNow();
    writeFileSync(second, 'two');
    await readNow();
    expect(changes).toEqual(['one one', 'one two']);
  });

  it('are never handed over by half', async () => {
    const { first, changes, readNow } = follow(() => appendFileSync(first, '-and-the-rest'));
    writeFileSync(first, 'half');
    // However long this machine takes, it was written just now.
    vi.useFakeTimers({ toFake: ['Date'], now: statSync(first).mtimeMs });
    await readNow();
    expect(changes).toEqual(['half-and-the-rest one']);
  });

  it('are whole although one is away for the moment in which it is replaced', async () => {
    const { first, changes, readNow } = follow(() => writeFileSync(first, 'two'));
    rmSync(first);
    await readNow();
    expect(changes).toEqual(['two one']);
  });

  it('are handed over with what keeps one from being read, and again when it can be', async () => {
    const { second, changes, readNow } = follow();
    rmSync(second);
    await readNow();
    writeFileSync(second, 'one');
    await readNow();
    expect(changes).toEqual(['one ENOENT', 'one one']);
  });
});
