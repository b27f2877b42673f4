import { describe, expect, it } from 'vitest';
import { didYouMean, nearestOfAll, nearestWord } from '../../src/config/misspellings.ts';

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

  it.each([
    ['emae', ['emea', 'apac', 'emea'], ' (did you mean "emea"?): there are emea, apac'],
    ['x', ['emea'], ': there is emea'],
    ['x', [], ''],
  ])('the suggestion for %s among %j lists them as well:%s', (word, known, text) => {
    expect(nearestOfAll(word, known)).toBe(text);
  });

  it('the suggestion lists at most twenty words, and says how many more there are', () => {
    const known = Array.from({ length: 23 }, (_, index) => `read-${index}`);
    expect(nearestOfAll('x', known)).toMatch(/: there are read-0, .*read-19 and 3 more$/);
  });
});
