import fc from 'fast-check';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { fifty } from '../../bench/gate-lab/scenarios.ts';
import type { Queued } from '../../src/gate/fair-queue.ts';
import { type Outcome, type Permit, Scheduler, type SchedulerOptions } from '../../src/gate/scheduler.ts';
import { ToldWindow } from '../../src/gate/window-limits.ts';
import type { AttemptLimit } from '../../src/http/limit-fields.ts';
import { simulate } from '../support/gate-simulation.ts';

const told = (most: number, windowMs: number): AttemptLimit => ({ most, windowMs, window: `${windowMs}ms` });

function scheduler(...limits: AttemptLimit[]): Scheduler<Queued> {
  const options: SchedulerOptions = {
    ...{ maxClosedMs: 300_000, baseMs: 20, capMs: 80, initialWindow: 1000, maxInFlight: 1000 },
    ...{ maxWaiting: 5000, maxWaitingPerCaller: 5000, random: () => 0.5, limits },
  };
  return new Scheduler(options);
}

const flowOf = (name: string, background = false) => ({ name, weight: 1, background });

function request(name: string, nowMs: number, patienceMs = 25_000, background = false): Queued {
  return {
    context: { flows: [flowOf(name, background)], deadlineMs: nowMs + patienceMs },
    arrivedMs: nowMs,
  };
}

/** Sends as many of a caller as may go now, and ends them. */
function spend(gate: Scheduler<Queued>, name: string, nowMs: number, most = 1000): number {
  let sent = 0;
  for (; sent < most; sent += 1) {
    const permit = gate.admit([flowOf(name)], nowMs);
    if (permit === undefined) break;
    gate.settled(permit, 'answered', nowMs);
  }
  return sent;
}

