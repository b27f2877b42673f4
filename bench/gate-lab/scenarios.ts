/** What the laboratory measures, with the least that must come out of it. */
import type { Scenario, SimulatedCaller } from '../../test/support/gate-simulation.ts';

export interface Floors {
  readonly goodput?: number;
  readonly wasted?: number;
  /** Of the dashboard and the polite script, ms. */
  readonly lightP99Ms?: number;
  /** Of all callers, ms. */
  readonly p99Ms?: number;
  /** The worst-off caller's part of its max-min share, where shares are 20 answers or more. */
  readonly share?: number;
  readonly turnedAway?: number;
  /** Of the polite script's reads. */
  readonly politeTurnedAway?: number;
  /** Accepted in the last minute, as a share of what was accepted in the second minute. */
  readonly lasting?: number;
  /** What the dashboard gets, as a share of what one gate gives it. */
  readonly dashboardToOneGate?: number;
}

export interface Row {
  readonly name: string;
  readonly scenario: Scenario;
  /** Goodput and 429s of the first design, as recorded. */
  readonly before: string;
  readonly floors: Floors;
  /** The least of so many seeds counts, instead of the median. */
  readonly isLeast?: boolean;
}

const crowd = (times = 1): SimulatedCaller[] => [
  { name: 'greedy', loops: 40 * times, thinkMs: 0 },
  { name: 'dashboard', loops: 4, thinkMs: 300 },
  { name: 'polite', loops: 1, thinkMs: 200 },
];
const thousand = Array.from({ length: 1000 }, (_, i) => ({ name: `caller ${i}`, loops: 1, thinkMs: 0 }));
const ten = Array.from({ length: 10 }, (_, i) => ({ name: `caller ${i}`, loops: 1, thinkMs: 200 }));
export const fifty: Scenario = { seconds: 60, limit: () => 50, burst: 10, latencyMs: 6, callers: crowd() };
const moving = (second: number): number => (second < 20 || second >= 40 ? 50 : 20);
const noLimit = { limit: () => 1e6, burst: 1e6 };
const strays = { ...fifty, ...noLimit, seconds: 600, straySeconds: 20 };
const sixty = [{ name: 'loops', loops: 60, thinkMs: 500 }];
const noisy = [
  { name: 'most', loops: 40, thinkMs: 480 },
  { name: 'others', loops: 10, thinkMs: 480 },
];
const open = [{ name: 'arrivals', loops: 0, thinkMs: 0, perSecond: 115 }];
const windows = { ...fifty, seconds: 360, limit: () => 1, burst: 1, windowSeconds: 60, callers: ten };
const slow = { seconds: 120, limit: () => 20, burst: 5 };
const three = { ...fifty, gates: 3, latencyMs: 30 };

/** A scenario without a stated wait, and one where each 429 states a second. */
function both(name: string, scenario: Scenario, before: [string, string], floors: [Floors, Floors]): Row[] {
  const stated = { ...scenario, retryAfterMs: 1000 };
  return [
    { name, scenario, before: before[0], floors: floors[0] },
    { name: `${name}, Retry-After: 1`, scenario: stated, before: before[1], floors: floors[1] },
  ];
}

const a = (most: number, window: '1s' | '1m' | '1d') => ({
  ...{ most, window },
  windowMs: { '1s': 1_000, '1m': 60_000, '1d': 86_400_000 }[window],
});
type Told = ReturnType<typeof a>;
/** The operator has told these limits. */
const told = (...limits: Told[]) => ({ options: { limits } });
/** And the upstream counts as told, in any window. */
const toldAndTrue = (...limits: Told[]) => ({ ...fifty, ...told(...limits), anyWindows: limits });
const minutes = { seconds: 360, callers: ten };
const greedyAndPolite = [
  { name: 'greedy', loops: 10, thinkMs: 0 },
  { name: 'polite', loops: 1, thinkMs: 300_000 },
];

