/** The stores of the clouds by their makers' own libraries, which speak their real protocols to servers of ours. */
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { loadEnvironment } from '../../src/commands/environment.ts';
import { openStore } from '../../src/key/open-store.ts';
import { hasLibraries, importLibrary } from '../libraries/import-library.ts';
import { type AwsStandIn, awsAccessKey, startAws } from '../support/aws-stand-in.ts';
import { makeCertificate } from '../support/certificate.ts';
import { type GcpStandIn, startGcp } from '../support/gcp-stand-in.ts';
import type { Owner } from '../support/process.ts';
import { startProxy, startTlsBefore } from '../support/proxy.ts';

const never = new AbortController().signal;

describe.skipIf(!hasLibraries)('AWS Secrets Manager, by Amazon’s library', () => {
  let aws: AwsStandIn;
  beforeEach(async () => {
    aws = await startAws();
    vi.stubEnv('AWS_ENDPOINT_URL_SECRETS_MANAGER', aws.url);
    vi.stubEnv('AWS_REGION', awsAccessKey.region);
    vi.stubEnv('AWS_ACCESS_KEY_ID', awsAccessKey.id);
    vi.stubEnv('AWS_SECRET_ACCESS_KEY', awsAccessKey.secret);
  });
  afterEach(async () => {
    vi.unstubAllEnvs();
    await aws.close();
  });
  const open = (from = 'aws-sm:team/wak') => openStore(from, {}, 'UPSTREAM_API_KEY_FROM', importLibrary);

  it('AWS Secrets Manager gives the secret, one field of it, and the value before the last rotation', async () => {
    aws.stages.set('AWSCURRENT', '{"key":"the-first-key"}');
    expect(await open().load(never)).toBe('{"key":"the-first-key"}');
    const store = open('aws-sm:team/wak#key');
    expect(await store.load(never)).toBe('the-first-key');
    expect(await store.loadPrevious?.(never)).toBeUndefined();
    aws.stages.set('AWSPREVIOUS', '{"key":"the-first-key"}').set('AWSCURRENT', '{"key":"the-second-key"}');
    expect(await store.load(never)).toBe('the-second-key');
    expect(await store.loadPrevious?.(never)).toBe('the-first-key');
  });

  it('AWS Secrets Manager refuses credentials that are wrong, and those that have expired, in words that say so', async () => {
    aws.stages.set('AWSCURRENT', 'the-first-key');
    aws.fail(400, 'ExpiredTokenException');
    await expect(open().load(never)).rejects.toThrow('the AWS credentials have expired');
    aws.fail(400, 'none', 0);
    vi.stubEnv('AWS_SECRET_ACCESS_KEY', 'another-secret-access-key');
    await expect(open().load(never)).rejects.toThrow('the AWS credentials are not valid');
  });

  it('AWS Secrets Manager says that a secret is marked for deletion', async () => {
    aws.fail(400, 'InvalidRequestException');
    await expect(open().load(never)).rejects.toThrow('marked for deletion');
  });

  it('AWS Secrets Manager is asked again where it throttles, and names the cause where it goes on', async () => {
    aws.stages.set('AWSCURRENT', 'the-first-key');
    aws.fail(400, 'ThrottlingException', 1);
    expect(await open().load(never)).toBe('the-first-key');
    expect(aws.count).toBe(2);
    aws.fail(400, 'ThrottlingException');
    await expect(open().load(never)).rejects.toThrow('too many requests');
    expect(aws.count).toBeLessThan(10);
  });

  it('AWS Secrets Manager is given up when it does not answer in time', async () => {
    aws.hang();
    await expect(open().load(AbortSignal.timeout(300))).rejects.toThrow('did not answer in time');
  });
});

