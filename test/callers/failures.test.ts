import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { type FailureKind, KeyWaits, limitFailures } from '../../src/callers/failures.ts';

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

const kinds: readonly FailureKind[] = ['no-credential', 'token', 'signature'];

it('failures are remembered for ten thousand addresses, and the oldest is forgotten for the next', () => {
  const failures = limitFailures(1);
  failures.giveBack('10.9.9.9', 'signature');
  const addressOf = (number: number): string => `10.0.${number >> 8}.${number & 255}`;
  const isLimited = (number: number): boolean => failures.count(addressOf(number), 'token') > 0;
  for (let number = 0; number < 10_000; number++) expect(isLimited(number)).toBe(false);
  expect(isLimited(0)).toBe(true);
  expect(isLimited(10_000)).toBe(false);
  expect(isLimited(0)).toBe(true);
  expect(isLimited(1)).toBe(false);
});

describe('failures of an address', () => {
  it.each(kinds)('failures of the kind %s use up nothing of the other kinds', (flooded) => {
    const failures = limitFailures(3);
    for (let count = 0; count < 1_000; count++) failures.count('10.0.0.1', flooded);
    expect(failures.count('10.0.0.1', flooded)).toBeGreaterThan(0);
    for (const kind of kinds.filter((one) => one !== flooded)) {
      const waits = [1, 2, 3].map(() => failures.count('10.0.0.1', kind));
      expect(waits).toEqual([0, 0, 0]);
    }
  });

  it.each(kinds)(
    'failures of a stranger, 200 a second for five minutes, of the kind %s, hold up no login that comes each second',
    (kind) => {
      const failures = limitFailures(300);
      let heldUp = 0;
      let refused = 0;
      for (let passedMs = 0; passedMs < 300_000; passedMs += 5) {
        if (failures.count('10.0.0.1', kind) > 0) refused++;
        vi.advanceTimersByTime(5);
        if (passedMs % 1_000 !== 0) continue;
        if (failures.count('10.0.0.1', 'signature') > 0) heldUp++;
        else failures.giveBack('10.0.0.1', 'signature');
      }
      expect(heldUp).toBe(0);
      // 300 at once, then five a second; of signatures two hundred more, and there was room for all.
      if (kind !== 'signature') expect(refused).toBeGreaterThan(5_000);
    },
  );

  it('failures at any rate leave two hundred verifications a second, and the wait says when the next is due', () => {
    const failures = limitFailures(1);
    const verifiedIn = (seconds: number): number => {
      let verified = 0;
      for (let tries = 0; tries < seconds * 1_000; tries++) {
        if (failures.count('10.0.0.1', 'signature') === 0) verified++;
        vi.advanceTimersByTime(1);
      }
      return verified;
    };
    verifiedIn(60);
    const verified = verifiedIn(60);
    // Two hundred a second, and the one that the limit gives back each minute.
    expect(verified).toBeGreaterThanOrEqual(11_999);
    expect(verified).toBeLessThanOrEqual(12_002);
    while (failures.count('10.0.0.1', 'signature') === 0);
    const waitMs = failures.count('10.0.0.1', 'signature');
    expect(waitMs).toBeLessThanOrEqual(5);
    vi.advanceTimersByTime(waitMs);
    expect(failures.count('10.0.0.1', 'signature')).toBe(0);
  });
});

it('JWTs that wait for keys are bounded in bytes, with a share for each address, and count no more when the keys have come', async () => {
  const waits = new KeyWaits();
  const keys = Array.from({ length: 9 }, () => Promise.withResolvers<void>());
  /** A quarter of all that may wait. */
  const wait = (at: number, address = '10.0.0.1') =>
    waits.during(address, 'x'.repeat(2 ** 20 - 512), keys[at]?.promise ?? Promise.resolve());
  const refused = {
    code: 'overloaded',
    retryAfterMs: 1_000,
    message: 'too many logins wait for the keys of their issuer',
    detail: 'Too many logins wait to be verified, for the keys of their issuer are slow to come.',
  };
  const first = wait(0);
  const others = [wait(1), wait(2), wait(3), wait(4, '10.0.0.2')];
  await expect(wait(5)).rejects.toMatchObject(refused);
  keys[0]?.resolve();
  await first;
  await expect(wait(6)).rejects.toMatchObject(refused);
  for (const { resolve } of keys.slice(0, 5)) resolve();
  await Promise.all(others);
  const again = [wait(5), wait(6), wait(7), wait(8)];
  await expect(wait(9)).rejects.toMatchObject(refused);
  for (const { resolve } of keys) resolve();
  await Promise.all(again);
});
