import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { FollowedFile } from '../../src/callers/followed-file.ts';
import { cleanUp, makeFolder } from '../support/callers-fixture.ts';

afterEach(cleanUp);

describe('a text that cannot be used', () => {
  it('a text that cannot be used is believed to be whole only when it has stood for 200 ms, however often it is read', async () => {
    // Not fake timers: `expect.poll` would move them on.
    const now = vi.spyOn(performance, 'now').mockReturnValue(0);
    const file = join(makeFolder(), 'callers.json');
    writeFileSync(file, 'whole');
    const looks: string[] = [];
    const followed = new FollowedFile({
      file,
      text: 'whole',
      onText: (text, isSecondLook) => {
        looks.push(`${text} ${isSecondLook ? 'second' : 'first'}`);
        return false;
      },
      onFailureChange: () => {},
    });
    onTestFinished(() => followed.close());
    const lookOften = async () => {
      for (let round = 0; round < 5; round++) {
        followed.readNow();
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    };
    writeFileSync(`${file}.new`, 'half');
    renameSync(`${file}.new`, file);
    await expect.poll(() => looks).toEqual(['half first']);
    now.mockReturnValue(199);
    await lookOften();
    expect(looks).toEqual(['half first']);
    now.mockReturnValue(200);
    followed.readNow();
    await expect.poll(() => looks).toEqual(['half first', 'half second']);
  });
});
