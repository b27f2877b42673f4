import { describe, expect, it } from 'vitest';
import {
  confirms,
  isCommonCode,
  isServerFailure,
  isServerFailureCode,
  judgeAnswer,
  judgeUse,
  mayBeDueToValidators,
  parseRequestDirectives,
  readValidators,
  renew,
} from '../../src/cache/cache-rules.ts';
import { type ProblemCode, problems } from '../../src/errors.ts';
import type { HeaderFields } from '../../src/http/fields.ts';

const receivedAt = Date.UTC(2026, 10, 21, 12, 0, 0);
const receivedMs = 1_000_000;
const at = (seconds: number) => new Date(receivedAt + seconds * 1000).toUTCString();
const defaults = { ttlMs: 15_000, staleWhileRevalidateMs: 10_000, staleIfErrorMs: 300_000 };
const none = { ttlMs: 0, staleWhileRevalidateMs: 0, staleIfErrorMs: 0 };

const policy = (headers: HeaderFields, status = 200, options = defaults, tookMs = 0) =>
  judgeAnswer({ status, headers, sentMs: receivedMs - tookMs, receivedMs, receivedAt }, options);
const cc = (value: string, status = 200, options = defaults) =>
  policy({ 'cache-control': value }, status, options);
/** Seconds for which it is fresh from receipt; 0 or less is never. */
const freshSeconds = (headers: HeaderFields, status = 200, options = defaults) =>
  Math.max(0, (policy(headers, status, options).freshUntilMs - receivedMs) / 1000);

describe('freshness lifetime (RFC 9111 section 4.2.1)', () => {
  it.each<[string, HeaderFields, number]>([
    ['nothing stated: CACHE_TTL', {}, 15],
    ['Last-Modified is no freshness', { 'last-modified': at(-86400) }, 15],
    ['max-age', { 'cache-control': 'max-age=60' }, 60],
    ['s-maxage before max-age', { 'cache-control': 'max-age=60, s-maxage=90' }, 90],
    ['Expires counts from Date', { expires: at(70), date: at(10) }, 60],
    ['max-age before Expires', { 'cache-control': 'max-age=60', expires: at(5), date: at(0) }, 60],
    ['zero is stale', { 'cache-control': 'max-age=0' }, 0],
    ['malformed is stale', { 'cache-control': 'max-age=abc' }, 0],
    ['negative is stale', { 'cache-control': 'max-age=-1' }, 0],
    ['decimal is stale', { 'cache-control': 'max-age=1.5' }, 0],
    ['contradicting is stale', { 'cache-control': ['max-age=60', 'max-age=61'] }, 0],
    ['malformed s-maxage does not fall back', { 'cache-control': 's-maxage=x, max-age=60' }, 0],
    ['malformed max-age does not fall back', { 'cache-control': 'max-age=x', expires: at(60) }, 0],
    ['an unclosed quote is stale', { 'cache-control': 'max-age=60, a="' }, 0],
    ['no-cache is never fresh', { 'cache-control': 'max-age=60, no-cache' }, 0],
    ['no-cache for some fields is fresh', { 'cache-control': 'max-age=60, no-cache="set-cookie"' }, 60],
    ['Expires less Date', { expires: at(60), date: at(0) }, 60],
    ['Expires less receipt, without Date', { expires: at(60) }, 60],
    ['Expires in another form', { expires: 'Saturday, 21-Nov-26 12:01:00 GMT', date: at(0) }, 60],
    ['Expires in the past', { expires: at(-60), date: at(0) }, 0],
    ['Expires equal to Date', { expires: at(0), date: at(0) }, 0],
    ['Expires 0 is stale (section 5.3)', { expires: '0' }, 0],
    ['Expires -1 is stale (section 5.3)', { expires: '-1' }, 0],
    ['Expires empty is stale', { expires: '' }, 0],
    ['Expires malformed is stale', { expires: '2030-01-01', date: at(0) }, 0],
    ['Expires twice the same', { expires: [at(60), at(60)], date: at(0) }, 60],
    ['Expires twice is stale', { expires: [at(60), at(90)], date: at(0) }, 0],
    ['Expires twice, one malformed, is stale', { expires: [at(60), '0'], date: at(0) }, 0],
    ['Expires in UTC is stale (section 4.2)', { expires: at(60).replace('GMT', 'UTC'), date: at(0) }, 0],
    ['Expires less receipt, with a malformed Date', { expires: at(60), date: 'now' }, 60],
    ['max-age with a malformed Date', { 'cache-control': 'max-age=60', date: 'now' }, 60],
    [
      'max-age with a Date in UTC',
      { 'cache-control': 'max-age=60', date: at(-50).replace('GMT', 'UTC') },
      60,
    ],
    ['max-age with two dates that differ', { 'cache-control': 'max-age=60', date: [at(0), at(-1)] }, 60],
    ['Date twice the same', { 'cache-control': 'max-age=60', date: [at(0), at(0)] }, 60],
  ])('the lifetime is right: %s', (_, headers, expected) => {
    expect(freshSeconds(headers)).toBe(expected);
  });
  it('CACHE_TTL is the lifetime of a 200 only, and of none at 0', () => {
    expect(freshSeconds({}, 203)).toBe(0);
    expect(freshSeconds({}, 404)).toBe(0);
    expect(freshSeconds({}, 200, none)).toBe(0);
  });
});

