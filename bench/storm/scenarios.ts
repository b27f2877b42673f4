/** What the storm is run against. */
import type { CallerPlan } from './callers.ts';

export interface Scenario {
  readonly name: string;
  /** Attempts per second that the upstream allows, by the share of the run that has passed. */
  readonly perSecond: (share: number) => number;
  readonly burst: number;
  readonly retryAfterSeconds: number | undefined;
  readonly callers: readonly CallerPlan[];
}

function crowd(times: number): CallerPlan[] {
  return [
    { name: 'greedy', loops: 40 * times, thinkMs: 0, weight: 1 },
    { name: 'dashboard', loops: 4, thinkMs: 300, weight: 1 },
    { name: 'polite', loops: 1, thinkMs: 200, weight: 1 },
  ];
}

function limited(
  name: string,
  perSecond: Scenario['perSecond'],
  burst: number,
  callers: CallerPlan[],
): Scenario[] {
  return [
    { name, perSecond, burst, callers, retryAfterSeconds: undefined },
    { name: `${name}, Retry-After: 1`, perSecond, burst, callers, retryAfterSeconds: 1 },
  ];
}

const thousand = Array.from({ length: 1000 }, (_, i) => {
  return { name: `caller-${i}`, loops: 1, thinkMs: 0, weight: 1 };
});

export const scenarios: readonly Scenario[] = [
  ...limited('50/s', () => 50, 10, crowd(1)),
  ...limited('50/s, 20/s, 50/s', (share) => (share < 1 / 3 || share >= 2 / 3 ? 50 : 20), 10, crowd(1)),
  ...limited('1000 callers at 50/s', () => 50, 10, thousand),
  ...limited('2/s', () => 2, 10, crowd(1)),
  ...limited('2000/s', () => 2000, 400, crowd(4)),
];

/** Run where no name is given: the two that the promise is about. */
export const usual: readonly string[] = ['50/s', '50/s, Retry-After: 1'];
