import { describe, expect, it } from 'vitest';
import { didYouMean, nearestWord } from '../src/spelling-policy.ts';

describe('the suggestion for a misspelled word', () => {
  const commands = ['serve', 'check', 'token', 'settings', 'demo', 'healthcheck'];

  it.each([
    ['chek', ' (did you mean "check"?)'],
    ['CEHCK', ' (did you mean "check"?)'],
    ['settigns', ' (did you mean "settings"?)'],
    ['check', ' (did you mean "check"?)'],
    ['reports', ''],
    ['x'.repeat(81), ''],
  ])('the suggestion for %s is:%s', (word, suggestion) => {
    expect(didYouMean(word, commands)).toBe(suggestion);
  });

  it('the suggestion is the first of the nearest words within the limit, and a swap is one edit', () => {
    expect(nearestWord('CACHE_TLT', ['CACHE_TTL', 'CACHE_TL'], 2)).toBe('CACHE_TTL');
    expect(nearestWord('CACHE', ['CACHE_TTL'], 2)).toBeUndefined();
  });
});