describe('age (RFC 9111 section 4.2.3)', () => {
  it.each<[string, HeaderFields, number, number]>([
    ['none', {}, 0, 0],
    ['Age counts', { age: '40' }, 0, 40],
    ['Age with leading zeros', { age: '0040' }, 0, 40],
    ['the time of the exchange counts', {}, 2000, 2],
    ['and is added to Age', { age: '40' }, 2000, 42],
    ['Date in the past counts', { date: at(-30) }, 0, 30],
    ['the greater of both', { date: at(-30), age: '40' }, 0, 40],
    ['the greater of both, the other way', { date: at(-50), age: '40' }, 0, 50],
    ['Date in the future is no age', { date: at(30) }, 0, 0],
    ['Age twice: the first (section 5.1)', { age: ['40', '0'] }, 0, 40],
    ['Age as a list: the first (section 5.1)', { age: '40 , 0' }, 0, 40],
    ['Age beyond 2^31 (section 1.2.2)', { age: '99999999999' }, 0, 2147483648],
  ])('the age is right: %s', (_, headers, tookMs, seconds) => {
    expect((receivedMs - policy(headers, 200, defaults, tookMs).ageZeroMs) / 1000).toBe(seconds);
  });
  it.each(['abc', '-1', '1.0', '1e1', '', '+5', '40;a=b', 'abc, 40'])(
    'an Age that is no number is ignored (section 5.1): %j',
    (age) => {
      expect(freshSeconds({ 'cache-control': 'max-age=3600', age })).toBe(3600);
      expect(freshSeconds({ 'cache-control': 'max-age=3600', age, date: at(-10) })).toBe(3590);
    },
  );
  it('an answer with unreadable directives is never served stale', () => {
    expect(policy({ 'cache-control': 'max-age=60, stale-if-error=60, x="' })).toMatchObject({
      staleWhileRevalidateUntilMs: -Infinity,
      staleIfErrorUntilMs: -Infinity,
      mayBeStale: false,
    });
  });
});

