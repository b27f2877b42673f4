/**
 * The `vault:` store before a running OpenBao or Vault: two servers with storage of their own (raft), so that one is a
 * standby; logins, leases that end, revocation, versions, seal and limits, by the program's own API.
 */
import { equal, rejects } from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, request } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { generateKeyPair, SignJWT } from 'jose';
import { openStore } from '../../src/key/open-store.ts';
import { makeCertificate } from '../../test/support/certificate.ts';
import { findOnPath } from '../../test/support/find-on-path.ts';
import { freePort, type Program, startProgram } from '../process.ts';
import { rotateUnderLoad } from './rotation.ts';
import { Suite } from './suite.ts';

const [firstKey, secondKey, thirdKey] = [
  'the-first-key-0123456789',
  'the-second-key-0123456789',
  'the-third-key',
];
const program = findOnPath('bao') ?? findOnPath('vault') ?? '';
const [, brand = '', version = ''] =
  /^(\w+) v(\S+)/.exec(execFileSync(program, ['version'], { encoding: 'utf8' })) ?? [];
const suite = new Suite(
  `secrets by the vault: store: ${brand}`,
  version,
  'Vault’s own program; Kubernetes’ TokenReview is a server of ours',
);
const folder = mkdtempSync(join(tmpdir(), 'gateway-prove-'));

interface Node {
  readonly address: string;
  readonly running: Program;
}

async function startNode(name: string): Promise<Node> {
  const [port, clusterPort] = [await freePort(), await freePort()];
  mkdirSync(join(folder, name));
  const config = join(folder, `${name}.hcl`);
  writeFileSync(
    config,
    `storage "raft" {
  path = "${join(folder, name)}"
  node_id = "${name}"
}
listener "tcp" {
  address = "127.0.0.1:${port}"
  cluster_address = "127.0.0.1:${clusterPort}"
  tls_disable = true
}
api_addr = "http://127.0.0.1:${port}"
cluster_addr = "http://127.0.0.1:${clusterPort}"
disable_mlock = true
`,
  );
  const args = ['server', `-config=${config}`];
  const running = await startProgram({ command: program, args, env: { HOME: folder }, speaks: false });
  const address = `http://127.0.0.1:${port}`;
  for (let tries = 0; ; tries++) {
    const answers = await fetch(`${address}/v1/sys/health`).then(
      () => true,
      () => false,
    );
    if (answers) return { address, running };
    if (tries > 300) throw new Error(`${program} does not start: ${running.errors().slice(0, 500)}`);
    await sleep(200);
  }
}

let rootToken = '';

