/** What npm makes of a fresh clone, and what it installs of that, as those who use the package see it. */
import { execFile, execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { Agent, fetch as fetchOfUndici } from 'undici';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { version } from '../../src/version.ts';
import { hasLibraries } from '../libraries/import-library.ts';
import { enrol, startWith } from '../support/callers-files.ts';
import { installPackage } from '../support/checkout.ts';
import { blocksOf, readDocument, root } from '../support/documents.ts';
import { findOnPath } from '../support/find-on-path.ts';
import { accounts, startPair } from '../support/gateway.ts';
import { findOldNode } from '../support/old-node.ts';
import { run, serve, settingsFor, standInFor, temporaryFolder } from '../support/process.ts';

const folder = mkdtempSync(join(tmpdir(), 'gateway-package-'));
let project: string;
let packing: string;
let installed: string;

beforeAll(() => {
  const packed = blocksOf(readDocument('docs/deploying.md')).find(({ text }) => text.startsWith('npm pack'));
  ({ project, packing } = installPackage(folder, packed?.text.trim() ?? ''));
  installed = join(project, 'node_modules/workspace-analytics-gateway');
}, 180_000);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe('the package of a fresh clone, installed into an empty project', () => {
  it('the command line of the document makes a package of what it builds', () => {
    expect(packing).toMatch(/dist\/main\.js[\s\S]*workspace-analytics-gateway-.*\.tgz/);
  });

  it('the package brings no library along, because they are in what was built', () => {
    expect(readdirSync(join(project, 'node_modules')).sort()).toEqual([
      '.bin',
      '.package-lock.json',
      'workspace-analytics-gateway',
    ]);
    expect(readdirSync(installed).sort()).toEqual([
      '.env.example',
      'CHANGELOG.md',
      'LICENSE',
      'README.md',
      'bin',
      'dist',
      'package.json',
    ]);
  });

  it.skipIf(!hasLibraries)('publint and attw find nothing wrong with the package', () => {
    const [tarball = ''] = readdirSync(join(folder, 'checkout')).filter((name) => name.endsWith('.tgz'));
    const file = join(folder, 'checkout', tarball);
    const bin = join(root, 'test/libraries/node_modules/.bin');
    for (const [name = '', ...words] of [
      ['publint', 'run', file, '--strict'],
      // There is no version for require().
      ['attw', file, '--profile', 'esm-only', '--format', 'ascii', '--no-emoji'],
    ]) {
      const { status, stdout } = spawnSync(join(bin, name), words, { encoding: 'utf8' });
      expect([status, status === 0 ? '' : stdout], name).toEqual([0, '']);
    }
  });

  const oldNode = findOldNode();
  it.skipIf(oldNode === undefined)(
    'npm ci in the clone warns under an old Node of that alone, which README explains',
    () => {
      const npm = findOnPath('npm') ?? 'npm';
      const words = [npm, 'ci', '--dry-run', '--offline', '--no-audit', '--no-fund'];
      const env = {
        PATH: process.env['PATH'],
        HOME: folder,
        npm_config_cache: join(folder, 'npm'),
        npm_config_update_notifier: 'false',
      };
      const options = { cwd: join(folder, 'checkout'), env, encoding: 'utf8' } as const;
      const { stderr, status } = spawnSync(oldNode ?? '', words, options);
      expect(status).toBe(0);
      const warnings = stderr.split('\n').filter((line) => line.startsWith('npm '));
      expect(warnings.length).toBeGreaterThan(0);
      expect(warnings.filter((line) => !line.startsWith('npm warn EBADENGINE'))).toEqual([]);
      expect(readDocument('README.md')).toContain('`EBADENGINE`. They get it: nothing is left to do.');
    },
  );

  it('the command of the package serves', async (owner) => {
    const main = join(project, 'node_modules/.bin/analytics-gateway');
    expect((await run(owner, ['--version'], { main, cwd: project })).stdout).toBe(`${version}\n`);
    const standIn = await standInFor(owner);
    const gateway = await serve(owner, { main, cwd: project, settings: settingsFor(standIn.url) });
    expect((await gateway.ask(accounts)).status).toBe(200);
  });
});

describe('the client of the package', () => {
  const [program] = blocksOf(readDocument('docs/clients.md')).filter(({ language }) => language === 'ts');

  it('the client of the package is smaller than 5 KiB and imports nothing', () => {
    expect(readdirSync(join(installed, 'dist/client')).sort()).toEqual([
      'client.d.ts',
      'client.js',
      'operations.d.ts',
    ]);
    const text = readFileSync(join(installed, 'dist/client/client.js'), 'utf8');
    expect(Buffer.byteLength(text)).toBeLessThan(5 * 1_024);
    expect(text).not.toMatch(/\bimport\b|\brequire\b/);
  });

  describe('the types of the client', () => {
    const text = program?.text ?? '';
    const refused = `
      import { createClient, GatewayProblem, type Fetch } from 'workspace-analytics-gateway/client';
      const client = createClient({ baseUrl: '/api', token: async () => 'a-token' });
      // @ts-expect-error no operation
      await client.read('list-account');
      // @ts-expect-error the specification shows no fields
      (await client.read('list-accounts')).data.results;
      // @ts-expect-error nor those of other reads
      (await client.read('/analytics/posts/')).data.results;
      // @ts-expect-error no code
      export const isRight = (error: unknown) => error instanceof GatewayProblem && error.code === 'forbidden';
      const { data, status, headers } = await client.read('list-accounts', { query: { page: 1 }, signal: undefined });
      const again = await client.read('list-accounts', { previous: { data, status, headers, url: '' } });
      export const results: unknown = again.data;
      export const globalFetch: Fetch = fetch;
    `;
    let inNode: readonly string[];

    beforeAll(() => {
      const files = { 'script.ts': text, 'refused.ts': refused };
      inNode = problemsOf(files, ['--lib', 'ES2022', '--types', 'node']);
    });

    it('the program that the document shows has the right types, in Node and in a browser', () => {
      expect(inNode.filter((problem) => !problem.startsWith('refused.ts'))).toEqual([]);
      const page = text.replace('process.env.GATEWAY_TOKEN', '() => localStorage.token');
      expect(page).not.toBe(text);
      // TypeScript's own declarations of a browser are as they are; those of the client are checked.
      const browser = ['--lib', 'ES2022,DOM', '--types', '', '--skipDefaultLibCheck'];
      const inBrowser = [...browser, '--moduleResolution', 'bundler', '--module', 'esnext'];
      expect(problemsOf({ 'page.ts': page }, inBrowser)).toEqual([]);
    });

    it('the types of the client refuse what the gateway would refuse, and know no fields that are not specified', () => {
      expect(inNode.filter((problem) => problem.startsWith('refused.ts'))).toEqual([]);
    });
  });

  /** What tsc says of files in the project, as strictly as it can: its lines. */
  function problemsOf(files: Readonly<Record<string, string>>, options: readonly string[]): string[] {
    for (const [name, content] of Object.entries(files)) writeFileSync(join(project, name), content);
    const words = [
      '--noEmit',
      '--strict',
      '--exactOptionalPropertyTypes',
      '--target',
      'ES2022',
      '--module',
      'nodenext',
    ];
    const types = ['--typeRoots', join(root, 'node_modules/@types')];
    const compiler = join(root, 'node_modules/typescript/bin/tsc');
    const { stdout, stderr } = spawnSync(
      process.execPath,
      [compiler, ...words, ...types, ...options, ...Object.keys(files)],
      { cwd: project, encoding: 'utf8' },
    );
    return `${stdout}${stderr}`.split('\n').filter((line) => line !== '');
  }

  const oldNode = findOldNode();
  it.for([
    ['the Node of the gateway', process.execPath],
    ...(oldNode === undefined
      ? []
      : [[execFileSync(oldNode, ['--version'], { encoding: 'utf8' }).trim(), oldNode]]),
  ] as [string, string][])('the program that the document shows runs on %s', async ([, node]) => {
    const { token, entry } = enrol('script');
    const { url, standIn } = await startWith([entry]);
    writeFileSync(join(project, 'script.js'), program?.text.replace('http://gateway:8080', url) ?? '');
    const options = { cwd: project, env: { PATH: process.env['PATH'] } };
    const printed = async (withToken: string): Promise<string> => {
      const env = { ...options.env, GATEWAY_TOKEN: withToken };
      const { stdout, stderr } = await promisify(execFile)(node, ['script.js'], { ...options, env });
      return `${stdout}${stderr}`;
    };
    expect(await printed(token)).toContain('followers');
    expect(await printed('another-token')).toMatch(
      /^caller-unauthenticated The gateway does not know this caller/,
    );
    expect(standIn.requests).toHaveLength(1);
  });

  /** The client as it was packed. */
  const load = (): Promise<typeof import('../../src/client/client.ts')> =>
    import(pathToFileURL(join(installed, 'dist/client/client.js')).href);

  it('the client tells problems of the gateway from errors of the upstream', async () => {
    const { createClient } = await load();
    const { token, entry } = enrol('script', { operations: ['list-accounts', '/analytics/posts/:id/'] });
    const { url, standIn } = await startWith([entry], {
      UPSTREAM_READS: '/analytics/posts/:id/',
      CACHE_TTL: '0s',
    });
    const client = createClient({ baseUrl: `${url}/api/`, token });
    await expect(client.read('list-api-keys')).rejects.toMatchObject({
      name: 'GatewayProblem',
      code: 'caller-forbidden',
      status: 403,
      problem: { requestId: expect.any(String) },
    });
    standIn.behave({ status: 403, body: '{"detail":"the role does not suffice"}' }, 1);
    await expect(client.read('list-accounts')).rejects.toMatchObject({
      name: 'AnswerError',
      status: 403,
      body: { detail: 'the role does not suffice' },
    });
    standIn.behave({ status: 200, body: '{"id":42}' });
    const answer = await client.read('/analytics/posts/42/', { query: { fields: 'a b' } });
    expect(answer).toMatchObject({ data: { id: 42 }, status: 200 });
    expect(answer.headers.get('cache-status')).toContain('analytics-gateway; fwd=');
    expect(standIn.requests.at(-1)?.target).toBe('/api/analytics/posts/42/?fields=a+b');
  });

  it('the client reads from a sidecar’s Unix socket by the fetch of undici', async (owner) => {
    const { createClient } = await load();
    const path = join(temporaryFolder(owner), 'gateway.sock');
    await startPair({ HOST: `unix:${path}` });
    const dispatcher = new Agent({ connect: { socketPath: path } });
    owner.onTestFinished(() => dispatcher.close());
    const client = createClient({
      baseUrl: 'http://localhost/api',
      fetch: (url, init) => fetchOfUndici(url, { ...init, dispatcher }),
    });
    expect(await client.read('list-accounts')).toMatchObject({ status: 200 });
  });
});
