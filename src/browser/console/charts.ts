/** Draws the history, with uPlot. */
import uPlot, { type Axis, type Options, type Scale } from 'uplot';
import { $, clock, make, number, time } from './page.ts';
import type { Point } from './status.ts';

/** A line of a chart: its label, the member of a point, the class of its colour. */
type Line = readonly [label: string, member: string, colour: string];

const lines: Readonly<Record<string, readonly Line[]>> = {
  traffic: [
    ['all', 'requests', 'c1'],
    ['from memory', 'fromMemory', 'c2'],
    ['problems', 'problems', 'c3'],
  ],
  upstream: [
    ['calls', 'attempts', 'c1'],
    ['learned pace', 'pace', 'c5'],
  ],
  times: [
    ['callers p50', 'callerP50', 'c1'],
    ['callers p99', 'callerP99', 'c4'],
    ['upstream p50', 'upstreamP50', 'c2'],
    ['upstream p99', 'upstreamP99', 'c5'],
  ],
  saved: [['saved', 'saved', 'c2']],
};

const heightPx = 170;
/** Fifteen minutes, a point every five seconds. */
const mostPoints = 180;
/** The least time that is drawn, in seconds. */
const leastTime = 0.000_1;

/** By the id of the element that each is drawn in. */
export const charts = new Map<string, uPlot>();
let points: readonly Point[] = [];

/** Draws everything anew. @param all left out: the points that are known */
export function drawAll(all: readonly Point[] = points): void {
  points = all;
  for (const id of Object.keys(lines)) {
    draw(id);
    describe(id);
  }
}

/** What the gateway measured in the last five seconds. */
export function lastPoint(): Point | undefined {
  return points.at(-1);
}

/** Draws one more point. */
export function drawMore(point: Point): void {
  points = [...points, point].slice(-mostPoints);
  for (const id of Object.keys(lines)) {
    // The first few are dots, which a chart with lines does not have.
    if (points.length < 4) draw(id);
    else charts.get(id)?.setData(columns(id));
    describe(id);
  }
}

/** Follows the width of the page and its colours. */
export function followPage(): void {
  addEventListener('resize', () => {
    for (const [id, chart] of charts) chart.setSize({ width: $(id).clientWidth, height: heightPx });
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => drawAll());
}

function columns(id: string): uPlot.AlignedData {
  const values = (lines[id] ?? []).map(([, member]) => points.map((point) => placed(id, point[member])));
  return [points.map(({ at }) => at / 1_000), ...values];
}

/** A time of zero has no place among powers of ten. */
function placed(id: string, value: number | null | undefined): number | null | undefined {
  return id === 'times' && typeof value === 'number' ? Math.max(leastTime, value) : value;
}

function draw(id: string): void {
  charts.get(id)?.destroy();
  charts.set(id, new uPlot(optionsOf(id, $(id).clientWidth), columns(id), $(id)));
}

function optionsOf(id: string, width: number): Options {
  const soft = colourOf('soft', 'color');
  const axis: Axis = {
    stroke: soft,
    font: '12px system-ui',
    grid: { stroke: soft, width: 0.15 },
    ticks: { stroke: soft, width: 0.3 },
  };
  return {
    width,
    height: heightPx,
    legend: { show: false },
    cursor: { show: false },
    padding: [8, 12, 0, 0],
    scales: { x: { range: lastMinutes }, y: id === 'times' ? powersOfTen : fromZero },
    axes: [
      { ...axis, space: 70, size: 34, values: (_chart, ticks) => ticks.map((at) => clockAt(at, ticks)) },
      {
        ...axis,
        ...(id === 'times' ? decades : {}),
        size: 62,
        values: (_chart, ticks) => ticks.map(id === 'times' ? time : plain),
      },
    ],
    series: [
      {},
      ...(lines[id] ?? []).map(([label, , colour]) => ({
        label,
        stroke: colourOf(colour, 'backgroundColor'),
        width: 1.75,
        points: { show: points.length < 3, filter: lonePoints },
      })),
    ],
  };
}

/** The last 15 minutes; of a gateway that has just started, two at least. */
function lastMinutes(): uPlot.Range.MinMax {
  const end = (points.at(-1)?.at ?? Date.now()) / 1_000;
  const first = (points[0]?.at ?? 0) / 1_000;
  return [Math.max(end - 900, Math.min(first, end - 120)), end];
}

const fromZero: Scale = { range: (_chart, _min, max) => [0, max > 0 ? max * 1.1 : 1] };

/** A wait of seconds for the limit must not flatten answers of a millisecond to zero. */
const powersOfTen: Scale = {
  distr: 3,
  range: (_chart, min, max) => [
    10 ** Math.floor(Math.log10(min ?? 0.001)),
    10 ** Math.ceil(Math.log10((max ?? 1) * 1.01)),
  ],
};

/** A tick for each power of ten. */
const decades: Pick<Axis, 'splits' | 'filter'> = {
  splits: (_chart, _axis, from, to) =>
    Array.from({ length: Math.round(Math.log10(to / from)) + 1 }, (_one, power) => from * 10 ** power),
  filter: (_chart, ticks) => ticks,
};

const plain = (value: number): string => number(value, 2);
const clockAt = (at: number, ticks: readonly number[]): string =>
  clock(at * 1_000, (ticks[1] ?? 0) - (ticks[0] ?? 0) < 60);

/** A value without a neighbour makes no line: it gets a dot. */
function lonePoints(chart: uPlot, of: number, isShown: boolean): number[] | null {
  if (isShown) return null;
  const values = chart.data[of] ?? [];
  const has = (at: number): boolean => values[at] !== null && values[at] !== undefined;
  return Array.from(values, (_value, at) => at).filter((at) => has(at) && !has(at - 1) && !has(at + 1));
}

/** What the last point says, in words and beside the colours. */
function describe(id: string): void {
  const last = points.at(-1);
  const items = (lines[id] ?? []).map(([label, member, colour]) => {
    const item = make('span');
    item.append(make('i', '', colour), `${label} ${shown(id, last?.[member])}`);
    return item;
  });
  $(`d-${id}`).replaceChildren(...items);
}

function shown(id: string, value: number | null | undefined): string {
  if (value === null || value === undefined) return '–';
  return id === 'times' ? time(value) : number(value, 1);
}

/** The colour that the style gives to a class. */
function colourOf(className: string, property: 'color' | 'backgroundColor'): string {
  const sample = make('i', '', className);
  document.body.append(sample);
  const colour = getComputedStyle(sample)[property];
  sample.remove();
  return colour;
}
