/** The release workflow runs on GitHub alone; what can be checked of it elsewhere is its structure and its scripts. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { hasLibraries, importLibrary } from '../libraries/import-library.ts';

interface Step {
  readonly name?: string;
  readonly uses?: string;
  readonly run?: string;
}

interface Job {
  readonly needs?: string;
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
      ['publish-package', 'image'],
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
    expect(stepsOf('publish-package')).toContain('npm pkg set \\"repository=github:$GITHUB_REPOSITORY\\"');
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
