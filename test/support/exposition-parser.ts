/** Reads the Prometheus text format strictly, and says no to whatever a lenient parser would let pass. */

export interface Scraped {
  readonly types: ReadonlyMap<string, string>;
  /** The value of the one series with this name and exactly these labels; `undefined` where there is none. */
  value(name: string, labels?: Readonly<Record<string, string>>): number | undefined;
  /** All series of a name together. */
  sum(name: string, labels?: Readonly<Record<string, string>>): number;
  readonly series: readonly Series[];
}

export interface Series {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

const sampleLine = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\+Inf|-Inf|NaN|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)$/;
const labelPair = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)/y;

/** @throws with the line that is wrong */
export function parseExposition(text: string): Scraped {
  if (!text.endsWith('\n')) throw new Error('the last line has no end');
  const types = new Map<string, string>();
  const helped = new Set<string>();
  const series: Series[] = [];
  const seen = new Set<string>();
  let current = '';
  for (const line of text.slice(0, -1).split('\n')) {
    const [, keyword, subject = '', rest = ''] = /^# (HELP|TYPE) (\S+) (.+)$/.exec(line) ?? [];
    if (keyword === 'HELP') {
      if (helped.has(subject)) throw new Error(`a second HELP: ${line}`);
      if (/\\(?![\\n])/.test(rest)) throw new Error(`a wrong escape: ${line}`);
      helped.add(subject);
      continue;
    }
    if (keyword === 'TYPE') {
      if (!helped.has(subject) || types.has(subject)) throw new Error(`TYPE out of place: ${line}`);
      if (!['counter', 'gauge', 'histogram', 'untyped'].includes(rest))
        throw new Error(`no such type: ${line}`);
      types.set(subject, rest);
      current = subject;
      continue;
    }
    const found = sampleLine.exec(line);
    if (found === null) throw new Error(`neither comment nor sample: ${line}`);
    const [, name = '', labelText = '', number = ''] = found;
    const suffixes = types.get(current) === 'histogram' ? ['_bucket', '_sum', '_count'] : [''];
    if (!suffixes.some((suffix) => name === current + suffix)) throw new Error(`not of ${current}: ${line}`);
    const labels = labelsOf(labelText, line);
    const identity = name + identityOf(labels);
    if (seen.has(identity)) throw new Error(`a second time: ${line}`);
    seen.add(identity);
    series.push({ name, labels, value: Number(number.replace('Inf', 'Infinity')) });
  }
  for (const [name, type] of types) {
    if (type === 'histogram') checkHistogram(name, series);
    if (type === 'counter' && !name.endsWith('_total')) throw new Error(`a counter without _total: ${name}`);
  }
  return {
    types,
    series,
    value: (name, labels = {}) =>
      series.find((one) => one.name === name && isSame(one.labels, labels))?.value,
    sum: (name, labels = {}) =>
      series
        .filter((one) => one.name === name && isSame({ ...one.labels, ...labels }, one.labels))
        .reduce((sum, { value }) => sum + value, 0),
  };
}

function labelsOf(text: string, line: string): Record<string, string> {
  const labels: Record<string, string> = {};
  let at = 0;
  while (at < text.length) {
    labelPair.lastIndex = at;
    const pair = labelPair.exec(text);
    if (pair === null) throw new Error(`labels that cannot be read: ${line}`);
    const [whole, name = '', value = '', end] = pair;
    if (name in labels) throw new Error(`a label twice: ${line}`);
    if (end === ',' && at + whole.length === text.length) throw new Error(`a comma too many: ${line}`);
    labels[name] = value.replace(/\\(.)/g, (_, escaped: string) => (escaped === 'n' ? '\n' : escaped));
    at += whole.length;
  }
  return labels;
}

/** The same text for the same labels. */
function identityOf(labels: Readonly<Record<string, string>>): string {
  return JSON.stringify(Object.entries(labels).sort());
}

function isSame(one: Readonly<Record<string, string>>, other: Readonly<Record<string, string>>): boolean {
  return identityOf(one) === identityOf(other);
}

/** Buckets are cumulative and end with all there are. */
function checkHistogram(name: string, series: readonly Series[]): void {
  const named = (suffix: string): Series[] => series.filter((one) => one.name === name + suffix);
  const bounded = named('_bucket').filter(({ labels: { le } }) => le !== undefined);
  const bucketsByLabels = Map.groupBy(bounded, ({ labels: { le: _, ...others } }) => identityOf(others));
  const sums = new Set(named('_sum').map(({ labels }) => identityOf(labels)));
  for (const { labels, value: count } of named('_count')) {
    const buckets = bucketsByLabels.get(identityOf(labels)) ?? [];
    const bounds = buckets.map(({ labels: { le = '' } }) => Number(le.replace('+Inf', 'Infinity')));
    const values = buckets.map(({ value }) => value);
    const isRising = (list: readonly number[]): boolean =>
      list.every((one, index) => index === 0 || one >= (list[index - 1] ?? one));
    if (!isRising(bounds) || !isRising(values)) throw new Error(`buckets out of order: ${name}`);
    if (bounds.at(-1) !== Number.POSITIVE_INFINITY || values.at(-1) !== count) {
      throw new Error(`+Inf is not all: ${name}`);
    }
    if (!sums.has(identityOf(labels))) throw new Error(`no sum: ${name}`);
  }
}
