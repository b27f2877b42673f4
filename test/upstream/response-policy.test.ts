import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { HeaderFields } from '../../src/exchange.ts';
import {
  acceptMediaTypes,
  endsWithConnection,
  invalidHead,
  isClosedJson,
  isJsonType,
  isWholeJson,
} from '../../src/upstream/response-policy.ts';

describe('media types pass by UPSTREAM_MEDIA_TYPES', () => {
  const isAccepted = acceptMediaTypes(['application/json', 'application/*+json']);
  it.each([
    'application/json',
    'Application/JSON; charset=utf-8',
    'application/vnd.api+json',
    'application/json;x=y',
  ])('%s passes', (type) => {
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
  ])('%s does not', (type) => expect(isAccepted(type)).toBe(false));
  it('everything that has one passes with */*', () => {
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
  ])('%i %j', (status, headers) => {
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
  ])('but not %i %j', (status, headers) => {
    expect(invalidHead(status, headers, limits)).toBeUndefined();
  });
  it('nor a 304 that answers our own validators', () => {
    expect(invalidHead(304, {}, { ...limits, revalidating: true })).toBeUndefined();
  });
});

describe('a body that ends with the connection (RFC 9112 section 6.3)', () => {
  it('is one with neither length nor chunks', () => {
    expect(endsWithConnection(200, {})).toBe(true);
    expect(endsWithConnection(200, { 'content-length': '1' })).toBe(false);
    expect(endsWithConnection(200, { 'transfer-encoding': 'chunked' })).toBe(false);
    expect(endsWithConnection(204, {})).toBe(false);
  });
  it('must be whole JSON', () => {
    expect(isWholeJson(Buffer.from('{"a":1}'))).toBe(true);
    expect(isWholeJson(Buffer.from('{"a":1'))).toBe(false);
    expect(isWholeJson(Buffer.from(''))).toBe(false);
  });
});

describe('a success of a JSON type', () => {
  it('is found whole whatever it holds', () => {
    fc.assert(fc.property(fc.json(), (text) => isClosedJson(Buffer.from(` ${text}\n`))));
  });
  it('is found cut wherever an object or a list was cut', () => {
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
    '%j is not',
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
  ])('%s: %s', (type, expected) => {
    expect(isJsonType(type)).toBe(expected);
  });
});
