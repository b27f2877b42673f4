import { expect, it } from 'vitest';
import { limitFailures } from '../../src/callers/failures.ts';

it('failures are remembered for ten thousand addresses, and the eldest is forgotten for the next', () => {
  const failures = limitFailures(1);
  const addressOf = (number: number): string => `10.0.${number >> 8}.${number & 255}`;
  const isLimited = (number: number): boolean => failures.count(addressOf(number)) > 0;
  for (let number = 0; number < 10_000; number++) expect(isLimited(number)).toBe(false);
  expect(isLimited(0)).toBe(true);
  expect(isLimited(10_000)).toBe(false);
  expect(isLimited(0)).toBe(true);
  expect(isLimited(1)).toBe(false);
});
