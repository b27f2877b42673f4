/** `gcp-sm:projects/…`: Google Secret Manager, by Google's own library, with its ways to find credentials. */
import { errorCode } from '../errors.ts';
import type { LoadModule } from '../files/optional-package.ts';
import { loadSdk } from './sdk.ts';
import { memberOf } from './secret-field.ts';
import { KeyStoreError } from './store.ts';
import type { OpenedStore } from './when-used.ts';

/** What we use of `@google-cloud/secret-manager` 7. */
export interface GcpSdk {
  SecretManagerServiceClient: new () => {
    /** Finds credentials. */
    initialize(): Promise<unknown>;
    accessSecretVersion(
      request: { name: string },
      options: { timeout: number },
    ): Promise<
      readonly [
        {
          readonly name?: string | null;
          readonly payload?: { readonly data?: Uint8Array | string | null } | null;
        },
        ...unknown[],
      ]
    >;
  };
}

const timeoutMs = 10_000;

/** @param secret `projects/<project>/secrets/<name>`, without a version */
export async function readGcp(
  secret: string,
  version: string,
  field: string | undefined,
  describe: string,
  load: LoadModule,
): Promise<OpenedStore> {
  const sdk = await loadSdk<GcpSdk>(load, '@google-cloud/secret-manager', describe);
  let ready: InstanceType<GcpSdk['SecretManagerServiceClient']> | undefined;
  let found: number | undefined;

  // A read by a client without credentials leaves a rejection that nothing handles, which would end the process; and
  // such a client never looks for them again. So one is used only once it has found them.
  const readyClient = async () => {
    if (ready !== undefined) return ready;
    const client = new sdk.SecretManagerServiceClient();
    await client.initialize();
    ready = client;
    return client;
  };

  const access = async (which: string): Promise<{ name: string; value: string }> => {
    const client = await readyClient();
    const [answer] = await client.accessSecretVersion(
      { name: `${secret}/versions/${which}` },
      { timeout: timeoutMs },
    );
    const data = answer.payload?.data;
    if (data === undefined || data === null) throw new KeyStoreError(`${describe}: the secret is empty`);
    const text = typeof data === 'string' ? data : Buffer.from(data).toString('utf8');
    return { name: answer.name ?? '', value: memberOf(text, field, describe) };
  };

  return {
    load: async () => {
      try {
        const { name, value } = await access(version);
        // The answer names the real number behind `latest`.
        const number = /\/versions\/(\d+)$/.exec(name)?.[1];
        found = number === undefined ? undefined : Number(number);
        return value;
      } catch (error) {
        throw explain(error, describe);
      }
    },
    loadPrevious: async () => {
      if (found === undefined || found < 2) return undefined;
      try {
        return (await access(String(found - 1))).value;
      } catch (error) {
        // Destroyed, disabled or deleted: there is none.
        if ([5, 9].includes(statusOf(error))) return undefined;
        throw explain(error, describe);
      }
    },
  };
}

/** By gRPC status. */
const meanings: Readonly<Record<number, string>> = {
  3: 'the name of the secret is not valid',
  4: 'did not answer in time',
  5: 'there is no such secret or version',
  7: 'access denied: secretmanager.versions.access is needed',
  8: 'too many requests: the quota of the project is used up',
  9: 'the version is disabled or destroyed',
  14: 'cannot be reached',
  16: 'the Google credentials are not valid',
};

function explain(error: unknown, describe: string): KeyStoreError {
  if (error instanceof KeyStoreError) return error;
  if (String(error).includes('Could not load the default credentials')) {
    return new KeyStoreError(`${describe}: no Google credentials were found`);
  }
  return new KeyStoreError(`${describe}: ${meanings[statusOf(error)] ?? 'failed'}`);
}

function statusOf(error: unknown): number {
  const status = Number(errorCode(error));
  // The library asks again where it is throttled, until the time is up, and names what it met only in its message.
  const isThrottled = status === 4 && String(error).includes('RESOURCE_EXHAUSTED');
  return isThrottled ? 8 : status;
}
