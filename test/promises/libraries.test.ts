/**
 * Libraries that a setting needs and that are not installed with the gateway: the command that it prints is run by a shell
 * as it stands, with npm's own program, against a registry of the test that has small packages of those names.
 */
import { execFile, execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { optionalPackages } from '../../src/files/optional-package.ts';
import { copyCheckout } from '../support/checkout.ts';
import { readDocument } from '../support/documents.ts';
import { run, settingsFor } from '../support/process.ts';
import { copyProgram } from '../support/program.ts';
import { sharedOwner } from '../support/shared-owner.ts';
import { type StandIn, standInKey, startStandIn } from '../support/stand-in/stand-in.ts';

/** As little of each library as gives the stand-in's key, or can be loaded. */
const sources: Readonly<Record<keyof typeof optionalPackages, string>> = {
  '@aws-sdk/client-secrets-manager': `
    exports.GetSecretValueCommand = class {};
    exports.SecretsManagerClient = class { async send() { return { SecretString: '${standInKey}' }; } };`,
  '@google-cloud/secret-manager': `
    exports.SecretManagerServiceClient = class {
      async initialize() {}
      async accessSecretVersion() { return [{ payload: { data: '${standInKey}' } }]; }
    };`,
  '@opentelemetry/api': '',
  '@opentelemetry/sdk-node': '',
};

const folder = mkdtempSync(join(tmpdir(), 'gateway-libraries-'));
/** With blanks and a quotation mark, which a shell takes apart. */
const layouts = { checkout: join(folder, "Ann's checkout"), image: join(folder, 'app') } as const;
const registry = createServer((request, response) => {
  const path = decodeURIComponent(request.url ?? '').slice(1);
  const isArchive = path.endsWith('.tgz');
  const file = join(folder, isArchive ? path : `${path.replace('/', '+')}.json`);
  response.statusCode = existsSync(file) ? 200 : 404;
  response.end(existsSync(file) ? readFileSync(file) : '{}');
});
let registryUrl: string;
let standIn: StandIn;

beforeAll(async () => {
  standIn = await startStandIn();
  await new Promise<void>((resolve) => registry.listen(0, '127.0.0.1', resolve));
  registryUrl = `http://127.0.0.1:${(registry.address() as AddressInfo).port}/`;
  for (const [name, source] of Object.entries(sources)) publish(name, source);
  copyCheckout(layouts.checkout);
  copyProgram(layouts.image);
});
afterAll(async () => {
  registry.close();
  await standIn.close();
  rmSync(folder, { recursive: true });
});

/** Puts a package into the registry, in the version that the command asks for. */
function publish(name: string, source: string): void {
  const version = `${optionalPackages[name as keyof typeof optionalPackages]}.999.0`;
  const flat = name.replace('/', '+');
  const content = join(folder, flat, 'package');
  mkdirSync(content, { recursive: true });
  writeFileSync(join(content, 'package.json'), JSON.stringify({ name, version, main: 'main.js' }));
  writeFileSync(join(content, 'main.js'), source);
  execFileSync('tar', ['-czf', join(folder, `${flat}.tgz`), '-C', join(folder, flat), 'package']);
  const dist = { tarball: `${registryUrl}${flat}.tgz` };
  const about = { name, 'dist-tags': { latest: version }, versions: { [version]: { name, version, dist } } };
  writeFileSync(join(folder, `${flat}.json`), JSON.stringify(about));
}

/** As a reader's shell does, anywhere but in the gateway's folder. */
async function inShell(commandLine: string): Promise<void> {
  const path = (process.env['PATH'] ?? '').split(delimiter).filter((one) => !one.includes('node_modules'));
  const env = {
    PATH: path.join(delimiter),
    HOME: folder,
    npm_config_cache: join(folder, 'npm'),
    npm_config_registry: registryUrl,
    npm_config_update_notifier: 'false',
    npm_config_audit: 'false',
  };
  await promisify(execFile)('sh', ['-c', commandLine], { cwd: tmpdir(), env });
}

const { UPSTREAM_API_KEY: _, ...keyless } = settingsFor('');
const needs = [
  ['Amazon', { UPSTREAM_API_KEY_FROM: 'aws-sm:name' }],
  ['Google', { UPSTREAM_API_KEY_FROM: 'gcp-sm:projects/p/secrets/s' }],
  ['OpenTelemetry', { UPSTREAM_API_KEY: standInKey, OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9' }],
] as const;

describe.each([
  ['a checkout', layouts.checkout, 'bin/analytics-gateway.js'],
  ['the image, and of the unit', layouts.image, 'dist/main.js'],
] as const)('a library that a setting needs, in the layout of %s', (_name, root, program) => {
  const owner = sharedOwner();
  const check = (settings: Readonly<Record<string, string>>) =>
    run(owner, ['check'], {
      main: join(root, program),
      settings: { ...keyless, UPSTREAM_BASE_URL: standIn.url, ...settings },
    });

  // One after the other: what npm installs next must not take away what was installed before.
  it.each(needs)('the printed command installs what is needed of %s', async (_maker, settings) => {
    const before = await check(settings);
    expect(before.status, before.stdout).toBe(2);
    const [command = ''] = /npm install .*$/m.exec(before.stdout) ?? [];
    await inShell(command);
    const after = await check(settings);
    expect(after.stdout).toContain('Fine: ');
    expect(after.status).toBe(0);
  });

  it('libraries of the settings before are still there', async () => {
    for (const [, settings] of needs) expect((await check(settings)).status).toBe(0);
  });
});

it('the documents name the commands that are printed', () => {
  const names = Object.entries(optionalPackages).map(([name, version]) => `${name}@${version}`);
  const [aws = '', google = '', ...traces] = names;
  const commands = [
    ['docs/key.md', `libraries ${aws}`],
    ['docs/key.md', `libraries ${google}`],
    ['docs/deploying.md', `/app/libraries ${aws}`],
    ['docs/operating.md', `libraries ${traces.join(' ')}`],
  ] as const;
  const missing = commands.filter(
    ([page, words]) => !readDocument(page).includes(`npm install --prefix ${words}`),
  );
  expect(missing).toEqual([]);
});