const toldRows: readonly Row[] = [
  {
    name: 'told and true, 50/1s',
    scenario: toldAndTrue(a(50, '1s')),
    before: '–',
    floors: { goodput: 0.97, wasted: 0, share: 0.8 },
  },
  {
    name: 'told and true, 50/1s, both sides stall for up to 100 ms',
    scenario: { ...toldAndTrue(a(50, '1s')), stallMs: 100 },
    before: '–',
    floors: { goodput: 0.85, wasted: 0 },
  },
  {
    name: 'told and true, 60/1m, 360 s',
    scenario: { ...toldAndTrue(a(60, '1m')), ...minutes },
    before: '–',
    floors: { goodput: 0.97, wasted: 0 },
  },
  {
    name: 'told 60/1m, fixed windows, 360 s',
    scenario: { ...windows, ...told(a(60, '1m')) },
    before: '–',
    floors: { goodput: 0.97, wasted: 0 },
  },
  {
    name: 'told and true, two windows: 10/1s, 200/1m, 240 s',
    scenario: { ...toldAndTrue(a(10, '1s'), a(200, '1m')), seconds: 240 },
    before: '–',
    floors: { goodput: 0.97, wasted: 0 },
  },
  {
    name: 'told too high: 100/1s, true 50/s, burst 10',
    scenario: { ...fifty, ...told(a(100, '1s')) },
    before: '0.991, 0.8 % (not told)',
    floors: { goodput: 0.97, wasted: 0.01, lightP99Ms: 200, share: 0.85 },
  },
  {
    name: 'told too low: 25/1s, true 50/1s (half is used)',
    scenario: { ...toldAndTrue(a(50, '1s')), ...told(a(25, '1s')) },
    before: '–',
    floors: { goodput: 0.48, wasted: 0 },
  },
  {
    name: 'others use 1/s of 600/1m, a tenth is reserved, 360 s',
    scenario: { ...fifty, ...minutes, ...told(a(540, '1m')), anyWindows: [a(600, '1m')], othersPerSecond: 1 },
    before: '–',
    floors: { goodput: 0.97, wasted: 0 },
  },
  {
    name: 'others use 1/s of 600/1m, nothing is reserved, 360 s',
    scenario: {
      ...{ ...fifty, ...minutes, ...told(a(600, '1m')), anyWindows: [a(600, '1m')], othersPerSecond: 1 },
      statesWindow: true,
    },
    before: '–',
    floors: { goodput: 0.85, wasted: 0.05 },
  },
  {
    name: 'a day: 60/1m, 2000/1d, a greedy and a polite caller',
    scenario: { ...toldAndTrue(a(60, '1m'), a(2000, '1d')), seconds: 86_400, callers: greedyAndPolite },
    before: '–',
    floors: { goodput: 0.97, wasted: 0, lightP99Ms: 1000, politeTurnedAway: 0 },
  },
];

const lies = ['constant', 'per path', 'of others', 'reset runs ahead'] as const;
const fixed = { ...fifty, ...minutes, limit: () => 1, burst: 1, windowSeconds: 60, statesWindow: true };
const tenfold = { ...fixed, limit: () => 10, callers: crowd() };
/** Six windows, and at most one 429 in each. */
const oneAMinute = (attempts: number): number => 6 / attempts;

const heardRows: readonly Row[] = [
  {
    name: 'fields heard, 60 a minute, 360 s',
    scenario: { ...fixed, fields: 'true' },
    before: '1.00, 10 % (429s alone)',
    floors: { goodput: 0.95, wasted: oneAMinute(360) },
  },
  {
    name: 'fields heard, 600 a minute, greedy callers, 360 s',
    scenario: { ...tenfold, fields: 'true' },
    before: '–',
    floors: { goodput: 0.95, wasted: oneAMinute(3600), lightP99Ms: 6000 },
  },
  {
    name: 'fields heard, 600 a minute, 100 ms away, both sides stall',
    scenario: { ...tenfold, fields: 'true', latencyMs: 100, stallMs: 100 },
    before: '–',
    floors: { goodput: 0.95, wasted: oneAMinute(3600) },
  },
  ...lies.map((fields) => ({
    name: `fields that lie (${fields}), 600 a minute, 360 s`,
    scenario: { ...tenfold, fields },
    before: '1.00, 1.5 % (no fields)',
    floors: { goodput: 0.95, wasted: 0.03 },
  })),
];

const threeTold = { ...toldAndTrue(a(50, '1s')), gates: 3 };
const fleetRows: readonly Row[] = [
  {
    name: 'told and true, 50/1s, three gates with a store',
    scenario: { ...threeTold, store: { latencyMs: 1 } },
    before: '–',
    floors: { goodput: 0.97, wasted: 0 },
  },
  {
    name: 'told and true, 50/1s, three gates whose store is away for a third of the time',
    scenario: { ...threeTold, store: { latencyMs: 1, away: { fromMs: 20_000, toMs: 40_000 } } },
    before: '–',
    floors: { goodput: 0.96, wasted: 0 },
  },
];

