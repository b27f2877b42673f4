/**
 * Metrics, and their text (Prometheus exposition format 0.0.4). Pure: no `this`, no I/O, no clock.
 *
 * Not prom-client: it keeps the values itself and hashes the labels with each increment. One counter and one
 * histogram cost 0.65 µs a request there, and its import takes 16 MiB. Counting costs a twentieth of that here, and the
 * format is these few lines.
 */
import { boundsSeconds, type DurationsSnapshot } from '../exchange/figures.ts';

/** `untyped`: a gauge whose name ends as a counter's does, where promtool refuses the type "gauge". */
export type MetricType = 'counter' | 'gauge' | 'histogram' | 'untyped';

type Labels = Readonly<Record<string, string>>;

export interface Sample {
  readonly value: number;
  readonly labels?: Labels;
  /** `_bucket`, `_sum`, `_count` of a histogram. */
  readonly suffix?: string;
}

export interface Metric {
  readonly name: string;
  readonly type: MetricType;
  readonly help: string;
  readonly samples: readonly Sample[];
}

/** A number is one sample, a boolean is 1 or 0, and a value that is not known is no sample. */
export type Value = number | boolean | null | undefined | readonly Sample[];

/** A metric as tables have it: name, type, help, and what it is of the thing that is shown. */
export type Row<T> = readonly [name: string, type: MetricType, help: string, value: (shown: T) => Value];

export const expositionType = 'text/plain; version=0.0.4; charset=utf-8';

/** The metrics of a table, each made when it is asked for. @param each what is shown, each with the labels of its samples */
export function* metricsOfRows<T>(
  rows: readonly Row<T>[],
  each: readonly (readonly [T, Labels])[],
): Generator<Metric> {
  for (const [name, type, help, value] of rows) {
    const samples = each.flatMap(([shown, labels]) =>
      samplesOf(value(shown)).map((one) => ({ ...one, labels: { ...labels, ...one.labels } })),
    );
    yield { name, type, help, samples };
  }
}

export function sample(value: number, labels: Labels): Sample {
  return { value, labels };
}

/** The label of a named workspace; the unnamed one has none, so that its series are those of a gateway with one key. */
export function workspaceLabel(workspace: string | null): Labels {
  return workspace === null ? {} : { workspace };
}

/** A sample for each state, 1 for the one that it is in. */
export function samplesOfState(states: readonly string[], state: string): Sample[] {
  return states.map((one) => sample(Number(one === state), { state: one }));
}

/** Metrics have Unix times, in seconds. */
export function timestamp(at: string | null): number | null {
  return at === null ? null : Date.parse(at) / 1_000;
}

/** One sample for each entry, its name as the label. */
export function samplesByName(counts: Readonly<Record<string, number>>, label: string): Sample[] {
  return Object.entries(counts).map(([name, value]) => sample(value, { [label]: name }));
}

/** The samples of one histogram of durations, with these labels. */
export function durationSamples(
  labels: Labels,
  { count, sumSeconds, cumulative }: DurationsSnapshot,
): Sample[] {
  return [
    ...boundsSeconds.map((bound, index) => ({
      suffix: '_bucket',
      labels: { ...labels, le: String(bound) },
      value: cumulative[index] ?? count,
    })),
    { suffix: '_bucket', labels: { ...labels, le: '+Inf' }, value: count },
    { suffix: '_sum', labels, value: sumSeconds },
    { suffix: '_count', labels, value: count },
  ];
}

const pieceCharacters = 65_536;

/**
 * The text in pieces of whole lines: a hundred workspaces with twenty reads have 15 MiB of it. Metrics without a sample are
 * left out.
 */
export function* exposition(metrics: Iterable<Metric>): Generator<string> {
  let text = '';
  for (const { name, type, help, samples } of metrics) {
    if (samples.length === 0) continue;
    text += `# HELP ${name} ${escapeHelp(help)}\n# TYPE ${name} ${type}\n`;
    for (const { value, labels, suffix = '' } of samples) {
      text += `${name}${suffix}${labels === undefined ? '' : labelText(labels)} ${numberText(value)}\n`;
      if (text.length < pieceCharacters) continue;
      yield text;
      text = '';
    }
  }
  yield text;
}

function samplesOf(value: Value): readonly Sample[] {
  if (value === undefined || value === null) return [];
  return typeof value === 'object' ? value : [{ value: Number(value) }];
}

function labelText(labels: Labels): string {
  const pairs = Object.entries(labels).map(([name, value]) => `${name}="${escapeLabel(value)}"`);
  return pairs.length === 0 ? '' : `{${pairs.join(',')}}`;
}

function escapeHelp(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n');
}

function escapeLabel(text: string): string {
  return escapeHelp(text).replaceAll('"', '\\"');
}

/** A number as Prometheus's parser, which is Go's, reads it. */
function numberText(value: number): string {
  if (Number.isNaN(value)) return 'NaN';
  return Number.isFinite(value) ? String(value) : value > 0 ? '+Inf' : '-Inf';
}
