import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { fifty } from '../../bench/gate-lab/scenarios.ts';
import type { Queued } from '../../src/gate/fair-queue.ts';
import { dueMs, openRecord, takeTurn } from '../../src/gate/pacer.ts';
import { type Permit, type Rejected, Scheduler, type SchedulerOptions } from '../../src/gate/scheduler.ts';
import { type Figures, type Scenario, simulate } from '../support/gate-simulation.ts';
import { promotedBytesPer } from '../support/promoted-bytes.ts';

const options: SchedulerOptions = {
  maxClosedMs: 300_000,
  baseMs: 500,
  capMs: 8000,
  initialWindow: 10,
  maxInFlight: 64,
  maxWaiting: 40,
  maxWaitingPerCaller: 15,
  random: () => 0.5,
};

type Step =
  | { kind: 'ask'; caller: number; patienceMs: number; background: boolean }
  | { kind: 'pass'; ms: number }
  | { kind: 'answer'; which: number; status: 'answered' | 'broken' | 'failed' }
  | { kind: 'refuse'; which: number; waitMs: number | undefined }
  | { kind: 'leave'; which: number }
  | { kind: 'move'; which: number };

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('ask' as const),
      caller: fc.nat(14),
      patienceMs: fc.integer({ min: 1, max: 60_000 }),
      background: fc.boolean(),
    }),
  },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('pass' as const), ms: fc.nat(3000) }) },
  // Longer than a limit is remembered.
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('pass' as const), ms: fc.constant(70_000) }) },
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constant('answer' as const),
      which: fc.nat(99),
      status: fc.constantFrom('answered' as const, 'answered' as const, 'broken' as const, 'failed' as const),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('refuse' as const),
      which: fc.nat(99),
      waitMs: fc.option(fc.integer({ min: 0, max: 20_000 }), { nil: undefined }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('leave' as const), which: fc.nat(99) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('move' as const), which: fc.nat(99) }) },
);

interface Changing extends Queued {
  context: Queued['context'];
}

/** One flow to three, of five callers: as when requests join a flight, and leave it. */
const flowsOf = (which: number, background: boolean) =>
  [which, which * 3 + 1, which + 2]
    .slice(0, 1 + (which % 3))
    .map((caller, i) => ({
      name: `c${caller % 5}`,
      weight: 1 + (caller % 5),
      background: background && i === 0,
    }))
    .filter(({ name }, i, all) => all.findIndex((other) => other.name === name) === i);

describe('the scheduler under any history', () => {
  it('the scheduler sends nothing before the time the upstream stated, loses no request, doubles none, and ends by serving all', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 300 }), (steps) => {
        const gate = new Scheduler<Changing>(options);
        const waiting = new Set<Changing>();
        const under = new Set<Permit>();
        let now = 0;
        let statedUntilMs = 0;
        const pump = (): number | undefined => {
          for (;;) {
            const next = gate.next(now);
            if (next.request === undefined) return next.untilMs;
            expect(now).toBeGreaterThanOrEqual(statedUntilMs);
            expect(waiting.delete(next.request)).toBe(true);
            under.add(next.permit);
            expect(under.size).toBeLessThanOrEqual(options.maxInFlight);
            expect([...under].filter(({ state }) => state === 'trial').length).toBeLessThanOrEqual(1);
          }
        };
        const gone = (tickets: readonly Rejected<Changing>[]): void => {
          for (const { request, retryAfterMs } of tickets) {
            expect(waiting.delete(request)).toBe(true);
            expect(retryAfterMs).toBeGreaterThanOrEqual(1000);
            expect(retryAfterMs).toBeLessThanOrEqual(600_000);
          }
        };
        const pickOf = <T>(set: Set<T>, which: number): T | undefined =>
          [...set][which % Math.max(set.size, 1)];
        for (const one of steps) {
          if (one.kind === 'pass') now += one.ms;
          else if (one.kind === 'ask') {
            const ticket: Changing = {
              context: {
                flows: flowsOf(one.caller, one.background),
                deadlineMs: now + one.patienceMs,
              },
              arrivedMs: now,
            };
            waiting.add(ticket);
            gone(gate.enter(ticket, now));
          } else if (one.kind === 'leave' || one.kind === 'move') {
            const ticket = pickOf(waiting, one.which);
            if (ticket === undefined) continue;
            if (one.kind === 'leave') {
              expect(gate.leave(ticket)).toBe(true);
              waiting.delete(ticket);
            } else {
              ticket.context = { ...ticket.context, flows: flowsOf(one.which, one.which % 7 === 0) };
              gate.moved(ticket);
            }
          } else {
            const attempt = pickOf(under, one.which);
            if (attempt === undefined) continue;
            under.delete(attempt);
            if (one.kind === 'refuse') {
              if (one.waitMs !== undefined) statedUntilMs = Math.max(statedUntilMs, now + one.waitMs);
              gone(gate.settled(attempt, { waitMs: one.waitMs }, now));
            } else gone(gate.settled(attempt, one.status, now));
          }
          pump();
          const { waiting: line, inFlight } = gate.snapshot(now);
          expect(line).toBe(waiting.size);
          expect(inFlight).toBe(under.size);
          expect(line).toBeLessThanOrEqual(options.maxWaiting);
        }
        // From now on the upstream accepts everything: each request gets a turn, or is told that its deadline has passed.
        for (let round = 0; waiting.size > 0 || under.size > 0; round++) {
          expect(round).toBeLessThan(5000);
          for (const permit of under) {
            gone(gate.settled(permit, 'answered', now));
          }
          under.clear();
          const untilMs = pump();
          if (under.size > 0) now += 5;
          else if (waiting.size > 0) {
            expect(untilMs).toBeGreaterThan(now);
            now = untilMs as number;
          }
        }
        // An hour later nothing of it is left.
        now += 3_600_000;
        expect(gate.snapshot(now)).toMatchObject({
          state: 'open',
          closedForSeconds: 0,
          statedWaitSeconds: 0,
        });
        expect(gate.admit([{ name: 'lone', weight: 1, background: false }], now)).toBeDefined();
      }),
      { numRuns: 2000, seed: 4 },
    );
  });
});

