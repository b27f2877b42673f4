/**
 * AWS Secrets Manager as far as one operation goes, over real HTTP: JSON 1.1 with `X-Amz-Target`, and the signature of
 * each request (Signature Version 4) checked against the one secret key that it knows.
 */
import { createHash, createHmac, randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export const awsAccessKey = {
  id: 'AKIDEXAMPLE',
  secret: 'secret-access-key-of-the-stand-in',
  region: 'eu-west-1',
};

export interface AwsStandIn {
  readonly url: string;
  /** The value under each stage of the one secret, `team/wak`. */
  readonly stages: Map<string, string>;
  /** How many requests have come. */
  readonly count: number;
  /** Answers the next requests with this error. */
  fail(status: number, type: string, times?: number): void;
  /** From now on takes requests and answers none. */
  hang(): void;
  close(): Promise<void>;
}

export async function startAws(): Promise<AwsStandIn> {
  const stages = new Map<string, string>();
  let failure: { status: number; type: string; times: number } | undefined;
  let isHanging = false;
  let count = 0;

  const answer = async (incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> => {
    const body = await textOf(incoming);
    count++;
    if (isHanging) return;
    if (failure !== undefined && failure.times-- > 0) return refuse(outgoing, failure.status, failure.type);
    if (!isSigned(incoming, body)) return refuse(outgoing, 400, 'InvalidSignatureException');
    if (incoming.headers['x-amz-target'] !== 'secretsmanager.GetSecretValue') {
      return refuse(outgoing, 400, 'UnknownOperationException');
    }
    const { SecretId, VersionStage } = JSON.parse(body) as { SecretId: string; VersionStage: string };
    const value = SecretId === 'team/wak' ? stages.get(VersionStage) : undefined;
    if (value === undefined) return refuse(outgoing, 400, 'ResourceNotFoundException');
    send(outgoing, 200, {
      ARN: `arn:aws:secretsmanager:${awsAccessKey.region}:123456789012:secret:${SecretId}-AbCdEf`,
      Name: SecretId,
      VersionId: randomUUID(),
      VersionStages: [VersionStage],
      CreatedDate: 1_700_000_000.123,
      SecretString: value,
    });
  };
  const server = createServer((incoming, outgoing) => void answer(incoming, outgoing));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    stages,
    get count() {
      return count;
    },
    fail(status, type, times = Number.POSITIVE_INFINITY) {
      failure = { status, type, times };
    },
    hang() {
      isHanging = true;
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

async function textOf(incoming: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of incoming) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString();
}

function refuse(outgoing: ServerResponse, status: number, type: string): void {
  send(outgoing, status, { __type: type, message: `the stand-in says ${type}` });
}

function send(outgoing: ServerResponse, status: number, body: object): void {
  outgoing.writeHead(status, {
    'content-type': 'application/x-amz-json-1.1',
    'x-amzn-requestid': randomUUID(),
  });
  outgoing.end(JSON.stringify(body));
}

/** Whether the request carries the signature that the secret key gives (AWS Signature Version 4). */
function isSigned({ method = '', url = '', headers }: IncomingMessage, body: string): boolean {
  const [, scope = '', names = '', signature = ''] =
    /^AWS4-HMAC-SHA256 Credential=[^/]+\/([^,]+), SignedHeaders=([^,]+), Signature=(\w+)$/.exec(
      headers.authorization ?? '',
    ) ?? [];
  const canonical = [
    method,
    url,
    '',
    ...names.split(';').map((name) => `${name}:${String(headers[name]).trim()}`),
    '',
    names,
    createHash('sha256').update(body).digest('hex'),
  ].join('\n');
  const time = String(headers['x-amz-date']);
  const toSign = ['AWS4-HMAC-SHA256', time, scope, createHash('sha256').update(canonical).digest('hex')];
  const key = scope
    .split('/')
    .reduce<string | Buffer>((last, part) => hmac(last, part), `AWS4${awsAccessKey.secret}`);
  return hmac(key, toSign.join('\n')).toString('hex') === signature;
}

function hmac(key: string | Buffer, text: string): Buffer {
  return createHmac('sha256', key).update(text).digest();
}
