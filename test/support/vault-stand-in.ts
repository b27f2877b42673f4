import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';

interface Seen {
  readonly method: string;
  readonly url: string;
  readonly token: string | undefined;
  readonly namespace: string | undefined;
  readonly body: unknown;
}

/** A Vault as far as the KV version 2 engine, two logins and token renewal go, over real HTTP. */
export async function startVault() {
  const seen: Seen[] = [];
  const versions = new Map<number, string | undefined>();
  const tokens = new Set<string>(['root-token']);
  let issued = 0;
  const state = {
    /** Overrides every answer: a status and a body. */
    misbehave: undefined as undefined | { status: number; body: string; headers?: Record<string, string> },
    hang: false,
    leaseSeconds: 3600,
    /** What a renewal grants. */
    renewSeconds: 3600,
    renewable: true,
  };

  const auth = (token: string, seconds: number) => ({
    auth: { client_token: token, lease_duration: seconds, renewable: state.renewable, policies: ['default'] },
  });

  const answer = (request: IncomingMessage, body: Record<string, unknown>): [number, unknown] => {
    const url = new URL(request.url ?? '/', 'http://vault');
    const token = String(request.headers['x-vault-token'] ?? '');
    if (request.method === 'POST' && url.pathname === '/v1/auth/kubernetes/login') {
      if (body['role'] !== 'gateway' || body['jwt'] !== 'service-account-jwt') return [403, denied];
      return issue();
    }
    if (request.method === 'POST' && url.pathname === '/v1/auth/team/approle/login') {
      if (body['role_id'] !== 'role-1' || body['secret_id'] !== 'secret-1') return [400, denied];
      return issue();
    }
    if (!tokens.has(token)) return [403, denied];
    if (request.method === 'POST' && url.pathname === '/v1/auth/token/renew-self') {
      return state.renewable ? [200, auth(token, state.renewSeconds)] : [400, { errors: ['not renewable'] }];
    }
    if (url.pathname !== '/v1/secret/data/team/analytics%20key') return [404, { errors: [] }];
    const version = Number(url.searchParams.get('version')) || versions.size;
    const metadata = { version, created_time: '2026-11-21T00:00:00Z', deletion_time: '', destroyed: false };
    const value = versions.get(version);
    return value === undefined
      ? [404, { data: { data: null, metadata } }]
      : [200, { data: { data: { key: value, other: 7 }, metadata }, lease_duration: 0 }];
  };

  const issue = (): [number, unknown] => {
    const token = `issued-token-${++issued}`;
    tokens.add(token);
    return [200, auth(token, state.leaseSeconds)];
  };

  const server = createServer(async (request, response) => {
    let text = '';
    for await (const chunk of request) text += String(chunk);
    const body = text === '' ? {} : (JSON.parse(text) as Record<string, unknown>);
    seen.push({
      method: request.method ?? '',
      url: request.url ?? '',
      token: request.headers['x-vault-token'] as string | undefined,
      namespace: request.headers['x-vault-namespace'] as string | undefined,
      body,
    });
    if (state.hang) return;
    if (state.misbehave !== undefined) {
      response.writeHead(state.misbehave.status, state.misbehave.headers).end(state.misbehave.body);
      return;
    }
    const [status, json] = answer(request, body);
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(json));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;

  return {
    address: `http://127.0.0.1:${port}`,
    state,
    seen,
    tokens,
    /** Writes the next version of the secret; `undefined` is one that was deleted. */
    put: (value: string | undefined) => versions.set(versions.size + 1, value),
    close: () => {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(resolve));
    },
  };
}

const denied = { errors: ['permission denied for token root-token'] };
