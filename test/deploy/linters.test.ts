/** Files that others' programs read, as the linters of those programs judge them. docs/security.md has the table. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { readDocument, root } from '../support/documents.ts';
import { temporaryFolder } from '../support/process.ts';
import { hasTools, runTool } from '../support/tools.ts';

const clean = { status: 0, stdout: '' };
const variable = 'REQUIRE_LINTERS';

describe.skipIf(!hasTools(['hadolint'], variable))('the Dockerfile, by hadolint', () => {
  it('hadolint finds nothing wrong with the Dockerfile', () => {
    expect(runTool('hadolint', ['Dockerfile'])).toMatchObject(clean);
    expect(runTool('hadolint', ['-'], 'FROM node\nRUN cd /tmp\n').status).toBe(1);
  });
});

describe.skipIf(!hasTools(['shellcheck'], variable))('scripts, by shellcheck', () => {
  it('shellcheck finds nothing wrong with the scripts of CI', () => {
    expect(runTool('shellcheck', ['.ci/run', '.ci/image'])).toMatchObject(clean);
    expect(runTool('shellcheck', ['-s', 'bash', '-'], 'rm $1\n').status).toBe(1);
  });
});

describe.skipIf(!hasTools(['actionlint', 'shellcheck'], variable))('the workflows, by actionlint', () => {
  it('actionlint finds nothing wrong with the workflows and their scripts', () => {
    expect(runTool('actionlint', [])).toMatchObject(clean);
    const release = readFileSync(join(root, '.github/workflows/release.yml'), 'utf8');
    expect(runTool('actionlint', ['-'], release.replace('needs: image', 'needs: images')).status).toBe(1);
  });
});

describe.skipIf(!hasTools(['zizmor'], variable))('the workflows, by zizmor', () => {
  it('zizmor finds no hole in the workflows and in what the bot may do', (owner) => {
    const words = ['--offline', '--no-progress', '--quiet'];
    expect(runTool('zizmor', [...words, '.github'])).toMatchObject({ status: 0 });
    const folder = temporaryFolder(owner);
    const release = readFileSync(join(root, '.github/workflows/release.yml'), 'utf8');
    writeFileSync(join(folder, 'release.yml'), release.replace(/@[0-9a-f]{40} # v6.*/, '@v6'));
    expect(runTool('zizmor', [...words, join(folder, 'release.yml')]).stdout).toContain('unpinned-uses');
  });
});

describe.skipIf(!hasTools(['haproxy'], variable))('the balancer of Compose, by haproxy', () => {
  it('haproxy -c takes the file', (owner) => {
    // Names of the containers stand for addresses that only Compose has.
    const text = readFileSync(join(root, 'deploy/compose/haproxy.cfg'), 'utf8');
    const file = join(temporaryFolder(owner), 'haproxy.cfg');
    const local = text.replaceAll(/ gateway-\d:8080$/gm, ' 127.0.0.1:8080');
    writeFileSync(file, local);
    expect(runTool('haproxy', ['-c', '-q', '-f', file])).toEqual({ status: 0, stdout: '', stderr: '' });
    writeFileSync(file, `${local}\nnonsense\n`);
    expect(runTool('haproxy', ['-c', '-q', '-f', file]).status).toBe(1);
  });
});

describe('the table of linters in docs/security.md', () => {
  it('the table of linters in docs/security.md names each of them', () => {
    const [, table = ''] = readDocument('docs/security.md').split('## Files for deployment');
    const names =
      'hadolint shellcheck actionlint zizmor haproxy promtool kubeconform helm systemd-analyze publint attw';
    for (const name of names.split(' ')) expect(table).toContain(`| \`${name}`);
  });
});
