/**
 * The simulated figures of the README: the gate's rules on a virtual clock, against buckets and windows.
 *
 *   node bench/simulated.ts
 */
import { type Figures, type Scenario, simulate } from '../test/support/gate-simulation.ts';

const crowd = [
  { name: 'greedy', loops: 40, thinkMs: 0 },
  { name: 'dashboard', loops: 4, thinkMs: 300 },
  { name: 'polite', loops: 1, thinkMs: 200 },
];
const fifty: Scenario = { seconds: 60, limit: () => 50, burst: 10, latencyMs: 6, callers: crowd };
const runs = 20;

function repeat(scenario: Scenario): Figures[] {
  return Array.from({ length: runs }, (_, i) => simulate({ ...scenario, seed: i + 1 }));
}

function loops(count: number) {
  return Array.from({ length: count }, (_, i) => ({ name: `caller ${i}`, loops: 1, thinkMs: 200 }));
}

function medianAndLeast(values: readonly number[]): string {
  const sorted = values.toSorted((a, b) => a - b);
  return `${sorted[(sorted.length - 1) >> 1]?.toFixed(3)} (least ${sorted[0]?.toFixed(3)})`;
}

function worstShare({ callers }: Figures): number {
  return Math.min(...[...callers.values()].map(({ done, entitled }) => done / entitled));
}

function print(name: string, figures: readonly Figures[]): void {
  const goodput = medianAndLeast(figures.map((one) => one.goodput));
  const worst = medianAndLeast(figures.map(worstShare));
  const wasted = medianAndLeast(figures.map((one) => one.wasted));
  process.stdout.write(`${name}: goodput ${goodput}, worst-off ${worst}, wasted ${wasted}\n`);
}

for (const slowStartMs of [undefined, 20, 60]) {
  const scenario = { ...fifty, retryAfterMs: 1000, ...(slowStartMs !== undefined && { slowStartMs }) };
  print(`50/s, Retry-After: 1, first attempts over ${slowStartMs ?? 0} ms`, repeat(scenario));
}
for (const [limit, windowSeconds] of [
  [50, 1],
  [10, 10],
  [1, 60],
  [10, 60],
] as const) {
  for (const statesWindow of [true, false]) {
    for (const count of [3, 10, 40]) {
      const windows = { seconds: 360, limit: () => limit, burst: 1, windowSeconds, statesWindow };
      const figures = simulate({ ...fifty, ...windows, callers: loops(count) });
      print(
        `${limit * windowSeconds} per ${windowSeconds} s${statesWindow ? ', stated' : ''}, ${count} loops`,
        [figures],
      );
    }
  }
}
for (const [limit, retryAfterMs] of [
  [50, undefined],
  [2, undefined],
  [2, 1000],
] as const) {
  const name = `${limit}/s, burst of one, ${retryAfterMs === undefined ? 'no Retry-After' : 'Retry-After: 1'}`;
  print(name, repeat({ ...fifty, limit: () => limit, burst: 1, retryAfterMs }));
}
for (const seconds of [120, 360]) {
  const slow = { seconds, limit: () => 0.5, burst: 1, retryAfterMs: 10_000, callers: loops(3) };
  print(`0.5/s, burst of one, Retry-After: 10, ${seconds} s`, [simulate({ ...fifty, ...slow })]);
}
