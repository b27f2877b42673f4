/** The laboratory's table: what was measured, beside the first design and the floors. Pure. */
import type { Measured } from './measure.ts';
import type { Floors, Row } from './scenarios.ts';

type Figure = keyof Floors;

const isMost: ReadonlySet<Figure> = new Set([
  'wasted',
  'lightP99Ms',
  'p99Ms',
  'turnedAway',
  'politeTurnedAway',
]);
const labels: Record<Figure, string> = {
  goodput: 'goodput',
  wasted: '429s',
  lightP99Ms: 'light p99',
  p99Ms: 'p99',
  share: 'worst-off',
  turnedAway: 'turned away',
  politeTurnedAway: 'polite turned away',
  lasting: 'last minute',
  dashboardToOneGate: 'dashboard',
};

export interface Result {
  readonly line: string;
  /** What falls short of its floor. */
  readonly missed: readonly string[];
}

export function resultOf(row: Row, runs: readonly Measured[]): Result {
  const pick = (figure: Figure): number => {
    const sorted = runs.map((run) => run[figure]).toSorted((a, b) => a - b);
    const worst = isMost.has(figure) ? sorted.length - 1 : 0;
    return sorted[row.isLeast ? worst : sorted.length >> 1] as number;
  };
  const figures = Object.keys(row.floors) as Figure[];
  const missed = figures
    .filter((figure) => {
      const floor = row.floors[figure] as number;
      // A minute of a closed loop varies by this much by itself.
      if (figure === 'lasting') return pick(figure) < floor - 0.01;
      return isMost.has(figure) ? pick(figure) > floor : pick(figure) < floor;
    })
    .map((figure) => labels[figure]);
  if (runs.some(({ earlySends }) => earlySends > 0)) missed.push('sent before a stated time');
  if (runs.some(({ isLoneServed }) => !isLoneServed)) missed.push('a lone caller is not served');
  const shown = new Set<Figure>(['goodput', 'wasted', ...figures]);
  const now = [...shown].map((figure) => `${labels[figure]} ${text(figure, pick(figure))}`);
  const floors = figures.map(
    (figure) =>
      `${labels[figure]} ${isMost.has(figure) ? '≤' : '≥'} ${text(figure, row.floors[figure] as number)}`,
  );
  const verdict = missed.length === 0 ? 'met' : `MISSED: ${missed.join(', ')}`;
  return {
    line: `| ${[row.name, row.before, now.join(', '), floors.join(', '), verdict].join(' | ')} |`,
    missed,
  };
}

function text(figure: Figure, value: number): string {
  if (figure === 'wasted') return `${(value * 100).toFixed(1)} %`;
  if (figure === 'turnedAway' || figure === 'politeTurnedAway') return String(value);
  return figure === 'lightP99Ms' || figure === 'p99Ms' ? `${Math.round(value)} ms` : value.toFixed(3);
}

export const head = '| scenario | first design | now | floor | |\n|---|---|---|---|---|';
