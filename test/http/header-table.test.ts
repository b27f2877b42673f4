import { describe, expect, it } from 'vitest';
import { requestFields, responseFields } from '../../src/documents/components.ts';
import {
  connectionOptions,
  isJsonType,
  splitUnquoted,
  trimBlanks,
  trimFields,
} from '../../src/http/fields.ts';
import {
  bodyFields,
  connectionFields,
  documentedFields,
  neverDown,
  neverUp,
  ownUp,
  passedCaching,
  passedDown,
  readByPages,
  remadeDown,
  sentByPages,
  singleFields,
} from '../../src/http/header-table.ts';

const lower = (names: Iterable<string>): string[] => [...names].map((name) => name.toLowerCase());

describe('the table of header fields', () => {
  it('what comes down unchanged can be read by pages and stands in the API document', () => {
    // Fetch standard section 2.2.2, CORS-safelisted response-header names.
    const safe = ['cache-control', 'content-language', 'content-type', 'expires', 'last-modified', 'pragma'];
    for (const name of passedDown) {
      expect([...safe, ...lower(readByPages)]).toContain(name);
      // Those of the body are described with the body.
      expect([...bodyFields, ...lower(documentedFields.keys())]).toContain(name);
    }
  });

  it('the fields that it documents are those that the API document has words for', () => {
    const described = Object.values(responseFields).map(({ name }) => name);
    expect([...documentedFields.keys()].sort()).toEqual([...described].sort());
    expect([...documentedFields].map(([name, where]) => `${name}: ${where}`).join(', ')).toBe(
      'Age: answers, Cache-Control: answers, Cache-Status: every reply, ETag: answers, Last-Modified: answers, Preference-Applied: answers, Proxy-Status: failures, RateLimit: every reply, RateLimit-Policy: every reply, Retry-After: wait, Server-Timing: answers, Via: every reply, X-Request-ID: every reply, WWW-Authenticate: 401, Link: answers',
    );
  });

  it('a page may send each request field that the API document describes', () => {
    for (const { name } of Object.values(requestFields)) expect(sentByPages).toContain(name);
  });

  it.each<[string, Iterable<string>, string]>([
    [
      'that never go up by FORWARD_REQUEST_HEADERS',
      neverUp,
      `accept accept-encoding authorization connection content-length cookie expect fly-src fly-src-signature forwarded host
      if-match if-modified-since if-none-match if-range if-unmodified-since keep-alive proxy-authenticate proxy-authorization
      proxy-connection range te trailer transfer-encoding upgrade user-agent via x-api-key x-forwarded-for x-forwarded-host
      x-forwarded-port x-forwarded-proto x-forwarded-uri x-real-ip x-request-id traceparent tracestate`,
    ],
    [
      'of our own that go up',
      ownUp,
      'accept accept-encoding host if-modified-since if-none-match user-agent via x-api-key',
    ],
    [
      'that never come down by FORWARD_RESPONSE_HEADERS',
      neverDown,
      `access-control-allow-credentials access-control-allow-headers access-control-allow-methods
      access-control-allow-origin access-control-expose-headers access-control-max-age age cache-status connection
      content-encoding content-length content-security-policy cross-origin-resource-policy date etag keep-alive location
      preference-applied proxy-authenticate proxy-connection proxy-status ratelimit ratelimit-policy server server-timing
      set-cookie set-cookie2 timing-allow-origin trailer transfer-encoding upgrade vary via www-authenticate x-api-key
      x-content-type-options x-request-id`,
    ],
    ['that come down unchanged', passedDown, 'content-language content-type last-modified link retry-after'],
    ['that come down with CALLER_CACHE_CONTROL=upstream', passedCaching, 'cache-control expires pragma'],
    ['that come down in another form', remadeDown, 'content-encoding content-length date etag vary'],
    [
      'that say nothing where they are repeated',
      singleFields,
      'content-type etag expires last-modified retry-after',
    ],
    [
      'of one connection',
      connectionFields,
      'connection keep-alive proxy-authenticate proxy-authentication-info te trailer transfer-encoding upgrade',
    ],
    [
      'of the body',
      bodyFields,
      'content-encoding content-language content-length content-range content-type',
    ],
    [
      'that a page may send',
      sentByPages,
      `Authorization Cache-Control Content-Type If-Modified-Since If-None-Match Pragma Prefer X-API-Key X-Request-ID
      traceparent tracestate`,
    ],
    [
      'that a page may read',
      readByPages,
      `Age Cache-Status Date ETag Link Preference-Applied Proxy-Status RateLimit RateLimit-Policy Retry-After Server-Timing
      Via WWW-Authenticate X-Request-ID`,
    ],
  ])('the fields %s are these', (_, names, words) => {
    expect([...names].sort()).toEqual(words.split(/\s+/).sort());
  });
});

describe('the value of a field', () => {
  it.each<[string, string[] | undefined]>([
    ['', ['']],
    ['a, b', ['a', ' b']],
    ['a,"b,c",d', ['a', '"b,c"', 'd']],
    ['"a\\",b",c', ['"a\\",b"', 'c']],
    ['a\\,b', ['a\\', 'b']],
    ['a\\"b,c"', ['a\\"b,c"']],
    ['"a', undefined],
  ])('the text %j has the parts %j between commas outside quotes', (text, parts) => {
    expect(splitUnquoted(text, ',')).toEqual(parts);
  });

  it.each<[string | string[] | undefined, string[]]>([
    [undefined, []],
    ['keep-alive', []],
    ['close', []],
    ['Keep-Alive, X-One ,,', ['keep-alive', 'x-one']],
    [
      ['close', 'X-Two'],
      ['close', 'x-two'],
    ],
    ['', []],
  ])('the Connection %j names the fields %j', (field, options) => {
    expect([...connectionOptions(field)]).toEqual(options);
  });

  it.each<[string | undefined, boolean]>([
    ['application/json', true],
    ['APPLICATION/JSON ;charset=utf-8', true],
    ['application/problem+json', true],
    ['application/x+json', true],
    ['application/+json', false],
    ['application/jsonp', false],
    ['text/application/json', false],
    ['application/a/b+json', false],
    [undefined, false],
  ])('the type %s is that of JSON: %s', (type, isJson) => {
    expect(isJsonType(type)).toBe(isJson);
  });

  it('fields lose the blanks around their values, and are the same object where there are none', () => {
    const plain = { a: 'b c', d: ['e', 'f'], empty: '' };
    expect(trimFields(plain)).toBe(plain);
    expect(trimFields({ a: 'b\t ', d: ['e', 'f '] })).toEqual({ a: 'b', d: ['e', 'f'] });
    expect([' \t', ' a b\t', ''].map(trimBlanks)).toEqual(['', 'a b', '']);
  });
});
