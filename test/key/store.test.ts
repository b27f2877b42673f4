import { describe, expect, it } from 'vitest';
import { parseKey } from '../../src/key/store.ts';

const good = 'wak_live_0123456789abcdef';

describe('a key value', () => {
  it.each([
    ['as it is', good],
    ['with a newline at its end', `${good}\n`],
    ['with CRLF and blanks at its end', `${good} \t\r\n\r\n`],
    ['of 16 characters', 'abcdefghijklmnop'],
    ['of 4096 characters and a newline', `${'key-'.repeat(1024)}\n`],
    ['with four different characters at its end', 'abcd'.repeat(4)],
  ])('is taken %s', (_, text) => {
    expect(parseKey(text)).toEqual({ value: text.trimEnd() });
  });

  it.each([
    ['empty', '', /empty/],
    ['blank', ' \r\n\t', /blank/],
    ['a byte order mark', `\uFEFF${good}`, /byte order mark/],
    ['UTF-16', [...good].map((c) => `${c}\0`).join(''), /NUL/],
    ['NUL inside', `${good}\0x`, /NUL/],
    ['two lines', `${good}\nsecond-line`, /several lines/],
    ['CR inside', `${good}\rX-Evil: 1`, /several lines/],
    ['a leading blank', ` ${good}`, /begins with whitespace/],
    ['a blank inside', 'wak_live 0123456789abcdef', /visible ASCII/],
    ['an accent', `${good}é`, /visible ASCII/],
    ['a non-breaking space at its end', `${good}\u00a0`, /visible ASCII/],
    ['a control character', `${good}\u0007x`, /visible ASCII/],
    ['too short', 'abcdefghijklmno', /shorter/],
    ['an end of one character', `${good}${'k'.repeat(16)}`, /fewer than 4 differ/],
    ['an end of three characters', 'abc'.repeat(8), /fewer than 4 differ/],
    ['too long', 'k'.repeat(4097), /longer/],
    ['1 MiB', 'k'.repeat(1024 * 1024), /longer/],
  ])('is refused when it has or is %s, without a word of it in the reason', (_, text, reason) => {
    const parsed = parseKey(text);
    expect(parsed).toHaveProperty('reason', expect.stringMatching(reason));
    expect(JSON.stringify(parsed)).not.toContain('0123456789');
    for (const part of ['kkkk', 'abca']) expect(JSON.stringify(parsed)).not.toContain(part);
  });
});