describe('what may be stored (RFC 9111 section 3)', () => {
  it.each<[string, string, boolean]>([
    ['nothing said', '', true],
    ['no-store', 'no-store', false],
    ['no-store in another case', 'No-Store', false],
    ['no-store with an argument', 'no-store=1', false],
    ['no-store beside max-age', 'max-age=60, no-store', false],
    ['private', 'private, max-age=60', false],
    ['private for some fields', 'private="set-cookie", max-age=60', true],
    ['private with an unreadable list', 'private=set-cookie, max-age=60', false],
    ['no-cache without a validator', 'no-cache', true],
    ['public', 'public', true],
    ['must-revalidate', 'must-revalidate, max-age=60', true],
    ['an unclosed quote', 'max-age=60, a="b', false],
    ['must-understand with no-store (5.2.2.3)', 'must-understand, no-store, max-age=60', true],
    ['must-understand with an argument', 'must-understand=1, no-store, max-age=60', false],
    ['must-understand does not undo private', 'must-understand, private, max-age=60', false],
    ['stale on arrival, for validation', 'max-age=0', true],
  ])('an answer is stored or not by its directives: %s', (_, value, expected) => {
    expect(cc(value).storable).toBe(expected);
  });

  it.each<[number, boolean, boolean]>([
    // status, with explicit freshness, without
    [100, false, false],
    [200, true, true],
    [201, true, false],
    [203, true, false],
    [204, true, false],
    [206, false, false],
    [301, false, false],
    [304, false, false],
    [400, true, true],
    [401, false, false],
    [403, true, false],
    [404, true, false],
    [410, true, false],
    [429, false, false],
    [500, true, false],
    [503, true, false],
  ])('an answer is stored or not by its status: %i', (status, explicit, silent) => {
    expect(cc('max-age=60', status).storable).toBe(explicit);
    expect(policy({}, status).storable).toBe(silent);
  });

  it('must-understand does not undo no-store for an unknown status (section 5.2.2.3)', () => {
    expect(cc('must-understand, no-store, max-age=60', 418).storable).toBe(false);
  });
  it('a 200 is not stored where CACHE_TTL is off and nothing is stated', () => {
    expect(policy({}, 200, none).storable).toBe(false);
    expect(policy({ etag: '"a"' }, 200, none).storable).toBe(false);
  });
  it('a 200 that must be validated each time is stored where it has a validator', () => {
    expect(policy({ 'cache-control': 'no-cache' }, 200, none).storable).toBe(false);
    expect(policy({ 'cache-control': 'no-cache', etag: '"a"' }, 200, none).storable).toBe(true);
    expect(policy({ 'cache-control': 'no-cache', 'last-modified': at(-9) }, 200, none).storable).toBe(true);
  });
  it('an error with max-age=0 or no-cache is not stored: no request could be served it', () => {
    expect(cc('max-age=0', 404).storable).toBe(false);
    expect(cc('no-cache, max-age=60', 404).storable).toBe(false);
    expect(cc('no-cache', 400).storable).toBe(false);
  });
  it('fields that private or no-cache name are withheld from other requests (sections 5.2.2.4, 5.2.2.7)', () => {
    expect(cc('private="a, B", no-cache="c"').withheld).toEqual(['c', 'a', 'b']);
  });
  it('no-store and private answers are not shared with joined requests either (section 4)', () => {
    expect(cc('no-store').shareable).toBe(false);
    expect(cc('private').shareable).toBe(false);
    expect(cc('no-cache').shareable).toBe(true);
    expect(policy({}, 404).shareable).toBe(true);
  });
});

describe('a 400 (beyond RFC 9111 section 3)', () => {
  it('a 400 is stored for CACHE_TTL and for the very same request', () => {
    const kept = policy({}, 400);
    expect(kept.storable && kept.exactRequestOnly).toBe(true);
    expect(kept.freshUntilMs).toBe(receivedMs + 15_000);
  });
  it('a 400 is stored for as long as the upstream says, or not at all', () => {
    expect(freshSeconds({ 'cache-control': 'max-age=5' }, 400)).toBe(5);
    expect(cc('no-store', 400).storable).toBe(false);
    expect(cc('max-age=0', 400).storable).toBe(false);
    expect(policy({}, 400, none).storable).toBe(false);
  });
  it('a 400 is never served stale', () => {
    const kept = cc('max-age=5, stale-while-revalidate=60, stale-if-error=60', 400);
    expect(kept.staleWhileRevalidateUntilMs).toBe(-Infinity);
    expect(kept.staleIfErrorUntilMs).toBe(-Infinity);
    expect(kept.mayBeStale).toBe(false);
  });
});

