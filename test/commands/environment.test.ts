import { describe, expect, it } from 'vitest';
import { malformedLines } from '../../src/commands/environment.ts';

describe('the lines of a file of settings', () => {
  it.for<[what: string, text: string, lines: number[]]>([
    ['assignments, comments and empty lines', "A=1\n\n  # A 1\nexport B = 2 # two\nC: 3\nD=\r\nE=it's\n", []],
    ['a value in quotes over several lines', 'A= "1\nnot a name\n" # end\nB=`x`\nC=""\n', []],
    ['a byte order mark', '\uFEFFA=1\n', []],
    ['a word alone', 'A=1\nA 1\n=1\n', [2, 3]],
    ['a word alone, and a quote that nothing closes', "A 1\nB='2\nC=3\n", [1, 2]],
    ['UTF-16', Buffer.from('A=1\nB=2', 'utf16le').toString('utf8'), [1, 2]],
  ])('of %s, those that dotenv passes over are malformed', ([, text, lines]) => {
    expect(malformedLines(text)).toEqual(lines);
  });
});
