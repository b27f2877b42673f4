import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { openKeyring } from '../../src/key/keyring.ts';
import { openStore } from '../../src/key/open-store.ts';
import { startVault } from '../support/vault-stand-in.ts';

const never = new AbortController().signal;
let vault: Awaited<ReturnType<typeof startVault>>;
let directory = '';

beforeEach(async () => {
  vault = await startVault();
  directory = await mkdtemp(join(tmpdir(), 'key-vault-'));
});
afterEach(async () => {
  vi.useRealTimers();
  await vault.close();
  await rm(directory, { recursive: true, force: true });
});

const open = (environment: Record<string, string>, from = 'vault:secret/team/analytics key#key') =>
  openStore(from, { VAULT_ADDR: vault.address, ...environment }, 'UPSTREAM_API_KEY_FROM');
const urls = () => vault.seen.map(({ method, url }) => `${method} ${url}`);
const read = 'GET /v1/secret/data/team/analytics%20key';

async function file(name: string, text: string): Promise<string> {
  const path = join(directory, name);
  await writeFile(path, text);
  return path;
}

/** Moves the monotonic clock alone, so that real sockets go on working. */
function laterBy(seconds: number) {
  const from = performance.now();
  vi.spyOn(performance, 'now').mockImplementation(() => from + seconds * 1_000);
}

