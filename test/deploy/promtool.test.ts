/** Metrics and alerts as Prometheus's own program judges them. */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it, onTestFinished } from 'vitest';
import { exposition } from '../../src/admin/exposition.ts';
import { judgeHealth } from '../../src/admin/health.ts';
import { metricsOf } from '../../src/admin/metrics.ts';
import { processMetrics } from '../../src/admin/runtime.ts';
import { blocksOf, readDocument } from '../support/documents.ts';
import { findOnPath } from '../support/find-on-path.ts';
import { accounts, startPair } from '../support/gateway.ts';
import { fullRuntime, fullSnapshot } from '../support/snapshot.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));
const rulesFile = 'deploy/prometheus/rules.yaml';
const isMissing = findOnPath('promtool') === undefined;

if (isMissing) {
  if (process.env['REQUIRE_PROMTOOL'] === 'true') throw new Error('promtool is not installed');
  process.stderr.write('left out: tests of metrics and alerts by promtool, which is not installed\n');
}

/** What promtool says against it; nothing where all is well. */
function complaintsOf(words: readonly string[], input = ''): string {
  const { status, stdout, stderr } = spawnSync('promtool', words, { cwd: root, input, encoding: 'utf8' });
  return status === 0 ? stderr : `${stdout}${stderr}`;
}

describe.skipIf(isMissing)('promtool', () => {
  it('promtool finds nothing wrong with metrics that have every sample, nor with those of a gateway that runs', async () => {
    const snapshot = fullSnapshot();
    const full = exposition([
      ...metricsOf(snapshot, judgeHealth(snapshot)),
      ...processMetrics(snapshot, fullRuntime),
    ]);
    expect(complaintsOf(['check', 'metrics'], [...full].join(''))).toBe('');
    const { ask, askAdmin } = await startPair({ ADMIN_PORT: '0' });
    await ask(accounts);
    const { body } = await askAdmin('/metrics');
    expect(complaintsOf(['check', 'metrics'], body.toString())).toBe('');
    // That it would find something.
    expect(complaintsOf(['check', 'metrics'], '# TYPE a_total gauge\na_total 1\n')).not.toBe('');
  });

  it('promtool finds nothing wrong with the alerts', () => {
    expect(complaintsOf(['check', 'rules', rulesFile])).toBe('');
  });
});

describe('the link of an alert to its section', () => {
  it('the link of an alert to its section is made by the command that the page on alerts gives', () => {
    const rules = readFileSync(join(root, rulesFile), 'utf8');
    const sections = rules.match(/^ +runbook_url: docs\/alerts\.md#\w+$/gm) ?? [];
    expect(sections).toHaveLength(rules.match(/- alert:/g)?.length ?? 0);
    // A made-up address would be opened in the middle of a night.
    expect(rules).not.toContain('://');
    const folder = mkdtempSync(join(tmpdir(), 'gateway-rules-'));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const made = join(folder, 'rules.yaml');
    const commands = blocksOf(readDocument('docs/alerts.md')).map(({ text }) => text);
    const command = commands.find((text) => text.startsWith('sed ')) ?? '';
    execFileSync('sh', ['-c', command.replace('> rules.yaml', `> ${made}`)], { cwd: root });
    const linked = readFileSync(made, 'utf8');
    expect(linked.match(/^ +runbook_url: https:\/\/wiki\.example\.com\/[\w/-]+#\w+$/gm)).toHaveLength(
      sections.length,
    );
    if (!isMissing) expect(complaintsOf(['check', 'rules', made])).toBe('');
  });
});
