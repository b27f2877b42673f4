/**
 * Talks to a Vault over HTTP, and keeps the token with which it does: logs in, renews at two thirds of the lease,
 * logs in anew when the lease cannot be stretched any more. Never follows a redirect: the token would go along.
 */
import { readFile } from 'node:fs/promises';
import { Agent, request } from 'undici';
import { describeFailure, KeyStoreError } from './store.ts';
import type { FileOrValue, VaultSettings } from './vault-settings.ts';

const stepTimeoutMs = 5_000;
const maxBytes = 256 * 1024;

/** What Vault said: the status, and the body where it is JSON. */
export interface VaultAnswer {
  readonly status: number;
  readonly body: unknown;
}

export interface VaultSession {
  /** Reads below `/v1/`; logs in before, and once more when the token is refused. */
  read(path: string, signal: AbortSignal): Promise<VaultAnswer>;
}

interface Token {
  readonly value: string;
  /** The lease as it was when we logged in, in ms; 0: it never ends. */
  readonly leaseMs: number;
  readonly renewable: boolean;
  /** On the monotonic clock, in ms. */
  readonly renewAtMs: number;
  readonly endsAtMs: number;
}

/** @param describe the store's name, with which every message begins */
export function openVaultSession(settings: VaultSettings, describe: string): VaultSession {
  const { login } = settings;
  // Its own connections, which close soon: a secret store is asked once a minute.
  const dispatcher = new Agent({
    // Said here, so that no environment variable can unsay it.
    connect: { timeout: stepTimeoutMs, rejectUnauthorized: true },
    headersTimeout: stepTimeoutMs,
    bodyTimeout: stepTimeoutMs,
    keepAliveTimeout: 1_000,
  });
  let token: Token | undefined;

  const call = async (
    method: 'GET' | 'POST',
    path: string,
    auth: string | undefined,
    signal: AbortSignal,
    json?: unknown,
  ): Promise<VaultAnswer> => {
    const answer = await request(`${settings.address}/v1/${path}`, {
      method,
      dispatcher,
      signal,
      headers: {
        accept: 'application/json',
        'x-vault-request': 'true',
        ...(auth === undefined ? {} : { 'x-vault-token': auth }),
        ...(settings.namespace === undefined ? {} : { 'x-vault-namespace': settings.namespace }),
        ...(json === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(json === undefined ? {} : { body: JSON.stringify(json) }),
    });
    const chunks: Buffer[] = [];
    let length = 0;
    for await (const chunk of answer.body as AsyncIterable<Buffer>) {
      length += chunk.length;
      if (length > maxBytes) throw new KeyStoreError(`${describe}: the answer is too large`);
      chunks.push(chunk);
    }
    return { status: answer.statusCode, body: parseJson(Buffer.concat(chunks)) };
  };

  const logIn = async (signal: AbortSignal): Promise<Token> => {
    switch (login.method) {
      case 'token':
        return forEver(login.token);
      case 'token-file':
        return forEver(await credential({ file: login.file }, describe));
      case 'kubernetes':
        return askForToken(login.mount, signal, {
          role: login.role,
          jwt: await credential({ file: login.jwtFile }, describe),
        });
      case 'approle':
        return askForToken(login.mount, signal, {
          role_id: await credential(login.roleId, describe),
          ...(login.secretId === undefined ? {} : { secret_id: await credential(login.secretId, describe) }),
        });
    }
  };

  const askForToken = async (mount: string, signal: AbortSignal, json: unknown): Promise<Token> => {
    const { status, body } = await call('POST', `auth/${encodePath(mount)}/login`, undefined, signal, json);
    const granted = tokenOf(body, undefined);
    if (status !== 200 || granted === undefined) {
      throw new KeyStoreError(`${describe}: the login at auth/${mount} was answered with status ${status}`);
    }
    return granted;
  };

  /** A longer lease for the token, or `undefined` where Vault gives none that is worth it. */
  const renew = async (old: Token, signal: AbortSignal): Promise<Token | undefined> => {
    const { status, body } = await call('POST', 'auth/token/renew-self', old.value, signal, {});
    const renewed = status === 200 ? tokenOf(body, old) : undefined;
    // Near its maximum life a token gets less and less: time to log in again.
    return renewed === undefined || renewed.endsAtMs - performance.now() < old.leaseMs / 2
      ? undefined
      : renewed;
  };

  const validToken = async (signal: AbortSignal): Promise<Token> => {
    const nowMs = performance.now();
    if (login.method === 'token-file' || token === undefined) {
      token = await logIn(signal);
      // The lease of a given token is known only when it is renewed; a token that cannot be renewed is used as it is.
      if (login.method === 'token') token = (await renew(token, signal)) ?? token;
    } else if (nowMs >= token.renewAtMs) {
      const renewed = token.renewable && nowMs < token.endsAtMs ? await renew(token, signal) : undefined;
      token = renewed ?? (login.method === 'token' ? forEver(token.value) : await logIn(signal));
    }
    return token;
  };

  const read = async (path: string, signal: AbortSignal): Promise<VaultAnswer> => {
    const used = await validToken(signal);
    const answer = await call('GET', path, used.value, signal);
    if (answer.status !== 403 || login.method === 'token' || login.method === 'token-file') return answer;
    // The token was revoked, or Vault was rebuilt: one new login shows which.
    token = undefined;
    return call('GET', path, (await validToken(signal)).value, signal);
  };

  return {
    read: async (path, signal) => {
      try {
        return await read(path, signal);
      } catch (error) {
        if (error instanceof KeyStoreError) throw error;
        // Not the error's own words: they may quote a field that holds the token.
        throw new KeyStoreError(`${describe}: the Vault at VAULT_ADDR ${describeFailure(error)}`);
      }
    },
  };
}

function forEver(value: string): Token {
  return { value, leaseMs: 0, renewable: false, renewAtMs: Infinity, endsAtMs: Infinity };
}

function tokenOf(body: unknown, old: Token | undefined): Token | undefined {
  const auth = field(body, 'auth');
  const value = field(auth, 'client_token');
  const lease = field(auth, 'lease_duration');
  if (typeof value !== 'string' || value === '' || typeof lease !== 'number') return undefined;
  if (lease <= 0) return forEver(value);
  const nowMs = performance.now();
  return {
    value,
    leaseMs: old?.leaseMs || lease * 1_000,
    renewable: field(auth, 'renewable') === true,
    renewAtMs: nowMs + (lease * 1_000 * 2) / 3,
    endsAtMs: nowMs + lease * 1_000,
  };
}

/** A member of something that came from outside; `undefined` where there is none. */
export function field(of: unknown, name: string): unknown {
  return typeof of === 'object' && of !== null && Object.hasOwn(of, name)
    ? (of as Record<string, unknown>)[name]
    : undefined;
}

export function encodePath(path: string): string {
  return path.split('/').map(encodeURIComponent).join('/');
}

async function credential(from: FileOrValue, describe: string): Promise<string> {
  if ('value' in from) return from.value;
  let text: string;
  try {
    text = (await readFile(from.file, 'utf8')).trim();
  } catch (error) {
    throw new KeyStoreError(`${describe}: the file ${from.file} ${describeFailure(error)}`);
  }
  if (!/^[\x21-\x7e]+$/.test(text)) throw new KeyStoreError(`${describe}: ${from.file} holds no credential`);
  return text;
}

function parseJson(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString('utf8'));
  } catch {
    return undefined;
  }
}
