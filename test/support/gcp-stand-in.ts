/** Google Secret Manager as far as one method goes, over real gRPC, by the definitions that Google's library brings. */
import { readFileSync } from 'node:fs';
import type { GcpSdk } from '../../src/key/cloud-stores.ts';
import { importLibrary } from '../libraries/import-library.ts';

interface GrpcServer {
  addService(definition: unknown, methods: Readonly<Record<string, unknown>>): void;
  bindAsync(address: string, credentials: unknown, done: (error: Error | null, port: number) => void): void;
  forceShutdown(): void;
}

interface Grpc {
  readonly Server: new () => GrpcServer;
  readonly ServerCredentials: { createInsecure(): unknown };
  readonly credentials: { createInsecure(): unknown };
}

type Reply = (error: { code: number; details: string } | null, answer?: object) => void;

export interface GcpStandIn {
  /** The values of the one secret, `projects/p/secrets/wak`, by version from 1 on. */
  readonly versions: string[];
  readonly count: number;
  readonly port: number;
  /** Answers the next requests with this gRPC status. */
  fail(code: number, times?: number): void;
  hang(): void;
  close(): void;
  /** Google's library, whose client is told where this listens: it has no setting for that. */
  load(): Promise<GcpSdk>;
}

export async function startGcp(): Promise<GcpStandIn> {
  const grpc = (await importLibrary('@grpc/grpc-js')) as unknown as Grpc;
  const loader = (await importLibrary('@grpc/proto-loader')) as unknown as {
    fromJSON(json: unknown): Readonly<Record<string, unknown>>;
  };
  const definitions = new URL(
    '../libraries/node_modules/@google-cloud/secret-manager/build/protos/protos.json',
    import.meta.url,
  );
  const service = 'google.cloud.secretmanager.v1.SecretManagerService';
  const { [service]: definition } = loader.fromJSON(JSON.parse(readFileSync(definitions, 'utf8')));
  const versions: string[] = [];
  let failure: { code: number; times: number } | undefined;
  let isHanging = false;
  let count = 0;

  const accessSecretVersion = ({ request }: { request: { name: string } }, reply: Reply): void => {
    count++;
    if (isHanging) return;
    if (failure !== undefined && failure.times-- > 0) {
      reply({ code: failure.code, details: 'the stand-in says so' });
      return;
    }
    const [, which = ''] = /^projects\/p\/secrets\/wak\/versions\/(latest|\d+)$/.exec(request.name) ?? [];
    const number = which === 'latest' ? versions.length : Number(which);
    const value = versions[number - 1];
    if (value === undefined) reply({ code: 5, details: 'there is none' });
    else
      reply(null, {
        name: `projects/1/secrets/wak/versions/${number}`,
        payload: { data: Buffer.from(value) },
      });
  };
  const server = new grpc.Server();
  server.addService(definition, { accessSecretVersion });
  const port = await new Promise<number>((resolve, reject) => {
    server.bindAsync('127.0.0.1:0', grpc.ServerCredentials.createInsecure(), (error, bound) =>
      error === null ? resolve(bound) : reject(error),
    );
  });
  return {
    versions,
    port,
    get count() {
      return count;
    },
    fail(code, times = Number.POSITIVE_INFINITY) {
      failure = { code, times };
    },
    hang() {
      isHanging = true;
    },
    close: () => server.forceShutdown(),
    async load() {
      const { SecretManagerServiceClient: Client } = (await importLibrary(
        '@google-cloud/secret-manager',
      )) as unknown as {
        SecretManagerServiceClient: new (
          options: object,
        ) => InstanceType<GcpSdk['SecretManagerServiceClient']>;
      };
      const options = { apiEndpoint: '127.0.0.1', port, sslCreds: grpc.credentials.createInsecure() };
      // Google's class as it is, with the one argument that our store does not give.
      const SecretManagerServiceClient = new Proxy(Client, {
        construct: (target) => new target(options),
      }) as unknown as GcpSdk['SecretManagerServiceClient'];
      return { SecretManagerServiceClient };
    },
  };
}
