/** The part of the console's script that draws charts, with uPlot. */
export const chartsScript = `
const series = {
  traffic: [['all', 'requests', 1], ['from memory', 'fromMemory', 2], ['problems', 'problems', 3]],
  upstream: [['calls', 'attempts', 1], ['learned pace', 'pace', 5]],
  times: [['callers p50', 'callerP50', 1], ['callers p99', 'callerP99', 4], ['upstream p50', 'upstreamP50', 2], ['upstream p99', 'upstreamP99', 5]],
  saved: [['saved', 'saved', 2]],
};
const time = (seconds) => seconds < 0.01 ? number(seconds * 1000, 2) + ' ms' : seconds < 1 ? number(seconds * 1000) + ' ms' : number(seconds, 1) + ' s';
const shown = (id, value) => value === null || value === undefined ? '\\u2013' : id === 'times' ? time(value) : number(value, 1);
const colourOf = (className, property) => { const probe = make('i', '', className); document.body.append(probe); const colour = getComputedStyle(probe)[property]; probe.remove(); return colour; };
const charts = new Map();
let points = [];

// Times are drawn by powers of ten: a wait of seconds for the limit must not flatten answers of a millisecond to zero.
const least = 0.0001;
const decades = (_chart, min, max) => [10 ** Math.floor(Math.log10(min ?? 0.001)), 10 ** Math.ceil(Math.log10((max ?? 1) * 1.01))];
const fromZero = (_chart, _min, max) => [0, max > 0 ? max * 1.1 : 1];
const scaleOf = (id) => id === 'times' ? { distr: 3, range: decades } : { range: fromZero };
const powers = (_chart, _axis, from, to) => Array.from({ length: Math.round(Math.log10(to / from)) + 1 }, (_one, power) => from * 10 ** power);
const ticksOf = (id) => id === 'times' ? { splits: powers, filter: (_chart, ticks) => ticks } : {};
// A value without a neighbour makes no line: it gets a dot.
const alone = (chart, of, isShown) => isShown ? null : [...chart.data[of].keys()].filter((at) => [-1, 0, 1].every((step) => (chart.data[of][at + step] == null) === (step !== 0)));
const placed = (id, value) => id === 'times' && typeof value === 'number' ? Math.max(least, value) : value;

function columns(id) {
  return [points.map(({ at }) => at / 1000), ...series[id].map(([, member]) => points.map((point) => placed(id, point[member])))];
}

function draw(id) {
  const node = $(id), soft = colourOf('soft', 'color'), ink = colourOf('', 'color');
  charts.get(id)?.destroy();
  const axis = { stroke: soft, font: '12px system-ui', grid: { stroke: soft + '', width: 0.15 }, ticks: { stroke: soft, width: 0.3 } };
  const chart = new uPlot({
    width: node.clientWidth, height: 170, legend: { show: false }, cursor: { show: false }, padding: [8, 12, 0, 0],
    scales: { x: { range: () => { const end = (points.at(-1)?.at ?? Date.now()) / 1000, first = (points[0]?.at ?? 0) / 1000; return [Math.max(end - 900, Math.min(first, end - 120)), end]; } }, y: scaleOf(id) },
    axes: [{ ...axis, space: 70, size: 34, values: (_chart, ticks) => ticks.map((at) => clock(at * 1000, ticks[1] - ticks[0] < 60)) }, { ...axis, ...ticksOf(id), size: 62, values: (_chart, ticks) => ticks.map((value) => id === 'times' ? time(value) : number(value, 2)) }],
    series: [{}, ...series[id].map(([label, , colour]) => ({ label, stroke: colourOf('c' + colour, 'backgroundColor'), width: 1.75, points: { show: points.length < 3, filter: alone } }))],
  }, columns(id), node);
  charts.set(id, chart);
}

function describe(id) {
  const last = points.at(-1);
  const items = series[id].map(([label, member, colour]) => {
    const item = make('span');
    item.append(make('i', '', 'c' + colour), label + ' ' + shown(id, last?.[member]));
    return item;
  });
  $('d-' + id).replaceChildren(...items);
}

function drawAll(all) {
  if (all) points = all;
  for (const id of Object.keys(series)) { draw(id); describe(id); }
}

function drawMore(point) {
  points = [...points, point].slice(-180);
  for (const id of Object.keys(series)) { if (points.length < 4) draw(id); else charts.get(id).setData(columns(id)); describe(id); }
}
addEventListener('resize', () => { for (const [id, chart] of charts) chart.setSize({ width: $(id).clientWidth, height: 170 }); });
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => drawAll());
`;
