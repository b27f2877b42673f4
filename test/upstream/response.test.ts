import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { HeaderFields } from '../../src/http/fields.ts';
import { acceptMediaTypes, invalidHead, isClosedJson, isWhole } from '../../src/upstream/response.ts';

describe('media types pass by UPSTREAM_MEDIA_TYPES', () => {
  const isAccepted = acceptMediaTypes(['application/json', 'application/*+json']);
  it.each([
    'application/json',
    'Application/JSON; charset=utf-8',
    'application/vnd.api+json',
    'application/json;x=y',
  ])('the media type %s passes', (type) => {
    expect(isAccepted(type)).toBe(true);
  });
  it.each([
    undefined,
    '',
    'text/html',
    'application/jsonp',
    'xapplication/json',
    'application/json, text/html',
    'application/+json2',
    'text/x+json',
  ])('the media type %s does not pass', (type) => expect(isAccepted(type)).toBe(false));
  it('every media type passes with */*', () => {
    const any = acceptMediaTypes(['*/*']);
    expect([any('text/html'), any('image/png; q'), any(undefined), any('text')]).toEqual([
      true,
      true,
      false,
      false,
    ]);
  });
});

describe('a response is refused by its head', () => {
  const limits = {
    maxBodyBytes: 100,
    isAcceptedType: acceptMediaTypes(['application/json']),
    revalidating: false,
  };
  const json: HeaderFields = { 'content-type': 'application/json' };
  it.each<[number, HeaderFields]>([
    [200, { 'content-type': 'text/plain' }],
    [200, { 'content-type': ['application/json', 'application/json'] }],
    [201, {}],
    [206, json],
    [300, json],
    [301, json],
    [304, json],
    [399, json],
    [600, json],
    [999, json],
    [200, { ...json, 'content-encoding': 'gzip, br' }],
    [500, { 'content-encoding': 'compress' }],
    [200, { ...json, 'content-length': '101' }],
    [200, { ...json, 'content-length': ['5', '5'] }],
    [200, { ...json, 'content-length': '5', 'transfer-encoding': 'chunked' }],
  ])('a response with status %i and fields %j is refused by its head', (status, headers) => {
    expect(invalidHead(status, headers, limits)).toBeDefined();
  });
  it.each<[number, HeaderFields]>([
    [200, json],
    [204, {}],
    [205, {}],
    [205, { 'content-length': '0' }],
    [400, { 'content-type': 'text/html' }],
    [404, {}],
    [503, { ...json, 'content-length': '100' }],
    [200, { ...json, 'content-encoding': 'identity' }],
    [200, { ...json, 'content-encoding': 'GZip' }],
    [500, { 'content-encoding': 'br' }],
    [200, { ...json, 'cache-control': 'no-transform' }],
    [200, { ...json, 'content-encoding': 'gzip', 'cache-control': 'no-transform' }],
  ])('a response with status %i and fields %j is not refused by its head', (status, headers) => {
    expect(invalidHead(status, headers, limits)).toBeUndefined();
  });
  it('a 304 that answers validators of the cache is not refused', () => {
    expect(invalidHead(304, {}, { ...limits, revalidating: true })).toBeUndefined();
  });
});

describe('a body that ends with the connection (RFC 9112 section 6.3)', () => {
  it.each<[string, HeaderFields, boolean]>([
    ['{"a":1', {}, false],
    ['', {}, false],
    ['{"a":1}', {}, true],
    ['no JSON', {}, false],
    ['no JSON', { 'content-length': '7' }, true],
    ['no JSON', { 'transfer-encoding': 'chunked' }, true],
  ])(
    'a body %j that came with %j is whole: %s, for one that ends with the connection is JSON',
    (text, fields, expected) => {
      expect(isWhole(200, { 'content-type': 'text/plain', ...fields }, Buffer.from(text))).toBe(expected);
    },
  );
});

describe('a success of a JSON type', () => {
  it('is found whole whatever it holds', () => {
    fc.assert(fc.property(fc.json(), (text) => isClosedJson(Buffer.from(` ${text}\n`))));
  });
  it('a success of a JSON type is found truncated wherever an object or a list was cut', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.array(fc.jsonValue(), { minLength: 1 }),
          fc.dictionary(fc.string(), fc.jsonValue(), { minKeys: 1 }),
        ),
        fc.nat(),
        (value, cut) => {
          const text = Buffer.from(JSON.stringify(value));
          return !isClosedJson(text.subarray(0, cut % text.length));
        },
      ),
    );
  });
  it.each(['', ' ', 'hello', '<html></html>', '[1]]', '"a', '{"a":"\\"}', 'undefined'])(
    'a text that no JSON text looks like is not found whole: %j',
    (text) => {
      expect(isClosedJson(Buffer.from(text))).toBe(false);
    },
  );
  it.each<[string, boolean]>([
    ['application/json', true],
    ['application/JSON ; a=b', true],
    ['application/x+json', true],
    ['text/html', false],
    ['application/jsonx', false],
  ])('a truncated success of the type %s is refused: %s', (type, isRefused) => {
    const headers = { 'content-type': type, 'content-length': '6' };
    expect(isWhole(200, headers, Buffer.from('{"a":1'))).toBe(!isRefused);
    expect(isWhole(404, headers, Buffer.from('{"a":1'))).toBe(true);
  });
});
