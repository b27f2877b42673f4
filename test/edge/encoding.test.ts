import { describe, expect, it } from 'vitest';
import { type ContentCoding, chooseCoding } from '../../src/edge/encoding.ts';

const both = { br: true, gzip: true };

describe('Accept-Encoding (RFC 9110 section 12.5.3)', () => {
  it.each<[string, string | undefined, ContentCoding]>([
    ['absent', undefined, 'identity'],
    ['empty', '', 'identity'],
    ['br', 'br', 'br'],
    ['gzip', 'gzip', 'gzip'],
    ['x-gzip is gzip (section 8.4.1.3)', 'x-gzip', 'gzip'],
    ['what browsers send', 'gzip, deflate, br, zstd', 'br'],
    ['any case', 'GZip;Q=1', 'gzip'],
    ['weights decide', 'br;q=0.5, gzip;q=0.8', 'gzip'],
    ['equal weights: br', 'gzip;q=0.8, br;q=0.8', 'br'],
    ['zero is never', 'br;q=0, gzip', 'gzip'],
    ['zero in three digits is never', 'br;q=0.000', 'identity'],
    ['all refused but identity', 'br;q=0, gzip;q=0', 'identity'],
    ['a star stands for the rest', '*', 'br'],
    ['a star for what is not named', 'br;q=0, *', 'gzip'],
    ['a star refused', 'gzip, *;q=0', 'gzip'],
    ['a star weighs less than a name', '*;q=0.5, gzip;q=0.9', 'gzip'],
    ['identity alone', 'identity', 'identity'],
    ['identity preferred', 'identity;q=1, gzip;q=0.5', 'identity'],
    ['identity named, equal', 'identity, gzip', 'gzip'],
    ['identity refused', 'identity;q=0, gzip;q=0.1', 'gzip'],
    ['all refused: still readable', 'identity;q=0', 'identity'],
    ['all refused by a star: still readable', '*;q=0', 'identity'],
    ['unknown codings', 'zstd, deflate', 'identity'],
    ['a weight above one is not read', 'br;q=1.5, gzip', 'gzip'],
    ['a weight with four digits is not read', 'br;q=0.1234, gzip', 'gzip'],
    ['no weight is not read', 'br;q=, gzip', 'gzip'],
    ['space around the semicolon', 'br ; q=0, gzip', 'gzip'],
    ['the same twice: the lesser', 'br, br;q=0', 'identity'],
    ['the same twice, the lesser first', 'br;q=0, br', 'identity'],
    ['a name with another character before it is not read', '@br', 'identity'],
  ])('Accept-Encoding chooses the coding: %s', (_, field, expected) => {
    expect(chooseCoding(field, both)).toBe(expected);
  });
  it('a caller gets only a coding that exists', () => {
    expect(chooseCoding('br', { br: false, gzip: true })).toBe('identity');
    expect(chooseCoding('br, gzip;q=0.1', { br: false, gzip: true })).toBe('gzip');
    expect(chooseCoding('gzip, br;q=0.1', { br: true, gzip: false })).toBe('br');
    expect(chooseCoding('*', { br: false, gzip: false })).toBe('identity');
  });
});
