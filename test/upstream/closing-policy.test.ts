import { describe, expect, it } from 'vitest';
import { type Refused, reckonClosings } from '../../src/upstream/closing-policy.ts';

const options = { maxClosedMs: 60_000, baseMs: 500, capMs: 8000, random: () => 0 };
const refusal: Refused = { waitMs: undefined, sentMs: 0, isProbe: false, isClosed: false, perMs: undefined };

describe('a refusal closes the gate', () => {
  it.each<[string, Partial<Refused>, number]>([
    ['for as long as the upstream says', { waitMs: 3000 }, 3000],
    ['for GATE_MAX_CLOSED at most', { waitMs: 3_600_000 }, 60_000],
    ['for RETRY_BASE where nobody says', {}, 500],
    ['for RETRY_BASE where the upstream says 0', { waitMs: 0 }, 500],
    ['for four turns once the pace is known', { perMs: 0.05 }, 80],
    ['for RETRY_BASE at most then', { perMs: 0.001 }, 500],
  ])('%s', (_, over, closedMs) => {
    const closings = reckonClosings(options);
    expect(closings.refused({ ...refusal, ...over }, 1000)).toBe(true);
    expect(closings.reopensMs).toBe(1000 + closedMs);
  });

  it('for twice as long with each refused probe, up to RETRY_CAP, and anew after one that is answered', () => {
    const closings = reckonClosings(options);
    const closedFor = (isProbe: boolean): number => {
      const nowMs = closings.reopensMs;
      closings.refused({ ...refusal, isProbe, sentMs: nowMs }, nowMs);
      return closings.reopensMs - nowMs;
    };
    expect([false, true, true, true, true, true, true].map(closedFor)).toEqual([
      500, 1000, 2000, 4000, 8000, 8000, 8000,
    ]);
    closings.reopened();
    expect(closedFor(false)).toBe(500);
  });

  it('later by a twentieth at most and never earlier, drawn once for each closing', () => {
    const drawn: number[] = [];
    const random = (): number => {
      drawn.push(1);
      return 1;
    };
    const closings = reckonClosings({ ...options, random });
    closings.refused({ ...refusal, waitMs: 2000 }, 0);
    closings.refused({ ...refusal, waitMs: 2000, isClosed: true }, 10);
    expect(closings.reopensMs).toBe(2110);
    expect(drawn).toHaveLength(1);
  });

  it('and moves it only forward', () => {
    const closings = reckonClosings(options);
    closings.refused({ ...refusal, waitMs: 10_000 }, 0);
    closings.refused({ ...refusal, waitMs: 1000, isClosed: true }, 100);
    expect(closings.reopensMs).toBe(10_000);
  });

  it('not again where it says nothing and was sent before the gate closed', () => {
    const closings = reckonClosings(options);
    closings.refused({ ...refusal, sentMs: 0 }, 10);
    expect(closings.refused({ ...refusal, sentMs: 5 }, 600)).toBe(false);
    expect(closings.reopensMs).toBe(510);
  });

  it('and the upstream’s own word is kept beyond what holds everybody', () => {
    const closings = reckonClosings(options);
    closings.refused({ ...refusal, waitMs: 3_600_000 }, 0);
    expect(closings.statedUntilMs).toBe(3_600_000);
  });

  it('until it accepts an attempt before that', () => {
    const closings = reckonClosings(options);
    closings.refused({ ...refusal, waitMs: 3_600_000 }, 0);
    closings.reopened();
    expect(closings.statedUntilMs).toBeLessThanOrEqual(0);
    closings.refused({ ...refusal, waitMs: 2000, sentMs: 60_000 }, 60_000);
    expect(closings.statedUntilMs).toBe(62_000);
  });
});
