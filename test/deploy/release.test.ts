/** The release workflow runs on GitHub alone; what can be checked of it elsewhere is its structure and its scripts. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it, onTestFinished } from 'vitest';
import { hasLibraries, importLibrary } from '../libraries/import-library.ts';

interface Step {
  readonly name?: string;
  readonly uses?: string;
  readonly run?: string;
}

interface Job {
  readonly needs?: string | readonly string[];
  readonly permissions?: Readonly<Record<string, string>>;
  readonly strategy?: { readonly matrix: { readonly include: readonly { readonly architecture: string }[] } };
  readonly 'timeout-minutes'?: number;
  readonly container?: { readonly image: string; readonly options: string };
  readonly steps: readonly Step[];
}

interface Workflow {
  readonly permissions: Readonly<Record<string, string>>;
  readonly jobs: Readonly<Record<string, Job>>;
}

const text = readFileSync(new URL('../../.github/workflows/release.yml', import.meta.url), 'utf8');

async function workflow(): Promise<Workflow> {
  const { parse } = (await importLibrary('yaml')) as { parse: (yaml: string) => Workflow };
  return parse(text);
}

describe.skipIf(!hasLibraries)('the release workflow', () => {
  it('the release workflow tests before it builds, builds for amd64 and arm64, and publishes only what was built', async () => {
    const { jobs } = await workflow();
    expect(Object.entries(jobs).map(([name, { needs }]) => [name, needs])).toEqual([
      ['test', undefined],
      ['image', 'test'],
      ['publish-image', 'image'],
      ['package', 'test'],
      ['publish-package', ['image', 'package']],
    ]);
    const built = jobs['image']?.strategy?.matrix.include.map(({ architecture }) => architecture);
    expect(built).toEqual(['amd64', 'arm64']);
  });

  it('the release workflow runs what CI runs, on Debian as root, and no part of it by itself', async () => {
    const { jobs } = await workflow();
    const runs = jobs['test']?.steps.flatMap(({ run }) => run ?? []) ?? [];
    expect(runs.at(-1)).toBe('.ci/run');
    expect(runs.join('\n')).not.toMatch(/npm (?:ci|test)/);
    expect(jobs['test']?.container?.image).toMatch(/^node:\d+-bookworm$/);
  });

  it('the release workflow signs and attests the image, and attests the package', async () => {
    const { jobs } = await workflow();
    const stepsOf = (job: string): string => JSON.stringify(jobs[job]?.steps);
    expect(stepsOf('publish-image')).toContain('cosign sign --yes');
    // Packages carry the repository that built them: npm compares.
    for (const set of ['repository=github:', 'homepage=$GITHUB_SERVER_URL/', 'bugs.url=$GITHUB_SERVER_URL/'])
      expect(stepsOf('package')).toContain(`${set}$GITHUB_REPOSITORY`);
    for (const job of ['publish-image', 'publish-package'])
      expect(stepsOf(job)).toContain('actions/attest-build-provenance');
  });

  it('the release workflow gives no right to a job that has not asked for it, and bounds each in time', async () => {
    const { permissions, jobs } = await workflow();
    expect(permissions).toEqual({});
    for (const [name, job] of Object.entries(jobs)) {
      expect(job.permissions, name).toBeDefined();
      expect(job['timeout-minutes'], name).toBeLessThanOrEqual(30);
    }
  });

  it('the release workflow installs, builds and runs nothing of a checkout where a job may prove its identity', async () => {
    const { jobs } = await workflow();
    const identified = Object.entries(jobs).filter(
      ([, { permissions }]) => permissions?.['id-token'] === 'write',
    );
    expect(identified.map(([name]) => name)).toEqual(['publish-image', 'publish-package']);
    for (const [name, { steps }] of identified) {
      expect(
        steps.map(({ uses }) => uses ?? ''),
        name,
      ).not.toContainEqual(expect.stringContaining('checkout'));
      const scripts = steps.map(({ run }) => run ?? '').join('\n');
      expect(scripts, name).not.toMatch(
        /npm (?:ci|i|install|pack|run|x|exec|test)\b|npx|node |build\.ts|buildx build|docker run/,
      );
    }
    const published = JSON.stringify(jobs['publish-package']?.steps);
    expect(published).toContain('npm publish --ignore-scripts --provenance --access public ./*.tgz');
    expect(published).toContain('sha256sum --check');
    // And where libraries are installed there is nothing to take.
    expect(jobs['package']?.permissions).toEqual({ contents: 'read' });
    for (const line of JSON.stringify(jobs['package']?.steps).match(/npm (?:ci|pack)[^\\]*/g) ?? []) {
      expect(line).toContain('--ignore-scripts');
    }
  });

  it.each([
    [`node:26-slim@sha256:${'0a'.repeat(32)}`, 0],
    [`registry.example.com/base/node:26@sha256:${'0a'.repeat(32)}`, 0],
    ['node:26-slim', 1],
    ['node:26-slim@sha256:0a', 1],
    [`@sha256:${'0a'.repeat(32)}`, 1],
    ['', 1],
  ])(
    'the release workflow is ended by the base image "%s" with the status %i, before anything is built',
    async (image, status) => {
      const { jobs } = await workflow();
      const steps = jobs['test']?.steps ?? [];
      const script = steps.find(({ name }) => name === 'The base image has a digest')?.run ?? 'false';
      expect(
        spawnSync('bash', ['-e', '-c', script], { env: { ...process.env, NODE_IMAGE: image } }).status,
      ).toBe(status);
      expect(JSON.stringify(jobs['image']?.steps)).toContain('--build-arg NODE_IMAGE=\\"$NODE_IMAGE\\"');
    },
  );

  it.each([
    ['actions/checkout@v6', 1],
    [`actions/checkout@${'0a'.repeat(20)}`, 1],
    [`actions/checkout@${'0a'.repeat(20)} # v6.1.0`, 0],
  ])('the release workflow is ended by a workflow that uses %s with the status %i', async (used, status) => {
    const { jobs } = await workflow();
    const script =
      jobs['test']?.steps.find(({ name }) => name === 'Every action has a digest')?.run ?? 'false';
    const folder = mkdtempSync(join(tmpdir(), 'gateway-workflows-'));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    mkdirSync(join(folder, '.github/workflows'), { recursive: true });
    writeFileSync(join(folder, '.github/workflows/one.yml'), `    steps:\n      - uses: ${used}\n`);
    expect(spawnSync('bash', ['-e', '-c', script], { cwd: folder }).status).toBe(status);
    const here = fileURLToPath(new URL('../..', import.meta.url));
    expect(spawnSync('bash', ['-e', '-c', script], { cwd: here }).status).toBe(0);
  });

  it('a pull request is tested by what a release runs first, and its workflow may read alone', async () => {
    const { parse } = (await importLibrary('yaml')) as { parse: (yaml: string) => Workflow };
    const path = new URL('../../.github/workflows/test.yml', import.meta.url);
    const { permissions, jobs } = parse(readFileSync(path, 'utf8'));
    const ofRelease = (await workflow()).jobs['test'];
    expect(permissions).toEqual({});
    expect(Object.keys(jobs)).toEqual(['test']);
    expect({ ...jobs['test'], steps: [] }).toEqual({ ...ofRelease, steps: [] });
    for (const step of jobs['test']?.steps ?? []) expect(ofRelease?.steps).toContainEqual(step);
  });

  it('the release workflow has scripts that a shell can parse, with no expression of GitHub in them', async () => {
    const steps = Object.values((await workflow()).jobs).flatMap((job) => job.steps);
    const scripts = steps.flatMap(({ run }) => (run === undefined ? [] : [run]));
    expect(scripts.length).toBeGreaterThan(5);
    for (const script of scripts) {
      // Values come in as variables: a name of a branch or tag must not become a command.
      expect(script).not.toMatch(/\$\{\{/);
      expect(spawnSync('bash', ['-n', '-c', script], { encoding: 'utf8' }).stderr).toBe('');
    }
  });
});
