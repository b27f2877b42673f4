import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decideTurns } from '../../src/upstream/gate-policy.ts';
import type { Attempt, Refusal, Ticket, TurnstileOptions } from '../../src/upstream/turnstile.ts';
import { type Figures, type Scenario, seeded, simulate } from '../support/gate-simulation.ts';

const crowd = (times = 1) => [
  { name: 'greedy', loops: 40 * times, thinkMs: 0 },
  { name: 'dashboard', loops: 4, thinkMs: 300 },
  { name: 'polite', loops: 1, thinkMs: 200 },
];
const thousand = Array.from({ length: 1000 }, (_, i) => ({ name: `caller ${i}`, loops: 1, thinkMs: 0 }));
/** As `npm run bench:storm` has it. */
const fifty: Scenario = { seconds: 60, limit: () => 50, burst: 10, latencyMs: 6, callers: crowd() };
const stated: Scenario = { ...fifty, retryAfterMs: 1000 };
const moving = (second: number) => (second < 20 || second >= 40 ? 50 : 20);

const seeds = (count: number) => Array.from({ length: count }, (_, i) => i + 1);
const median = (values: readonly number[]) => values.toSorted((a, b) => a - b)[values.length >> 1] as number;
const shares = ({ callers }: Figures) => [...callers.values()].map(({ done, entitled }) => done / entitled);

interface Bounds {
  goodput: number;
  wasted: number;
  /** The worst-off caller's part of the lesser of its demand and its fair share. */
  share?: number;
  /** Of the dashboard and the polite script, ms. */
  p99?: number;
}