describe('a told limit', () => {
  it('a told limit is asked about few of the flows that wait for it, however many do', () => {
    const gate = scheduler(told(10, 1000), told(100, 60_000));
    expect(spend(gate, 'first', 0) + spend(gate, 'second', 0)).toBe(10);
    for (let at = 0; at < 2_000; at += 1) gate.enter(request(`person ${at}`, 1), 1);
    const asked = vi.spyOn(ToldWindow.prototype, 'turnMs');
    onTestFinished(() => asked.mockRestore());
    expect(gate.next(2)).toMatchObject({ request: undefined, untilMs: 1000 });
    expect(gate.next(1001).request).toBeDefined();
    expect(asked.mock.calls.length).toBeLessThan(20);
  });

  it('a told limit is kept in every window, wherever between its sending and its end each attempt arrives', () => {
    const step = fc.oneof(
      fc.record({ kind: fc.constant('ask' as const), caller: fc.nat(3), background: fc.boolean() }),
      fc.record({ kind: fc.constant('pass' as const), ms: fc.nat(400) }),
      fc.record({ kind: fc.constant('pass' as const), ms: fc.nat(9) }),
      fc.record({
        kind: fc.constant('end' as const),
        which: fc.nat(99),
        outcome: fc.constantFrom<Outcome>('answered', 'broken', 'failed', 'unused', { waitMs: undefined }),
      }),
    );
    let ended = 0;
    fc.assert(
      fc.property(fc.array(step, { minLength: 100, maxLength: 300 }), (steps) => {
        const limits = [told(3, 100), told(7, 1000)];
        const gate = scheduler(...limits);
        const under = new Map<Permit, number>();
        const attempts: (readonly [sentMs: number, endedMs: number])[] = [];
        let nowMs = 0;
        for (const one of steps) {
          if (one.kind === 'pass') nowMs += one.ms;
          else if (one.kind === 'ask')
            gate.enter(request(`c${one.caller}`, nowMs, 1e5, one.background), nowMs);
          else {
            const [permit, sentMs] = [...under][one.which % Math.max(under.size, 1)] ?? [];
            if (permit === undefined || sentMs === undefined) continue;
            under.delete(permit);
            gate.settled(permit, one.outcome, nowMs);
            if (one.outcome !== 'unused') attempts.push([sentMs, nowMs]);
          }
          for (let next = gate.next(nowMs); next.request !== undefined; next = gate.next(nowMs))
            under.set(next.permit, nowMs);
        }
        for (const sentMs of under.values()) attempts.push([sentMs, Number.POSITIVE_INFINITY]);
        ended += attempts.length;
        for (const { most, windowMs } of limits) {
          for (const [, fromMs] of attempts) {
            const mayArrive = attempts.filter(([sent, end]) => sent < fromMs + windowMs && end >= fromMs);
            expect(mayArrive.length).toBeLessThanOrEqual(most);
          }
        }
      }),
      { numRuns: 500, seed: 27 },
    );
    expect(ended).toBeGreaterThan(5000);
  });

  it('the whole of a told limit is used, and again as soon as the first of its attempts leave the window', () => {
    const gate = scheduler(told(3, 1000));
    expect(spend(gate, 'a', 0, 2)).toBe(2);
    expect(gate.snapshot(0).limits).toEqual([
      { window: '1000ms', limit: 3, used: 2, remaining: 1, resetsInSeconds: 1, beside: { windowSeconds: 1 } },
    ]);
    expect(spend(gate, 'b', 500)).toBe(1);
    expect(spend(gate, 'b', 999)).toBe(0);
    expect(spend(gate, 'b', 1000)).toBe(2);
    expect(gate.snapshot(1000).limits).toMatchObject([{ used: 3, remaining: 0, resetsInSeconds: 0.5 }]);
    expect(gate.snapshot(9000).limits).toMatchObject([{ used: 0, remaining: 3, resetsInSeconds: 0 }]);
  });

  it('an attempt that was not made keeps no place', () => {
    const gate = scheduler(told(1, 1000));
    gate.settled(gate.admit([flowOf('a')], 0) as Permit, 'unused', 5);
    expect(spend(gate, 'a', 5)).toBe(1);
    expect(spend(gate, 'a', 6)).toBe(0);
  });

  it('a request that a told limit keeps beyond its deadline is told at once, with the time that is true', () => {
    const gate = scheduler(told(2, 60_000));
    expect(spend(gate, 'a', 0)).toBe(2);
    const rejected = gate.enter(request('a', 10_000), 10_000);
    // In 25 s a request with the same patience waits for the end of the window, and gets its turn in time.
    expect(rejected).toMatchObject([{ code: 'upstream-rate-limited', retryAfterMs: 25_000 }]);
    expect(gate.enter(request('a', 35_001), 35_001)).toEqual([]);
    expect(gate.enter(request('b', 35_001), 35_001)).toEqual([]);
    expect(gate.enter(request('b', 35_001), 35_001)).toMatchObject([{ retryAfterMs: 59_999 }]);
    expect(gate.next(35_001)).toEqual({ request: undefined, untilMs: 60_000 });
    expect(gate.next(60_000).request).toBeDefined();
  });

  it('background refreshes stop when a tenth of a told limit is left', () => {
    const gate = scheduler(told(20, 60_000));
    expect(spend(gate, 'a', 0, 9) + spend(gate, 'b', 0, 8)).toBe(17);
    const refresh = () => gate.admit([flowOf('c', true)], 1);
    gate.settled(refresh() as Permit, 'answered', 1);
    expect(refresh()).toBeUndefined();
    expect(gate.enter(request('c', 1, 25_000, true), 1)).toMatchObject([{ code: 'upstream-rate-limited' }]);
    expect(spend(gate, 'd', 1, 1)).toBe(1);
    expect(spend(gate, 'e', 1)).toBe(1);
  });

  it('the last quarter of a told limit is for callers that use less than the average; a greedy one gets it bit by bit', () => {
    const gate = scheduler(told(100, 100_000));
    expect(spend(gate, 'polite', 0, 1)).toBe(1);
    const atOnce = spend(gate, 'greedy', 0);
    expect(atOnce).toBeGreaterThanOrEqual(73);
    expect(atOnce).toBeLessThanOrEqual(75);
    expect(spend(gate, 'polite', 1, 5)).toBe(5);
    expect(spend(gate, 'greedy', 1)).toBe(0);
    expect(spend(gate, 'greedy', 99_000)).toBeGreaterThanOrEqual(18);
    expect(gate.snapshot(99_000).limits).toMatchObject([{ remaining: 1 }]);
    expect(spend(gate, 'polite', 99_000)).toBe(1);
  });
});