describe('staleness (RFC 5861, RFC 9111 section 4.2.4)', () => {
  /** Seconds beyond the end of freshness: while refreshing, on error, on max-stale. */
  it.each<[string, string, number, number, boolean]>([
    ['our defaults', 'max-age=60', 10, 300, true],
    ['stated', 'max-age=60, stale-while-revalidate=5, stale-if-error=7', 5, 7, true],
    ['stated as zero', 'max-age=60, stale-while-revalidate=0, stale-if-error=0', 0, 0, true],
    ['malformed', 'max-age=60, stale-while-revalidate=x, stale-if-error=-1', 0, 0, true],
    ['without an argument', 'max-age=60, stale-while-revalidate, stale-if-error', 0, 0, true],
    ['must-revalidate', 'max-age=60, must-revalidate', 0, 0, false],
    ['proxy-revalidate', 'max-age=60, proxy-revalidate', 0, 0, false],
    ['must-revalidate, misspelled', 'max-age=60, must-revalidate=1', 0, 0, false],
    ['no-cache', 'max-age=60, no-cache', 0, 0, false],
    ['s-maxage', 's-maxage=60', 0, 0, false],
    ['stated beside s-maxage', 's-maxage=60, stale-while-revalidate=5, stale-if-error=7', 5, 7, false],
    ['stated beside must-revalidate', 'max-age=60, must-revalidate, stale-if-error=7', 0, 0, false],
    ['stated beside proxy-revalidate', 'max-age=60, proxy-revalidate, stale-if-error=7', 0, 0, false],
    ['stated beside no-cache', 'max-age=60, no-cache, stale-if-error=7', 0, 0, false],
    ['no-cache for some fields', 'max-age=60, no-cache="a"', 10, 300, true],
  ])('the bounds of stale answers are right: %s', (_, value, whileSeconds, errorSeconds, mayBeStale) => {
    const found = cc(value);
    const endMs = receivedMs + 60_000;
    expect(Math.max(0, found.staleWhileRevalidateUntilMs - endMs)).toBe(whileSeconds * 1000);
    expect(Math.max(0, found.staleIfErrorUntilMs - endMs)).toBe(errorSeconds * 1000);
    expect(found.mayBeStale).toBe(mayBeStale);
  });
  it('the default stale-while-revalidate does not apply where the upstream wants to be asked each time', () => {
    expect(cc('max-age=0').staleWhileRevalidateUntilMs).toBe(-Infinity);
    expect(cc('max-age=0, stale-while-revalidate=5').staleWhileRevalidateUntilMs).toBe(receivedMs + 5000);
    expect(cc('max-age=0').staleIfErrorUntilMs).toBe(receivedMs + 300_000);
  });
  it.each([400, 403, 404, 410, 500])('a %i is never served stale', (status) => {
    const found = cc('max-age=60, stale-while-revalidate=5, stale-if-error=7', status);
    expect(found.staleWhileRevalidateUntilMs).toBe(-Infinity);
    expect(found.staleIfErrorUntilMs).toBe(-Infinity);
    expect(found.mayBeStale).toBe(false);
  });
  it('an Expires in the past ends freshness, and not what may be served after it', () => {
    expect(policy({ expires: at(-3600), date: at(0) }).staleIfErrorUntilMs).toBe(receivedMs + 300_000);
  });
  it('staleness counts from the age, not from receipt', () => {
    expect(policy({ 'cache-control': 'max-age=60', age: '20' }).staleWhileRevalidateUntilMs).toBe(
      receivedMs + 50_000,
    );
  });
});

