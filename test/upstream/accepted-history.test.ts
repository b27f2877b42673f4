import { expect, it } from 'vitest';
import { rememberAccepted } from '../../src/upstream/accepted-history.ts';

it('counts every attempt, however long ago it was sent and in whatever order the answers came', () => {
  const history = rememberAccepted();
  const total = 200_000;
  // Two a millisecond, each second pair the wrong way round.
  for (let i = 0; i < total; i++) history.add((i ^ ((i >> 1) & 1)) / 2);
  expect(history.between(-1, total)).toBe(total);
  expect(history.between(total / 2 - 1000, total / 2)).toBe(1999);
  for (const agoMs of [3000, 10_000, 30_000, 90_000]) {
    expect(history.between(total / 2 - agoMs, total / 2) / (2 * agoMs)).toBeCloseTo(1, 2);
  }
});

it('bounds a rate the more closely the longer it was in telling, beyond what is remembered one by one', () => {
  const history = rememberAccepted();
  const [perMs, burst] = [2, 400];
  const sentMs = 100_000 / perMs;
  for (let i = 0; i < burst; i++) history.add(0);
  for (let i = 1; i <= 100_000; i++) history.add(i / perMs);
  const { least, most } = history.boundsOfRate(burst, 0, sentMs, 100);
  expect(least).toBeLessThanOrEqual(perMs);
  expect(most).toBeGreaterThanOrEqual(perMs * 0.999);
  expect(most - least).toBeLessThan(0.002);
});