describe('what successes say is left', () => {
  it('what successes say is left holds a request for maxClosedMs at most, and the gate says for how long', () => {
    const gate = new Scheduler<Queued>({ ...options, maxClosedMs: 300_000 });
    for (const [at, remaining] of [5, 4, 3, 2, 1, 0].entries())
      gate.fields.heard(
        [{ name: 'ratelimit', remaining, resetMs: 1e9 - at * 1_000 }],
        at * 1_000 - 10,
        at * 1_000,
      );
    expect(gate.snapshot(6_000)).toMatchObject({ state: 'open', closedForSeconds: 299 });
    const flow = { name: 'one', weight: 1, background: false };
    // Told is the upstream's own time, though one attempt goes before it.
    const late = { context: { flows: [flow], deadlineMs: 7_000 }, arrivedMs: 6_000 };
    expect(gate.enter(late, 6_000)).toMatchObject([{ retryAfterMs: 1e9 - 6_000 }]);
    expect(gate.admit([flow], 304_999)).toBeUndefined();
    expect(gate.admit([flow], 305_000)).toBeDefined();
    expect(gate.admit([flow], 305_001)).toBeUndefined();
  });
});

const median = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[values.length >> 1] as number;
const runs = (scenario: Scenario): Figures[] => [1, 2, 3].map((seed) => simulate({ ...scenario, seed }));
const shares = ({ callers }: Figures): number[] =>
  [...callers.values()].map(({ done, entitled }) => done / entitled);
const noLimit = { limit: () => 1e6, burst: 1e6, callers: [{ name: 'loops', loops: 60, thinkMs: 500 }] };

