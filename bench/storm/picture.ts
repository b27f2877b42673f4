/** The picture for docs/rate-limits.md: the first seconds of a storm, as the upstream and the gate saw them. Pure. */
import type { GateMoment } from './callers.ts';

/** The upstream's counts since its start, at a moment (`Date.now()`). */
export interface Counted {
  readonly atMs: number;
  readonly answered: number;
  readonly refused: number;
}

export interface Course {
  readonly counted: readonly Counted[];
  readonly gate: readonly GateMoment[];
  /** What the upstream allows. */
  readonly perSecond: number;
}

/** So much of the storm is shown. */
export const shownSeconds = 15;

const [width, height] = [720, 300];
const plot = { left: 44, top: 56, right: 12, bottom: 40 };
const plotWidth = width - plot.left - plot.right;
const plotHeight = height - plot.top - plot.bottom;

/** Readable on light and dark pages alike. */
export function pictureOf({ counted, gate, perSecond }: Course): string {
  const fromMs = counted[0]?.atMs ?? 0;
  const x = (atMs: number): number => {
    const share = Math.min(Math.max((atMs - fromMs) / 1000 / shownSeconds, 0), 1);
    return round(plot.left + share * plotWidth);
  };
  const bars = counted.slice(1).map((now, i) => {
    const before = counted[i] as Counted;
    const perSecondOf = (count: number): number => (count * 1000) / (now.atMs - before.atMs);
    const answered = perSecondOf(now.answered - before.answered);
    return {
      from: before.atMs,
      to: now.atMs,
      answered,
      all: answered + perSecondOf(now.refused - before.refused),
    };
  });
  const most = Math.ceil(Math.max(perSecond * 1.4, ...bars.map(({ all }) => all)) / 20) * 20;
  const y = (calls: number): number => round(plot.top + plotHeight * (1 - Math.min(calls / most, 1)));
  const bar = (kind: string, from: number, to: number, low: number, high: number): string =>
    high <= low
      ? ''
      : `<rect class="${kind}" x="${x(from)}" y="${y(high)}" width="${round(x(to) - x(from) - 1)}" height="${round(y(low) - y(high))}"/>`;
  const endOf = (i: number): number => gate[i + 1]?.atMs ?? Number.POSITIVE_INFINITY;
  const closings = gate.flatMap(({ atMs, to }, i) =>
    to === 'closed' ? [bar('closed', atMs, endOf(i), 0, most)] : [],
  );
  const pace = gate.flatMap(({ atMs, perSecond: rate }, i) =>
    rate === undefined ? [] : [`M${x(atMs)} ${y(rate)}H${x(endOf(i))}`],
  );
  const step = most > 100 ? 50 : 20;
  const marks = Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step);
  const seconds = Array.from({ length: shownSeconds / 5 + 1 }, (_, i) => i * 5);
  const parts = [
    ...closings,
    ...marks.map((calls) => `<path class="grid" d="M${plot.left} ${y(calls)}h${plotWidth}"/>`),
    ...marks.map(
      (calls) => `<text x="${plot.left - 8}" y="${y(calls) + 4}" text-anchor="end">${calls}</text>`,
    ),
    ...bars.map(({ from, to, answered }) => bar('answered', from, to, 0, answered)),
    ...bars.map(({ from, to, answered, all }) => bar('refused', from, to, answered, all)),
    `<path class="limit" d="M${plot.left} ${y(perSecond)}h${plotWidth}"/>`,
    `<path class="pace" d="${pace.join('')}"/>`,
    ...seconds.map(
      (s) => `<text x="${x(fromMs + s * 1000)}" y="${height - 20}" text-anchor="middle">${s}</text>`,
    ),
    `<text x="${plot.left + plotWidth / 2}" y="${height - 4}" text-anchor="middle">seconds</text>`,
    `<text class="title" x="0" y="18">Calls per second at an upstream that allows ${perSecond}</text>`,
    ...legend(),
  ];
  const label = `Calls per second at the upstream in the first ${shownSeconds} s of a storm, the 429s among them, and the gate's pace`;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${label}">
<style>
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600 }
.answered { fill: #54aeff }
.refused { fill: #cf222e }
.closed { fill: #afb8c1; opacity: .6 }
.grid { stroke: #d0d7de; stroke-width: .5 }
.limit { stroke: #57606a; stroke-dasharray: 5 4; fill: none }
.pace { stroke: #1a7f37; stroke-width: 2.5; fill: none }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .answered { fill: #1f6feb } .refused { fill: #f85149 } .closed { fill: #6e7681 }
.grid { stroke: #30363d } .limit { stroke: #8b949e } .pace { stroke: #3fb950 }
}
</style>
${parts.filter((part) => part !== '').join('\n')}
</svg>
`;
}

function legend(): string[] {
  const swatch = (kind: string, at: number): string =>
    `<rect class="${kind}" x="${at}" y="32" width="12" height="12"/>`;
  const line = (kind: string, at: number): string => `<path class="${kind}" d="M${at} 38h18"/>`;
  const text = (words: string, at: number): string => `<text x="${at}" y="43">${words}</text>`;
  return [
    ...[swatch('answered', 0), text('answered', 18), swatch('refused', 100), text('429', 118)],
    ...[
      swatch('closed', 170),
      text('the gate is closed', 188),
      line('pace', 320),
      text('pace of the gate', 344),
    ],
    ...[line('limit', 470), text('limit', 494)],
  ];
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