it('an error that is stored is for requests with the same bytes alone, but one that is about the rate of all', () => {
  expect(
    [200, 399, 400, 404, 428, 429, 430, 500].filter((status) => policy({}, status).exactRequestOnly),
  ).toEqual([400, 404, 428, 430, 500]);
});

it('the fields that no-cache and private name are withheld, and no other', () => {
  expect(cc('no-cache="x-a", private="x-b, x-c", max-age=1').withheld).toEqual(['x-a', 'x-b', 'x-c']);
  expect(cc('max-age=1').withheld).toEqual([]);
  expect(cc('no-cache, max-age=1').withheld).toEqual([]);
});

describe('use of a stored answer (RFC 9111 section 4)', () => {
  const use = (value: string, seconds: number, directives?: string, pragma?: string) =>
    judgeUse(
      cc(value),
      directives === undefined && pragma === undefined
        ? undefined
        : parseRequestDirectives(directives, pragma),
      receivedMs + seconds * 1000,
    );
  it.each<[string, number, string]>([
    ['max-age=60', 0, 'fresh'],
    ['max-age=60', 59.999, 'fresh'],
    ['max-age=60', 60, 'refresh'],
    ['max-age=60', 69.999, 'refresh'],
    ['max-age=60', 70, 'stale'],
    ['max-age=60, must-revalidate', 60, 'stale'],
    ['max-age=0', 0, 'stale'],
    ['no-cache', 0, 'stale'],
  ])('an answer with "%s" is after %d s: %s', (value, seconds, expected) => {
    expect(use(value, seconds)).toBe(expected);
  });
  it.each<[string, string, number, string]>([
    ['no-cache (5.2.1.4)', 'no-cache', 0.5, 'request'],
    ['no-cache, just fetched', 'no-cache', 0.499, 'fresh'],
    ['max-age=0 (5.2.1.1)', 'max-age=0', 0.5, 'request'],
    ['max-age=0, just fetched', 'max-age=0', 0.499, 'fresh'],
    ['max-age, younger', 'max-age=30', 30, 'fresh'],
    ['max-age, older', 'max-age=30', 30.001, 'request'],
    ['max-age wants nothing stale', 'max-age=600', 61, 'stale'],
    ['max-age with max-stale', 'max-age=600, max-stale=5', 61, 'max-stale'],
    ['min-fresh, enough (5.2.1.3)', 'min-fresh=20', 40, 'fresh'],
    ['min-fresh, not enough', 'min-fresh=20', 40.001, 'request'],
    ['min-fresh, stale', 'min-fresh=20', 61, 'stale'],
    ['max-stale (5.2.1.2)', 'max-stale=100', 160, 'max-stale'],
    ['max-stale, exceeded', 'max-stale=100', 160.001, 'stale'],
    ['max-stale, to its end', 'max-age=600, max-stale=5', 65, 'max-stale'],
    ['max-stale without a limit', 'max-stale', 9999, 'max-stale'],
    ['max-stale less than our default', 'max-stale=1', 62, 'stale'],
    ['no-store does not forbid a stored answer (5.2.1.5)', 'no-store', 10, 'fresh'],
    ['only-if-cached alone asks nothing of age', 'only-if-cached', 10, 'fresh'],
    ['unreadable max-age asks nothing', 'max-age=x', 10, 'fresh'],
    ['unreadable max-stale asks nothing', 'max-stale=x', 9999, 'stale'],
    ['an extension asks nothing', 'foo=bar', 10, 'fresh'],
    ['an extension asks nothing of an answer that is stale', 'foo=bar', 69.999, 'refresh'],
    ['an extension asks nothing of an answer that is too old', 'foo=bar', 70, 'stale'],
    ['another case', 'No-Cache', 10, 'request'],
  ])('an answer is served or not to a caller that says %s', (_, directives, seconds, expected) => {
    expect(use('max-age=60', seconds, directives)).toBe(expected);
  });
  it.each([
    'must-revalidate, max-age=60',
    'proxy-revalidate, max-age=60',
    's-maxage=60',
    'no-cache, max-age=60',
  ])('max-stale does not allow an answer to be served that is %s (5.2.2)', (value) => {
    expect(use(value, 61, 'max-stale')).toBe('stale');
  });
  it('an answer just fetched must be fresh to satisfy no-cache', () => {
    expect(use('max-age=0', 0.1, 'no-cache')).toBe('request');
    expect(use('no-cache', 0.1, 'max-age=0')).toBe('request');
  });
  it('Pragma counts where there is no Cache-Control (RFC 9111 section 5.4)', () => {
    expect(use('max-age=60', 10, undefined, 'no-cache')).toBe('request');
    expect(use('max-age=60', 10, 'foo', 'no-cache')).toBe('fresh');
    expect(use('max-age=60', 10, undefined, 'max-age=0, only-if-cached')).toBe('fresh');
    expect(parseRequestDirectives('only-if-cached', undefined)).toMatchObject({
      onlyIfCached: true,
      noStore: false,
    });
    expect(parseRequestDirectives('No-Store', undefined)).toMatchObject({
      onlyIfCached: false,
      noStore: true,
    });
    expect(parseRequestDirectives(undefined, 'only-if-cached, no-store, max-stale')).toMatchObject({
      onlyIfCached: false,
      noStore: false,
      maxStaleMs: undefined,
    });
  });
});

