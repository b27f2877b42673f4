/**
 * Metrics as text (Prometheus exposition format 0.0.4). Pure: no `this`, no I/O, no clock.
 *
 * Ours and not prom-client's: that keeps the values itself, by labels it hashes with each increment. One counter and
 * one histogram cost 0.65 µs a request there and 16 MiB on import; here a hit costs a twentieth of that, and the
 * format is these few lines.
 */

export type MetricType = 'counter' | 'gauge' | 'histogram';

export interface Sample {
  readonly value: number;
  readonly labels?: Readonly<Record<string, string>>;
  /** `_bucket`, `_sum`, `_count` of a histogram. */
  readonly suffix?: string;
}

export interface Family {
  readonly name: string;
  readonly type: MetricType;
  readonly help: string;
  readonly samples: readonly Sample[];
}

export const expositionType = 'text/plain; version=0.0.4; charset=utf-8';

/** Families without a sample are left out. */
export function exposition(families: readonly Family[]): string {
  let text = '';
  for (const { name, type, help, samples } of families) {
    if (samples.length === 0) continue;
    text += `# HELP ${name} ${escapeHelp(help)}\n# TYPE ${name} ${type}\n`;
    for (const { value, labels, suffix = '' } of samples) {
      text += `${name}${suffix}${labels === undefined ? '' : labelText(labels)} ${numberText(value)}\n`;
    }
  }
  return text;
}

function labelText(labels: Readonly<Record<string, string>>): string {
  const pairs = Object.entries(labels).map(([name, value]) => `${name}="${escapeLabel(value)}"`);
  return pairs.length === 0 ? '' : `{${pairs.join(',')}}`;
}

function escapeHelp(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n');
}

function escapeLabel(text: string): string {
  return escapeHelp(text).replaceAll('"', '\\"');
}

/** As Go's parser reads it. */
function numberText(value: number): string {
  if (Number.isNaN(value)) return 'NaN';
  return Number.isFinite(value) ? String(value) : value > 0 ? '+Inf' : '-Inf';
}
