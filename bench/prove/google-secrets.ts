/**
 * Google Secret Manager as drongo's server has it, by Google's own library: versions, their states, refusals. The server
 * speaks the API's JSON, not gRPC, so the library is told to.
 */
import { equal, rejects } from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { GcpSdk } from '../../src/key/cloud-stores.ts';
import { openStore } from '../../src/key/open-store.ts';
import { importLibrary } from '../../test/libraries/import-library.ts';
import { findOnPath } from '../../test/support/find-on-path.ts';
import { freePort, startProgram } from '../process.ts';
import { Suite } from './suite.ts';

const [firstKey, secondKey] = ['the-first-key-0123456789', 'the-second-key-0123456789'];
const script = findOnPath('drongo') ?? '';
const python = /^#!(\S*python\S*)/.exec(readFileSync(script, 'utf8'))?.[1] ?? 'python3';
const version = execFileSync(python, ['-c', 'import drongo; print(drongo.__version__)'], {
  encoding: 'utf8',
});
const suite = new Suite(
  'Google Secret Manager: drongo, with Google’s library',
  version.trim(),
  'gRPC, logins and permissions, which drongo has not; `latest` where the newest version is disabled, which it reads otherwise than Google',
);
const port = await freePort();
const args = ['server', '--host', '127.0.0.1', '--port', String(port)];
const drongo = await startProgram({ command: script, args, speaks: false });

/** What an administrator does, by the same library. */
type Administration = Record<
  | 'createSecret'
  | 'addSecretVersion'
  | 'disableSecretVersion'
  | 'enableSecretVersion'
  | 'destroySecretVersion'
  | 'listSecrets',
  (input: object) => Promise<unknown>
>;
const { SecretManagerServiceClient: Client } = (await importLibrary(
  '@google-cloud/secret-manager',
)) as unknown as {
  SecretManagerServiceClient: new (
    options: object,
  ) => Administration & InstanceType<GcpSdk['SecretManagerServiceClient']>;
};
const { PassThroughClient } = (await importLibrary('google-auth-library')) as {
  PassThroughClient: new () => object;
};
const makeClient = () =>
  new Client({
    ...{ fallback: true, protocol: 'http', apiEndpoint: '127.0.0.1', port },
    authClient: new PassThroughClient(),
  });
// Google's class as it is, with the options that our store does not give.
const SecretManagerServiceClient = new Proxy(Client, { construct: makeClient });
const load = () => Promise.resolve({ SecretManagerServiceClient });

const admin = makeClient();
const parent = 'projects/p';
for (let tries = 0; ; tries++) {
  try {
    await admin.listSecrets({ parent });
    break;
  } catch (error) {
    if (tries === 100) throw error;
    await sleep(200);
  }
}
const create = async (secretId: string, ...values: readonly string[]): Promise<void> => {
  await admin.createSecret({ parent, secretId, secret: { replication: { automatic: {} } } });
  for (const value of values) await add(secretId, value);
};
const add = (secretId: string, value: string) =>
  admin.addSecretVersion({ parent: `${parent}/secrets/${secretId}`, payload: { data: Buffer.from(value) } });
const version1 = (secretId: string) => ({ name: `${parent}/secrets/${secretId}/versions/1` });

const never = new AbortController().signal;
const open = (from: string) =>
  openStore(`gcp-sm:${parent}/secrets/${from}`, {}, 'UPSTREAM_API_KEY_FROM', load);
const expectValues = async (from: string, ...values: [string, string | undefined]): Promise<void> => {
  const store = open(from);
  const found = [await store.load(never), await store.loadPrevious?.(never)];
  equal(JSON.stringify(found), JSON.stringify(values));
};

await suite.try('a secret with one version has no value before it', async () => {
  await create('one', firstKey);
  await expectValues('one', firstKey, undefined);
});
await suite.try('a store that is open reads each newest version, and the one before', async () => {
  await create('two', firstKey);
  const store = open('two');
  equal(await store.load(never), firstKey);
  await add('two', secondKey);
  equal(await store.load(never), secondKey);
  equal(await store.loadPrevious?.(never), firstKey);
});
await suite.try('a version that is named is read, whatever is newer', async () => {
  await expectValues('two/versions/1', firstKey, undefined);
  await expectValues('two/versions/2', secondKey, firstKey);
});
await suite.try('a version before that is disabled is none until it is enabled again', async () => {
  await admin.disableSecretVersion(version1('two'));
  await expectValues('two', secondKey, undefined);
  await admin.enableSecretVersion(version1('two'));
  await expectValues('two', secondKey, firstKey);
});
await suite.try('a version before that was destroyed is none; named itself, it is named so', async () => {
  await admin.destroySecretVersion(version1('two'));
  await expectValues('two', secondKey, undefined);
  await rejects(open('two/versions/1').load(never), /the version is disabled or destroyed/);
});
await suite.try('a member of JSON is read', async () => {
  await create('json', JSON.stringify({ key: firstKey }));
  await expectValues('json#key', firstKey, undefined);
  await rejects(open('json#other').load(never), /no such field/);
  await rejects(open('two#key').load(never), /not JSON/);
});
await suite.try('a secret that does not exist, or has no version, is named so', async () => {
  await create('empty');
  for (const name of ['missing', 'empty', 'two/versions/9']) {
    await rejects(open(name).load(never), /there is no such secret or version/);
  }
});
await suite.try('a server that has ended is named as not reachable', async () => {
  const store = open('one');
  equal(await store.load(never), firstKey);
  await drongo.end();
  await rejects(store.load(never), /cannot be reached|did not answer in time/);
});
suite.end();
