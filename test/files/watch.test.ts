import { execFileSync } from 'node:child_process';
import { mkdtempSync, renameSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { watchForChanges } from '../../src/files/watch.ts';

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
    const module = fileURLToPath(new URL('../../src/files/watch.ts', import.meta.url));
    const script = `
      const { watchForChanges } = await import(${JSON.stringify(`file://${module}`)});
      watchForChanges(${JSON.stringify(makeFile())}, () => {});`;
    execFileSync(process.execPath, ['--input-type=module', '-e', script], { timeout: 30_000 });
  });
});