/** What an administrator does. @throws Error where the server refuses */
async function administer(
  path: string,
  body?: object,
  { address }: Node = active,
): Promise<Record<string, never>> {
  const answer = await fetch(`${address}/v1/${path}`, {
    method: body === undefined ? 'GET' : 'POST',
    headers: rootToken === '' ? {} : { 'X-Vault-Token': rootToken },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${text.slice(0, 300)}`);
  return text === '' ? {} : JSON.parse(text);
}

/** Until the server has said so, at most a minute. */
async function until(isSo: () => Promise<boolean>): Promise<void> {
  for (let tries = 0; !(await isSo().catch(() => false)); tries++) {
    if (tries > 600) throw new Error(`${isSo} did not come true in a minute`);
    await sleep(100);
  }
}

const active = await startNode('one');
const { keys, root_token } = (await administer('sys/init', {
  secret_shares: 1,
  secret_threshold: 1,
})) as unknown as {
  keys: string[];
  root_token: string;
};
const unseal = (node: Node) => administer('sys/unseal', { key: keys[0] }, node);
await unseal(active);
rootToken = root_token;
await until(async () => (await fetch(`${active.address}/v1/sys/health`)).status === 200);
await administer('sys/mounts/secret', { type: 'kv', options: { version: '2' } });
await administer('sys/mounts/old', { type: 'kv', options: { version: '1' } });
await until(async () => (await administer('secret/config')) !== undefined);
await administer('sys/policies/acl/gateway', {
  policy: 'path "secret/data/team/*" { capabilities = ["read"] } path "old/*" { capabilities = ["read"] }',
});

const never = new AbortController().signal;
const open = (
  environment: Record<string, string>,
  from = 'secret/team/analytics#key',
  { address }: Node = active,
) => openStore(`vault:${from}`, { VAULT_ADDR: address, ...environment }, 'UPSTREAM_API_KEY_FROM');
const put = (key: string, path = 'team/analytics') =>
  administer(`secret/data/${path}`, { data: { key, other: 7 } });
const makeToken = async (more: object = {}, within = ''): Promise<string> => {
  const made = await administer(`${within}auth/token/create`, { policies: ['gateway'], ttl: '1h', ...more });
  return (made as unknown as { auth: { client_token: string } }).auth.client_token;
};

await put(firstKey);
const token = await makeToken();

await suite.try('a token reads the newest version, and the one before', async () => {
  const store = open({ VAULT_TOKEN: token });
  equal(await store.load(never), firstKey);
  equal(await store.loadPrevious?.(never), undefined);
  await put(secondKey);
  equal(await store.load(never), secondKey);
  equal(await store.loadPrevious?.(never), firstKey);
});
if (brand === 'OpenBao') {
  // Vault's are in its paid edition.
  await suite.try('a secret in a namespace is read in it alone', async () => {
    await administer('sys/namespaces/team-a', {});
    await administer('team-a/sys/mounts/secret', { type: 'kv', options: { version: '2' } });
    await until(async () => (await administer('team-a/secret/config')) !== undefined);
    await administer('team-a/secret/data/team/analytics', { data: { key: thirdKey } });
    await administer('team-a/sys/policies/acl/gateway', {
      policy: 'path "secret/data/team/*" { capabilities = ["read"] }',
    });
    const within = await makeToken({}, 'team-a/');
    equal(await open({ VAULT_TOKEN: within, VAULT_NAMESPACE: 'team-a' }).load(never), thirdKey);
    await rejects(open({ VAULT_TOKEN: within }).load(never), /refused the token, or its policy/);
    await rejects(
      open({ VAULT_TOKEN: within, VAULT_NAMESPACE: 'team-b' }).load(never),
      /VAULT_NAMESPACE is wrong/,
    );
  });
}
await suite.try('a path with a space and letters above ASCII is read', async () => {
  await put(firstKey, `team/${encodeURIComponent('analytics schlüssel')}`);
  equal(await open({ VAULT_TOKEN: token }, 'secret/team/analytics schlüssel#key').load(never), firstKey);
});
await suite.try('a version before that was deleted or destroyed is none', async () => {
  await put(thirdKey);
  const store = open({ VAULT_TOKEN: token });
  for (const way of ['delete', 'destroy']) {
    await administer(`secret/${way}/team/analytics`, { versions: [2] });
    equal(await store.load(never), thirdKey);
    equal(await store.loadPrevious?.(never), undefined);
  }
});
await suite.try('a newest version that was deleted is named so', async () => {
  await put(firstKey, 'team/deleted');
  await administer('secret/delete/team/deleted', { versions: [1] });
  await rejects(
    open({ VAULT_TOKEN: token }, 'secret/team/deleted#key').load(never),
    /newest version was deleted/,
  );
});
await suite.try('what is not there, not allowed or not text is named so', async () => {
  const refusal = (from: string, reason: RegExp) =>
    rejects(open({ VAULT_TOKEN: token }, from).load(never), reason);
  await refusal('secret/team/missing#key', /there is no such secret/);
  await refusal('secret/other/path#key', /refused the token, or its policy/);
  await refusal('secret/team/analytics#missing', /no such field/);
  await refusal('secret/team/analytics#other', /not text/);
});
await suite.try('the engine of KV version 1 is named as what it is', async () => {
  await administer('old/team/analytics', { key: firstKey });
  await rejects(open({ VAULT_TOKEN: token }, 'old/team/analytics#key').load(never), /not KV version 2/);
});
await suite.try('a token is renewed at two thirds of its lease, as long as it may be', async () => {
  const short = await makeToken({ ttl: '6s', explicit_max_ttl: '1h' });
  const store = open({ VAULT_TOKEN: short });
  for (let second = 0; second < 12; second++, await sleep(1_000)) equal(await store.load(never), thirdKey);
});
await suite.try('a token that may not be renewed is used to its end, and then named as refused', async () => {
  const store = open({ VAULT_TOKEN: await makeToken({ ttl: '3s', renewable: false }) });
  equal(await store.load(never), thirdKey);
  await sleep(4_000);
  await rejects(store.load(never), /refused the token/);
});
await suite.try('a token that was revoked is named as refused; a new one in its file is taken', async () => {
  const file = join(folder, 'token');
  const revoked = await makeToken();
  writeFileSync(file, `${revoked}\n`);
  const store = open({ VAULT_TOKEN_FILE: file });
  equal(await store.load(never), thirdKey);
  await administer('auth/token/revoke', { token: revoked });
  await rejects(store.load(never), /refused the token/);
  writeFileSync(file, await makeToken());
  equal(await store.load(never), thirdKey);
});

await administer('sys/auth/approle', { type: 'approle' });
await administer('auth/approle/role/gateway', {
  token_policies: 'gateway',
  token_ttl: '6s',
  token_max_ttl: '12s',
});
const roleId = (
  (await administer('auth/approle/role/gateway/role-id')) as unknown as { data: { role_id: string } }
).data.role_id;
const secretId = (
  (await administer('auth/approle/role/gateway/secret-id', {})) as unknown as {
    data: { secret_id: string };
  }
).data.secret_id;
const appRole = { VAULT_ROLE_ID: roleId, VAULT_SECRET_ID: secretId };
await suite.try('AppRole logs in, renews, and logs in anew at the end of the token’s life', async () => {
  const store = open(appRole);
  for (let second = 0; second < 20; second++, await sleep(1_000)) equal(await store.load(never), thirdKey);
});
await suite.try('AppRole logs in anew where its tokens were revoked', async () => {
  const store = open(appRole);
  equal(await store.load(never), thirdKey);
  await administer('sys/leases/revoke-prefix/auth/approle/login', {});
  equal(await store.load(never), thirdKey);
});
await suite.try('AppRole with a wrong secret id is named as a login that failed', () =>
  rejects(
    open({ ...appRole, VAULT_SECRET_ID: 'wrong' }).load(never),
    /the login at auth\/approle failed: Vault answered 400/,
  ),
);

/** Kubernetes' API as far as logins need it: says whose token it is. */
let isKnown = true;
const certificate = makeCertificate();
const kubernetes = createTlsServer(certificate, (incoming, outgoing) => {
  incoming.resume();
  const user = {
    username: 'system:serviceaccount:apps:gateway',
    uid: 'u1',
    groups: ['system:serviceaccounts'],
  };
  const status = isKnown
    ? { authenticated: true, user, audiences: ['vault'] }
    : { authenticated: false, error: 'unknown' };
  outgoing.writeHead(201, { 'content-type': 'application/json' });
  outgoing.end(JSON.stringify({ apiVersion: 'authentication.k8s.io/v1', kind: 'TokenReview', status }));
});
await new Promise<void>((resolve) => kubernetes.listen(0, '127.0.0.1', resolve));
await suite.try(
  'Kubernetes’ service account logs in, and is refused where the cluster does not know it',
  async () => {
    const jwt = await new SignJWT({
      aud: ['vault'],
      'kubernetes.io': { namespace: 'apps', serviceaccount: { name: 'gateway', uid: 'u1' } },
    })
      .setProtectedHeader({ alg: 'ES256' })
      .setSubject('system:serviceaccount:apps:gateway')
      .setIssuer('https://kubernetes.default.svc')
      .setIssuedAt()
      .setExpirationTime('1h')
      .sign((await generateKeyPair('ES256')).privateKey);
    const file = join(folder, 'jwt');
    writeFileSync(file, jwt);
    await administer('sys/auth/kubernetes', { type: 'kubernetes' });
    await administer('auth/kubernetes/config', {
      kubernetes_host: `https://127.0.0.1:${(kubernetes.address() as AddressInfo).port}`,
      kubernetes_ca_cert: certificate.cert,
      token_reviewer_jwt: jwt,
      disable_local_ca_jwt: true,
    });
    await administer('auth/kubernetes/role/gateway', {
      bound_service_account_names: 'gateway',
      bound_service_account_namespaces: 'apps',
      audience: 'vault',
      token_policies: 'gateway',
    });
    const environment = { VAULT_ROLE: 'gateway', VAULT_JWT_FILE: file };
    equal(await open(environment).load(never), thirdKey);
    isKnown = false;
    await rejects(open(environment).load(never), /the login at auth\/kubernetes failed: Vault answered 403/);
  },
);