// Deterministic: seeded chance, virtual time. How slowly the first attempts arrive is where runs differ most.
describe('a simulated minute', () => {
  it.each<[string, Scenario, number, Bounds]>([
    ['at 50/s', fifty, 20, { goodput: 0.98, wasted: 0.01, p99: 200, share: 0.95 }],
    ['at 50/s with Retry-After', stated, 20, { goodput: 0.955, wasted: 0.005, p99: 1500, share: 0.95 }],
    ['at 50/s, 100 ms away', { ...fifty, latencyMs: 100 }, 20, { goodput: 0.93, wasted: 0.02 }],
    [
      'at 50/s, then 20/s, then 50/s',
      { ...fifty, limit: moving },
      20,
      { goodput: 0.94, wasted: 0.02, share: 0.93 },
    ],
    [
      'at 50/s, then 20/s, then 50/s, with Retry-After',
      { ...stated, limit: moving },
      20,
      { goodput: 0.85, wasted: 0.01, share: 0.82 },
    ],
    ['at 2/s', { ...fifty, limit: () => 2 }, 20, { goodput: 0.945, wasted: 0.14, share: 0.8 }],
    [
      'at 2/s with Retry-After',
      { ...stated, limit: () => 2 },
      20,
      { goodput: 0.965, wasted: 0.14, share: 0.85 },
    ],
    [
      'at 2000/s',
      { ...fifty, seconds: 20, limit: () => 2000, burst: 400, callers: crowd(4) },
      2,
      { goodput: 0.97, wasted: 0.005 },
    ],
    [
      'at 2000/s with Retry-After',
      { ...stated, seconds: 60, limit: () => 2000, burst: 400, callers: crowd(4) },
      2,
      { goodput: 0.95, wasted: 0.001, share: 0.95 },
    ],
    ...[0.2, 0.3, 0.42, 0.45, 0.48].flatMap((costMs): [string, Scenario, number, Bounds][] => {
      const scenario = { seconds: 30, limit: () => 2000, burst: 400, callers: crowd(4), costMs };
      const most = `${Math.round(1000 / costMs)}/s`;
      return [
        [
          `at 2000/s, sending ${most} at most`,
          { ...fifty, ...scenario },
          2,
          { goodput: 0.97, wasted: 0.005 },
        ],
        [
          `at 2000/s with Retry-After, sending ${most} at most`,
          { ...stated, ...scenario },
          2,
          { goodput: 0.88, wasted: 0.005 },
        ],
      ];
    }),
    ['of a thousand callers', { ...fifty, callers: thousand }, 3, { goodput: 0.97, wasted: 0.012 }],
    [
      'of a thousand callers with Retry-After',
      { ...stated, callers: thousand },
      5,
      { goodput: 0.95, wasted: 0.01 },
    ],
  ])('%s leaves little unused and wastes little', (_, scenario, runs, bounds) => {
    for (const seed of seeds(runs)) {
      const figures = simulate({ ...scenario, seed });
      expect(figures.goodput).toBeGreaterThanOrEqual(bounds.goodput);
      expect(figures.wasted).toBeLessThanOrEqual(bounds.wasted);
      expect(figures.earlySends).toBe(0);
      if (bounds.share !== undefined) {
        expect(Math.min(...shares(figures))).toBeGreaterThanOrEqual(bounds.share);
      }
      if (bounds.p99 === undefined) continue;
      expect(figures.callers.get('dashboard')?.p99).toBeLessThanOrEqual(bounds.p99);
      expect(figures.callers.get('polite')?.p99).toBeLessThanOrEqual(bounds.p99);
    }
  });

  it.each([20, 60, 120])(
    'whose first attempts arrive over %i ms is learned almost as well',
    (slowStartMs) => {
      const runs = seeds(20).map((seed) => simulate({ ...stated, slowStartMs, seed }));
      expect(median(runs.map(({ goodput }) => goodput))).toBeGreaterThanOrEqual(0.93);
      expect(median(runs.map((run) => Math.min(...shares(run))))).toBeGreaterThanOrEqual(0.92);
      for (const { goodput, wasted, closings } of runs) {
        expect(goodput).toBeGreaterThanOrEqual(0.8);
        expect(wasted).toBeLessThanOrEqual(0.01);
        expect(closings).toBeLessThanOrEqual(6);
      }
    },
  );

  it('of any limit and burst is learned, with Retry-After, and none is missed by far', () => {
    const goodputs: number[] = [];
    for (const limit of [30, 46, 71, 100]) {
      for (const burst of [5, 8, 12, 20]) {
        for (const latencyMs of [6, 30]) {
          for (const seed of [1, 2]) {
            const { goodput, wasted } = simulate({
              ...stated,
              limit: () => limit,
              burst,
              latencyMs,
              seed,
              slowStartMs: 40,
            });
            expect(goodput).toBeGreaterThanOrEqual(0.8);
            expect(wasted).toBeLessThanOrEqual(0.02);
            goodputs.push(goodput);
          }
        }
      }
    }
    expect(median(goodputs)).toBeGreaterThanOrEqual(0.94);
  });

  it('with Retry-After costs everybody a second twice to learn the limit, and once more at most', () => {
    for (const limit of [46, 48, 50, 52, 54]) {
      expect(simulate({ ...stated, limit: () => limit }).closings).toBeLessThanOrEqual(3);
    }
  });

  it('of an upstream that takes no two at once uses half of the limit and more', () => {
    const runs = seeds(20).map((seed) => simulate({ ...stated, burst: 1, seed }).goodput);
    expect(median(runs)).toBeGreaterThanOrEqual(0.6);
  });

  it('of demand that fits turns nobody away', () => {
    for (const scenario of [
      fifty,
      stated,
      { ...fifty, callers: thousand },
      { ...stated, callers: thousand },
    ]) {
      for (const slowStartMs of [0, 60]) {
        expect(simulate({ ...scenario, slowStartMs }).turnedAway).toBe(0);
      }
    }
  });

  it('of demand that fits turns hardly anybody away either where it fits only just and one caller has most of it', () => {
    const fits = [
      [2, 40, 1, 20_000],
      [2, 36, 3, 30_000],
      [5, 100, 4, 8000],
      [20, 400, 10, 5000],
      [50, 1000, 20, 5000],
      [50, 900, 40, 10_000],
    ] as const;
    for (const [limit, loops, others, thinkMs] of fits) {
      for (const retryAfterMs of [undefined, 1000]) {
        const callers = [
          { name: 'most', loops, thinkMs: 0 },
          { name: 'others', loops: others, thinkMs },
        ];
        const figures = simulate({ ...fifty, seconds: 120, limit: () => limit, retryAfterMs, callers });
        const which = `${limit}/s, ${loops} loops`;
        expect(figures.turnedAway, which).toBeLessThanOrEqual(2);
        expect(figures.goodput, which).toBeGreaterThanOrEqual(0.94);
      }
    }
  });

  it.each<[string, Scenario, number]>([
    ['forty loops at 2/s', { ...fifty, limit: () => 2 }, 0.3],
    ['a hundred and sixty at 2/s', { ...fifty, seconds: 120, limit: () => 2, callers: crowd(4) }, 0.25],
    ['four hundred at 10/s', { ...fifty, seconds: 120, limit: () => 10, callers: crowd(10) }, 0.25],
    [
      'two callers of two hundred at 10/s',
      {
        ...fifty,
        seconds: 120,
        limit: () => 10,
        callers: [
          { name: 'a', loops: 200, thinkMs: 0 },
          { name: 'b', loops: 200, thinkMs: 500 },
        ],
      },
      0.15,
    ],
    [
      'fifteen hundred callers at 50/s',
      {
        ...fifty,
        callers: [...thousand, ...thousand.slice(500).map((one) => ({ ...one, name: `${one.name}+` }))],
      },
      0.01,
    ],
  ])('of more demand than fits, %s, turns away at once and tells when to come', (_, scenario, again) => {
    for (const retryAfterMs of [undefined, 1000]) {
      for (const seed of seeds(3)) {
        const { turnedAway, waitedInVain, refusedAgain, goodput } = simulate({
          ...scenario,
          retryAfterMs,
          seed,
        });
        expect(turnedAway).toBeGreaterThan(0);
        // Those who came before anything was known are told once it is, and the close calls when they are none.
        const afterHalf = waitedInVain.filter((ms) => ms > 12_500).length;
        expect(afterHalf / turnedAway).toBeLessThanOrEqual(0.3);
        expect(refusedAgain / turnedAway).toBeLessThanOrEqual(again);
        expect(goodput).toBeGreaterThanOrEqual(0.94);
      }
    }
  });

  it('of a caller that comes back whenever it likes harms no other', () => {
    for (const comesBackMs of [100, 1000]) {
      const [, ...others] = crowd();
      const callers = [{ name: 'rude', loops: 400, thinkMs: 0, comesBackMs }, ...others];
      const figures = simulate({ ...fifty, limit: () => 5, callers });
      expect(figures.goodput).toBeGreaterThanOrEqual(0.97);
      expect(figures.isLoneServed).toBe(true);
      expect(Math.min(...shares(figures))).toBeGreaterThanOrEqual(0.9);
    }
  });

  it('keeps nothing from others for a job that has given up', () => {
    const job = { name: 'job', loops: 1000, thinkMs: 0, givesUp: true };
    for (const thinkMs of [0, 5000]) {
      const others = Array.from({ length: 20 }, (_, i) => ({ name: `caller ${i}`, loops: 1, thinkMs }));
      const figures = simulate({ ...fifty, seconds: 600, limit: () => 2, callers: [job, ...others] });
      const done = others.map(({ name }) => figures.callers.get(name)?.done ?? 0);
      expect(others.map(({ name }) => figures.callers.get(name)?.refused)).toEqual(Array(20).fill(0));
      expect(Math.max(...done) - Math.min(...done)).toBeLessThanOrEqual(3);
      expect(figures.goodput).toBeGreaterThanOrEqual(0.97);
    }
  });

  it('stays paced as long as those are expected that were told to come back', () => {
    const callers = [{ name: 'all', loops: 1000, thinkMs: 0 }];
    const figures = simulate({ ...fifty, seconds: 300, limit: () => 10, retryAfterMs: 30_000, callers });
    // Each closing is half a minute.
    expect(figures.closings).toBeLessThanOrEqual(3);
    expect(figures.goodput).toBeGreaterThanOrEqual(0.65);
  });

  it('of a slow upstream with a large burst keeps nobody waiting for a reserve of it', () => {
    const large = simulate({ ...fifty, seconds: 200, limit: () => 10, burst: 600 });
    expect(large.turnedAway).toBe(0);
    expect(large.goodput).toBeGreaterThanOrEqual(0.99);
    expect(Math.min(...shares(large))).toBeGreaterThanOrEqual(0.95);
    const callers = [
      { name: 'most', loops: 3, thinkMs: 0 },
      { name: 'others', loops: 2, thinkMs: 300 },
    ];
    expect(simulate({ ...fifty, seconds: 400, limit: () => 1, burst: 200, callers }).turnedAway).toBe(0);
  });

  it('is not taken for a tenth of itself for long, where the first burst told too little', () => {
    for (const seed of seeds(20)) {
      const { goodput } = simulate({ ...fifty, limit: () => 300, retryAfterMs: 5000, slowStartMs: 60, seed });
      expect(goodput).toBeGreaterThanOrEqual(0.5);
    }
  });

  it('of an upstream without a limit lets everything through', () => {
    const { goodput, wasted } = simulate({ ...fifty, seconds: 10, limit: () => 1e6, burst: 1e6 });
    expect(goodput).toBeGreaterThan(0.95);
    expect(wasted).toBe(0);
  });
});

