/** The built gateway with Amazon's library beside it, as it is deployed, while the key in the store is rotated. */
import { symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { hasLibraries } from '../libraries/import-library.ts';
import { awsAccessKey, startAws } from '../support/aws-stand-in.ts';
import { accounts } from '../support/gateway.ts';
import { buildProgram } from '../support/image.ts';
import { serve, settingsFor, standInFor, until } from '../support/process.ts';

const [firstKey, secondKey] = ['the-first-key-0123456789', 'the-second-key-0123456789'];

describe.skipIf(!hasLibraries)('a key in AWS Secrets Manager that is rotated under load', () => {
  const { folder, main } = buildProgram();

  it('is taken over without a request that fails, through throttling and a store that hangs', async (owner) => {
    symlinkSync(
      fileURLToPath(new URL('../libraries/node_modules', import.meta.url)),
      join(folder, 'node_modules'),
    );
    const aws = await startAws();
    owner.onTestFinished(() => aws.close());
    aws.stages.set('AWSCURRENT', firstKey);
    const standIn = await standInFor(owner, { key: firstKey });
    const { UPSTREAM_API_KEY: _, ...settings } = settingsFor(standIn.url);
    const gateway = await serve(owner, {
      main,
      settings: {
        ...settings,
        UPSTREAM_API_KEY_FROM: 'aws-sm:team/wak',
        UPSTREAM_API_KEY_REFRESH: '1s',
        // Every read goes up.
        CACHE_TTL: '0s',
        AWS_ENDPOINT_URL_SECRETS_MANAGER: aws.url,
        AWS_REGION: awsAccessKey.region,
        AWS_ACCESS_KEY_ID: awsAccessKey.id,
        AWS_SECRET_ACCESS_KEY: awsAccessKey.secret,
      },
    });
    const statuses = new Map<number, number>();
    let isLoaded = true;
    const load = async (): Promise<void> => {
      while (isLoaded) {
        const { status } = await gateway.ask(accounts);
        statuses.set(status, (statuses.get(status) ?? 0) + 1);
      }
    };
    await until(async () => (await gateway.ask('/readyz')).status === 200);
    const loads = [load(), load(), load(), load()];
    await until(() => (statuses.get(200) ?? 0) > 20);
    // Both keys are good for a while, as in a rotation by the book, and the store throttles meanwhile.
    standIn.keys.add(secondKey);
    aws.stages.set('AWSPREVIOUS', firstKey).set('AWSCURRENT', secondKey);
    aws.fail(400, 'ThrottlingException', 2);
    await until(() => standIn.requests.at(-1)?.key === secondKey);
    standIn.keys.delete(firstKey);
    aws.hang();
    const answered = statuses.get(200) ?? 0;
    await until(() => (statuses.get(200) ?? 0) > answered + 20);
    isLoaded = false;
    await Promise.all(loads);
    expect([...statuses.keys()]).toEqual([200]);
    gateway.signal('SIGTERM');
    expect(await gateway.exited).toBe(0);
    for (const key of [firstKey, secondKey]) expect(gateway.stdout() + gateway.stderr()).not.toContain(key);
  });
});