export const rows: readonly Row[] = [
  ...fleetRows,
  ...toldRows,
  ...heardRows,
  ...both(
    '50/s, burst 10',
    fifty,
    ['0.991, 0.8 %', '0.961, 0.4 %'],
    [
      { goodput: 0.97, wasted: 0.01, lightP99Ms: 200, share: 0.85 },
      { goodput: 0.92, wasted: 0.007, lightP99Ms: 1200, share: 0.8 },
    ],
  ),
  ...both(
    '50/s, both sides stall for up to 100 ms',
    { ...fifty, stallMs: 100 },
    ['–', '–'],
    [{ goodput: 0.93, share: 0.85 }, { goodput: 0.85 }],
  ),
  ...both(
    '100 ms away',
    { ...fifty, latencyMs: 100 },
    ['0.973', '0.890'],
    [{ goodput: 0.93, share: 0.85 }, { goodput: 0.75 }],
  ),
  ...both(
    '50/s, 20/s, 50/s',
    { ...fifty, limit: moving },
    ['0.973', '0.907'],
    [{ goodput: 0.9, share: 0.85 }, { goodput: 0.72 }],
  ),
  ...both(
    '2/s, burst 10',
    { ...fifty, limit: () => 2 },
    ['0.985, 12 %', '0.985'],
    [
      { goodput: 0.94, wasted: 0.2, share: 0.85 },
      { goodput: 0.9, share: 0.8 },
    ],
  ),
  {
    name: '2000/s, burst 400, 20 s',
    scenario: { ...fifty, seconds: 20, limit: () => 2000, burst: 400, callers: crowd(4) },
    before: '0.979',
    floors: { goodput: 0.8 },
  },
  ...both(
    '1000 callers',
    { ...fifty, callers: thousand },
    ['0.991', '0.961'],
    [
      { goodput: 0.97, turnedAway: 0 },
      { goodput: 0.92, turnedAway: 0 },
    ],
  ),
  ...both(
    '50/s, burst of one',
    { ...fifty, burst: 1 },
    ['0.841', '0.859'],
    [{ goodput: 0.75 }, { goodput: 0.75 }],
  ),
  {
    name: '10/s, burst 100, 120 s',
    scenario: { ...fifty, seconds: 120, limit: () => 10, burst: 100 },
    before: '0.995, 4 %',
    floors: { goodput: 0.95, wasted: 0.05, share: 0.85 },
  },
  {
    name: '5/s, burst 2, Retry-After: 3',
    scenario: { ...fifty, limit: () => 5, burst: 2, retryAfterMs: 3000 },
    before: '0.404',
    floors: { goodput: 0.6 },
  },
  {
    name: '60 a minute in fixed windows, stated, 360 s',
    scenario: { ...windows, statesWindow: true },
    before: '1.00, 10 %',
    floors: { goodput: 0.9, wasted: 0.12 },
  },
  {
    name: '60 a minute in fixed windows, not stated, 360 s',
    scenario: windows,
    before: '1.00, 21 %',
    floors: { goodput: 0.9, wasted: 0.25 },
  },
  ...both(
    'a stray 429 every 20 s, no limit, 600 s',
    { ...strays, callers: sixty },
    ['0.996', '0.826, sinking'],
    [
      { goodput: 0.95, lasting: 1 },
      { goodput: 0.93, lasting: 1 },
    ],
  ),
  {
    name: 'the same, open arrivals of 115/s, Retry-After: 1',
    scenario: { ...strays, callers: open, retryAfterMs: 1000 },
    before: 'p99 25 s (over sockets)',
    floors: { p99Ms: 2500 },
  },
  ...both(
    'three gates in turn, 30 ms away (least of three)',
    three,
    ['0.80, 3.5 %', '0.76'],
    [
      { goodput: 0.83, wasted: 0.025, dashboardToOneGate: 0.8 },
      { goodput: 0.72, dashboardToOneGate: 0.8 },
    ],
  ).map((row) => ({ ...row, isLeast: true })),
  ...both(
    '0.5 % refused at random, no limit, 100/s, 20 ms away',
    { ...fifty, ...noLimit, latencyMs: 20, noise: 0.005, callers: noisy },
    ['0.60', '0.39'],
    [{ goodput: 0.7 }, { goodput: 0.3 }],
  ),
  ...both(
    '20/s, burst 5, 300 ms away, 120 s',
    { ...fifty, ...slow, latencyMs: 300 },
    ['–', '–'],
    [
      { goodput: 0.88, wasted: 0.03 },
      { goodput: 0.82, wasted: 0.02 },
    ],
  ),
  ...both(
    '20/s, burst 5, a second away, 120 s',
    { ...fifty, ...slow, latencyMs: 1000 },
    ['–', '–'],
    [
      { goodput: 0.65, wasted: 0.2 },
      { goodput: 0.65, wasted: 0.06 },
    ],
  ),
];
