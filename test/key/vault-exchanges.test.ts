/** The store of Vault against exchanges in a file, each as Vault's published documentation has it. */
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openStore } from '../../src/key/open-store.ts';
import { temporaryFolder } from '../support/process.ts';

interface Exchange {
  readonly name: string;
  readonly request: {
    readonly method: string;
    readonly path: string;
    /** What `X-Vault-Token` has to say; `any` for a token that is not empty. */
    readonly token?: string;
    readonly body?: unknown;
  };
  readonly response: { readonly status: number; readonly body: unknown };
}

const { exchanges } = JSON.parse(readFileSync(new URL('vault-exchanges.json', import.meta.url), 'utf8')) as {
  exchanges: readonly Exchange[];
};

const never = new AbortController().signal;
/** Names of the exchanges that took place; what is in no file is there as it was asked. */
let taken: string[];
let vault: { address: string; close(): Promise<unknown> };

beforeEach(async () => {
  taken = [];
  const server = createServer(async (request, response) => {
    let text = '';
    for await (const chunk of request) text += String(chunk);
    const token = request.headers['x-vault-token'];
    const found = exchanges.find(
      ({ request: { method, path, token: wanted, body } }) =>
        request.method === method &&
        request.url === path &&
        (wanted === 'any' ? token !== undefined : token === wanted) &&
        text === (body === undefined ? '' : JSON.stringify(body)) &&
        request.headers['x-vault-request'] === 'true',
    );
    taken.push(found?.name ?? `${request.method} ${request.url} ${text}`);
    response
      .writeHead(found?.response.status ?? 400, { 'content-type': 'application/json' })
      .end(JSON.stringify(found?.response.body ?? { errors: ['not in the file'] }));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  vault = {
    address: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () => {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(resolve));
    },
  };
});
afterEach(() => vault.close());

const open = (environment: Record<string, string>, path = 'team/analytics') =>
  openStore(
    `vault:secret/${path}#key`,
    { VAULT_ADDR: vault.address, ...environment },
    'UPSTREAM_API_KEY_FROM',
  );

describe('Vault, by its documented exchanges', () => {
  it('Vault gives the key and the one before after a login by AppRole', async () => {
    const store = open({ VAULT_ROLE_ID: 'role-1', VAULT_SECRET_ID: 'secret-1' });
    expect(await store.load(never)).toBe('the-second-key-0123456789');
    expect(await store.loadPrevious?.(never)).toBe('the-first-key-0123456789');
    expect(taken).toEqual(['AppRole login', 'newest version', 'version before']);
  });

  it('Vault gives the key after a login by Kubernetes', async (owner) => {
    const file = join(temporaryFolder(owner), 'jwt');
    writeFileSync(file, 'service-account-jwt');
    const store = open({ VAULT_ROLE: 'gateway', VAULT_JWT_FILE: file });
    expect(await store.load(never)).toBe('the-second-key-0123456789');
    expect(taken).toEqual(['Kubernetes login', 'newest version']);
  });

  it('Vault renews a given token and gives the key', async () => {
    expect(await open({ VAULT_TOKEN: 'hvs.given-token' }).load(never)).toBe('the-second-key-0123456789');
    expect(taken).toEqual(['token renewal', 'newest version']);
  });

  it.each([
    ['nothing', 'no such secret', /there is no such secret/],
    ['forbidden', 'no permission', /refused the token/],
    ['sealed', 'sealed', /sealed or down/],
  ])('Vault’s refusal of %s is named in plain words', async (path, name, reason) => {
    await expect(open({ VAULT_TOKEN: 'hvs.given-token' }, path).load(never)).rejects.toThrow(reason);
    expect(taken).toEqual(['token renewal', name]);
  });
});