describe('a limit not far below what this side can send at most', () => {
  const limits = [200, 500, 1000, 1500].flatMap((limit) =>
    [20, 100, 400, 1000].flatMap((burst) =>
      [0.3, 0.45, 0.8].map((costMs) => [limit, burst, costMs] as const),
    ),
  );
  // Half a minute, learning included: with a stated wait, each closing is a thirtieth of it.
  it.each([
    [undefined, 0.92],
    [1_000, 0.7],
  ])('is learned whatever the burst, where a 429 states %s ms', (retryAfterMs, least) => {
    for (const [limit, burst, costMs] of limits.filter(([limit, , costMs]) => limit * costMs < 1_000)) {
      const scenario = {
        ...fifty,
        seconds: 30,
        limit: () => limit,
        burst,
        callers: crowd(4),
        costMs,
        retryAfterMs,
      };
      const { goodput, wasted } = simulate(scenario);
      const which = `${limit}/s, burst ${burst}, ${costMs} ms each`;
      expect(goodput, which).toBeGreaterThanOrEqual(least);
      expect(wasted, which).toBeLessThanOrEqual(0.03);
    }
  });
});

describe('a limit that is hardly any', () => {
  const loops = (count: number) =>
    Array.from({ length: count }, (_, i) => ({ name: `caller ${i}`, loops: 1, thinkMs: 200 }));
  const expectSense = (figures: Figures, goodput: number, name: string): void => {
    for (const ms of figures.told) expect(ms, name).toBeLessThanOrEqual(150_000); // not NaN either
    expect(figures.isLoneServed, name).toBe(true);
    expect(figures.earlySends, name).toBe(0);
    expect(figures.goodput, name).toBeGreaterThanOrEqual(goodput);
  };

  it.each([undefined, 1000, 3000, 10_000])(
    'locks nobody out, whatever its burst, and where a 429 asks for %s ms',
    (retryAfterMs) => {
      for (const limit of [0.2, 0.5, 1, 2, 5, 10, 50]) {
        for (const burst of [1, 2, 5, 10, 50]) {
          for (const count of [3, 12]) {
            const callers = loops(count);
            const scenario = { seconds: 120, limit: () => limit, burst, retryAfterMs, latencyMs: 6, callers };
            const name = `${limit}/s, burst ${burst}, ${count} callers`;
            expectSense(simulate(scenario), retryAfterMs === 10_000 ? 0.18 : 0.4, name);
          }
        }
      }
    },
  );

  it.each([true, false])(
    'and is of so many per window locks nobody out and is used, whether a 429 states the wait: %s',
    (statesWindow) => {
      for (const [limit, windowSeconds] of [
        [50, 1],
        [10, 10],
        [1, 60],
        [10, 60],
      ] as const) {
        for (const count of [3, 10, 40]) {
          const figures = simulate({
            seconds: 360,
            limit: () => limit,
            burst: 1,
            windowSeconds,
            statesWindow,
            latencyMs: 6,
            callers: loops(count),
          });
          expectSense(figures, 0.84, `${limit}/s in windows of ${windowSeconds} s, ${count} callers`);
          expect(figures.wasted).toBeLessThan(0.25);
        }
      }
    },
  );
});

