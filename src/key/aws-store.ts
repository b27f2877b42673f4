/** `aws-sm:name#field`: AWS Secrets Manager, by Amazon's own library, with its ways to find credentials. */
import { errorCode } from '../errors.ts';
import type { LoadModule } from '../files/optional-package.ts';
import { loadSdk } from './sdk.ts';
import { memberOf } from './secret-field.ts';
import { KeyStoreError } from './store.ts';
import type { OpenedStore } from './when-used.ts';

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
): Promise<OpenedStore> {
  const sdk = await loadSdk<AwsSdk>(load, '@aws-sdk/client-secrets-manager', describe);
  const client = new sdk.SecretsManagerClient({});

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
        throw explain(error, describe);
      }
    },
    // The value before the last rotation: Secrets Manager keeps it under this label.
    loadPrevious: async (signal) => {
      try {
        return await valueAt('AWSPREVIOUS', signal);
      } catch (error) {
        if (nameOf(error) === 'ResourceNotFoundException') return undefined;
        throw explain(error, describe);
      }
    },
  };
}

const meanings: Readonly<Record<string, string>> = {
  ResourceNotFoundException: 'there is no such secret in this region',
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

function explain(error: unknown, describe: string): KeyStoreError {
  if (error instanceof KeyStoreError) return error;
  const name = nameOf(error);
  if (name === 'Error' && String(error).includes('Region is missing')) {
    return new KeyStoreError(`${describe}: no region: set AWS_REGION`);
  }
  // Of the system, as ENOTFOUND: the library's own errors have names alone.
  const code = /^E[A-Z_]{1,40}$/.exec(errorCode(error) ?? '')?.[0];
  const unknown =
    code === undefined ? (/^\w{1,60}$/.test(name) ? name : 'failed') : `cannot be reached (${code})`;
  return new KeyStoreError(`${describe}: ${meanings[name] ?? unknown}`);
}

function nameOf(error: unknown): string {
  return error instanceof Error ? error.name : '';
}
