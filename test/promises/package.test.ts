/** What npm makes of a fresh clone, and what it installs of that, as those who use the package see it. */
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { version } from '../../src/version.ts';
import { installPackage } from '../support/checkout.ts';
import { accounts } from '../support/gateway.ts';
import { run, serve, settingsFor, standInFor } from '../support/process.ts';

const folder = mkdtempSync(join(tmpdir(), 'gateway-package-'));
let project: string;

beforeAll(() => {
  project = installPackage(folder);
}, 180_000);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('the package of a fresh clone, installed into an empty project', () => {
  it('the package brings no library along, because they are in what was built', () => {
    expect(readdirSync(join(project, 'node_modules')).sort()).toEqual([
      '.bin',
      '.package-lock.json',
      'workspace-analytics-gateway',
    ]);
    expect(readdirSync(join(project, 'node_modules/workspace-analytics-gateway')).sort()).toEqual([
      '.env.example',
      'CHANGELOG.md',
      'LICENSE',
      'README.md',
      'bin',
      'dist',
      'package.json',
    ]);
  });

  it('the command of the package serves', async (owner) => {
    const main = join(project, 'node_modules/.bin/analytics-gateway');
    expect((await run(owner, ['--version'], { main, cwd: project })).stdout).toBe(`${version}\n`);
    const standIn = await standInFor(owner);
    const gateway = await serve(owner, { main, cwd: project, settings: settingsFor(standIn.url) });
    expect((await gateway.ask(accounts)).status).toBe(200);
  });
});
