import { describe, expect, it } from 'vitest';
import { maxTimerMs } from '../../src/http/date.ts';
import type { HeaderFields } from '../../src/http/fields.ts';
import { statedUntilMs, statedWaitMs } from '../../src/http/retry-after.ts';
import { answerOf } from '../support/requests.ts';

const receivedAt = Date.parse('Sat, 21 Nov 2026 12:00:00 GMT');
const epoch = receivedAt / 1000;

describe('the wait that the upstream states', () => {
  it.each<[string, HeaderFields, number | undefined]>([
    ['nothing', {}, undefined],
    ['seconds', { 'retry-after': '7' }, 7000],
    ['zero', { 'retry-after': '0' }, 0],
    ['blanks around', { 'retry-after': ' 7 ' }, 7000],
    ['the first of several', { 'retry-after': ['3', '9'] }, 3000],
    ['a date', { 'retry-after': 'Sat, 21 Nov 2026 12:00:05 GMT' }, 5000],
    ['a date by rfc850', { 'retry-after': 'Saturday, 21-Nov-26 12:00:05 GMT' }, 5000],
    ['a two-digit year of the last century', { 'retry-after': 'Saturday, 21-Nov-99 12:00:05 GMT' }, 0],
    ['a date by asctime, which has no zone', { 'retry-after': 'Sat Nov 21 12:00:05 2026' }, 5000],
    [
      "a date against the answer's own",
      { 'retry-after': 'Sat, 21 Nov 2026 13:00:05 GMT', date: 'Sat, 21 Nov 2026 13:00:00 GMT' },
      5000,
    ],
    ['a date in the past', { 'retry-after': 'Sat, 21 Nov 2026 11:00:00 GMT' }, 0],
    ['the year 9999', { 'retry-after': 'Fri, 31 Dec 9999 23:59:59 GMT' }, maxTimerMs],
    ['more digits than a number holds', { 'retry-after': '9'.repeat(400) }, maxTimerMs],
    ['a negative number', { 'retry-after': '-5' }, undefined],
    ['a fraction', { 'retry-after': '1.5' }, undefined],
    ['an exponent', { 'retry-after': '1e309' }, undefined],
    ['words', { 'retry-after': 'soon' }, undefined],
    ['an empty field', { 'retry-after': '' }, undefined],
    ['no date after a weekday', { 'retry-after': 'Sat, someday' }, undefined],
  ])('Retry-After (RFC 9110 section 10.2.3): %s', (_, headers, expected) => {
    expect(statedWaitMs(headers, receivedAt)).toBe(expected);
  });

  it.each<[string, HeaderFields, number | undefined]>([
    ['nothing remains', { ratelimit: '"burst";r=0;t=30' }, 30_000],
    ['something remains', { ratelimit: '"burst";r=3;t=30' }, undefined],
    ['one of two is used up', { ratelimit: '"burst";r=5;t=3, "daily";r=0;t=60' }, 60_000],
    ['malformed', { ratelimit: '"burst";r=zero;t=-1' }, undefined],
    ['Retry-After has precedence', { ratelimit: '"burst";r=0;t=30', 'retry-after': '2' }, 2000],
    ['a malformed Retry-After has not', { ratelimit: '"burst";r=0;t=30', 'retry-after': 'x' }, 30_000],
  ])('RateLimit: %s', (_, headers, expected) => {
    expect(statedWaitMs(headers, receivedAt)).toBe(expected);
  });

  it.each<[string, HeaderFields, number | undefined]>([
    ['seconds', { 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '12' }, 12_000],
    ['a time since 1970', { 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': String(epoch + 12) }, 12_000],
    [
      'just below 1e9: seconds',
      { 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '999999999' },
      maxTimerMs,
    ],
    ['1e9: a time, long past', { 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '1000000000' }, 0],
    ['without X-', { 'ratelimit-remaining': '0', 'ratelimit-reset': '4' }, 4000],
    ['something remains', { 'x-ratelimit-remaining': '1', 'x-ratelimit-reset': '12' }, undefined],
    ['the answer does not say what remains', { 'x-ratelimit-reset': '12' }, undefined],
    ['garbage', { 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': 'tomorrow' }, undefined],
  ])('X-RateLimit-Reset: %s', (_, headers, expected) => {
    expect(statedWaitMs(headers, receivedAt)).toBe(expected);
  });

  it('the wait that an answer states counts from its receipt, and is none where it states none', () => {
    const answer = answerOf(429, { 'retry-after': '7' });
    expect(statedUntilMs(answer)).toBe(answer.receivedMs + 7000);
    expect(statedUntilMs(answerOf(429))).toBe(0);
  });
});
