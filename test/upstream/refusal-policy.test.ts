import { describe, expect, it } from 'vitest';
import { type Outlook, turnAway } from '../../src/upstream/refusal-policy.ts';
import type { Ticket } from '../../src/upstream/turnstile.ts';
import { standInLine } from '../../src/upstream/two-lines.ts';

const ticket = (deadlineMs: number, name = 'a'): Ticket => ({
  turn: { name, weight: 1, background: false },
  arrivedMs: 0,
  deadlineMs,
});
/** Open, ten turns a second, known for sure. */
const open: Outlook = { opensMs: 0, statedUntilMs: 0, perMs: 0.01, doubt: 1 };

function lineOf(length: number) {
  const lines = standInLine<Ticket>();
  for (let i = 0; i < length; i++) lines.add(ticket(1e6));
  return { lines, refusals: turnAway(lines, 100) };
}

describe('who is turned away because too many wait', () => {
  it.each<[number, number | undefined, number]>([
    [200, 0.01, 2000],
    [1000, 0.01, 10_000],
    [5000, 0.01, 50_000],
    [5000, 0.001, 60_000],
    [10, 0.01, 1000],
    [5000, undefined, 1000],
  ])('in a line of %i at %s turns a ms is told to come when there is room: in %i ms', (length, perMs, ms) => {
    const { refusals } = lineOf(length);
    expect(refusals.overloaded({ ...open, perMs })).toEqual({ code: 'overloaded', retryAfterMs: ms });
  });
});

describe('who comes too late', () => {
  it('is nobody with nobody ahead, however low the rate', () => {
    const { refusals } = lineOf(0);
    expect(refusals.tooLate(ticket(1000), { ...open, perMs: 1e-9 }, 0)).toBeUndefined();
    // Background work behind it does not count.
    const lines = standInLine<Ticket>();
    lines.add({ ...ticket(1e6), turn: { name: 'a', weight: 1, background: true } });
    expect(turnAway(lines, 100).tooLate(ticket(1000), { ...open, perMs: 0 }, 0)).toBeUndefined();
  });

  it('is told when the line will have got so short that it fits', () => {
    const { lines, refusals } = lineOf(200);
    const refusal = refusals.tooLate(ticket(5000), open, 0);
    // Twenty seconds of line, five of patience, and a turn.
    expect(refusal).toEqual({ code: 'upstream-rate-limited', retryAfterMs: 15_100 });
    for (const waiting of lines.all().slice(0, 151)) lines.remove(waiting);
    expect(refusals.tooLate(ticket(15_100 + 5000), { ...open, opensMs: 15_100 }, 15_100)).toBeUndefined();
  });

  it('is never told to come sooner than the upstream has asked for', () => {
    const { refusals } = lineOf(200);
    const outlook = { ...open, statedUntilMs: 90_000 };
    expect(refusals.tooLate(ticket(5000), outlook, 0)?.retryAfterMs).toBe(90_000);
  });

  it('is never told a time that is none', () => {
    const { refusals } = lineOf(200);
    expect(refusals.tooLate(ticket(5000), { ...open, perMs: 0 }, 0)?.retryAfterMs).toBe(600_000);
    expect(() => refusals.closed({ ...open, opensMs: Number.NaN }, 0)).toThrow(RangeError);
  });
});
