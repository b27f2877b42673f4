import { expect, it } from 'vitest';
import { EscapeReader, mayBeginEscape } from '../../src/key/escapes.ts';

/** What may stand behind the first two bytes of an escape. */
const rests = ['', 'mp;', 't;', 'T;', 'uot;', 'UOT;', 'pos;', '38;', 'x26;', '1', 'C5c', '041', 'u0041'];

it('a character that is said to begin no escape is read as itself', () => {
  let escapes = 0;
  for (let one = 0; one < 256; one++) {
    for (let other = 0; other < 256; other++) {
      for (const rest of rests) {
        const text = Buffer.from(`${String.fromCharCode(one, other)}${rest}`, 'latin1');
        const reader = new EscapeReader(text, 0);
        const isItself = reader.next() === one && reader.at === 1;
        if (!isItself) escapes++;
        if (!isItself && !mayBeginEscape(text, 0)) expect.fail(text.toString('latin1'));
      }
    }
  }
  expect(escapes).toBeGreaterThan(0);
});
