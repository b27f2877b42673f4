/**
 * The clouds' secret managers, by the clouds' own libraries, with their ways to find credentials: `aws-sm:name#field`, AWS
 * Secrets Manager, and `gcp-sm:projects/…`, Google Secret Manager.
 */
import { errorCode } from '../errors.ts';
import { type OutboundProxy, ProxyError } from '../exchange/proxy.ts';
import { importProblem, type LoadModule, type OptionalPackage } from '../files/optional-package.ts';
import { describeFailure, KeyStoreError, type OpenedStore } from './store.ts';

/** What we use of `@aws-sdk/client-secrets-manager` 3. */
export interface AwsSdk {
  SecretsManagerClient: new (
    settings: object,
  ) => {
    send(command: unknown, options: { abortSignal: AbortSignal }): Promise<SecretValue>;
  };
  GetSecretValueCommand: new (input: { SecretId: string; VersionStage: string }) => unknown;
}

interface SecretValue {
  readonly SecretString?: string;
  readonly SecretBinary?: Uint8Array;
}

/** @param secret the name or ARN */
export async function readAws(
  secret: string,
  field: string | undefined,
  describe: string,
  load: LoadModule,
  proxy: OutboundProxy | undefined,
): Promise<OpenedStore> {
  const sdk = await loadSdk<AwsSdk>(load, '@aws-sdk/client-secrets-manager', describe);
  // It hands them to the clients that find its credentials too.
  const client = new sdk.SecretsManagerClient(
    proxy === undefined ? {} : { requestHandler: { httpsAgent: proxy.agent } },
  );

  const valueAt = async (VersionStage: string, signal: AbortSignal): Promise<string> => {
    const command = new sdk.GetSecretValueCommand({ SecretId: secret, VersionStage });
    const value = await client.send(command, { abortSignal: signal });
    const text =
      value.SecretString ?? (value.SecretBinary && Buffer.from(value.SecretBinary).toString('utf8'));
    if (text === undefined) throw new KeyStoreError(`${describe}: the secret is empty`);
    return memberOf(text, field, describe);
  };

  return {
    load: async (signal) => {
      try {
        return await valueAt('AWSCURRENT', signal);
      } catch (error) {
        throw explainAws(error, describe);
      }
    },
    // The value before the last rotation: Secrets Manager keeps it under this label.
    loadPrevious: async (signal) => {
      try {
        return await valueAt('AWSPREVIOUS', signal);
      } catch (error) {
        if (nameOf(error) === 'ResourceNotFoundException') return undefined;
        throw explainAws(error, describe);
      }
    },
  };
}

const awsMeanings: Readonly<Record<string, string>> = {
  ResourceNotFoundException: 'there is no such secret in this region',
  InvalidRequestException:
    'the secret cannot be read as it is now: it is marked for deletion, or has no value',
  AccessDeniedException:
    'access denied: secretsmanager:GetSecretValue (and kms:Decrypt for a customer key) is needed',
  DecryptionFailure: 'the secret cannot be decrypted: kms:Decrypt is needed',
  CredentialsProviderError: 'no AWS credentials were found',
  ExpiredTokenException: 'the AWS credentials have expired',
  UnrecognizedClientException: 'the AWS credentials are not valid',
  InvalidSignatureException: 'the AWS credentials are not valid',
  ThrottlingException: 'too many requests: Secrets Manager throttles this account',
  AbortError: 'did not answer in time',
  TimeoutError: 'did not answer in time',
};

function explainAws(error: unknown, describe: string): KeyStoreError {
  if (error instanceof KeyStoreError) return error;
  if (error instanceof ProxyError) return new KeyStoreError(`${describe}: ${describeFailure(error)}`);
  const name = nameOf(error);
  if (name === 'Error' && String(error).includes('Region is missing')) {
    return new KeyStoreError(`${describe}: no region: set AWS_REGION`);
  }
  // Of the system, as ENOTFOUND: the library's own errors have names alone.
  const code = /^E[A-Z_]{1,40}$/.exec(errorCode(error) ?? '')?.[0];
  const unknown =
    code === undefined ? (/^\w{1,60}$/.test(name) ? name : 'failed') : `cannot be reached (${code})`;
  return new KeyStoreError(`${describe}: ${awsMeanings[name] ?? unknown}`);
}

function nameOf(error: unknown): string {
  return error instanceof Error ? error.name : '';
}

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
        throw explainGcp(error, describe);
      }
    },
    loadPrevious: async () => {
      if (found === undefined || found < 2) return undefined;
      try {
        return (await access(String(found - 1))).value;
      } catch (error) {
        // Destroyed, disabled or deleted: there is none.
        if ([5, 9].includes(statusOf(error))) return undefined;
        throw explainGcp(error, describe);
      }
    },
  };
}

/** By gRPC status. */
const gcpMeanings: Readonly<Record<number, string>> = {
  3: 'the name of the secret is not valid',
  4: 'did not answer in time',
  5: 'there is no such secret or version',
  7: 'access denied: secretmanager.versions.access is needed',
  8: 'too many requests: the quota of the project is used up',
  9: 'the version is disabled or destroyed',
  14: 'cannot be reached',
  16: 'the Google credentials are not valid',
};

function explainGcp(error: unknown, describe: string): KeyStoreError {
  if (error instanceof KeyStoreError) return error;
  if (String(error).includes('Could not load the default credentials')) {
    return new KeyStoreError(`${describe}: no Google credentials were found`);
  }
  return new KeyStoreError(`${describe}: ${gcpMeanings[statusOf(error)] ?? 'failed'}`);
}

function statusOf(error: unknown): number {
  const status = Number(errorCode(error));
  // The library asks again where it is throttled, until the time is up, and names what it met only in its message.
  const isThrottled = status === 4 && String(error).includes('RESOURCE_EXHAUSTED');
  return isThrottled ? 8 : status;
}

/** None of the libraries is among our dependencies. @throws KeyStoreError that says what to install */
async function loadSdk<T>(load: LoadModule, name: OptionalPackage, describe: string): Promise<T> {
  try {
    return (await load(name)) as T;
  } catch (error) {
    throw new KeyStoreError(`${describe}: ${importProblem(error, name)}`);
  }
}

/**
 * A key kept as it is, or as a member of a JSON object.
 *
 * @param name the member's name; `undefined`: the text is the key
 * @throws KeyStoreError where there is no such member; `JSON.parse`'s own error would quote the text
 */
function memberOf(text: string, name: string | undefined, describe: string): string {
  if (name === undefined) return text;
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    throw new KeyStoreError(`${describe}: the secret is not JSON, so it has no field`);
  }
  const value =
    typeof json === 'object' && json !== null && Object.hasOwn(json, name)
      ? (json as Record<string, unknown>)[name]
      : undefined;
  if (typeof value !== 'string') throw new KeyStoreError(`${describe}: the secret has no such field of text`);
  return value;
}