const options: TurnstileOptions = {
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
  | { kind: 'answer'; which: number; status: 'ok' | 'broken' | 'lost' }
  | { kind: 'refuse'; which: number; waitMs: number | undefined }
  | { kind: 'leave'; which: number }
  | { kind: 'move'; which: number };

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('ask' as const),
      caller: fc.nat(4),
      patienceMs: fc.integer({ min: 1, max: 60_000 }),
      background: fc.boolean(),
    }),
  },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('pass' as const), ms: fc.nat(3000) }) },
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constant('answer' as const),
      which: fc.nat(99),
      status: fc.constantFrom('ok' as const, 'ok' as const, 'broken' as const, 'lost' as const),
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

interface Changing extends Ticket {
  turn: { name: string; weight: number; background: boolean };
}

describe('the turnstile under any history', () => {
  it('sends nothing before the time the upstream stated, loses no turn, doubles none, and ends by serving all', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 300 }), (steps) => {
        const gate = decideTurns<Changing>(options);
        const waiting = new Set<Changing>();
        const under = new Set<Attempt>();
        let now = 0;
        let statedUntilMs = 0;
        const pump = (): number | undefined => {
          for (;;) {
            const next = gate.next(now);
            if (next.kind === 'wait') return next.untilMs;
            expect(now).toBeGreaterThanOrEqual(statedUntilMs);
            expect(waiting.delete(next.ticket)).toBe(true);
            under.add(next.attempt);
            expect(under.size).toBeLessThanOrEqual(options.maxInFlight);
            expect([...under].filter(({ state }) => state === 'probe').length).toBeLessThanOrEqual(1);
          }
        };
        /** Not NaN either. */
        const expectSensible = ({ retryAfterMs }: Refusal): void => {
          expect(retryAfterMs).toBeGreaterThanOrEqual(1000);
          expect(retryAfterMs).toBeLessThanOrEqual(600_000);
        };
        const gone = (tickets: readonly { ticket: Changing; refusal: Refusal }[]): void => {
          for (const { ticket, refusal } of tickets) {
            expect(waiting.delete(ticket)).toBe(true);
            expectSensible(refusal);
          }
        };
        const pickOf = <T>(set: Set<T>, which: number): T | undefined =>
          [...set][which % Math.max(set.size, 1)];
        for (const one of steps) {
          if (one.kind === 'pass') now += one.ms;
          else if (one.kind === 'ask') {
            const ticket: Changing = {
              turn: { name: `c${one.caller}`, weight: 1 + one.caller, background: one.background },
              arrivedMs: now,
              deadlineMs: now + one.patienceMs,
            };
            const { refusal, displaced } = gate.enter(ticket, now);
            if (refusal === undefined) waiting.add(ticket);
            else expectSensible(refusal);
            if (displaced !== undefined) gone([displaced]);
          } else if (one.kind === 'leave' || one.kind === 'move') {
            const ticket = pickOf(waiting, one.which);
            if (ticket === undefined) continue;
            if (one.kind === 'leave') {
              expect(gate.leave(ticket)).toBe(true);
              waiting.delete(ticket);
            } else {
              ticket.turn = { ...ticket.turn, name: `c${one.which % 5}`, background: false };
              gate.moved(ticket);
            }
          } else {
            const attempt = pickOf(under, one.which);
            if (attempt === undefined) continue;
            under.delete(attempt);
            if (one.kind === 'refuse') {
              if (one.waitMs !== undefined) statedUntilMs = Math.max(statedUntilMs, now + one.waitMs);
              gone(gate.settled(attempt, { kind: 'refused', waitMs: one.waitMs }, now));
            } else if (one.status === 'lost') gone(gate.settled(attempt, { kind: 'failed' }, now));
            else gone(gate.settled(attempt, { kind: 'answered', isHealthy: one.status === 'ok' }, now));
          }
          pump();
          const { waiting: line, inFlight } = gate.snapshot(now);
          expect(line).toBe(waiting.size);
          expect(inFlight).toBe(under.size);
          expect(line).toBeLessThanOrEqual(options.maxWaiting);
        }
        // From now on the upstream accepts everything: everybody gets a turn, people before background work.
        for (let round = 0; waiting.size > 0 || under.size > 0; round++) {
          expect(round).toBeLessThan(5000);
          for (const attempt of under) gate.settled(attempt, { kind: 'answered', isHealthy: true }, now);
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
        expect(gate.snapshot(now)).toMatchObject({ state: 'open', closedForMs: 0, statedWaitMs: 0 });
        expect(gate.admit({ name: 'lone', weight: 1, background: false }, now)).toBeDefined();
      }),
      { numRuns: 2000, seed: 4 },
    );
  });
});