describe('a server failure, instead of which a stale answer may be served (RFC 5861 section 4)', () => {
  it.each<[number, boolean]>([
    [200, false],
    [400, false],
    [403, false],
    [404, false],
    [429, true],
    [500, true],
    [502, true],
    [503, true],
    [504, true],
  ])('whether status %i is a server failure: %s', (status, expected) => {
    expect(isServerFailure(status)).toBe(expected);
  });
  it("a server failure is the upstream's and not the gateway's; those that share an exchange share what no request is to blame for", () => {
    const where = (isSo: (code: ProblemCode) => boolean) =>
      (Object.keys(problems) as ProblemCode[]).filter(isSo).sort();
    const both: ProblemCode[] = [
      'overloaded',
      'upstream-key-missing',
      'upstream-key-rejected',
      'upstream-rate-limited',
      'upstream-timeout',
      'upstream-unreachable',
    ];
    expect(where(isServerFailureCode)).toEqual([...both, 'upstream-invalid-response'].sort());
    expect(where(isCommonCode)).toEqual([...both, 'shutting-down'].sort());
  });
});

describe('validation (RFC 9111 section 4.3)', () => {
  it.each<[string, HeaderFields, Record<string, string> | undefined]>([
    ['a strong tag', { etag: '"a"' }, { 'if-none-match': '"a"' }],
    ['a weak tag', { etag: 'W/"a"' }, { 'if-none-match': 'W/"a"' }],
    ['a date', { 'last-modified': at(-9) }, { 'if-modified-since': at(-9) }],
    [
      'both',
      { etag: '"a"', 'last-modified': at(-9) },
      { 'if-none-match': '"a"', 'if-modified-since': at(-9) },
    ],
    ['an invalid tag', { etag: 'a, b' }, undefined],
    ['an invalid tag beside a date', { etag: 'a', 'last-modified': at(-9) }, { 'if-modified-since': at(-9) }],
    ['two tags', { etag: ['"a"', '"b"'] }, undefined],
    ['neither', {}, undefined],
  ])('a revalidation sends %s (4.3.1)', (_, headers, expected) => {
    expect(readValidators(headers)).toEqual(expected);
  });

  const stored = {
    status: 200,
    headers: {
      etag: '"a"',
      age: '50',
      date: at(-50),
      'content-type': 'application/json',
      'x-a': '1',
      'x-b': '1',
    },
    body: Buffer.from('{}'),
    sentMs: 0,
    receivedMs: 10,
    receivedAt,
    generation: 1,
  };
  const confirmation = (headers: HeaderFields, generation = 1) => ({
    ...stored,
    status: 304,
    headers,
    body: Buffer.alloc(0),
    sentMs: 100,
    receivedMs: 110,
    receivedAt: receivedAt + 100,
    generation,
  });
  it.each<[string, HeaderFields, number, boolean]>([
    ['the same tag', { etag: '"a"' }, 1, true],
    ['the same tag, weak', { etag: 'W/"a"' }, 1, true],
    ['no tag', {}, 1, true],
    ['another tag', { etag: '"b"' }, 1, false],
    ['two tags', { etag: ['"a"', '"b"'] }, 1, false],
    ['another key', { etag: '"a"' }, 2, false],
  ])('a 304 with %s confirms the stored answer or not (4.3.4)', (_, headers, generation, expected) => {
    expect(confirms(confirmation(headers, generation), stored)).toBe(expected);
  });
  it.each<[string, HeaderFields, boolean]>([
    ['the same date', { 'last-modified': at(-50) }, true],
    ['another date', { 'last-modified': at(-40) }, false],
    ['two dates', { 'last-modified': [at(-50), at(-40)] }, false],
    ['no date', {}, true],
  ])(
    'a 304 with %s of modification confirms a stored answer without tag or not (4.3.4)',
    (_, headers, expected) => {
      const dated = { ...stored, headers: { 'last-modified': at(-50) } };
      expect(confirms(confirmation(headers), dated)).toBe(expected);
    },
  );
  it('an error may be about the validators, unless it is about the rate or comes from a gateway whose upstream is down', () => {
    const statuses = [200, 304, 399, 400, 404, 412, 428, 429, 430, 500, 501, 502, 503, 504, 505];
    expect(statuses.filter(mayBeDueToValidators)).toEqual([400, 404, 412, 428, 430, 500, 501, 505]);
  });
  it('the tag of a stored answer decides alone whether a 304 confirms it (4.3.4)', () => {
    const dated = { ...stored, headers: { etag: '"a"', 'last-modified': at(-50) } };
    expect(confirms(confirmation({ etag: '"a"', 'last-modified': at(-40) }), dated)).toBe(true);
    expect(confirms(confirmation({ 'last-modified': at(-40) }), dated)).toBe(true);
  });
  it('a 304 replaces fields and times and leaves the body (3.2)', () => {
    const made = renew(
      stored,
      confirmation({
        'x-a': '2',
        'x-c': '3',
        'content-type': 'text/html',
        'content-language': 'de',
        'content-length': '0',
        date: at(0),
      }),
    );
    expect(made.headers).toEqual({
      etag: '"a"',
      date: at(0),
      'content-type': 'application/json',
      'content-language': 'de',
      'x-a': '2',
      'x-b': '1',
      'x-c': '3',
    });
    expect(made.body).toBe(stored.body);
    expect([made.status, made.sentMs, made.receivedMs]).toEqual([200, 100, 110]);
  });
  it('the Connection of a 304 is added to the stored one, each name once (RFC 9110 section 7.6.1)', () => {
    const once = renew(stored, confirmation({ connection: 'keep-alive, X-Hop', 'x-hop': '1' }));
    expect(once.headers['connection']).toEqual(['keep-alive', 'x-hop']);
    const twice = renew(once, confirmation({ connection: ['x-hop', 'X-Two'] }));
    expect(twice.headers['connection']).toEqual(['keep-alive', 'x-hop', 'x-two']);
  });
  it('a 304 without Age or Date does not leave the old ones behind (4.2.3)', () => {
    expect(renew(stored, confirmation({})).headers).not.toHaveProperty('age');
    expect(renew(stored, confirmation({})).headers).not.toHaveProperty('date');
  });
});
