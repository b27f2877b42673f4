import { describe, expect, it } from 'vitest';
import { growWindow } from '../../src/upstream/window-policy.ts';

function grown(successes: number, isFull = true) {
  const window = growWindow(10, 64);
  for (let i = 0; i < successes; i++) window.succeeded(isFull);
  return window;
}

describe('a window of attempts', () => {
  it.each([
    [0, 10],
    [10, 10],
    [20, 20],
    [40, 40],
    [500, 64],
  ])('after %i successes while it is full holds %i', (successes, size) => {
    expect(grown(successes).size).toBe(size);
  });

  it('does not grow while it is in nobody’s way', () => {
    expect(grown(100, false).size).toBe(10);
  });

  it('starts over as with an upstream met for the first time', () => {
    const window = grown(40);
    window.reset();
    expect(window.size).toBe(10);
    window.succeeded(true);
    expect(window.size).toBe(10);
  });
});