describe('the crowd that runs into the limit first', () => {
  it('has had turns: who took most of the burst goes last from then on', () => {
    const gate = decideTurns<Ticket>({ ...options, initialWindow: 8 });
    const turnOf = (name: string) => ({ name, weight: 1, background: false });
    const admit = (name: string, nowMs: number): Attempt => gate.admit(turnOf(name), nowMs) as Attempt;
    // Long ago, and so of no account.
    for (let i = 0; i < 3; i++) {
      gate.settled(admit('steady', 0), { kind: 'answered', isHealthy: true }, 10);
    }
    const burst = ['greedy', 'greedy', 'greedy', 'greedy', 'steady'].map((name) => admit(name, 10_000));
    const refused = admit('greedy', 10_001);
    for (const attempt of burst) gate.settled(attempt, { kind: 'answered', isHealthy: true }, 10_010);
    for (const name of ['greedy', 'greedy', 'steady', 'steady', 'steady']) {
      const later = { turn: turnOf(name), arrivedMs: 10_010, deadlineMs: 60_000 };
      expect(gate.enter(later, 10_010).refusal).toBeUndefined();
    }
    gate.settled(refused, { kind: 'refused', waitMs: undefined }, 10_011);
    let served = '';
    for (let nowMs = 10_011; nowMs < 20_000; nowMs++) {
      for (let next = gate.next(nowMs); next.kind === 'go'; next = gate.next(nowMs)) {
        served += next.ticket.turn.name[0];
        gate.settled(next.attempt, { kind: 'answered', isHealthy: true }, nowMs);
      }
    }
    expect(served).toBe('sssgg');
  });
});