// The laboratory (`npm run lab:gate`) measures the same for longer, and more; its floors are the promise.
describe('half a simulated minute', () => {
  const half: Scenario = { ...fifty, seconds: 30 };
  const two: Scenario = { ...fifty, seconds: 120, latencyMs: 300 };
  const stated: Scenario = { ...half, retryAfterMs: 1000 };

  it.each<[string, Scenario, { goodput: number; wasted?: number; share?: number }]>([
    ['50/s', half, { goodput: 0.96, wasted: 0.015, share: 0.85 }],
    ['50/s with a stated wait', stated, { goodput: 0.86, wasted: 0.012, share: 0.75 }],
    [
      '50/s that falls to 20/s',
      { ...half, limit: (s) => (s < 15 ? 50 : 20) },
      { goodput: 0.93, wasted: 0.03 },
    ],
    ['2/s', { ...half, limit: () => 2 }, { goodput: 0.9, wasted: 0.3 }],
    ['50/s that takes no two requests at once', { ...half, burst: 1 }, { goodput: 0.65 }],
    ['10/s with a burst of 100', { ...half, limit: () => 10, burst: 100 }, { goodput: 0.95, wasted: 0.13 }],
    ['50/s that is 300 ms away', { ...half, latencyMs: 300 }, { goodput: 0.85, wasted: 0.04 }],
    ['50/s that is 600 ms away', { ...half, latencyMs: 600 }, { goodput: 0.6, wasted: 0.15 }],
    ['20/s that is 300 ms away', { ...two, limit: () => 20, burst: 5 }, { goodput: 0.85, wasted: 0.03 }],
    ['three gates that know nothing of each other', { ...half, gates: 3, latencyMs: 30 }, { goodput: 0.75 }],
    ['no limit', { ...half, ...noLimit }, { goodput: 0.95, wasted: 0 }],
    ['strays without a limit', { ...half, ...noLimit, straySeconds: 5 }, { goodput: 0.8 }],
  ])('the gate at a limit of %s leaves little unused and wastes little', (_, scenario, bounds) => {
    const all = runs(scenario);
    expect(median(all.map(({ goodput }) => goodput))).toBeGreaterThanOrEqual(bounds.goodput);
    expect(median(all.map(({ wasted }) => wasted))).toBeLessThanOrEqual(bounds.wasted ?? 1);
    expect(median(all.map((run) => Math.min(...shares(run))))).toBeGreaterThanOrEqual(bounds.share ?? 0);
    for (const { earlySends, isLoneServed } of all) {
      expect(earlySends).toBe(0);
      expect(isLoneServed).toBe(true);
    }
  });

  it('requests that do not fit in time are told when to come again, at most as late as the queue is long', () => {
    const callers = [
      { name: 'greedy', loops: 400, thinkMs: 0 },
      { name: 'polite', loops: 1, thinkMs: 200 },
    ];
    const figures = simulate({ ...half, limit: () => 10, callers });
    expect(figures.turnedAway).toBeGreaterThan(0);
    for (const toldMs of figures.told) expect(toldMs).toBeLessThanOrEqual(60_000);
    expect(figures.callers.get('polite')?.refused).toBe(0);
  });

  it('a flood by one caller costs the others nothing', () => {
    const [, ...others] = fifty.callers;
    const flood = { name: 'flood', loops: 800, thinkMs: 0, comesBackMs: 100 };
    const figures = simulate({ ...half, callers: [flood, ...others] });
    const light = [...figures.callers.values()].slice(1);
    for (const { done, entitled } of light) expect(done / entitled).toBeGreaterThanOrEqual(0.8);
  });
});

describe('a 429 that our own sending does not explain', () => {
  it('a 429 that our own sending does not explain leaves the rate as it was', () => {
    const run = (straySeconds: number | undefined): number => {
      const gate = new Scheduler<Queued>({ ...options, maxWaiting: 5000 });
      const flow = { name: 'steady', weight: 1, background: false };
      let tokens = 10;
      let filledMs = 0;
      let nextStrayMs = 20_000;
      for (let nowMs = 0; nowMs < 65_000; nowMs++) {
        // A rush for ten seconds, then one request every 50 ms.
        if (nowMs < 10_000 ? gate.snapshot(nowMs).waiting < 20 : nowMs % 50 === 0) {
          gate.enter({ context: { flows: [flow], deadlineMs: nowMs + 60_000 }, arrivedMs: nowMs }, nowMs);
        }
        for (let next = gate.next(nowMs); next.request !== undefined; next = gate.next(nowMs)) {
          tokens = Math.min(10, tokens + (nowMs - filledMs) / 20);
          filledMs = nowMs;
          const isStray = straySeconds !== undefined && nowMs >= nextStrayMs;
          if (isStray) nextStrayMs += straySeconds * 1000;
          const isAccepted = tokens >= 1 && !isStray;
          if (isAccepted) tokens -= 1;
          const waitMs = isStray ? 1000 : undefined;
          const accepted = 'answered';
          gate.settled(next.permit, isAccepted ? accepted : { waitMs }, nowMs);
        }
      }
      return gate.snapshot(65_000).attemptsPerSecond ?? 0;
    };
    expect(run(undefined)).toBeGreaterThan(45);
    expect(run(20)).toBeGreaterThan(45);
  });
});

