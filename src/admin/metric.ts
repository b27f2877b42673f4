/** Metrics, and the ways to make one. Pure: no `this`, no I/O, no clock. */
import { boundsSeconds, type DurationsSnapshot } from '../exchange/durations.ts';

export type MetricType = 'counter' | 'gauge' | 'histogram' | 'untyped';

export interface Sample {
  readonly value: number;
  readonly labels?: Readonly<Record<string, string>>;
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
export type Value = number | boolean | undefined | readonly Sample[];

export function counter(name: string, help: string, value: Value): Metric {
  return { name, type: 'counter', help, samples: samplesOf(value) };
}

export function gauge(name: string, help: string, value: Value): Metric {
  return { name, type: 'gauge', help, samples: samplesOf(value) };
}

/** A gauge whose name ends as a counter's does: promtool refuses the type "gauge" there. */
export function untyped(name: string, help: string, value: Value): Metric {
  return { name, type: 'untyped', help, samples: samplesOf(value) };
}

export function histogram(name: string, help: string, samples: readonly Sample[]): Metric {
  return { name, type: 'histogram', help, samples };
}

export function sample(value: number, labels: Readonly<Record<string, string>>): Sample {
  return { value, labels };
}

/** The samples of one histogram of durations, with these labels. */
export function durationSamples(
  labels: Readonly<Record<string, string>>,
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

/** One sample for each entry, its name as the label. */
export function samplesByName(counts: ReadonlyMap<string, number>, label: string): Sample[] {
  return [...counts].map(([name, value]) => sample(value, { [label]: name }));
}

/** The label of a named workspace; the unnamed one has none, so that its series are those of a gateway with one key. */
export function workspaceLabel(name: string | undefined): Readonly<Record<string, string>> {
  return name === undefined || name === '' ? {} : { workspace: name };
}

/** The same metrics of each workspace as one list, each sample with the label of its own. */
export function metricsOfEach<T extends { readonly name: string }>(
  workspaces: readonly T[],
  metricsOf: (workspace: T) => readonly Metric[],
): readonly Metric[] {
  const merged = new Map<string, Metric>();
  for (const workspace of workspaces) {
    const label = workspaceLabel(workspace.name);
    for (const metric of metricsOf(workspace)) {
      const samples = metric.samples.map((one) => ({ ...one, labels: { ...label, ...one.labels } }));
      const before = merged.get(metric.name)?.samples ?? [];
      merged.set(metric.name, { ...metric, samples: [...before, ...samples] });
    }
  }
  return [...merged.values()];
}

/** Metrics are in base units: seconds. */
export function seconds(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : ms / 1_000;
}

function samplesOf(value: Value): readonly Sample[] {
  if (value === undefined) return [];
  return typeof value === 'object' ? value : [{ value: Number(value) }];
}
