/**
 * `npm run docs:write`: writes what of the documents comes from the code, so that it cannot differ from it:
 * `settings.md`, `performance.md`, and the tables of problems and metrics in other pages; and the client's types. A test
 * compares.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { nginxLine, performancePage, type Results } from '../bench/report.ts';
import { judgeHealth } from '../src/admin/health.ts';
import { metricsOf } from '../src/admin/metrics.ts';
import { processMetrics } from '../src/admin/runtime.ts';
import { describedSettings } from '../src/config/settings.ts';
import { cacheDirectives, validators } from '../src/documents/components.ts';
import { describeApi } from '../src/documents/openapi.ts';
import { problems } from '../src/errors.ts';
import { specifiedOperations } from '../src/operations.ts';
import { fullRuntime, fullSnapshot } from '../test/support/snapshot.ts';
import { clientTypes } from './client-types.ts';

const root = fileURLToPath(new URL('..', import.meta.url));

/** What is true of every gateway: reads of `UPSTREAM_READS` are some gateways' own. */
const everyGateway = describeApi({ operations: specifiedOperations, admitsAnonymous: false });

/** Every document of which something is written, with its text as it should be now. Paths are from the root. */
export function writtenDocuments(): ReadonlyMap<string, string> {
  const results = JSON.parse(read('bench/results.json')) as Results;
  return new Map([
    ['docs/settings.md', settingsPage()],
    ['docs/performance.md', performancePage(results)],
    ['docs/caching.md', withPart('docs/caching.md', 'cache-requests', cacheRequestsTable())],
    ['docs/callers.md', withPart('docs/callers.md', 'problems', problemsTable())],
    ['docs/metrics.md', withPart('docs/metrics.md', 'metrics', metricsTable())],
    ['src/client/operations.ts', clientTypes(everyGateway)],
    ['README.md', withPart('README.md', 'nginx', nginxLine(results))],
  ]);
}

/** The settings by group. The first group whose pattern fits a name takes it. */
const groups: readonly (readonly [title: string, names: RegExp])[] = [
  ['Several workspaces', /^WORKSPACES$|<NAME>$/],
  ['The upstream', /^UPSTREAM_(?!API_KEY)/],
  ['The key', /^UPSTREAM_API_KEY/],
  ['Callers', /^(?:CALLER|CORS_|ALLOWED_)/],
  ['Listening and time limits', /^(?:HOST|PORT|ADMIN_|TLS_|HEADERS_|MAX_|REQUEST_)/],
  ['Cache', /^CACHE_/],
  ['Retries and the rate limit', /^(?:RETRY_|GATE_)/],
  ['Header fields', /^FORWARD_/],
  ['Several gateways', /^SHARED_/],
  ['Everything else', /^/],
];

function settingsPage(): string {
  const lines = [
    '# Settings',
    '',
    '<!-- Written by "npm run docs:write" from src/config/settings.ts. -->',
    '',
    'You look up a setting. Settings come from the environment, and from `.env` in the working directory where there is one; what is set in the environment wins. `npx analytics-gateway settings` lists them as well.',
    '',
    'Durations are written `250ms`, `15s`, `5m`; sizes `64KiB`, `4MiB`. All that is wrong with the settings is reported at once, by name and never with a value, before anything listens. A name that looks like a misspelled one of these stops the start with "did you mean".',
  ];
  const left = new Map(Object.entries(describedSettings));
  for (const [title, names] of groups) {
    const rows = [...left].filter(([name]) => names.test(name));
    if (rows.length === 0) continue;
    lines.push('', `## ${title}`, '', '| name | default | meaning |', '|---|---|---|');
    for (const [name, { default: value, required, meaning }] of rows) {
      left.delete(name);
      const shown = required ? 'required' : value === undefined || value === '' ? '–' : `\`${value}\``;
      lines.push(`| \`${name}\` | ${shown} | ${cell(meaning)} |`);
    }
  }
  return `${lines.join('\n')}\n`;
}

function problemsTable(): string {
  const rows = Object.entries(problems).map(
    ([code, { status, title, help }]) => `| \`${code}\` | ${status} | ${cell(title)}. ${cell(help)} |`,
  );
  return ['| code | status | what it means, and what to do |', '|---|---|---|', ...rows].join('\n');
}

function cacheRequestsTable(): string {
  const rows = [...cacheDirectives, validators].map(
    ({ fields, meaning }) => `| ${fields.map((field) => `\`${field}\``).join(', ')} | ${cell(meaning)} |`,
  );
  return ['| request field | what it does |', '|---|---|', ...rows].join('\n');
}

function metricsTable(): string {
  const snapshot = fullSnapshot();
  const metrics = [...metricsOf(snapshot, judgeHealth(snapshot)), ...processMetrics(snapshot, fullRuntime)];
  const rows = metrics.map(({ name, type, help, samples }) => {
    const labels = new Set(samples.flatMap(({ labels = {} }) => Object.keys(labels)));
    // A histogram's own: every reader of the format knows it.
    labels.delete('le');
    const shown = [...labels].map((label) => `\`${label}\``).join(', ') || '–';
    return `| \`${name}\` | ${type} | ${shown} | ${cell(help)} |`;
  });
  return ['| metric | type | labels | meaning |', '|---|---|---|---|', ...rows].join('\n');
}

/** A text as it may stand in a table: a bare `<` or `*` would be taken for a tag or for emphasis. */
function cell(text: string): string {
  return text.replace(/[|*<]/g, '\\$&').replaceAll('\n', ' ');
}

/** @throws Error where the document has no place for it */
function withPart(path: string, name: string, text: string): string {
  const begin = `<!-- written by "npm run docs:write": ${name} -->\n`;
  const [before, after] = read(path).split(begin);
  const end = after?.indexOf('<!-- end -->') ?? -1;
  if (before === undefined || after === undefined || end < 0) throw new Error(`${path} has no part ${name}`);
  return `${before}${begin}${text}\n${after.slice(end)}`;
}

function read(path: string): string {
  return readFileSync(join(root, path), 'utf8');
}

if (import.meta.main) {
  for (const [path, text] of writtenDocuments()) writeFileSync(join(root, path), text);
}