describe.skipIf(!hasLibraries)('the clouds’ libraries, through a proxy', () => {
  afterEach(() => void vi.unstubAllEnvs());

  it('Amazon’s library reaches the store, and says what the proxy says', async (owner) => {
    const aws = await startAws();
    owner.onTestFinished(() => aws.close());
    aws.stages.set('AWSCURRENT', 'the-first-key');
    const tls = makeCertificate({ names: ['aws.test'] });
    const trusted = getCACertificates();
    setDefaultCACertificates([...trusted, tls.cert]);
    owner.onTestFinished(() => setDefaultCACertificates(trusted));
    const port = await startTlsBefore(owner, Number(new URL(aws.url).port), tls);
    const proxy = await startProxy(owner);
    vi.stubEnv('AWS_ENDPOINT_URL_SECRETS_MANAGER', `https://aws.test:${port}`);
    vi.stubEnv('AWS_REGION', awsAccessKey.region);
    vi.stubEnv('AWS_ACCESS_KEY_ID', awsAccessKey.id);
    vi.stubEnv('AWS_SECRET_ACCESS_KEY', awsAccessKey.secret);
    const environment = { HTTPS_PROXY: `http://ann:secret@127.0.0.1:${proxy.port}` };
    const store = openStore('aws-sm:team/wak', environment, 'UPSTREAM_API_KEY_FROM', importLibrary);
    expect(await store.load(never)).toBe('the-first-key');
    expect(proxy.asked.map(({ target }) => target)).toEqual([`aws.test:${port}`]);
    expect(proxy.seen().toString('latin1')).not.toMatch(/the-first-key|AWS4-HMAC|secretsmanager/);
    proxy.behave((socket) => void socket.end('HTTP/1.1 403 No\r\n\r\n'));
    await expect(store.load(never)).rejects.toThrow(
      `cannot be reached: the proxy http://127.0.0.1:${proxy.port} does not allow connections to aws.test:${port} (403)`,
    );
  });

  it('Google’s library finds the proxy by the lower-case name, which every gateway sets', async (owner) => {
    const gcp = await startGcp();
    owner.onTestFinished(() => gcp.close());
    gcp.versions.push('the-first-key');
    const proxy = await startProxy(owner);
    vi.stubEnv('METADATA_SERVER_DETECTION', 'none');
    vi.stubEnv('HTTPS_PROXY', `http://ann:secret@127.0.0.1:${proxy.port}`);
    vi.stubEnv('https_proxy', undefined);
    await loadEnvironment();
    const store = openStore('gcp-sm:projects/p/secrets/wak', {}, 'UPSTREAM_API_KEY_FROM', gcp.load);
    expect(await store.load(never)).toBe('the-first-key');
    const authorization = `Basic ${Buffer.from('ann:secret').toString('base64')}`;
    expect(proxy.asked).toEqual([{ target: expect.stringMatching(`:${gcp.port}$`), authorization }]);
  });
});

// At once: the library waits for seconds before it asks again, and nothing else meanwhile.
describe.skipIf(!hasLibraries).concurrent('Google Secret Manager, by Google’s library', () => {
  // The library would ask the network for a machine of Google's.
  beforeAll(() => {
    vi.stubEnv('METADATA_SERVER_DETECTION', 'none');
    vi.stubEnv('GOOGLE_APPLICATION_CREDENTIALS', undefined);
    // Where a developer's own credentials are.
    vi.stubEnv('HOME', '/nowhere');
  });
  afterAll(() => void vi.unstubAllEnvs());
  const start = async ({ onTestFinished }: Owner): Promise<GcpStandIn> => {
    const gcp = await startGcp();
    onTestFinished(() => gcp.close());
    return gcp;
  };
  const open = (gcp: GcpStandIn, from = 'gcp-sm:projects/p/secrets/wak') =>
    openStore(from, {}, 'UPSTREAM_API_KEY_FROM', gcp.load);

  it('Google Secret Manager gives the latest version, one field of it, a version by number, and the one before', async (owner) => {
    const gcp = await start(owner);
    gcp.versions.push('{"key":"the-first-key"}');
    expect(await open(gcp).load(never)).toBe('{"key":"the-first-key"}');
    const store = open(gcp, 'gcp-sm:projects/p/secrets/wak#key');
    expect(await store.load(never)).toBe('the-first-key');
    expect(await store.loadPrevious?.(never)).toBeUndefined();
    gcp.versions.push('{"key":"the-second-key"}');
    expect(await store.load(never)).toBe('the-second-key');
    expect(await store.loadPrevious?.(never)).toBe('the-first-key');
    expect(await open(gcp, 'gcp-sm:projects/p/secrets/wak/versions/1#key').load(never)).toBe('the-first-key');
  });

  it.for([
    [5, 'there is no such secret or version'],
    [7, 'access denied'],
    [16, 'the Google credentials are not valid'],
  ] as const)(
    'Google Secret Manager answers with the gRPC status %i, which becomes "%s"',
    async ([code, reason], owner) => {
      const gcp = await start(owner);
      gcp.fail(code);
      await expect(open(gcp).load(never)).rejects.toThrow(reason);
    },
  );

  it('Google Secret Manager is asked again where it throttles, and names the cause where it goes on', {
    timeout: 60_000,
  }, async (owner) => {
    const gcp = await start(owner);
    gcp.versions.push('the-first-key');
    gcp.fail(8, 1);
    expect(await open(gcp).load(never)).toBe('the-first-key');
    expect(gcp.count).toBe(2);
    gcp.fail(8);
    await expect(open(gcp).load(never)).rejects.toThrow('too many requests');
  });

  it('Google Secret Manager without credentials says so each time it is asked, and leaves no rejection unhandled', async () => {
    // Vitest fails where one is, as the gateway would end.
    const store = openStore('gcp-sm:projects/p/secrets/wak', {}, 'UPSTREAM_API_KEY_FROM', importLibrary);
    for (const _time of [1, 2]) {
      await expect(store.load(never)).rejects.toThrow('no Google credentials were found');
    }
  });

  it('Google Secret Manager is given up when it does not answer in time', {
    timeout: 60_000,
  }, async (owner) => {
    const gcp = await start(owner);
    gcp.hang();
    await expect(open(gcp).load(never)).rejects.toThrow('did not answer in time');
  });
});
