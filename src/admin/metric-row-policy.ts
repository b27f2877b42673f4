/** One metric as a row, and the ways to write its samples. Pure: no `this`, no I/O, no clock. */
import type { MetricType, Sample } from './exposition-policy.ts';

/** What a metric is called below the prefix, its meaning, its samples. */
export type Row = readonly [name: string, type: MetricType, help: string, samples: readonly Sample[]];

export function one(value: number, labels?: Readonly<Record<string, string>>): Sample {
  return labels === undefined ? { value } : { value, labels };
}

export function bit(isSo: boolean): Sample {
  return { value: isSo ? 1 : 0 };
}

export function some(value: number | undefined): Sample[] {
  return value === undefined ? [] : [{ value }];
}

export function seconds(ms: number | undefined): Sample[] {
  return some(ms === undefined ? undefined : ms / 1_000);
}

export function counts(byName: ReadonlyMap<string, number>, label: string): Sample[] {
  return [...byName].map(([name, value]) => one(value, { [label]: name }));
}
