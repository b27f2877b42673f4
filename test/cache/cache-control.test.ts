import { describe, expect, it } from 'vitest';
import {
  directiveFields,
  directiveSeconds,
  hasBareDirective,
  hasDirective,
  parseCacheControl,
} from '../../src/cache/cache-control.ts';

const maxAge = (field: string | readonly string[]) => directiveSeconds(parseCacheControl(field), 'max-age');

describe('an argument in seconds (RFC 9111 section 5.2)', () => {
  it.each<[string, string | readonly string[], number | 'invalid' | undefined]>([
    ['plain', 'max-age=60', 60],
    ['another case', 'Max-AGE=60', 60],
    ['among others', 'public,max-age=60 , foo=bar', 60],
    ['space around', '\t max-age=60 \t', 60],
    ['empty members', ', ,max-age=60,,', 60],
    ['leading zeros', 'max-age=0060', 60],
    ['quoted', 'max-age="60"', 60],
    ['quoted with an escape', 'max-age="6\\0"', 60],
    ['zero', 'max-age=0', 0],
    ['2^31 - 1', 'max-age=2147483647', 2147483647],
    ['beyond 2^31 (section 1.2.2)', 'max-age=99999999999999999999', 2147483648],
    ['the same twice', 'max-age=60, max-age=60', 60],
    ['the same in two lines', ['max-age=60', 'max-age=60'], 60],
    ['two that differ (section 4.2.1)', 'max-age=1800, max-age=1', 'invalid'],
    ['two lines that differ (section 4.2.1)', ['max-age=1', 'max-age=1800'], 'invalid'],
    ['two that differ, and the first again', 'max-age=60, max-age=1, max-age=60', 'invalid'],
    ['the same twice, one with junk behind', 'max-age=60, max-age=60;x', 'invalid'],
    ['the same twice, one with junk behind, the other way round', 'max-age=60;x, max-age=60', 'invalid'],
    ['one good, one bad', 'max-age=60, max-age=abc', 'invalid'],
    ['no argument', 'max-age', 'invalid'],
    ['an empty argument', 'max-age=', 'invalid'],
    ['negative', 'max-age=-60', 'invalid'],
    ['signed', 'max-age=+60', 'invalid'],
    ['a fraction', 'max-age=60.0', 'invalid'],
    ['an exponent', 'max-age=6e1', 'invalid'],
    ['hexadecimal', 'max-age=0x60', 'invalid'],
    ['letters behind', 'max-age=60a', 'invalid'],
    ['letters before', 'max-age=a60', 'invalid'],
    ['single quotes', "max-age='60'", 'invalid'],
    ['space before =', 'max-age =60', 'invalid'],
    ['space behind =', 'max-age= 60', 'invalid'],
    ['a parameter behind', 'max-age=60;foo', 'invalid'],
    ['behind another member, without a comma', 'foo; max-age', undefined],
    ['inside a quoted argument', 'ext="max-age=60"', undefined],
    ['inside a quoted argument, before the true one', 'ext="max-age=3600", max-age=1', 1],
    ['inside a quoted argument, behind the true one', 'max-age=1, ext="max-age=3600"', 1],
    ['an escaped quote does not end a quote', 'ext="a\\", max-age=60, b"', undefined],
    ['part of a longer name', 'x-max-age=60', undefined],
    ['absent', 'no-cache', undefined],
    ['empty field', '', undefined],
  ])('max-age has the right value: %s', (_, field, expected) => {
    expect(maxAge(field)).toBe(expected);
  });
});

describe('a directive', () => {
  it.each(['no-store', 'No-Store', 'no-store=1', 'no-store = x', 'a, no-store;q=1', 'no-store, no-store'])(
    'no-store restricts however it is spelled: %j',
    (field) => {
      expect(hasDirective(parseCacheControl(field), 'no-store')).toBe(true);
    },
  );
  it.each([
    'max-age=60; private',
    'max-age=60 private',
    'max-age=60;Private="x"',
    'max-age="60"private',
    'public;private',
    ';private',
    '"private"',
    'max-age=60;foo, (private)',
    'private="x", max-age=60; private',
  ])('private restricts behind a member where only a comma may follow: %j', (field) => {
    expect(directiveFields(parseCacheControl(field), 'private')).toBe('all');
  });
  it.each(['max-age=60; x-private', 'max-age=60; notprivate', 'ext="private"'])(
    'private does not restrict as part of another word or argument: %j',
    (field) => {
      expect(hasDirective(parseCacheControl(field), 'private')).toBe(false);
    },
  );
  it.each(['no-store', 'no-cache', 'no-transform', 'must-revalidate', 'proxy-revalidate'])(
    '%s restricts behind a semicolon, and public does not permit there',
    (name) => {
      expect(hasDirective(parseCacheControl(`max-age=60; ${name}`), name)).toBe(true);
      expect(hasBareDirective(parseCacheControl('max-age=60; public'), 'public')).toBe(false);
    },
  );
  it('a restriction where only a comma may follow permits nothing', () => {
    expect(hasBareDirective(parseCacheControl('max-age=60; must-revalidate'), 'must-revalidate')).toBe(false);
  });
  it.each([
    'public=1',
    'public =x',
    'public;q=1',
    'public="a"',
    'public "a"',
    'public "a',
    'public, public=1',
    'public=1, public',
    'public, public;q=1',
  ])('public permits only when it is well-formed: %j', (field) => {
    expect(hasBareDirective(parseCacheControl(field), 'public')).toBe(false);
    expect(hasBareDirective(parseCacheControl('a, Public'), 'public')).toBe(true);
  });
  it('a quote that never closes makes the whole field unreadable', () => {
    expect(parseCacheControl('ext="max-age=60').broken).toBe(true);
    expect(parseCacheControl('foo bar" , max-age=60').broken).toBe(true);
    expect(parseCacheControl('ext="a,b", max-age=60').broken).toBe(false);
  });
  it('a quote behind a member, where none belongs, hides what is in it and nothing behind it', () => {
    const { broken, byName } = parseCacheControl('a "x", b "\\", max-age=60", Public');
    expect(broken).toBe(false);
    expect([...byName.keys()]).toEqual(['a', 'b', 'public']);
  });
});

describe('field names of no-cache and private (RFC 9111 sections 5.2.2.4, 5.2.2.7)', () => {
  it.each<[string, readonly string[] | 'all' | undefined]>([
    ['max-age=1', undefined],
    ['private', 'all'],
    ['private="Set-Cookie"', ['set-cookie']],
    ['private="Set-Cookie, X-A"', ['set-cookie', 'x-a']],
    ['private=set-cookie', 'all'],
    ['private=""', 'all'],
    ['private="a b"', 'all'],
    ['private="a, ,b,"', ['a', 'b']],
    ['private="a\t, b"', ['a', 'b']],
    ['private=","', 'all'],
    ['private="\tauthorization"', 'all'],
    ['private="\\tauthorization"', 'all'],
    ['private="authorization "', 'all'],
    ['private="a,b;c"', 'all'],
    ['private="a\xa0"', 'all'],
    ['private="a", private', 'all'],
    ['private="a", private="b"', 'all'],
  ])('the fields that private names are right: %s', (field, expected) => {
    expect(directiveFields(parseCacheControl(field), 'private')).toEqual(expected);
  });
});