describe('the window of a told limit', () => {
  /** A window of a second, in which callers' attempts have ended. */
  const windowOf = (most: number, ...ended: [name: string, count: number, atMs: number][]) => {
    const window = new ToldWindow(told(most, 1_000));
    for (const [name, count, atMs] of ended) {
      for (let one = 0; one < count; one++) window.ended(flowOf(name), atMs);
    }
    return window;
  };

  it.each([
    [3, 600],
    [4, 1_000],
    [8, 1_500],
    [10, 1_600],
    [13, 1_600],
    [14, 2_000],
  ])('an attempt beside %i others may go when enough places have come back: at %i ms', (others, turnMs) => {
    const window = windowOf(10, ['a', 4, 0], ['b', 2, 500]);
    expect(window.turnMs(flowOf('c'), others, 600)).toBe(turnMs);
  });

  it('what had ended by a time leaves the other places, and goes on from those of other gateways', () => {
    const window = windowOf(10, ['a', 4, 0], ['b', 2, 500]);
    expect([-1, 0, 499, 500].map((atMs) => window.leftBy(atMs, 600))).toEqual([10, 6, 6, 4]);
    expect(window.leftBy(500, 1_000)).toBe(8);
    window.restore([{ firstMs: 1_000, lastMs: 1_005, count: 12 }], 0.5);
    expect(window.leftBy(1_005, 1_006)).toBe(0);
    expect(window.snapshot(1, 1_006)).toMatchObject({ used: 13, remaining: 0, resetsInSeconds: 0.999 });
    expect(window.snapshot(0, 3_000)).toMatchObject({ used: 0, remaining: 1, resetsInSeconds: 0 });
    expect(window.snapshot(2, 3_000)).toMatchObject({ used: 2, resetsInSeconds: 1 });
  });

  it.each<[string, ToldWindow, string, number, number, number]>([
    ['of two alike the last part is kept', windowOf(100, ['a', 20, 0], ['b', 20, 0]), 'a', 55, 500, 840],
    ['of one that has used nothing it is not', windowOf(100, ['a', 20, 0], ['b', 20, 0]), 'c', 55, 500, 500],
    ['of few places no part is kept', windowOf(3, ['a', 2, 0]), 'a', 0, 1, 1],
  ])('%s', (_, window, name, others, nowMs, turnMs) => {
    expect(window.turnMs(flowOf(name), others, nowMs)).toBe(turnMs);
  });

  it('attempts that leave the window are taken off all callers in proportion', () => {
    const window = windowOf(100, ['d', 1, 0], ['e', 3, 0], ['f', 4, 500]);
    const turns = (others: number, nowMs: number) =>
      ['d', 'e', 'f', 'unknown'].map((name) => window.turnMs(flowOf(name), others, nowMs));
    // Half of each is left: 0.5, 1.5 and 2.
    expect(turns(90, 1_000)).toEqual([1_000, 1_300, 1_300, 1_000]);
    window.ended(flowOf('g'), 1_400);
    // Of hardly any request nothing is left.
    expect(turns(93, 1_500)).toEqual([1_500, 1_500, 1_500, 1_500]);
    const restored = windowOf(100);
    restored.restore([{ firstMs: 0, lastMs: 0, count: 40 }], 100);
    expect(restored.turnMs(flowOf('a'), 55, 500)).toBe(500);
  });
});

describe('at an upstream that counts as told', () => {
  const ten = Array.from({ length: 10 }, (_, i) => ({ name: `caller ${i}`, loops: 1, thinkMs: 200 }));
  const day = [
    { name: 'greedy', loops: 10, thinkMs: 0 },
    { name: 'polite', loops: 1, thinkMs: 300_000 },
  ];

  it.each([
    ['50/1s', { ...fifty, anyWindows: [told(50, 1000)] }],
    ['60/1m', { ...fifty, seconds: 360, callers: ten, anyWindows: [told(60, 60_000)] }],
    ['10/1s,200/1m', { ...fifty, seconds: 240, anyWindows: [told(10, 1000), told(200, 60_000)] }],
  ])('at an upstream that counts as told, %s is used without a single 429', (_, scenario) => {
    const figures = simulate({ ...scenario, options: { limits: scenario.anyWindows } });
    expect(figures.refusals).toBe(0);
    expect(figures.goodput).toBeGreaterThanOrEqual(0.97);
  });

  it('at an upstream that counts as told, a polite caller beside a greedy one reads until the end of the day', () => {
    const anyWindows = [told(60, 60_000), told(2000, 86_400_000)];
    const figures = simulate({
      ...fifty,
      seconds: 86_400,
      callers: day,
      anyWindows,
      options: { limits: anyWindows },
    });
    expect(figures.refusals).toBe(0);
    expect(figures.goodput).toBeGreaterThanOrEqual(0.97);
    expect(figures.callers.get('greedy')?.refused).toBeGreaterThan(1000);
    expect(figures.callers.get('polite')).toMatchObject({ refused: 0 });
    expect(figures.callers.get('polite')?.p99).toBeLessThan(1000);
  });

  it('what is learned from 429s goes on to count below a limit that was told too high', () => {
    const figures = simulate({ ...fifty, options: { limits: [told(100, 1000)] } });
    expect(figures.goodput).toBeGreaterThanOrEqual(0.96);
    expect(figures.wasted).toBeLessThanOrEqual(0.015);
  });
});
