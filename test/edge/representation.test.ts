import { describe, expect, it } from 'vitest';
import {
  type ContentCoding,
  chooseCoding,
  codedEntityTag,
  entityTagOf,
  isNotModified,
} from '../../src/edge/representation.ts';
import { isEntityTag } from '../../src/http/fields.ts';

const now = Date.UTC(2026, 10, 21);
const earlier = 'Sun, 06 Nov 1994 08:49:36 GMT';
const then = 'Sun, 06 Nov 1994 08:49:37 GMT';
const later = 'Sun, 06 Nov 1994 08:49:38 GMT';

describe('If-None-Match (RFC 9110 section 13.1.2)', () => {
  it.each<[string, string, string | undefined, boolean]>([
    ['the same tag', '"a"', '"a"', true],
    ['another tag', '"b"', '"a"', false],
    ['another case', '"A"', '"a"', false],
    ['the second of a list', '"b", "a"', '"a"', true],
    ['a list with empty members', ',"b",,"a",', '"a"', true],
    ['tags with a comma inside', '"b,c", "a,b"', '"a,b"', true],
    ['a part of a tag with a comma', '"a"', '"a,b"', false],
    ['weak against strong (8.8.3.2)', 'W/"a"', '"a"', true],
    ['strong against weak (8.8.3.2)', '"a"', 'W/"a"', true],
    ['weak against weak (8.8.3.2)', 'W/"a"', 'W/"a"', true],
    ['a small w is no weak mark', 'w/"a"', '"a"', false],
    ['the empty tag', '""', '""', true],
    ['any', '*', '"a"', true],
    ['any, for an answer without a tag', ' * ', undefined, true],
    ['a star in a list is no list', '"a", *', '"a"', false],
    ['a quoted star is a tag', '"*"', '"a"', false],
    ['no quotes', 'a', '"a"', false],
    ['an unclosed quote', '"a', '"a"', false],
    ['no comma between', '"a" "b"', '"a"', false],
    ['a blank in another tag of the list', '"a", "b c"', '"a"', false],
    ['garbage behind the match', '"a", b', '"a"', false],
    ['an empty field', '', '"a"', false],
    ['no tag on the answer', '"a"', undefined, false],
    ['a malformed tag on the answer', '"a"', 'a', false],
  ])('If-None-Match matches or not: %s', (_, ifNoneMatch, etag, expected) => {
    const conditions = { ifNoneMatch, ifModifiedSince: undefined };
    expect(isNotModified(200, conditions, { etag, lastModified: undefined }, now)).toBe(expected);
  });
  it('If-None-Match decides alone, whatever If-Modified-Since says (section 13.1.3)', () => {
    const validators = { etag: '"a"', lastModified: then };
    expect(isNotModified(200, { ifNoneMatch: '"b"', ifModifiedSince: later }, validators, now)).toBe(false);
    expect(isNotModified(200, { ifNoneMatch: '"a"', ifModifiedSince: earlier }, validators, now)).toBe(true);
    expect(isNotModified(200, { ifNoneMatch: 'x', ifModifiedSince: later }, validators, now)).toBe(false);
  });
});

describe('If-Modified-Since (RFC 9110 section 13.1.3)', () => {
  it.each<[string, string, string | undefined, boolean]>([
    ['equal', then, then, true],
    ['later', later, then, true],
    ['earlier', earlier, then, false],
    ['another form of the same date', 'Sunday, 06-Nov-94 08:49:37 GMT', then, true],
    ['no date', 'yesterday', then, false],
    ['two dates', `${then}, ${then}`, then, false],
    ['no date on the answer', then, undefined, false],
    ['a malformed date on the answer', then, 'long ago', false],
  ])('If-Modified-Since is met or not: %s', (_, ifModifiedSince, lastModified, expected) => {
    const conditions = { ifNoneMatch: undefined, ifModifiedSince };
    expect(isNotModified(200, conditions, { etag: '"a"', lastModified }, now)).toBe(expected);
  });
  it.each<[string, string, string | undefined, string | undefined, boolean]>([
    ['is compared with the Date of a stored answer without Last-Modified', then, undefined, then, true],
    ['is met by a stored answer that is no younger', later, undefined, then, true],
    ['is not met by a stored answer that is younger', earlier, undefined, then, false],
    ['is compared with Last-Modified where there is one', then, later, earlier, false],
    ['is not met by a stored answer with a malformed Last-Modified', later, 'long ago', then, false],
    ['is ignored for an answer just fetched without Last-Modified', later, undefined, undefined, false],
  ])(
    'If-Modified-Since %s (RFC 9111 section 4.3.2)',
    (_, ifModifiedSince, lastModified, storedDate, expected) => {
      const conditions = { ifNoneMatch: undefined, ifModifiedSince };
      expect(isNotModified(200, conditions, { etag: '"a"', lastModified, storedDate }, now)).toBe(expected);
    },
  );
});

describe('a condition (RFC 9110 section 13.2.1)', () => {
  it.each([201, 204, 400, 403, 404, 500])('a condition changes nothing about a %i', (status) => {
    const conditions = { ifNoneMatch: '*', ifModifiedSince: undefined };
    expect(isNotModified(status, conditions, { etag: '"a"', lastModified: undefined }, now)).toBe(false);
  });
  it('a 200 without a condition is given whole', () => {
    const conditions = { ifNoneMatch: undefined, ifModifiedSince: undefined };
    expect(isNotModified(200, conditions, { etag: '"a"', lastModified: then }, now)).toBe(false);
  });
});

describe('an entity tag (RFC 9110 section 8.8.3)', () => {
  it.each(['"a"', 'W/"a"', '""', '"a,b"'])('an entity tag of the upstream is kept: %s', (tag) => {
    expect(isEntityTag(tag)).toBe(true);
    expect(entityTagOf(tag, Buffer.from('x'))).toBe(tag);
  });
  it.each([undefined, 'a', 'w/"a"', '"a', '"a b"', '"a""b"', ['"a"', '"b"']])(
    'an entity tag is made from the body where the upstream gives none: %j',
    (tag) => {
      const made = entityTagOf(tag, Buffer.from('x'));
      expect(isEntityTag(made)).toBe(true);
      expect(made).toBe(entityTagOf(undefined, Buffer.from('x')));
      expect(made).not.toBe(entityTagOf(undefined, Buffer.from('y')));
    },
  );
  it('an entity tag differs for each coding (section 8.8.3.3)', () => {
    expect(codedEntityTag('"a"', 'br')).toBe('"a-br"');
    expect(codedEntityTag('W/"a"', 'gzip')).toBe('W/"a-gzip"');
    expect(codedEntityTag('"a"', 'identity')).toBe('"a"');
  });
});

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
