import { describe, expect, it } from 'vitest';
import { openStore } from '../../src/key/open-store.ts';

const never = new AbortController().signal;
const named = (name: string, message = 'secret-0123456789 in a message') =>
  Object.assign(new Error(message), { name });
const coded = (code: number | string, message = 'secret-0123456789 in a message') =>
  Object.assign(new Error(message), { code });

/** Amazon's library as far as we use it: commands are objects with their input, answers are by stage. */
function awsWith(values: Record<string, { SecretString?: string; SecretBinary?: Uint8Array } | Error>) {
  const sent: unknown[] = [];
  class GetSecretValueCommand {
    readonly input: { SecretId: string; VersionStage: string };
    constructor(input: { SecretId: string; VersionStage: string }) {
      this.input = input;
    }
  }
  class SecretsManagerClient {
    async send(command: GetSecretValueCommand, options: { abortSignal: AbortSignal }) {
      sent.push([command.input, options.abortSignal === never]);
      const value = values[command.input.VersionStage];
      if (value instanceof Error) throw value;
      return value;
    }
  }
  return { sent, load: async () => ({ SecretsManagerClient, GetSecretValueCommand }) };
}

/** Google's library as far as we use it: answers come in an array, by the full name of a version. */
function gcpWith(values: Record<string, { name?: string; payload?: { data?: Uint8Array } } | Error>) {
  class SecretManagerServiceClient {
    async initialize() {}
    async accessSecretVersion({ name }: { name: string }) {
      const value = values[name] ?? coded(5);
      if (value instanceof Error) throw value;
      return [value, undefined, undefined];
    }
  }
  return async () => ({ SecretManagerServiceClient });
}

const open = (from: string, load: (name: string) => Promise<unknown>) =>
  openStore(from, {}, 'UPSTREAM_API_KEY_FROM', load);

describe('a secret in AWS Secrets Manager', () => {
  it('is read whole, or one field of it, from text and from bytes', async () => {
    const arn = 'arn:aws:secretsmanager:eu-west-1:123456789012:secret:team/wak-AbCdEf';
    const whole = awsWith({ AWSCURRENT: { SecretString: 'first-key' } });
    expect(await open(`aws-sm:${arn}`, whole.load).load(never)).toBe('first-key');
    expect(whole.sent).toEqual([[{ SecretId: arn, VersionStage: 'AWSCURRENT' }, true]]);
    const json = awsWith({ AWSCURRENT: { SecretBinary: Buffer.from('{"key":"first-key"}') } });
    expect(await open('aws-sm:team/wak#key', json.load).load(never)).toBe('first-key');
  });

  it('has a previous value under AWSPREVIOUS, or none', async () => {
    const both = awsWith({ AWSPREVIOUS: { SecretString: 'old-key' } });
    expect(await open('aws-sm:wak', both.load).loadPrevious?.(never)).toBe('old-key');
    const one = awsWith({ AWSPREVIOUS: named('ResourceNotFoundException') });
    expect(await open('aws-sm:wak', one.load).loadPrevious?.(never)).toBeUndefined();
  });

  it.each([
    [named('ResourceNotFoundException'), /no such secret/],
    [named('AccessDeniedException'), /secretsmanager:GetSecretValue/],
    [named('CredentialsProviderError'), /no AWS credentials/],
    [named('Error', 'Region is missing'), /AWS_REGION/],
    [named('ThrottlingException'), /too many requests/],
    [named('InternalServiceError'), /InternalServiceError$/],
    [coded('ENOTFOUND'), /cannot be reached \(ENOTFOUND\)$/],
    [Object.assign(new AggregateError([]), { code: 'ECONNREFUSED' }), /cannot be reached \(ECONNREFUSED\)$/],
    [{ SecretString: 'not json secret-0123456789' }, /not JSON/],
    [{ SecretString: '{"other":"secret-0123456789"}' }, /no such field/],
    [{}, /empty/],
  ])('that cannot be had is explained %#', async (value, reason) => {
    const failure = await open('aws-sm:wak#key', awsWith({ AWSCURRENT: value }).load)
      .load(never)
      .catch(String);
    expect(failure).toMatch(reason);
    expect(failure).not.toContain('secret-0123456789');
  });
});

describe('a secret in Google Secret Manager', () => {
  const secret = 'projects/team-1/secrets/wak';
  const version = (number: number, text: string) => ({
    name: `projects/123/secrets/wak/versions/${number}`,
    payload: { data: Buffer.from(text) },
  });

  it('is read at its latest version, or at a given one, whole or by field', async () => {
    const load = gcpWith({
      [`${secret}/versions/latest`]: version(7, 'latest-key'),
      [`${secret}/versions/3`]: version(3, '{"key":"third-key"}'),
    });
    expect(await open(`gcp-sm:${secret}`, load).load(never)).toBe('latest-key');
    expect(await open(`gcp-sm:${secret}/versions/3#key`, load).load(never)).toBe('third-key');
  });

  it('has the version before as its previous value, unless that was disabled', async () => {
    const values = {
      [`${secret}/versions/latest`]: version(7, 'latest-key'),
      [`${secret}/versions/6`]: version(6, 'sixth-key') as ReturnType<typeof version> | Error,
    };
    const store = open(`gcp-sm:${secret}`, gcpWith(values));
    expect(await store.loadPrevious?.(never)).toBeUndefined();
    await store.load(never);
    expect(await store.loadPrevious?.(never)).toBe('sixth-key');
    values[`${secret}/versions/6`] = coded(9);
    expect(await store.loadPrevious?.(never)).toBeUndefined();
  });

  it('is read once there are credentials: a client that found none never looks again', async () => {
    const load = gcpWith({ [`${secret}/versions/latest`]: version(7, 'latest-key') });
    const { SecretManagerServiceClient: Working } = await load();
    let made = 0;
    class SecretManagerServiceClient extends Working {
      readonly #isFirst = ++made === 1;
      override async initialize() {
        if (this.#isFirst) throw new Error('Could not load the default credentials.');
      }
      override async accessSecretVersion(request: { name: string }) {
        await this.initialize();
        return super.accessSecretVersion(request);
      }
    }
    const store = open(`gcp-sm:${secret}`, async () => ({ SecretManagerServiceClient }));
    await expect(store.load(never)).rejects.toThrow('no Google credentials');
    expect(await store.load(never)).toBe('latest-key');
    expect(await store.load(never)).toBe('latest-key');
    expect(made).toBe(2);
  });

  it.each([
    [coded(5), /no such secret/],
    [coded(7), /secretmanager.versions.access/],
    [coded(14), /cannot be reached/],
    [new Error('Could not load the default credentials.'), /no Google credentials/],
    [{ name: 'x', payload: {} }, /empty/],
  ])('that cannot be had is explained %#', async (value, reason) => {
    const failure = await open(`gcp-sm:${secret}`, gcpWith({ [`${secret}/versions/latest`]: value }))
      .load(never)
      .catch(String);
    expect(failure).toMatch(reason);
    expect(failure).not.toContain('secret-0123456789');
  });
});

describe('a setting that names no secret', () => {
  it.each([
    'aws-sm:',
    'aws-sm:a b',
    'aws-sm:#x',
    'gcp-sm:',
    'gcp-sm:wak',
    'gcp-sm:projects/p/secrets/s/extra',
  ])('the setting %s, which names no secret, is refused', (from) => {
    expect(() => openStore(from, {}, 'UPSTREAM_API_KEY_FROM')).toThrow(/^UPSTREAM_API_KEY_FROM: /);
  });
});