describe('a 429 that comes late', () => {
  const flow = { name: 'steady', weight: 1, background: false };

  /** Ten seconds of a rush at 50/s with a burst of 10. */
  function rushed(): Scheduler<Queued> {
    const gate = new Scheduler<Queued>({ ...options, maxWaiting: 5000, maxWaitingPerCaller: 5000 });
    let tokens = 10;
    for (let nowMs = 0; nowMs < 10_000; nowMs++) {
      tokens = Math.min(10, tokens + 1 / 20);
      enter(gate, 20, nowMs);
      for (let next = gate.next(nowMs); next.request !== undefined; next = gate.next(nowMs)) {
        const isAccepted = tokens >= 1;
        if (isAccepted) tokens -= 1;
        gate.settled(next.permit, isAccepted ? 'answered' : { waitMs: undefined }, nowMs);
      }
    }
    return gate;
  }

  function enter(gate: Scheduler<Queued>, waiting: number, nowMs: number): void {
    while (gate.snapshot(nowMs).waiting < waiting) {
      gate.enter({ context: { flows: [flow], deadlineMs: nowMs + 60_000 }, arrivedMs: nowMs }, nowMs);
    }
  }

  function sentAfter(gate: Scheduler<Queued>, nowMs: number): [Permit, number] {
    for (let atMs = nowMs; atMs < nowMs + 2_000; atMs++) {
      const next = gate.next(atMs);
      if (next.request !== undefined) return [next.permit, atMs];
    }
    throw new Error('nothing was sent');
  }

  it('a 429 that comes late holds requests until its stated time, and tells nothing of the rate', () => {
    const gate = rushed();
    enter(gate, 100, 10_000);
    const [late, lateMs] = sentAfter(gate, 10_000);
    const [later, laterMs] = sentAfter(gate, lateMs);
    const [refused, refusedMs] = sentAfter(gate, laterMs);
    gate.settled(refused, { waitMs: undefined }, refusedMs + 10);
    const [trial, trialMs] = sentAfter(gate, refusedMs + 10);
    gate.settled(trial, 'answered', trialMs + 10);
    const before = gate.snapshot(trialMs + 10);
    expect(before.state).toBe('paced');

    gate.settled(later, { waitMs: undefined }, trialMs + 10);
    expect(gate.snapshot(trialMs + 10).state).toBe('paced');
    gate.settled(late, { waitMs: 2_000 }, trialMs + 20);
    expect(gate.snapshot(trialMs + 20)).toMatchObject({ state: 'closed', statedWaitSeconds: 2 });
    expect(gate.snapshot(trialMs + 2_200)).toMatchObject({
      state: 'half-open',
      attemptsPerSecond: before.attemptsPerSecond,
    });
  });
});

describe('a turn that is not used', () => {
  it('a turn that is not used costs neither the pace nor its caller, and is no accepted attempt', () => {
    const pacedAt = (record: object) => {
      const gate = new Scheduler<Queued>(options);
      gate.record = { ...openRecord, state: 'paced', perMs: 0.01, isMeasured: true, crowd: 2, ...record };
      for (const name of ['a', 'a', 'b'])
        gate.enter(
          { context: { flows: [{ name, weight: 1, background: false }], deadlineMs: 60_000 }, arrivedMs: 0 },
          0,
        );
      return gate;
    };
    const gate = pacedAt({ level: 1, levelMs: 0, exploreMs: 1e9, marks: [{ atMs: 0, sent: 0 }] });
    const turn = gate.next(0);
    expect('permit' in turn && turn.permit.flow.name).toBe('a');
    expect(gate.next(0)).toMatchObject({ request: undefined, untilMs: 100 });
    if ('permit' in turn) gate.settled(turn.permit, 'unused', 5);
    const next = gate.next(5);
    expect('permit' in next && next.permit.flow.name).toBe('a');
    expect(gate.snapshot(5).attempts - (gate.record.marks[0]?.sent ?? 0)).toBe(1);
  });
});

describe('429s of one cooldown', () => {
  it('429s of one cooldown that state no wait close the gate once, and the attempt that was sent last ends what is measured', () => {
    const gate = new Scheduler<Queued>(options);
    const flow = { name: 'script', weight: 1, background: false };
    const permits = [0, 5, 10].map((nowMs) => gate.admit([flow], nowMs) as Permit);
    for (const at of [1, 2, 0]) gate.settled(permits[at] as Permit, { waitMs: undefined }, 20 + 100 * at);
    expect(gate.record).toMatchObject({ throttled: 3, lastThrottled: { atMs: 10, sent: 2 } });
    expect(gate.snapshot(20).closedForSeconds * 1000).toBeLessThanOrEqual(1.05 * options.baseMs + 100);
  });
});

