import { renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { watchFile } from '../../src/callers/file-watch.ts';
import { cleanUp, makeFolder } from '../support/callers-fixture.ts';

afterEach(cleanUp);

describe('a text that cannot be used', () => {
  it('is believed to be whole only when it has stood for 200 ms, however often somebody looks', async () => {
    // Not fake timers: what waits for something moves them on.
    const now = vi.spyOn(performance, 'now').mockReturnValue(0);
    const file = join(makeFolder(), 'callers.json');
    writeFileSync(file, 'whole');
    const looks: string[] = [];
    const watch = watchFile({
      file,
      text: 'whole',
      onText: (text, isSecondLook) => {
        looks.push(`${text} ${isSecondLook ? 'second' : 'first'}`);
        return false;
      },
      onTrouble: () => {},
    });
    onTestFinished(watch.close);
    const lookOften = async () => {
      for (let round = 0; round < 5; round++) {
        watch.readNow();
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
    watch.readNow();
    await expect.poll(() => looks).toEqual(['half first', 'half second']);
  });
});
