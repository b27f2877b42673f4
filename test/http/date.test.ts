import { describe, expect, it } from 'vitest';
import { parseHttpDate } from '../../src/http/date.ts';

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
