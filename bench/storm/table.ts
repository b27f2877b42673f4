/** The figures as a table for people. Pure. */
import type { CallerFigures, Figures } from './figures.ts';

const columns = [
  '',
  'goodput',
  'wasted',
  'Jain',
  'caller',
  'demand',
  'share',
  'of accepted',
  'p50',
  'p99',
  'refused',
  'at once',
  'at most',
  'again',
  'failed',
];

/** One side's result: what it is called, its figures, and a line of its own. */
export interface SideResult {
  readonly name: string;
  readonly figures: Figures;
  readonly note: string | undefined;
}

export function tableOf(scenario: string, sides: readonly SideResult[]): string {
  const rows: string[][] = [columns];
  for (const { name, figures } of sides) {
    const shown = figures.callers.length <= 5 ? figures.callers : [summary(figures.callers)];
    shown.forEach((caller, i) => {
      const head =
        i === 0
          ? [name, figures.goodput.toFixed(3), percent(figures.wasted), figures.jain.toFixed(3)]
          : ['', '', '', ''];
      rows.push([
        ...head,
        caller.name,
        percent(caller.demandMet),
        percent(caller.shareMet),
        percent(caller.acceptedShareMet),
        milliseconds(caller.p50Ms),
        milliseconds(caller.p99Ms),
        String(caller.refused),
        caller.refused === 0 ? '' : String(caller.refusedAtOnce),
        caller.refused === 0 ? '' : milliseconds(caller.slowestRefusalMs),
        caller.refused === 0 ? '' : String(caller.refusedAgain),
        String(caller.failed),
      ]);
    });
  }
  const widths = columns.map((_, i) => Math.max(...rows.map((row) => row[i]?.length ?? 0)));
  const lines = rows.map((row) =>
    row
      .map((cell, i) => cell.padEnd(widths[i] ?? 0))
      .join('  ')
      .trimEnd(),
  );
  const notes = sides.flatMap(({ name, note }) => (note === undefined ? [] : [`${name}: ${note}`]));
  return [`\n${scenario}`, ...lines, ...notes].join('\n');
}

/** Many callers in one line: the worst of each. */
function summary(callers: readonly CallerFigures[]): CallerFigures {
  const worst = (of: (caller: CallerFigures) => number): number =>
    callers.reduce((a, c) => Math.min(a, of(c)), 9e9);
  const most = (of: (caller: CallerFigures) => number): number =>
    callers.reduce((a, c) => Math.max(a, of(c)), 0);
  const total = (of: (caller: CallerFigures) => number): number => callers.reduce((a, c) => a + of(c), 0);
  return {
    name: `worst of ${callers.length}`,
    answered: worst((c) => c.answered),
    demandMet: worst((c) => c.demandMet),
    shareMet: worst((c) => c.shareMet),
    acceptedShareMet: worst((c) => c.acceptedShareMet),
    p50Ms: most((c) => c.p50Ms || 0),
    p99Ms: most((c) => c.p99Ms || 0),
    refused: total((c) => c.refused),
    refusedAtOnce: total((c) => c.refusedAtOnce),
    slowestRefusalMs: most((c) => c.slowestRefusalMs),
    refusedAgain: total((c) => c.refusedAgain),
    failed: total((c) => c.failed),
  };
}

function percent(share: number): string {
  return `${(share * 100).toFixed(1)} %`;
}

function milliseconds(ms: number): string {
  return Number.isNaN(ms) ? '–' : `${Math.round(ms)} ms`;
}
