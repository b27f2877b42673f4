import { existsSync, readdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { editFile, FileBusyError } from '../../src/files/edit.ts';
import { cleanUp, makeFolder } from '../support/callers-fixture.ts';

afterEach(cleanUp);

/** A file, and the one beside it that a process which died has left. */
function abandoned(): { file: string; beside: string } {
  const folder = makeFolder();
  const beside = join(folder, '.list.new');
  writeFileSync(beside, 'half');
  const longAgo = Date.now() / 1_000 - 60;
  utimesSync(beside, longAgo, longAgo);
  return { file: join(folder, 'list'), beside };
}

describe('a temporary file that an editor left behind', () => {
  it('a left temporary file is removed once, and no edit is lost, however many editors find it at the same time', async () => {
    for (let round = 0; round < 5; round++) {
      const { file } = abandoned();
      const names = Array.from({ length: 8 }, (_, index) => `${index}`);
      await Promise.all(names.map((name) => editFile(file, (text = '') => `${text}${name}\n`)));
      expect(readFileSync(file, 'utf8').trim().split('\n').sort()).toEqual(names);
      expect(readdirSync(dirname(file))).toEqual(['list']);
    }
  });

  it('a left temporary file that another editor has replaced stays, and that edit goes on', async () => {
    const { file, beside } = abandoned();
    const now = Date.now();
    let theirs: string | undefined;
    // The age is the last thing looked at before something is done about it.
    vi.spyOn(Date, 'now').mockImplementationOnce(() => {
      rmSync(beside);
      writeFileSync(beside, 'theirs');
      setTimeout(() => {
        theirs = existsSync(beside) ? readFileSync(beside, 'utf8') : undefined;
        rmSync(beside, { force: true });
      }, 100);
      return now;
    });
    await editFile(file, () => 'ours');
    expect(theirs).toBe('theirs');
    expect(readFileSync(file, 'utf8')).toBe('ours');
  });

  it('an editor whose temporary file was taken over fails and touches nothing of the other', async () => {
    const { file, beside } = abandoned();
    const edit = editFile(file, () => {
      rmSync(beside);
      writeFileSync(beside, 'theirs');
      return 'ours';
    });
    await expect(edit).rejects.toThrow(FileBusyError);
    expect(existsSync(file)).toBe(false);
    expect(readFileSync(beside, 'utf8')).toBe('theirs');
  });
});