describe('who is turned away', () => {
  /** A gate that knows a pace of about 10/s, with a line of `length` of one caller. */
  function learned(length: number) {
    const gate = decideTurns<Ticket>({
      ...options,
      maxWaiting: 5000,
      maxWaitingPerCaller: 5000,
      random: () => 0,
    });
    const random = seeded(3);
    let now = 0;
    let tokens = 5;
    let lastMs = 0;
    const ticketFor = (name: string, patienceMs = 1e6): Ticket => ({
      turn: { name, weight: 1, background: false },
      arrivedMs: now + random() * 1e-6,
      deadlineMs: now + patienceMs,
    });
    const line = (): number => gate.snapshot(now).waiting;
    const run = (untilMs: number, keep: number): void => {
      for (; now < untilMs; now++) {
        while (line() < keep) gate.enter(ticketFor('greedy'), now);
        for (let next = gate.next(now); next.kind === 'go'; next = gate.next(now)) {
          tokens = Math.min(5, tokens + (now - lastMs) / 100);
          lastMs = now;
          if (tokens < 1) gate.settled(next.attempt, { kind: 'refused', waitMs: undefined }, now);
          else {
            tokens -= 1;
            gate.settled(next.attempt, { kind: 'answered', isHealthy: true }, now);
          }
          while (line() < keep) gate.enter(ticketFor('greedy'), now);
        }
      }
    };
    run(60_000, length);
    return { gate, ticketFor, run, now: () => now };
  }

  it('is told so at once when its turn comes too late, and is served when it comes back as told', () => {
    const { gate, ticketFor, run, now } = learned(200);
    expect(gate.enter(ticketFor('polite', 10_000), now()).refusal).toBeUndefined();
    const refusals = Array.from({ length: 30 }, () => gate.enter(ticketFor('greedy', 10_000), now()).refusal);
    for (const refusal of refusals) expect(refusal?.code).toBe('upstream-rate-limited');
    const told = refusals.map((refusal) => now() + (refusal?.retryAfterMs ?? 0));
    // Thirty turns at ten a second: not all for the same place.
    expect((told.at(-1) as number) - (told[0] as number)).toBeGreaterThanOrEqual(2000);
    for (const atMs of told) {
      run(atMs, 0);
      expect(gate.enter(ticketFor('greedy', 10_000), now()).refusal).toBeUndefined();
    }
  });

  it('is told at its deadline when one like it would be served, not just to try again', () => {
    const { gate, ticketFor, now } = learned(200);
    const { retryAfterMs } = gate.expired(ticketFor('greedy', 10_000), now());
    // Two hundred at ten a second, of which it can wait for half.
    expect(retryAfterMs).toBeGreaterThan(8000);
    expect(retryAfterMs).toBeLessThan(13_000);
    expect(gate.expired(ticketFor('polite', 10_000), now()).retryAfterMs).toBeLessThanOrEqual(2000);
  });

  it('is nobody while the pace is a mere guess', () => {
    const gate = decideTurns<Ticket>({ ...options, maxWaiting: 5000, maxWaitingPerCaller: 5000 });
    const ticket = (): Ticket => ({
      turn: { name: 'a', weight: 1, background: false },
      arrivedMs: 0,
      deadlineMs: 25_000,
    });
    gate.enter(ticket(), 0);
    const next = gate.next(0);
    if (next.kind === 'go') gate.settled(next.attempt, { kind: 'refused', waitMs: undefined }, 10);
    for (let i = 0; i < 1000; i++) expect(gate.enter(ticket(), 10).refusal).toBeUndefined();
  });
});