const standby = await startNode('two');
await suite.try(
  'a standby answers reads and logins; one that redirects is named so, and its redirect not followed',
  async () => {
    rootToken = '';
    await administer('sys/storage/raft/join', { leader_api_addr: active.address }, standby);
    await unseal(standby);
    rootToken = root_token;
    await until(async () => (await fetch(`${standby.address}/v1/sys/health`)).status === 429);
    await until(
      async () => (await open({ VAULT_TOKEN: token }, undefined, standby).load(never)) === thirdKey,
    );
    equal(await open(appRole, undefined, standby).load(never), thirdKey);
    // Asked not to hand it on, a standby answers what writes, as a login does, with the address of the active server.
    const front = createServer((incoming, outgoing) => {
      const { method, url, headers } = incoming;
      const asked = request(`${standby.address}${url}`, {
        method,
        headers: { ...headers, 'x-vault-no-request-forwarding': '1' },
      });
      asked.on('response', (answer) =>
        answer.pipe(outgoing.writeHead(answer.statusCode ?? 502, answer.headers)),
      );
      incoming.pipe(asked);
    });
    await new Promise<void>((resolve) => front.listen(0, '127.0.0.1', resolve));
    const address = `http://127.0.0.1:${(front.address() as AddressInfo).port}`;
    try {
      await rejects(open({ ...appRole, VAULT_ADDR: address }).load(never), /redirect, which is not followed/);
    } finally {
      front.closeAllConnections();
      front.close();
    }
  },
);
// First: of two servers none is active without the other.
await administer('sys/storage/raft/remove-peer', { server_id: 'two' });
await standby.running.end();

