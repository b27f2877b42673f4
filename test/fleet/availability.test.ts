import { describe, expect, it } from 'vitest';
import { available, awayMs, begun, failed, isAway, mayCall } from '../../src/fleet/availability.ts';

describe('the use of the store', () => {
  it('the use of the store ends for a second after two calls that fail one after the other', () => {
    const once = failed(available, 0, 50);
    expect(isAway(once)).toBe(false);
    const twice = failed(once, 60, 110);
    expect(mayCall(twice, 110)).toBe(false);
    expect(mayCall(twice, 110 + awayMs)).toBe(true);
  });

  it('the use of the store goes on after calls that were under way together and failed of one stall', () => {
    const stalled = [0, 10, 20].reduce((state, sentMs) => failed(state, sentMs, 50 + sentMs), available);
    expect(isAway(stalled)).toBe(false);
    expect(isAway(failed(stalled, 80, 130))).toBe(true);
  });

  it('the use of the store begins again with one call at a time', () => {
    expect(mayCall(begun(available), 0)).toBe(true);
    const away = failed(failed(available, 0, 50), 60, 110);
    const trial = begun(away);
    expect(mayCall(trial, 5_000)).toBe(false);
    // One that was sent before the store was away does not end the trial.
    expect(mayCall(failed(trial, 70, 115), 5_000)).toBe(false);
    expect(mayCall(failed(trial, 1_200, 1_250), 1_300)).toBe(false);
  });
});
