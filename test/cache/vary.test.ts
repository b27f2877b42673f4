import { describe, expect, it } from 'vitest';
import { exactRequestKey, selection, varyNames } from '../../src/cache/vary.ts';

describe('Vary (RFC 9111 section 4.1)', () => {
  it.each<[string, string | readonly string[] | undefined, readonly string[] | '*']>([
    ['absent', undefined, []],
    ['empty', '', []],
    ['one', 'Accept-Language', ['accept-language']],
    ['sorted, each once', 'b, A ,b', ['a', 'b']],
    ['two lines', ['b', 'a'], ['a', 'b']],
    ['a star', '*', '*'],
    ['a star and a name', '*, foo', '*'],
    ['a name and a star', 'foo, *', '*'],
    ['two stars', '*, *', '*'],
    ['an empty member and a star', ', *', '*'],
    ['a star in the second line', ['', '*'], '*'],
    ['a star with space', '\t* ', '*'],
    ['a star with a parameter', '*;q=1', '*'],
    ['a quoted star', '"*"', '*'],
    ['a star within a name', 'foo*', '*'],
    ['no field name', 'foo bar', '*'],
    ['the request id', 'X-Request-ID', '*'],
    ['the trace', 'accept, traceparent', '*'],
    ['the trace state', 'TraceState', '*'],
  ])('the names in Vary are right: %s', (_, field, expected) => {
    expect(varyNames(field)).toEqual(expected);
  });
});

describe('two requests match (RFC 9111 section 4.1)', () => {
  const same = (name: string, a: Record<string, string>, b: Record<string, string>) =>
    selection([name], a) === selection([name], b);
  it.each<[string, string, Record<string, string>, Record<string, string>, boolean]>([
    ['equal values', 'a', { a: '1' }, { a: '1' }, true],
    ['other values', 'a', { a: '1' }, { a: '2' }, false],
    ['other case of a value', 'a', { a: 'x' }, { a: 'X' }, false],
    ['absent twice', 'a', {}, { b: '1' }, true],
    ['absent is not empty', 'a', {}, { a: '' }, false],
    ['absent is not "-"', 'a', {}, { a: '-' }, false],
    ['space around commas', 'a', { a: 'x, y' }, { a: ' x ,y' }, true],
    ['space within quotes counts', 'a', { a: '"x, y"' }, { a: '"x,y"' }, false],
    [
      'languages in any case',
      'accept-language',
      { 'accept-language': 'FR-ch' },
      { 'accept-language': 'fr-CH' },
      true,
    ],
    ['what every object inherits is absent', 'constructor', {}, {}, true],
    ['a field that is not forwarded', 'cookie', { a: '1' }, { a: '2' }, true],
  ])('two requests match or not: %s', (_, name, a, b, expected) => {
    expect(same(name, a, b)).toBe(expected);
  });
  it('inherited members of an object are no request fields', () => {
    expect(selection(['constructor', '__proto__'], {})).toBe('-;-;');
  });
  it('values of two fields cannot run into each other', () => {
    expect(selection(['a', 'b'], { a: '1;1:2', b: '3' })).not.toBe(
      selection(['a', 'b'], { a: '1', b: '2;1:3' }),
    );
    expect(selection(['a', 'b'], { a: '1' })).not.toBe(selection(['a', 'b'], { b: '1' }));
  });
});

describe('the same request is', () => {
  it.each<[string, Record<string, string>, Record<string, string>, boolean]>([
    ['equal in every forwarded field', { a: '1', b: '2' }, { b: '2', a: '1' }, true],
    ['not so with another value', { a: '1' }, { a: '2' }, false],
    ['not so with a further field', { a: '1' }, { a: '1', b: '' }, false],
    ['not so with another name', { a: '1' }, { b: '1' }, false],
  ])('the very same request is %s', (_, a, b, expected) => {
    expect(exactRequestKey(a) === exactRequestKey(b)).toBe(expected);
  });
});
