/** The built gateway with a cloud's own library beside it, as it is deployed, while the key in the store is rotated. */
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { beforeAll, describe, expect, it } from 'vitest';
import { hasLibraries } from '../libraries/import-library.ts';
import { awsAccessKey, startAws } from '../support/aws-stand-in.ts';
import { accounts } from '../support/gateway.ts';
import { startGcp } from '../support/gcp-stand-in.ts';
import { copyOfProgram } from '../support/image.ts';
import { type Owner, serve, settingsFor, standInFor, until } from '../support/process.ts';

const [firstKey, secondKey] = ['the-first-key-0123456789', 'the-second-key-0123456789'];
const libraries = fileURLToPath(new URL('../libraries/', import.meta.url));

/** A cloud's secret store that holds the first key. */
interface Store {
  readonly settings: Readonly<Record<string, string>>;
  /** Holds the second key from now on, the first one as its previous value, and throttles the next requests. */
  rotate(): void;
  hang(): void;
}

async function awsStore(owner: Owner): Promise<Store> {
  const aws = await startAws();
  owner.onTestFinished(() => aws.close());
  aws.stages.set('AWSCURRENT', firstKey);
  return {
    settings: {
      UPSTREAM_API_KEY_FROM: 'aws-sm:team/wak',
      AWS_ENDPOINT_URL_SECRETS_MANAGER: aws.url,
      AWS_REGION: awsAccessKey.region,
      AWS_ACCESS_KEY_ID: awsAccessKey.id,
      AWS_SECRET_ACCESS_KEY: awsAccessKey.secret,
    },
    rotate() {
      aws.stages.set('AWSPREVIOUS', firstKey).set('AWSCURRENT', secondKey);
      aws.fail(400, 'ThrottlingException', 2);
    },
    hang: () => aws.hang(),
  };
}

async function gcpStore(owner: Owner): Promise<Store> {
  const gcp = await startGcp();
  owner.onTestFinished(() => gcp.close());
  gcp.versions.push(firstKey);
  return {
    settings: {
      UPSTREAM_API_KEY_FROM: 'gcp-sm:projects/p/secrets/wak',
      // The library would ask the network for a machine of Google's.
      METADATA_SERVER_DETECTION: 'none',
      TEST_GCP_PORT: String(gcp.port),
    },
    rotate() {
      gcp.versions.push(secondKey);
      gcp.fail(8, 2);
    },
    hang: () => gcp.hang(),
  };
}

/** Google's library with the address of the stand-in: it has no setting for that. It is found before the real one. */
const googleAtStandIn = `
import { createRequire } from 'node:module';
const require = createRequire(${JSON.stringify(libraries)});
const { SecretManagerServiceClient: Client } = require('@google-cloud/secret-manager');
const sslCreds = require('@grpc/grpc-js').credentials.createInsecure();
export class SecretManagerServiceClient extends Client {
  constructor() {
    super({ apiEndpoint: '127.0.0.1', port: Number(process.env.TEST_GCP_PORT), sslCreds });
  }
}
`;

describe.skipIf(!hasLibraries)('a key in a cloud’s secret store that is rotated under load', () => {
  const { folder, main } = copyOfProgram();
  beforeAll(() => {
    symlinkSync(join(libraries, 'node_modules'), join(folder, 'node_modules'));
    const shadow = join(folder, 'dist/node_modules/@google-cloud/secret-manager');
    mkdirSync(shadow, { recursive: true });
    writeFileSync(join(shadow, 'package.json'), '{"type":"module","main":"index.js"}');
    writeFileSync(join(shadow, 'index.js'), googleAtStandIn);
  });

  it.for([
    ['AWS Secrets Manager', awsStore],
    ['Google Secret Manager', gcpStore],
  ] as const)(
    'in %s is taken over without a request that fails, through throttling and a store that hangs',
    {
      timeout: 60_000,
    },
    async ([, startStore], owner) => {
      const store = await startStore(owner);
      const standIn = await standInFor(owner, { key: firstKey });
      const { UPSTREAM_API_KEY: _, ...settings } = settingsFor(standIn.url);
      const gateway = await serve(owner, {
        main,
        // Every read goes up.
        settings: { ...settings, ...store.settings, UPSTREAM_API_KEY_REFRESH: '1s', CACHE_TTL: '0s' },
      });
      const statuses = new Map<number, number>();
      let isLoaded = true;
      const load = async (): Promise<void> => {
        while (isLoaded) {
          const { status } = await gateway.ask(accounts);
          statuses.set(status, (statuses.get(status) ?? 0) + 1);
          // A steady load. As many reads as there can be would take the processors from all other tests.
          await sleep(25);
        }
      };
      await until(async () => (await gateway.ask('/readyz')).status === 200);
      const loads = [load(), load(), load(), load()];
      await until(() => (statuses.get(200) ?? 0) > 20);
      // Both keys are good for a while, as in a rotation by the book, and the store throttles meanwhile.
      standIn.keys.add(secondKey);
      store.rotate();
      await until(() => standIn.requests.at(-1)?.key === secondKey);
      standIn.keys.delete(firstKey);
      store.hang();
      const answered = statuses.get(200) ?? 0;
      await until(() => (statuses.get(200) ?? 0) > answered + 20);
      isLoaded = false;
      await Promise.all(loads);
      expect([...statuses.keys()]).toEqual([200]);
      gateway.signal('SIGTERM');
      expect(await gateway.exited).toBe(0);
      for (const key of [firstKey, secondKey]) expect(gateway.stdout() + gateway.stderr()).not.toContain(key);
    },
  );
});
