import { statSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { pictureOfConsole } from '../../docs/picture.ts';
import { findChromium } from '../support/chromium.ts';

// Where a browser is required, cors.test.ts says that there is none.
const chromium = findChromium(process.env);
const maxBytes = 200 * 1024;

describe('the picture of the console in README', () => {
  it.skipIf(chromium === undefined)(
    'the picture of the console in README is one that the command can take',
    { timeout: 120_000 },
    async () => {
      const picture = await pictureOfConsole(chromium ?? '', 1);
      expect(picture.subarray(1, 4).toString()).toBe('PNG');
      expect(picture.length).toBeLessThanOrEqual(maxBytes);
    },
  );

  it('the picture of the console in README is small', () => {
    expect(statSync(new URL('../../docs/console.png', import.meta.url)).size).toBeLessThanOrEqual(maxBytes);
  });
});