await suite.try('a limit of requests is named so', async () => {
  const store = open({ VAULT_TOKEN: token });
  await store.load(never);
  await administer('sys/quotas/rate-limit/tight', { rate: 0.01, path: 'secret' });
  try {
    await rejects(async () => {
      for (let tries = 0; tries < 5; tries++) await store.load(never);
    }, /a standby, or limits requests/);
  } finally {
    await fetch(`${active.address}/v1/sys/quotas/rate-limit/tight`, {
      method: 'DELETE',
      headers: { 'X-Vault-Token': rootToken },
    });
  }
});
await suite.try('a seal is named so; the same session goes on after it, its token renewed', async () => {
  const used = open({ VAULT_TOKEN: token });
  equal(await used.load(never), thirdKey);
  const fresh = open({ VAULT_TOKEN: await makeToken({ ttl: '30s', explicit_max_ttl: '1h' }) });
  await administer('sys/seal', {});
  for (const store of [used, fresh, open(appRole)]) await rejects(store.load(never), /sealed or down/);
  await unseal(active);
  // It answers reads some time before it can renew a token.
  for (const store of [used, fresh]) await until(async () => (await store.load(never)) === thirdKey);
  for (let tries = 0; tries < 12; tries++, await sleep(3_000)) equal(await fresh.load(never), thirdKey);
});
await suite.try(
  'a key is rotated under load without a request that fails, through an end of the server',
  async () => {
    await put(firstKey, 'team/rotated');
    await rotateUnderLoad({
      settings: {
        ...appRole,
        VAULT_ADDR: active.address,
        UPSTREAM_API_KEY_FROM: 'vault:secret/team/rotated#key',
      },
      keys: [firstKey, secondKey],
      rotate: async () => void (await put(secondKey, 'team/rotated')),
      end: () => active.running.end(),
    });
  },
);
await suite.try('a server that has ended is named as not reachable', () =>
  rejects(open({ VAULT_TOKEN: token }).load(never), /the Vault at VAULT_ADDR/),
);

suite.end();
await active.running.end();
kubernetes.closeAllConnections();
kubernetes.close();
rmSync(folder, { recursive: true });
