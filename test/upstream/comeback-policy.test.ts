import { describe, expect, it } from 'vitest';
import { type Place, promiseReturns } from '../../src/upstream/comeback-policy.ts';

const patienceMs = 10_000;
/** Ten turns a second, every second of them this caller's. */
const place = (ahead: number, name = 'a'): Place => ({
  name,
  ahead,
  turnMs: 100,
  ownTurnMs: 200,
  opensMs: 0,
});

describe('who is told to come back', () => {
  it('is told a time at which its patience suffices, in whole seconds, and one after the other', () => {
    const returns = promiseReturns(100);
    const told = Array.from({ length: 20 }, () => returns.promise(place(200), patienceMs, 1000, 0));
    // Twenty seconds of line, ten of patience, and a bit; then five a second, or fewer.
    expect(told[0]).toBe(11_000);
    for (const atMs of told) expect(atMs % 1000).toBe(0);
    expect(told).toEqual(told.toSorted((a, b) => a - b));
    expect(told.at(-1)).toBeGreaterThanOrEqual(14_000);
    expect(told.at(-1)).toBeLessThanOrEqual(16_000);
  });

  it('is never told a time before the least, and none later than ten minutes from now', () => {
    const returns = promiseReturns(100);
    expect(returns.promise(place(0), patienceMs, 90_000, 0)).toBe(90_000);
    expect(returns.promise(place(1e6), patienceMs, 1000, 5000)).toBe(600_000);
    // But for what the upstream asks for itself.
    expect(returns.promise(place(1e6), patienceMs, 3_605_000, 5000)).toBe(3_600_000);
  });

  it('is taken for another until its time has come, and then for itself, once', () => {
    const returns = promiseReturns(100);
    const atMs = returns.promise(place(200), patienceMs, 1000, 0);
    expect(returns.claim('a', atMs - 1)).toBe(false);
    expect(returns.claim('b', atMs)).toBe(false);
    expect(returns.claim('a', atMs)).toBe(true);
    expect(returns.claim('a', atMs)).toBe(false);
  });

  it('is as many as were told so', () => {
    const returns = promiseReturns(100);
    for (let i = 0; i < 3; i++) returns.promise(place(200), patienceMs, 1000, 0);
    for (let left = 3; left > 0; left--) {
      expect(returns.count(12_000)).toBe(left);
      expect(returns.isKept(place(220))).toBe(true);
      expect(returns.claim('a', 12_000)).toBe(true);
    }
    expect(returns.isKept(place(220))).toBe(false);
  });

  it('is expected for a while, and then no more', () => {
    const returns = promiseReturns(100);
    const atMs = returns.promise(place(200), patienceMs, 1000, 0);
    expect(returns.count(atMs + 3000)).toBe(1);
    expect(returns.count(atMs + 4000)).toBe(0);
    expect(returns.claim('a', atMs + 4000)).toBe(false);
    expect(returns.isKept(place(200))).toBe(false);
  });
});

describe('who has given up', () => {
  it('is expected no more once nobody has come at three times in a row, and anew when told so again', () => {
    const returns = promiseReturns(200);
    for (let i = 0; i < 100; i++) returns.promise(place(100), patienceMs, 1000, 0);
    const bMs = returns.promise(place(1000, 'b'), patienceMs, 1000, 0);
    expect(returns.count(3_000)).toBe(101);
    // Two seconds late, and an eighth: those that were told one second, then two, then three.
    expect(returns.count(3_200)).toBeGreaterThan(80);
    expect(returns.count(4_300)).toBeGreaterThan(80);
    expect(returns.count(5_400)).toBe(1);
    expect(returns.claim('b', bMs)).toBe(true);
    for (let i = 0; i < 5; i++) returns.promise(place(200), patienceMs, 100_000, bMs);
    expect(returns.count(100_000)).toBe(5);
  });

  it('is soon, or else nothing is kept up for it', () => {
    const returns = promiseReturns(200);
    returns.promise(place(10), patienceMs, 3_600_000, 0);
    expect(returns.isDueSoon(0)).toBe(false);
    expect(returns.isDueSoon(3_100_000)).toBe(true);
    expect(returns.isDueSoon(5_000_000)).toBe(false);
  });

  it('is not who comes for most of what was kept for it', () => {
    const returns = promiseReturns(200);
    for (let i = 0; i < 90; i++) returns.promise(place(100), patienceMs, 1000, 0);
    for (let nowMs = 1000; nowMs <= 12_000; nowMs += 1000) {
      for (let i = 0; i < 4; i++) returns.claim('a', nowMs);
    }
    expect(returns.count(12_000)).toBeGreaterThan(30);
  });
});

describe('what is kept for those who come back', () => {
  it('are their turns: one more of their caller would take one of them where there are no others', () => {
    const returns = promiseReturns(100);
    returns.promise(place(100), patienceMs, 1000, 0);
    // Its turn has to come eleven seconds from now, and comes 200 ms after that of whoever goes before it.
    expect(returns.isKept(place(108))).toBe(false);
    expect(returns.isKept(place(109))).toBe(true);
    expect(returns.isKept(place(109, 'b'))).toBe(false);
  });

  it('is counted for others too, if nobody of their caller waits now: they will go first', () => {
    const returns = promiseReturns(100);
    for (const name of ['a', 'b', 'b']) returns.promise(place(200, name), patienceMs, 1000, 0);
    expect(returns.absentBefore(60_000, 5, () => false)).toBe(3);
    expect(returns.absentBefore(60_000, 5, (name) => name === 'b')).toBe(1);
    expect(returns.absentBefore(11_000, 5, () => false)).toBe(0);
    // As turns go round: two of one caller do not both go before another's first.
    expect(returns.absentBefore(60_000, 1, () => false)).toBe(2);
  });

  it('is bounded: beyond that the caller with most of it loses its last', () => {
    const returns = promiseReturns(4);
    returns.promise(place(200, 'b'), patienceMs, 1000, 0);
    for (let i = 0; i < 20; i++) returns.promise(place(200, 'a'), patienceMs, 1000, 0);
    expect(returns.count(0)).toBe(4);
    expect(returns.claim('b', 11_000)).toBe(true);
    for (let i = 0; i < 2; i++) expect(returns.claim('a', 12_000)).toBe(true);
  });
});
