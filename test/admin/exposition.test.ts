import { describe, expect, it } from 'vitest';
import { exposition, type Metric } from '../../src/admin/exposition.ts';
import { parseExposition } from '../support/exposition-parser.ts';

const gauge = (samples: Metric['samples'], help = 'What it is.'): Metric => ({
  name: 'a_gauge',
  type: 'gauge',
  help,
  samples,
});

const textOf = (metrics: readonly Metric[]): string => [...exposition(metrics)].join('');

describe('the text format', () => {
  it('the text format has help, type and samples of one metric after the other', () => {
    const text = textOf([
      gauge([{ value: 1.5, labels: { one: 'a', two: 'b' } }, { value: 2 }]),
      { name: 'a_total', type: 'counter', help: 'More.', samples: [{ value: 3 }] },
    ]);
    expect(text).toBe(
      '# HELP a_gauge What it is.\n# TYPE a_gauge gauge\na_gauge{one="a",two="b"} 1.5\na_gauge 2\n' +
        '# HELP a_total More.\n# TYPE a_total counter\na_total 3\n',
    );
  });

  it('the text format leaves out a metric without samples', () => {
    expect(textOf([gauge([])])).toBe('');
  });

  it('the text format comes in pieces of whole lines, none much longer than 64 KiB', () => {
    const samples = Array.from({ length: 10_000 }, (_, at) => ({ value: at, labels: { l: 'x'.repeat(50) } }));
    const pieces = [...exposition([gauge(samples)])];
    expect(pieces.length).toBeGreaterThan(10);
    expect(Math.max(...pieces.map(({ length }) => length))).toBeLessThan(66_000);
    expect(pieces.every((piece) => piece.endsWith('\n'))).toBe(true);
  });

  it.each([
    ['a quote', 'a"b', 'a\\"b'],
    ['a backslash', 'a\\b', 'a\\\\b'],
    ['a line break', 'a\nb', 'a\\nb'],
    ['what looks like an escape', '\\n', '\\\\n'],
    ['what would begin a series of its own', '"} 1\nevil 1', '\\"} 1\\nevil 1'],
  ])('the text format escapes %s in a label, and it comes back as it was', (_name, value, written) => {
    const text = textOf([gauge([{ value: 1, labels: { l: value } }])]);
    expect(text).toContain(`a_gauge{l="${written}"} 1\n`);
    expect(parseExposition(text).series).toEqual([{ name: 'a_gauge', labels: { l: value }, value: 1 }]);
  });

  it('the text format escapes backslashes and line breaks in help, and leaves quotes', () => {
    expect(textOf([gauge([{ value: 1 }], 'a "b"\\\nc')])).toContain('# HELP a_gauge a "b"\\\\\\nc\n');
  });

  it.each([
    [Number.POSITIVE_INFINITY, '+Inf'],
    [Number.NEGATIVE_INFINITY, '-Inf'],
    [Number.NaN, 'NaN'],
    [1e21, '1e+21'],
    [0.000_000_1, '1e-7'],
  ])('the text format writes %d as %s', (value, written) => {
    const text = textOf([gauge([{ value }])]);
    expect(text).toContain(`a_gauge ${written}\n`);
    expect(parseExposition(text).series[0]?.value).toBe(value);
  });
});
