/**
 * AWS Secrets Manager as moto's server has it, by Amazon's own library: stages, refusals, and a rotation under load.
 * moto does not throttle: a server before it does so when asked to.
 */
import { equal, rejects } from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { openStore } from '../../src/key/open-store.ts';
import { importLibrary } from '../../test/libraries/import-library.ts';
import { findOnPath } from '../../test/support/find-on-path.ts';
import { freePort, startProgram } from '../process.ts';
import { rotateUnderLoad } from './rotation.ts';
import { Suite } from './suite.ts';

const [firstKey, secondKey, thirdKey] = [
  'the-first-key-0123456789',
  'the-second-key-0123456789',
  'the-third-key',
];
const script = findOnPath('moto_server') ?? '';
const python = /^#!(\S*python\S*)/.exec(readFileSync(script, 'utf8'))?.[1] ?? 'python3';
const version = execFileSync(python, ['-c', 'import moto; print(moto.__version__)'], { encoding: 'utf8' });
const suite = new Suite(
  'AWS Secrets Manager: moto, with Amazon’s library',
  version.trim(),
  'signatures and permissions, which moto refuses in the form of another service; throttling is a server of ours before moto',
);

const motoPort = await freePort();
const moto = await startProgram({
  command: script,
  args: ['-H', '127.0.0.1', '-p', String(motoPort)],
  speaks: false,
});

/** Answers the next requests as Secrets Manager does where it throttles, and hands all others to moto. */
let throttled = 0;
const front = createServer((incoming, outgoing) => {
  if (throttled > 0) {
    throttled -= 1;
    const type = 'application/x-amz-json-1.1';
    outgoing.writeHead(400, { 'content-type': type }).end('{"__type":"ThrottlingException"}');
    return;
  }
  const { method, url, headers } = incoming;
  const asked = request({ host: '127.0.0.1', port: motoPort, method, path: url, headers }, (answer) => {
    outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
    answer.pipe(outgoing);
  });
  asked.once('error', () => outgoing.destroy());
  incoming.pipe(asked);
});
await new Promise<void>((resolve) => front.listen(0, '127.0.0.1', resolve));

const settings = {
  AWS_ENDPOINT_URL_SECRETS_MANAGER: `http://127.0.0.1:${(front.address() as AddressInfo).port}`,
  AWS_REGION: 'eu-west-1',
  AWS_ACCESS_KEY_ID: 'AKIDEXAMPLE',
  AWS_SECRET_ACCESS_KEY: 'any',
};
Object.assign(process.env, settings);
const never = new AbortController().signal;
const open = (from: string) => openStore(`aws-sm:${from}`, {}, 'UPSTREAM_API_KEY_FROM', importLibrary);

/** What an administrator does, by the same library. */
interface Administration {
  SecretsManager: new (
    settings: object,
  ) => Record<
    'createSecret' | 'putSecretValue' | 'updateSecretVersionStage' | 'deleteSecret' | 'listSecrets',
    (input: object) => Promise<{ ARN?: string; VersionId?: string }>
  >;
}
const sdk = (await importLibrary('@aws-sdk/client-secrets-manager')) as unknown as Administration;
const admin = new sdk.SecretsManager({});
for (let tries = 0; ; tries++) {
  try {
    await admin.listSecrets({});
    break;
  } catch (error) {
    if (tries === 100) throw error;
    await sleep(200);
  }
}

const valuesOf = async (from: string): Promise<[newest: string, before: string | undefined]> => {
  const store = open(from);
  return [await store.load(never), await store.loadPrevious?.(never)];
};
const expectValues = async (from: string, ...values: [string, string | undefined]): Promise<void> =>
  equal(JSON.stringify(await valuesOf(from)), JSON.stringify(values));

await suite.try('a secret with one version has no value before it', async () => {
  await admin.createSecret({ Name: 'one', SecretString: firstKey });
  await expectValues('one', firstKey, undefined);
});
await suite.try('a put moves the stages AWSCURRENT and AWSPREVIOUS', async () => {
  await admin.createSecret({ Name: 'two', SecretString: firstKey });
  for (const key of [secondKey, thirdKey]) await admin.putSecretValue({ SecretId: 'two', SecretString: key });
  await expectValues('two', thirdKey, secondKey);
});
await suite.try('a version with AWSPENDING is taken once a rotation makes it AWSCURRENT', async () => {
  const { VersionId: old } = await admin.createSecret({ Name: 'pending', SecretString: firstKey });
  const pending = { SecretId: 'pending', SecretString: secondKey, VersionStages: ['AWSPENDING'] };
  const { VersionId: next } = await admin.putSecretValue(pending);
  await expectValues('pending', firstKey, undefined);
  await admin.updateSecretVersionStage({
    SecretId: 'pending',
    VersionStage: 'AWSCURRENT',
    MoveToVersionId: next,
    RemoveFromVersionId: old,
  });
  await expectValues('pending', secondKey, firstKey);
});
await suite.try('a member of JSON is read', async () => {
  await admin.createSecret({ Name: 'team/json', SecretString: JSON.stringify({ key: firstKey }) });
  await expectValues('team/json#key', firstKey, undefined);
  await rejects(open('team/json#other').load(never), /no such field/);
  await rejects(open('two#key').load(never), /not JSON/);
});
await suite.try('a binary secret is read', async () => {
  await admin.createSecret({ Name: 'binary', SecretBinary: Buffer.from(firstKey) });
  await expectValues('binary', firstKey, undefined);
});
await suite.try('a secret is found by its ARN', async () => {
  const { ARN } = await admin.createSecret({ Name: 'by-arn', SecretString: firstKey });
  await expectValues(String(ARN), firstKey, undefined);
});
await suite.try('a secret that does not exist is named so', () =>
  rejects(open('missing').load(never), /there is no such secret in this region/),
);
await suite.try('a secret that is marked for deletion is named so', async () => {
  await admin.createSecret({ Name: 'deleted', SecretString: firstKey });
  await admin.deleteSecret({ SecretId: 'deleted' });
  await rejects(open('deleted').load(never), /marked for deletion/);
});
await suite.try('a secret of another region is not there', async () => {
  await new sdk.SecretsManager({ region: 'us-east-1' }).createSecret({ Name: 'far', SecretString: firstKey });
  await rejects(open('far').load(never), /there is no such secret in this region/);
});
await suite.try('throttling is waited out, and named where it goes on', async () => {
  throttled = 2;
  await expectValues('one', firstKey, undefined);
  throttled = 1_000;
  await rejects(open('one').load(never), /too many requests/);
  throttled = 0;
});
await suite.try(
  'a key is rotated under load without a request that fails, through throttling and an end of moto',
  async () => {
    await admin.createSecret({ Name: 'rotated', SecretString: firstKey });
    await rotateUnderLoad({
      settings: { ...settings, UPSTREAM_API_KEY_FROM: 'aws-sm:rotated' },
      keys: [firstKey, secondKey],
      async rotate() {
        await admin.putSecretValue({ SecretId: 'rotated', SecretString: secondKey });
        throttled = 2;
      },
      end: () => moto.end(),
    });
  },
);

suite.end();
await moto.end();
front.closeAllConnections();
front.close();
