import { describe, expect, it } from 'vitest';
import { limitBodies } from '../../src/upstream/body-budget.ts';

describe('bodies in flight stay under the bound', () => {
  it('one that says its length waits, in order, until that much is free', () => {
    const budget = limitBodies(100);
    const started: string[] = [];
    const a = budget.reserve(80, () => started.push('a'));
    const b = budget.reserve(50, () => started.push('b'));
    const c = budget.reserve(10, () => started.push('c'));
    expect([a.isReady, b.isReady, c.isReady]).toEqual([true, false, false]);
    a.release();
    expect(started).toEqual(['b', 'c']);
    expect([b.isReady, c.isReady]).toEqual([true, true]);
    b.release();
    c.release();
    expect(budget.usedBytes).toBe(0);
  });

  it('one that does not say is refused when nothing is left', () => {
    const budget = limitBodies(100);
    const share = budget.reserve(0, () => {});
    expect([share.grow(60), share.grow(60), share.grow(40)]).toEqual([true, false, true]);
    share.release();
    expect(budget.usedBytes).toBe(0);
  });

  it('one that gives up its place holds up nobody', () => {
    const budget = limitBodies(100);
    const started: string[] = [];
    const a = budget.reserve(100, () => started.push('a'));
    const b = budget.reserve(100, () => started.push('b'));
    budget.reserve(1, () => started.push('c'));
    b.release();
    a.release();
    a.release();
    expect(started).toEqual(['c']);
    expect(budget.usedBytes).toBe(1);
  });
});