describe('the setting', () => {
  it.each([
    ['vault:', { VAULT_ADDR: 'https://v', VAULT_TOKEN: 't' }, /mount\/path#field/],
    ['vault:secret#key', { VAULT_ADDR: 'https://v', VAULT_TOKEN: 't' }, /mount\/path#field/],
    ['vault:secret/../sys#key', { VAULT_ADDR: 'https://v', VAULT_TOKEN: 't' }, /dots/],
    ['vault:a/b#c', { VAULT_TOKEN: 't' }, /VAULT_ADDR is not set/],
    ['vault:a/b#c', { VAULT_ADDR: 'nonsense', VAULT_TOKEN: 't' }, /VAULT_ADDR is not an address/],
    ['vault:a/b#c', { VAULT_ADDR: 'http://vault.example:8200', VAULT_TOKEN: 't' }, /use https/],
    ['vault:a/b#c', { VAULT_ADDR: 'https://u:p@vault.example', VAULT_TOKEN: 't' }, /credentials/],
    ['vault:a/b#c', { VAULT_ADDR: 'https://v' }, /none of VAULT_TOKEN/],
    ['vault:a/b#c', { VAULT_ADDR: 'https://v', VAULT_TOKEN: 'tok-1', VAULT_ROLE: 'r' }, /only one way/],
  ])('%s with %j is refused in plain words', (from, environment, reason) => {
    const start = () => openStore(from, environment as Record<string, string>, 'UPSTREAM_API_KEY_FROM');
    expect(start).toThrow(reason);
    expect(start).not.toThrow(/tok-1|u:p/);
  });
});

describe('a secret in a Vault', () => {
  beforeEach(() => {
    vault.put('first-key-0123456789');
  });

  it('is read with a token from the environment, in its namespace', async () => {
    const store = open({ VAULT_TOKEN: 'root-token', VAULT_NAMESPACE: 'team-a' });
    expect(await store.load(never)).toBe('first-key-0123456789');
    expect(vault.seen.at(-1)).toMatchObject({ token: 'root-token', namespace: 'team-a' });
    expect(urls()).toEqual(['POST /v1/auth/token/renew-self', read]);
  });

  it('has its token renewed by the next read where the first renewal failed', async () => {
    const store = open({ VAULT_TOKEN: 'root-token' });
    vault.state.hang = true;
    const leaving = new AbortController();
    const hanging = store.load(leaving.signal);
    await vi.waitFor(() => expect(vault.seen).toHaveLength(1));
    leaving.abort();
    await expect(hanging).rejects.toThrow(/did not answer in time/);
    vault.state.hang = false;
    expect(await store.load(never)).toBe('first-key-0123456789');
    expect(urls()).toEqual(['POST /v1/auth/token/renew-self', 'POST /v1/auth/token/renew-self', read]);
  });

  it.each([
    ['503 at first', 0, 503],
    ['500 at first', 0, 500],
    ['503 at two thirds of its lease', 2_500, 503],
    ['429 at two thirds of its lease', 2_500, 429],
  ])('has its token renewed by the next read where Vault answered %s', async (_, seconds, status) => {
    const store = open({ VAULT_TOKEN: 'root-token' });
    if (seconds > 0) await store.load(never);
    laterBy(seconds);
    vault.state.misbehave = { status, body: '' };
    await expect(store.load(never)).rejects.toThrow();
    vault.state.misbehave = undefined;
    await store.load(never);
    expect(urls().slice(-2)).toEqual(['POST /v1/auth/token/renew-self', read]);
  });

  it('is read with what an agent’s token file holds at the time', async () => {
    const path = await file('token', 'root-token\n');
    const store = open({ VAULT_TOKEN_FILE: path });
    await store.load(never);
    vault.tokens.delete('root-token');
    vault.tokens.add('fresh-token');
    await file('token', 'fresh-token\n');
    expect(await store.load(never)).toBe('first-key-0123456789');
    expect(urls()).toEqual([read, read]);
  });

  it('is read after a Kubernetes login', async () => {
    const path = await file('jwt', 'service-account-jwt\n');
    const store = open({ VAULT_ROLE: 'gateway', VAULT_JWT_FILE: path });
    expect(await store.load(never)).toBe('first-key-0123456789');
    await store.load(never);
    expect(urls()).toEqual(['POST /v1/auth/kubernetes/login', read, read]);
    expect(vault.seen.at(-1)?.token).toBe('issued-token-1');
  });

  it('is read after an AppRole login at its own mount, with the secret id in a file', async () => {
    const path = await file('secret-id', 'secret-1\n');
    const store = open({
      VAULT_ROLE_ID: 'role-1',
      VAULT_SECRET_ID_FILE: path,
      VAULT_AUTH_MOUNT: 'team/approle',
    });
    expect(await store.load(never)).toBe('first-key-0123456789');
  });

  it('has its token renewed at two thirds of the lease', async () => {
    const store = open({ VAULT_ROLE: 'gateway', VAULT_JWT_FILE: await file('jwt', 'service-account-jwt') });
    await store.load(never);
    laterBy(2_300);
    await store.load(never);
    laterBy(150);
    await store.load(never);
    expect(urls()).toEqual([
      'POST /v1/auth/kubernetes/login',
      read,
      read,
      'POST /v1/auth/token/renew-self',
      read,
    ]);
  });

  it.each([
    ['the lease is over', 4_000, {}],
    ['the token is not renewable', 2_500, { renewable: false }],
    ['a renewal grants less than half of the lease', 2_500, { renewSeconds: 600 }],
  ])('is read with a new login when %s', async (_, seconds, state) => {
    const store = open({ VAULT_ROLE: 'gateway', VAULT_JWT_FILE: await file('jwt', 'service-account-jwt') });
    Object.assign(vault.state, state);
    await store.load(never);
    laterBy(seconds);
    await store.load(never);
    expect(vault.seen.at(-1)?.token).toBe('issued-token-2');
  });

  it('is read with a new login when the token was revoked', async () => {
    const store = open({ VAULT_ROLE: 'gateway', VAULT_JWT_FILE: await file('jwt', 'service-account-jwt') });
    await store.load(never);
    vault.tokens.clear();
    expect(await store.load(never)).toBe('first-key-0123456789');
  });

  it('has a previous version, where there is one that was not deleted', async () => {
    const store = open({ VAULT_TOKEN: 'root-token' });
    await store.load(never);
    expect(await store.loadPrevious?.(never)).toBeUndefined();
    vault.put('second-key-0123456789');
    await store.load(never);
    expect(await store.loadPrevious?.(never)).toBe('first-key-0123456789');
    vault.put(undefined);
    vault.put('fourth-key-0123456789');
    await store.load(never);
    expect(await store.loadPrevious?.(never)).toBeUndefined();
  });

  it('is a new generation for the keyring when its version changed', async () => {
    const keyring = await openKeyring({
      from: 'vault:secret/team/analytics key#key',
      environment: { VAULT_ADDR: vault.address, VAULT_TOKEN: 'root-token' },
      check: () => Promise.resolve(undefined),
      refreshMs: 20,
      onEvent: () => {},
    });
    expect(await keyring.ready).toBe(true);
    vault.put('second-key-0123456789');
    await vi.waitFor(() => expect(keyring.generation()).toBe(2));
    keyring.close();
  });
});

describe('a Vault that fails', () => {
  it.each([
    ['a wrong token', { VAULT_TOKEN: 'wrong-token' }, undefined, /refused the token/],
    ['a secret that is not there', {}, 'vault:secret/other#key', /no such secret/],
    ['a field that is not there', {}, 'vault:secret/team/analytics key#nope', /no such field/],
    ['a field that is a number', {}, 'vault:secret/team/analytics key#other', /not text/],
    ['a wrong file', { VAULT_TOKEN: '', VAULT_TOKEN_FILE: '/no/such/file' }, undefined, /does not exist/],
  ])('is explained: %s', async (_, environment, from, reason) => {
    vault.put('first-key-0123456789');
    const failure = await open({ VAULT_TOKEN: 'root-token', ...environment }, from)
      .load(never)
      .catch(String);
    expect(failure).toMatch(reason);
    expect(failure).not.toMatch(/root-token|wrong-token|first-key/);
  });

  it.each([
    ['sealed', { status: 503, body: '{"errors":["Vault is sealed"]}' }, /sealed/],
    ['redirecting', { status: 307, body: '', headers: { location: 'https://evil.example/' } }, /redirect/],
    ['answering in HTML', { status: 200, body: '<html>' }, /no such field/],
    ['answering without end', { status: 200, body: 'x'.repeat(1024 * 1024) }, /too large/],
  ])('is explained: %s', async (_, misbehave, reason) => {
    vault.state.misbehave = misbehave;
    await expect(open({ VAULT_TOKEN: 'root-token' }).load(never)).rejects.toThrow(reason);
    const atLogin = misbehave.status === 200 ? /the login at auth\/approle failed|too large/ : reason;
    await expect(open({ VAULT_ROLE_ID: 'role-1' }).load(never)).rejects.toThrow(atLogin);
  });

  it('is explained: a deleted newest version', async () => {
    vault.put('first-key-0123456789');
    vault.put(undefined);
    await expect(open({ VAULT_TOKEN: 'root-token' }).load(never)).rejects.toThrow(/deleted/);
  });

  it('is explained: no server there', async () => {
    const store = open({ VAULT_TOKEN: 'root-token' });
    await vault.close();
    await expect(store.load(never)).rejects.toThrow(/VAULT_ADDR refused the connection$/);
  });

  it('a Vault that hangs is left when its answer is no longer wanted', async () => {
    vault.state.hang = true;
    const limit = new AbortController();
    const answer = open({ VAULT_TOKEN: 'root-token' }).load(limit.signal);
    await vi.waitFor(() => expect(vault.seen).toHaveLength(1));
    limit.abort();
    await expect(answer).rejects.toThrow(/did not answer in time$/);
  });
});
