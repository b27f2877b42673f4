import { describe, expect, it } from 'vitest';
import { parseHttpDate, parseIsoDate, parseRfc3339 } from '../../src/http/date.ts';

const now = Date.UTC(2026, 10, 21);

describe('an HTTP-date (RFC 9110 section 5.6.7)', () => {
  it.each([
    ['IMF-fixdate', 'Sun, 06 Nov 1994 08:49:37 GMT', Date.UTC(1994, 10, 6, 8, 49, 37)],
    ['RFC 850', 'Sunday, 06-Nov-94 08:49:37 GMT', Date.UTC(1994, 10, 6, 8, 49, 37)],
    ['RFC 850, at most 50 years ahead', 'Sunday, 06-Nov-76 08:49:37 GMT', Date.UTC(2076, 10, 6, 8, 49, 37)],
    ['RFC 850, more than 50 years ahead', 'Sunday, 06-Nov-77 08:49:37 GMT', Date.UTC(1977, 10, 6, 8, 49, 37)],
    ['asctime', 'Sun Nov  6 08:49:37 1994', Date.UTC(1994, 10, 6, 8, 49, 37)],
    [
      'another case (RFC 9111 section 4.2)',
      'SUN, 06 nOV 1994 08:49:37 gmt',
      Date.UTC(1994, 10, 6, 8, 49, 37),
    ],
    ['a leap second', 'Sat, 31 Dec 2016 23:59:60 GMT', Date.UTC(2017, 0, 1)],
    ['a leap day', 'Thu, 29 Feb 2024 00:00:00 GMT', Date.UTC(2024, 1, 29)],
  ])('an HTTP-date is read: %s', (_, text, expected) => {
    expect(parseHttpDate(text, now)).toBe(expected);
  });

  it.each([
    '',
    '0',
    '-1',
    'tomorrow',
    'Sun, 06 Nov 94 08:49:37 GMT',
    'xSunday, 06-Nov-94 08:49:37 GMT',
    'Sunday, 06-Nov-94 08:49:37 GMTx',
    'xSun Nov  6 08:49:37 1994',
    'Sun Nov  6 08:49:37 19940',
    'Sun 06 Nov 1994 08:49:37 GMT',
    'Sun, 06  Nov  1994 08:49:37 GMT',
    'Sun, 06-Nov-1994 08:49:37 GMT',
    'Sun, 06 Nov 1994 08.49.37 GMT',
    'Sun, 06 Nov 1994 8:49:37 GMT',
    'Sun, 6 Nov 1994 08:49:37 GMT',
    'Sun, 06 Nov 1994 08:49:37 EST',
    'Sun, 06 Nov 1994 08:49:37 UTC',
    'Sunday, 06-Nov-94 08:49:37 UTC',
    'Sun, 06 Nov 1994 08:49:37 +0000',
    'Sun, 06 Nov 1994 08:49:37',
    'Sun, 06 Nov 1994 24:00:00 GMT',
    'Sun, 06 Nov 1994 08:60:00 GMT',
    'Sun, 06 Nov 1994 08:49:61 GMT',
    'Sun, 00 Nov 1994 08:49:37 GMT',
    'Sun, 30 Feb 1994 08:49:37 GMT',
    'Sun, 06 Foo 1994 08:49:37 GMT',
    'Xxx, 06 Nov 1994 08:49:37 GMT',
    '1994-11-06T08:49:37Z',
    'Sun, 06 Nov 1994 08:49:37 GMT, Sun, 06 Nov 1994 08:49:37 GMT',
    ' Sun, 06 Nov 1994 08:49:37 GMT',
  ])('a text that is no HTTP-date is not read: %j', (text) => {
    expect(parseHttpDate(text, now)).toBeUndefined();
  });
});

describe('a date (RFC 3339 section 5.6)', () => {
  it.each([
    ['2027-01-01T00:00:00Z', Date.UTC(2027, 0, 1)],
    ['2027-01-01T00:00:00.5z', Date.UTC(2027, 0, 1, 0, 0, 0, 500)],
    ['2016-12-31T23:59:60Z', Date.UTC(2017, 0, 1)],
    ['2027-01-01 02:30:00+02:30', Date.UTC(2027, 0, 1)],
    ['2026-12-31T19:00:00-05:00', Date.UTC(2027, 0, 1)],
    ['2028-02-29T00:00:00Z', Date.UTC(2028, 1, 29)],
    ['2027-02-29T00:00:00Z', undefined],
    ['2027-13-01T00:00:00Z', undefined],
    ['2027-01-01T24:00:00Z', undefined],
    ['2027-01-01T00:00:00', undefined],
    ['2027-01-01T00:00Z', undefined],
    ['2027-01-01T00:00:00+0000', undefined],
    ['2027-01-01', undefined],
    ['x2027-01-01T00:00:00Z', undefined],
    ['2027-01-01T00:00:00Zx', undefined],
    ['Fri, 01 Jan 2027 00:00:00 GMT', undefined],
    ['1798761600', undefined],
  ])('the text %s is read as the date that it says, or as none', (text, expected) => {
    expect(parseRfc3339(text)).toBe(expected);
  });
});

describe('a date of ISO 8601', () => {
  it.each([
    ['2027-01-01T02:30:00Z', Date.UTC(2027, 0, 1, 2, 30)],
    ['2027-01-01T02:30Z', Date.UTC(2027, 0, 1, 2, 30)],
    ['2027-01-01T02:30', Date.UTC(2027, 0, 1, 2, 30)],
    ['2027-01-01 02:30:15', Date.UTC(2027, 0, 1, 2, 30, 15)],
    ['2027-01-01T02:30:15.123456', Date.UTC(2027, 0, 1, 2, 30, 15, 123)],
    ['2027-01-01T02:30+02', Date.UTC(2027, 0, 1, 0, 30)],
    ['2027-01-01T02:30:00-0530', Date.UTC(2027, 0, 1, 8)],
    ['2027-01-01T02:30:00+24:00', undefined],
    ['2027-00-01T00:00', undefined],
    ['2027-01-00T00:00', undefined],
    ['2027-02-30T00:00', undefined],
    ['2027-01-01', undefined],
    ['2027-01-01T02', undefined],
    ['2027-01-01T02:30 UTC', undefined],
    ['+2027-01-01T02:30Z', undefined],
  ])('the text %s is read with and without seconds and zone, which then is UTC', (text, expected) => {
    expect(parseIsoDate(text)).toBe(expected);
  });
});