describe('a request that gets no turn', () => {
  const nowMs = 1_000;
  const patient = (patienceMs: number, name = 'script'): Queued => ({
    context: { flows: [{ name, weight: 1, background: false }], deadlineMs: nowMs + patienceMs },
    arrivedMs: nowMs,
  });
  /** A gate that knows a rate of one a second, and fifteen requests that wait at it. */
  function busy(statedUntilMs = 0): Scheduler<Queued> {
    const gate = new Scheduler<Queued>(options);
    gate.record = { ...openRecord, state: 'paced', perMs: 0.001, isMeasured: true, statedUntilMs };
    for (let count = 0; count < 15; count++) expect(gate.enter(patient(60_000), nowMs)).toEqual([]);
    return gate;
  }

  it.each([
    ['the time to its turn less its patience', 0, 10_000],
    ['what is left of the stated wait, where that is longer', 31_000, 30_000],
  ])('a request whose turn comes too late is told %s', (_, statedUntilMs, retryAfterMs) => {
    const request = patient(5_000);
    const rejected = [{ request, code: 'upstream-rate-limited', retryAfterMs }];
    expect(busy(statedUntilMs).enter(request, nowMs)).toEqual(rejected);
  });

  it.each([
    ['the time that a tenth of the queue takes', 0, 1_500],
    ['what is left of the stated wait, where that is longer', 31_000, 30_000],
  ])('a request of a caller with too many in the queue is told %s', (_, statedUntilMs, retryAfterMs) => {
    const request = patient(60_000);
    expect(busy(statedUntilMs).enter(request, nowMs)).toEqual([
      { request, code: 'overloaded', retryAfterMs },
    ]);
  });

  it('a request whose turn comes in time because those before it are refused keeps its place', () => {
    const gate = busy();
    for (const request of gate.clear()) expect(gate.leave(request)).toBe(false);
    const [late, inTime] = [patient(5_000), patient(20_500)];
    for (const request of [late, inTime]) gate.enter(request, nowMs);
    gate.record = { ...gate.record, closedUntilMs: nowMs + 20_000 };
    expect(gate.tooLate(nowMs).map(({ request }) => request)).toEqual([late]);
  });
});

describe('turns that are answered with 429', () => {
  it('turns that are answered with 429 are given back to their caller', () => {
    const gate = new Scheduler<Queued>(options);
    gate.record = { ...openRecord, state: 'paced', perMs: 1, isMeasured: true, crowd: 10, levelMs: -10 };
    gate.record = { ...gate.record, marks: [{ atMs: 0, sent: 0 }], exploreMs: 60_000 };
    const enter = (name: string): void => {
      const flow = { name, weight: 1, background: false };
      gate.enter({ context: { flows: [flow], deadlineMs: 60_000 }, arrivedMs: 0 }, 0);
    };
    const turn = (nowMs: number): Permit | undefined => {
      const next = gate.next(nowMs);
      return next.request && next.permit;
    };
    for (let count = 0; count < 6; count++) enter('refused');
    for (let count = 0; count < 6; count++) enter('other');
    const first = [0, 1, 2, 3].map((nowMs) => turn(nowMs) as Permit);
    expect(first.map(({ flow }) => flow.name).toSorted()).toEqual(['other', 'other', 'refused', 'refused']);
    for (const permit of first)
      gate.settled(permit, permit.flow.name === 'refused' ? { waitMs: undefined } : 'answered', 4);
    const served: string[] = [];
    for (let nowMs = 5; served.length < 4; nowMs++) {
      const permit = turn(nowMs);
      if (permit === undefined) continue;
      served.push(permit.flow.name);
      gate.settled(permit, 'answered', nowMs);
    }
    expect(served.filter((name) => name === 'refused')).toHaveLength(3);
  });
});

describe('an attempt that is under way for longer than a limit is remembered', () => {
  it('an attempt of a forgotten limit closes the gate with its 429, and the gate opens again', () => {
    const gate = new Scheduler<Queued>(options);
    const flow = { name: 'slow', weight: 1, background: false };
    const [first, slow] = [gate.admit([flow], 0) as Permit, gate.admit([flow], 0) as Permit];
    gate.settled(first, { waitMs: undefined }, 10);
    expect(gate.snapshot(70_000).state).not.toBe('closed');

    gate.settled(slow, { waitMs: undefined }, 80_000);
    gate.enter({ context: { flows: [flow], deadlineMs: 100_000 }, arrivedMs: 80_000 }, 80_000);
    const next = gate.next(89_000);
    expect(next.request).toBeDefined();
  });
});

