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
    expect(refusals.overloaded({ ...open, perMs }, 0)).toEqual({ code: 'overloaded', retryAfterMs: ms });
    // Not before the gate opens, nor before the upstream has asked for.
    const closed = { ...open, perMs, opensMs: 100_000, statedUntilMs: 300_000 };
    expect(refusals.overloaded(closed, 0).retryAfterMs).toBe(300_000);
    expect(refusals.overloaded({ ...closed, statedUntilMs: 0 }, 0).retryAfterMs).toBe(100_000);
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
    // Twenty seconds of line, five of patience, and a turn; in whole seconds.
    expect(refusal).toEqual({ code: 'upstream-rate-limited', retryAfterMs: 16_000 });
    for (const waiting of lines.all().slice(0, 160)) lines.remove(waiting);
    expect(refusals.tooLate(ticket(16_000 + 5000), { ...open, opensMs: 16_000 }, 16_000)).toBeUndefined();
  });

  it('finds its place kept when it comes back as told, however many of its caller ask in between', () => {
    const { lines, refusals } = lineOf(51);
    const come = (nowMs: number): number | undefined => {
      const one = { ...ticket(nowMs + 5000), arrivedMs: nowMs };
      const late = refusals.tooLate(one, { ...open, opensMs: nowMs }, nowMs)?.retryAfterMs;
      if (late === undefined) lines.add(one);
      return late;
    };
    let servedMs = 0;
    const serveUntil = (nowMs: number): void => {
      for (const waiting of lines.all().slice(0, (nowMs - servedMs) / 100)) lines.remove(waiting);
      servedMs = nowMs;
    };
    const told = Array.from({ length: 60 }, () => come(0) as number);
    expect(told).not.toContain(undefined);
    // Each that is served asks again at once, and most of them are told to come later.
    let refused = 0;
    for (let nowMs = 100; nowMs <= (told.at(-1) as number); nowMs += 100) {
      serveUntil(nowMs);
      for (const atMs of told) if (atMs === nowMs) expect(come(nowMs)).toBeUndefined();
      if (come(nowMs) !== undefined) refused++;
    }
    expect(refused).toBeGreaterThan(40);
  });

  it('leaves its place to nobody who was refused by the upstream and returns to its old one', () => {
    const { refusals } = lineOf(60);
    const atMs = refusals.tooLate(ticket(5000), open, 0)?.retryAfterMs as number;
    const at = { ...open, opensMs: atMs };
    // It has been here before all who wait.
    expect(refusals.tooLate({ ...ticket(atMs + 5000), arrivedMs: -1 }, at, atMs)).toBeUndefined();
    const late = { ...ticket(atMs + 5000), arrivedMs: 1 };
    expect(refusals.tooLate({ ...late, deadlineMs: atMs + 5500 }, at, atMs)).toBeUndefined();
    expect(refusals.tooLate(late, at, atMs)?.code).toBe('upstream-rate-limited');
  });

  it('is known when it comes, also while a refresh of its caller waits in the background', () => {
    const { lines, refusals } = lineOf(60);
    const atMs = refusals.tooLate(ticket(5000), open, 0)?.retryAfterMs as number;
    lines.add({ ...ticket(1e6), turn: { name: 'a', weight: 1, background: true } });
    // A close call: it was told so, and comes in.
    const at = { ...open, opensMs: atMs, perMs: 0.0115 };
    expect(refusals.tooLate(ticket(atMs + 5000), at, atMs)).toBeUndefined();
    expect(refusals.tooLate(ticket(atMs + 5000), at, atMs)?.code).toBe('upstream-rate-limited');
  });

  it('keeps nobody from finding out who is next', () => {
    const { lines, refusals } = lineOf(1);
    const slow = { ...open, perMs: 1e-4 };
    expect(refusals.tooLate(ticket(5000), slow, 0)?.retryAfterMs).toBeGreaterThan(5000);
    for (const waiting of lines.all()) lines.remove(waiting);
    // Slower than when another was told to come: what it was told can't be kept.
    expect(refusals.tooLate(ticket(5000), { ...open, perMs: 5e-5 }, 0)).toBeUndefined();
  });

  it('goes before others who come meanwhile, if nobody of its caller waits', () => {
    const lines = standInLine<Ticket>();
    const refusals = turnAway(lines, 100);
    for (let i = 0; i < 55; i++) lines.add({ ...ticket(1e6, `caller ${i}`), arrivedMs: -1 });
    for (let i = 0; i < 10; i++) expect(refusals.tooLate(ticket(5000, `early ${i}`), open, 0)).toBeDefined();
    for (const waiting of lines.all().slice(0, 10)) lines.remove(waiting);
    // Ten have been served, and as many are on their way.
    expect(refusals.tooLate(ticket(6000, 'other'), { ...open, opensMs: 1000 }, 1000)).toBeDefined();
    expect(refusals.tooLate(ticket(7000, 'other'), { ...open, opensMs: 1000 }, 1000)).toBeUndefined();
  });

  it('is counted when others are told at their deadline when to come', () => {
    const { lines, refusals } = lineOf(51);
    for (let i = 0; i < 20; i++) refusals.tooLate(ticket(5000), open, 0);
    for (const waiting of lines.all().slice(0, 22)) lines.remove(waiting);
    // There is room for one more, were there not those twenty, and the rate is lower than it was.
    const slower = { ...open, opensMs: 200, perMs: 0.006 };
    expect(refusals.expired({ ...ticket(5000), arrivedMs: 0 }, slower, 200).retryAfterMs).toBeGreaterThan(
      2000,
    );
  });

  it('is told a time of its own also where the gate stays closed for longer than it can wait', () => {
    const { refusals } = lineOf(100);
    const closed = { ...open, opensMs: 60_000, statedUntilMs: 60_000 };
    const told = Array.from(
      { length: 60 },
      () => refusals.tooLate(ticket(5000), closed, 0)?.retryAfterMs ?? 0,
    );
    // Ten seconds of line wait already, of which it can wait for five; then ten a second.
    expect(told[0]).toBe(66_000);
    expect(told.at(-1)).toBeGreaterThanOrEqual(71_000);
    // In the background nobody comes back, and nothing is kept for it.
    const background = { ...ticket(5000), turn: { name: 'a', weight: 1, background: true } };
    expect(refusals.tooLate(background, closed, 0)?.retryAfterMs).toBe(60_000);
    // With nobody before it, it comes when the gate opens: later than was asked for, by chance.
    const jittered = { ...closed, opensMs: 61_500 };
    expect(lineOf(0).refusals.tooLate(ticket(5000), jittered, 0)?.retryAfterMs).toBe(62_000);
    expect(refusals.tooLate(ticket(5000), closed, 0)?.retryAfterMs).toBe(told.at(-1));
  });

  it('among those who wait already is sent away as soon as that is known, the last of its caller first', () => {
    const { lines, refusals } = lineOf(0);
    for (let i = 0; i < 100; i++) lines.add({ ...ticket(5000), arrivedMs: i });
    for (let i = 0; i < 5; i++) lines.add({ ...ticket(5000, 'b'), arrivedMs: 200 + i });
    const gone = refusals.sweep(open, 0);
    // Five seconds for fifty turns, a tenth more as it is a close call, and the one who is next.
    expect(gone.length).toBe(105 - 56);
    for (const { ticket } of gone) expect(ticket.turn.name).toBe('a');
    expect(Math.min(...gone.map(({ ticket }) => ticket.arrivedMs))).toBe(51);
    expect(refusals.sweep(open, 0)).toEqual([]);
  });

  it('is never told to come sooner than the upstream has asked for', () => {
    const { refusals } = lineOf(200);
    for (const statedUntilMs of [90_000, 3_600_000]) {
      const outlook = { ...open, statedUntilMs };
      expect(refusals.tooLate(ticket(5000), outlook, 0)?.retryAfterMs).toBe(statedUntilMs);
    }
  });

  it('is never told a time that is none', () => {
    const { refusals } = lineOf(200);
    expect(refusals.tooLate(ticket(5000), { ...open, perMs: 0 }, 0)?.retryAfterMs).toBe(600_000);
    expect(() => refusals.closed({ ...open, opensMs: Number.NaN }, 0)).toThrow(RangeError);
  });
});
