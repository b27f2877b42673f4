import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { healthCodes, judgeHealth } from '../../src/admin/health.ts';
import { metricsOf } from '../../src/admin/metrics.ts';
import { processMetrics } from '../../src/admin/runtime.ts';
import { problems } from '../../src/errors.ts';
import { changed, fullRuntime, fullSnapshot } from '../support/snapshot.ts';

const read = (path: string): string => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');
const snapshot = fullSnapshot();
/** The same of a gateway whose workspace has a name. */
const workspace = 'emea';
const named = changed(snapshot, {
  workspace,
  requests: {
    ...snapshot.requests,
    counts: snapshot.requests.counts.map((one) => ({ ...one, workspace })),
    beside: {
      ...snapshot.requests.beside,
      durations: snapshot.requests.beside.durations.map((one) => ({ ...one, workspace })),
    },
  },
});
const metrics = [
  ...[snapshot, named].flatMap((one) => [...metricsOf(one, judgeHealth(one))]),
  ...processMetrics(snapshot, fullRuntime),
];

/** Every series that a scrape has, by its name, with its labels. */
const series = new Map<string, Set<string>>();
for (const { name, samples } of metrics) {
  for (const { suffix = '', labels = {} } of samples) {
    const known = series.get(name + suffix) ?? new Set(['instance', 'job']);
    for (const label of Object.keys(labels)) known.add(label);
    series.set(name + suffix, known);
  }
}

/** The names of metrics in an expression of PromQL, and the labels that it selects them by. */
function usesIn(expression: string): { name: string; labels: string[] }[] {
  const found = expression.matchAll(/\b((?:analytics_gateway|process|nodejs)_\w+)(?:\{([^}]*)\})?/g);
  return [...found].map(([, name = '', selector = '']) => ({
    name,
    labels: [...selector.matchAll(/(\w+)\s*[=!]~?\s*"/g)].map(([, label = '']) => label),
  }));
}

function expectKnown(expression: string): void {
  for (const { name, labels } of usesIn(expression)) {
    expect([...series.keys()], expression).toContain(name);
    for (const label of labels) expect([...(series.get(name) ?? [])], expression).toContain(label);
  }
  const grouped = [...expression.matchAll(/\bby \(([\w, ]+)\)/g)].flatMap(([, labels = '']) =>
    labels.split(/, */),
  );
  const has = new Set(usesIn(expression).flatMap(({ name }) => [...(series.get(name) ?? [])]));
  for (const label of grouped) expect([...has], expression).toContain(label);
}

const rules = read('deploy/prometheus/rules.yaml');
const alerts = [...rules.matchAll(/^ {6}- alert: (\w+)\n {8}expr: '(.+)'\n/gm)].map(
  ([, name = '', expression = '']) => ({ name, expression }),
);

describe('the alerts for Prometheus', () => {
  it('the alerts for Prometheus are all found by this test', () => {
    expect(alerts.length).toBeGreaterThan(10);
    expect(alerts).toHaveLength(rules.match(/- alert:/g)?.length ?? 0);
  });

  it.each(alerts)('$name uses metrics and labels that the gateway has', ({ name, expression }) => {
    if (name !== 'GatewayDown') expect(usesIn(expression)).not.toEqual([]);
    expectKnown(expression);
  });

  it.each(alerts)('$name has its section in docs/alerts.md', ({ name }) => {
    expect(rules).toContain(` runbook_url: docs/alerts.md#${name.toLowerCase()}\n`);
    const section = read('docs/alerts.md').split(`\n## ${name}\n`)[1]?.split('\n## ')[0] ?? '';
    for (const part of ['What it means', 'Where to look', 'What to do']) {
      expect(section).toContain(`**${part}.**`);
    }
  });

  it('the alerts for Prometheus name codes of reasons and problems that exist', () => {
    for (const [, code = ''] of rules.matchAll(/health_reason\{code="([^"]+)"\}/g)) {
      expect(Object.keys(healthCodes)).toContain(code);
    }
    for (const [, codes = ''] of rules.matchAll(/code!~"([^"]+)"/g)) {
      for (const code of codes.split('|')) {
        const isKnown = (one: string): boolean => new RegExp(`^(?:${code})$`).test(one);
        expect(Object.keys(problems).some(isKnown), code).toBe(true);
      }
    }
  });

  it('the alerts for Prometheus have no section in docs/alerts.md that belongs to none of them', () => {
    const sections = [...read('docs/alerts.md').matchAll(/^## (\w+)$/gm)].map(([, name]) => name);
    expect(sections).toEqual(alerts.map(({ name }) => name));
  });
});

describe('the dashboard for Grafana', () => {
  const dashboard = JSON.parse(read('deploy/grafana/dashboard.json')) as {
    panels: { id: number; title: string; targets: { expr: string }[] }[];
    templating: { list: { query: unknown }[] };
  };

  it.each(dashboard.panels)(
    'the dashboard for Grafana has the panel "$title", whose metrics the gateway has',
    ({ targets }) => {
      for (const { expr } of targets) {
        expect(usesIn(expr)).not.toEqual([]);
        expectKnown(expr);
      }
    },
  );

  it('the dashboard for Grafana has panels with ids of their own, and lists of instances and workspaces that the gateway gives', () => {
    expect(new Set(dashboard.panels.map(({ id }) => id)).size).toBe(dashboard.panels.length);
    expectKnown(JSON.stringify(dashboard.templating));
    expect(usesIn(JSON.stringify(dashboard.templating))).toHaveLength(2);
  });

  it('the dashboard for Grafana counts as saved what was answered, and one pace for gateways that share it', () => {
    const all = dashboard.panels.flatMap(({ targets }) => targets.map(({ expr }) => expr));
    expect(all.find((expr) => expr.startsWith('clamp_min(1 - '))).toContain('status=~"[23].."');
    const pace = all.find((expr) => expr.includes('learned_attempts'));
    expect(pace).toMatch(/^sum\(max by \(workspace\)/);
  });
});