describe('attempts that went up freely', () => {
  it('attempts that went up freely give their caller no turn back when they are answered with 429', () => {
    const gate = new Scheduler<Queued>(options);
    const flowOf = (name: string) => ({ name, weight: 1, background: false });
    const free = Array.from({ length: 7 }, () => gate.admit([flowOf('greedy')], 0) as Permit);
    const enter = (name: string): void => {
      gate.enter({ context: { flows: [flowOf(name)], deadlineMs: 60_000 }, arrivedMs: 1 }, 1);
    };
    for (let i = 0; i < 5; i++) enter('greedy');
    for (const permit of free) gate.settled(permit, { waitMs: undefined }, 10);
    for (let i = 0; i < 5; i++) enter('other');

    const served: string[] = [];
    for (let nowMs = 10; served.length < 6; nowMs++) {
      const next = gate.next(nowMs);
      if (next.request === undefined) continue;
      served.push(next.permit.flow.name);
      gate.settled(next.permit, 'answered', nowMs);
    }
    expect(served.filter((name) => name === 'other')).toHaveLength(3);
  });
});

describe('a guess that grows for an hour without a 429', () => {
  it('a guess that grows for an hour without a 429 still tells when the next turn is due', () => {
    const limit = { perMs: 0.025, isMeasured: false, crowd: 10, crowdMs: 0 };
    const marks = [{ atMs: 0, sent: 0 }];
    const guess = { ...openRecord, ...limit, marks, riseMs: 1 };
    const hourMs = 3_600_000;
    expect(dueMs(takeTurn(takeTurn(guess, hourMs), hourMs), hourMs)).toBeGreaterThanOrEqual(hourMs);
  });
});

describe('attempts that hang', () => {
  /** Lets everything go up that may, and answers nothing. */
  const sendAll = (scheduler: Scheduler<Queued>): string[] => {
    const sent: string[] = [];
    for (let next = scheduler.next(0); next.request !== undefined; next = scheduler.next(0)) {
      sent.push(next.permit.flow.name);
    }
    return sent;
  };
  const queued = (name: string): Queued => ({
    arrivedMs: 0,
    context: { flows: [{ name, weight: 1, background: false }], deadlineMs: 60_000 },
  });

  it('attempts of one caller that hang leave slots to every other caller, for each a share', () => {
    const scheduler = new Scheduler<Queued>(options);
    for (let count = 0; count < 15; count++) scheduler.enter(queued('hanging'), 0);
    const held = sendAll(scheduler).length;
    expect(held).toBeGreaterThan(options.initialWindow / 2);
    expect(held).toBeLessThan(options.initialWindow);
    for (let count = 0; count < 3; count++) scheduler.enter(queued('other'), 0);
    expect(sendAll(scheduler)).toContain('other');
    expect(scheduler.admit([{ name: 'hanging', weight: 1, background: false }], 0)).toBeUndefined();
  });

  it('no flow is looked at while no slot is free, however many wait', () => {
    const gate = new Scheduler<Queued>(options);
    for (let count = 0; count < options.initialWindow; count++)
      gate.admit([{ name: `under way ${count}`, weight: 1, background: false }], 0);
    gate.enter(queued('waiting'), 0);
    const looks = vi.spyOn(gate.queue, 'take');
    expect(gate.next(0)).toEqual({ request: undefined, untilMs: undefined });
    expect(looks).not.toHaveBeenCalled();
  });
});

it('an attempt that has ended is kept by nothing, though others are always under way', () => {
  const gate = new Scheduler<Queued>({ ...options, initialWindow: 64 });
  const underWay: Permit[] = [];
  const bytes = promotedBytesPer(5_000, (number) => {
    const nowMs = 20_000 + number;
    underWay.push(gate.admit([{ name: 'script', weight: 1, background: false }], nowMs) as Permit);
    if (underWay.length <= 32) return;
    gate.settled(underWay.splice((number * 7) % 32, 1)[0] as Permit, 'answered', nowMs);
  });
  expect(bytes).toBeLessThan(50);
});

it("a 429 that another gateway was answered with takes nothing from a caller's own attempts under way", () => {
  const gate = new Scheduler<Queued>(options);
  const flow = { name: 'script', weight: 1, background: false };
  const own = gate.admit([flow], 0) as Permit;
  gate.settled({ flow, sent: own.sent, state: 'open' }, { waitMs: undefined }, 1);
  expect(gate.snapshot(1).inFlight).toBe(1);
  gate.settled(own, 'answered', 2);
  gate.settled(own, 'answered', 3);
  expect(gate.snapshot(3).inFlight).toBe(0);
});
