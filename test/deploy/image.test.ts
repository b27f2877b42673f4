import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { findRefusedVariable } from '../../src/key/node-flags.ts';
import { root } from '../support/documents.ts';

const read = (path: string): string => readFileSync(join(root, path), 'utf8');

describe('the table of Node versions in deploy/README.md', () => {
  const table = read('deploy/README.md').split('## Which Node is safe for what')[1] ?? '';

  it('the table of Node versions in deploy/README.md names the bound of the Dockerfile for serving callers', () => {
    const [, bound = ''] = /^ARG LEAST_NODE="(.*)"$/m.exec(read('Dockerfile')) ?? [];
    expect(bound).toMatch(/^\d+\.\d+\.\d+( \d+\.\d+\.\d+)*$/);
    expect(table).toContain(`| ${bound.replaceAll(' ', ', ')} and later of these lines | serving callers`);
  });

  it('the table of Node versions in deploy/README.md names the Node that the lock pins for development, and the one of "engines" for a start', () => {
    const lock = JSON.parse(read('package-lock.json')) as { packages: Record<string, { version: string }> };
    expect(table).toContain(`| ${lock.packages['node_modules/node']?.version} | tests, demo and benchmarks`);
    const { engines } = JSON.parse(read('package.json')) as { engines: { node: string } };
    expect(table).toContain(`| ${engines.node.replace('>=', '')} and later | the gateway starts |`);
  });
});

describe('the Dockerfile', () => {
  it('the Dockerfile serves by default, and takes another command of the program in its place', () => {
    const dockerfile = read('Dockerfile');
    expect(dockerfile).toMatch(/^ENTRYPOINT \["node", .*"\/app\/dist\/main\.js"\]$/m);
    expect(dockerfile).toMatch(/^CMD \["serve"\]$/m);
  });

  it('the Dockerfile copies all that the build reads', () => {
    const folder = mkdtempSync(join(tmpdir(), 'gateway-image-'));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const [, stage = ''] = /^FROM base AS build\n([\s\S]*?)\nFROM /m.exec(read('Dockerfile')) ?? [];
    for (const [, words = ''] of stage.matchAll(/^COPY (.*)$/gm)) {
      for (const file of words.split(' ').slice(0, -1)) {
        cpSync(join(root, file), join(folder, file), { recursive: true });
      }
    }
    symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'));
    const { status, stderr } = spawnSync(process.execPath, ['build.ts'], { cwd: folder, encoding: 'utf8' });
    expect(stderr).toBe('');
    expect(status).toBe(0);
  });

  it('the Dockerfile gives the gateway that it starts no argument of the build that a gateway refuses as a variable', () => {
    const stage =
      read('Dockerfile')
        .split(/^FROM /m)
        .at(-1) ?? '';
    const [before = '', start] = stage.split(/^RUN UPSTREAM_BASE_URL=/m);
    expect(start).toMatch(/main\.js serve/);
    const args = [...before.matchAll(/^ARG (\w+)/gm)].map(([, name = '']) => [name, 'a value']);
    expect(findRefusedVariable(Object.fromEntries(args), [])).toBeUndefined();
  });

  it('the Dockerfile bounds its Node in one place', () => {
    expect(read('Dockerfile').match(/26\.\d+\.\d+/g)).toHaveLength(1);
    expect(read('.ci/image')).not.toMatch(/2[2-9]\.\d+\.\d+/);
  });
});
