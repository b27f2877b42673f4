/**
 * `vault:mount/path#field`: a field of a secret in HashiCorp Vault's or OpenBao's KV version 2 engine.
 *
 * Talks to a Vault over HTTP, and keeps the token with which it does: logs in, renews at two thirds of the lease,
 * logs in anew when the lease cannot be stretched any more. Never follows a redirect: the token would go along.
 */
import { Agent, request } from 'undici';
import type { OutboundProxy } from '../exchange/proxy.ts';
import { readText } from '../files/read.ts';
import { describeFailure, KeyStoreError, type OpenedStore } from './store.ts';
import type { FileOrValue, VaultSettings } from './vault-settings.ts';

/** KV version 2 has no lease: the secret is read again every now and then, and its value compared. */
export function readVault(
  settings: VaultSettings,
  describe: string,
  proxy: OutboundProxy | undefined,
): OpenedStore {
  const session = new VaultSession(settings, describe, proxy);
  const path = `${encodePath(settings.mount)}/data/${encodePath(settings.path)}`;
  let version: number | undefined;

  const valueIn = ({ status, body }: VaultAnswer): string => {
    const data = field(body, 'data');
    if (status === 404 && field(data, 'metadata') !== undefined) {
      throw new KeyStoreError(`${describe}: the secret's newest version was deleted`);
    }
    if (status !== 200) throw new KeyStoreError(`${describe}: ${readMeanings[status] ?? meaningOf(status)}`);
    const value = field(field(data, 'data'), settings.field);
    if (value === undefined) {
      throw new KeyStoreError(
        `${describe}: the secret has no such field (or the engine is not KV version 2)`,
      );
    }
    if (typeof value !== 'string') throw new KeyStoreError(`${describe}: the field is not text`);
    return value;
  };

  return {
    load: async (signal) => {
      const answer = await session.read(path, signal);
      const value = valueIn(answer);
      const found = field(field(field(answer.body, 'data'), 'metadata'), 'version');
      version = typeof found === 'number' ? found : undefined;
      return value;
    },
    loadPrevious: async (signal) => {
      if (version === undefined || version < 2) return undefined;
      const answer = await session.read(`${path}?version=${version - 1}`, signal);
      return answer.status === 404 ? undefined : valueIn(answer);
    },
  };
}

/** Of the server, whatever it was asked for. */
const serverMeanings: Readonly<Record<number, string>> = {
  307: 'Vault answered with a redirect, which is not followed: name the active node in VAULT_ADDR',
  429: 'this Vault node is a standby, or limits requests',
  503: 'Vault is sealed or down for maintenance',
};
const meaningOf = (status: number): string => serverMeanings[status] ?? `Vault answered ${status}`;

const readMeanings: Readonly<Record<number, string>> = {
  400: 'Vault calls the request invalid: is VAULT_NAMESPACE right?',
  403: 'Vault refused the token, or its policy does not allow reading this path',
  404: 'there is no such secret (or the engine is not KV version 2, or VAULT_NAMESPACE is wrong)',
};

const stepTimeoutMs = 5_000;
const maxBytes = 256 * 1024;

/** What Vault said: the status, and the body where it is JSON. */
interface VaultAnswer {
  readonly status: number;
  readonly body: unknown;
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

class VaultSession {
  readonly #settings: VaultSettings;
  readonly #describe: string;
  /** Its own connections, which close soon: a secret store is asked once a minute. */
  readonly #dispatcher: Agent;
  #token: Token | undefined;

  /** @param describe the store's name, with which every message begins */
  constructor(settings: VaultSettings, describe: string, proxy: OutboundProxy | undefined) {
    this.#settings = settings;
    this.#describe = describe;
    this.#dispatcher = new Agent({
      connect: proxy?.takes(new URL(settings.address))
        ? proxy.connector(stepTimeoutMs)
        : // Said here, so that no environment variable can unsay it.
          { timeout: stepTimeoutMs, rejectUnauthorized: true },
      headersTimeout: stepTimeoutMs,
      bodyTimeout: stepTimeoutMs,
      keepAliveTimeout: 1_000,
    });
  }

  /** Reads below `/v1/`; logs in before, and once more when the token is refused. @throws KeyStoreError */
  async read(path: string, signal: AbortSignal): Promise<VaultAnswer> {
    try {
      return await this.#read(path, signal);
    } catch (error) {
      if (error instanceof KeyStoreError) throw error;
      // Not the error's own words: they may quote a field that holds the token.
      throw new KeyStoreError(`${this.#describe}: the Vault at VAULT_ADDR ${describeFailure(error)}`);
    }
  }

  async #read(path: string, signal: AbortSignal): Promise<VaultAnswer> {
    const { method } = this.#settings.login;
    const used = await this.#validToken(signal);
    const answer = await this.#call('GET', path, used.value, signal);
    if (answer.status !== 403 || method === 'token' || method === 'token-file') return answer;
    // The token was revoked, or Vault was rebuilt: one new login shows which.
    this.#token = undefined;
    return this.#call('GET', path, (await this.#validToken(signal)).value, signal);
  }

  async #validToken(signal: AbortSignal): Promise<Token> {
    const { method } = this.#settings.login;
    const nowMs = performance.now();
    let token = this.#token;
    if (method === 'token-file' || token === undefined) {
      token = await this.#logIn(signal);
      // The lease of a given token is known only when it is renewed; a token that cannot be renewed is used as it is.
      if (method === 'token') token = (await this.#renew(token, signal)) ?? token;
    } else if (nowMs >= token.renewAtMs) {
      const renewed =
        token.renewable && nowMs < token.endsAtMs ? await this.#renew(token, signal) : undefined;
      token = renewed ?? (method === 'token' ? forEver(token.value) : await this.#logIn(signal));
    }
    this.#token = token;
    return token;
  }

  async #logIn(signal: AbortSignal): Promise<Token> {
    const { login } = this.#settings;
    const describe = this.#describe;
    switch (login.method) {
      case 'token':
        return forEver(login.token);
      case 'token-file':
        return forEver(await credential({ file: login.file }, describe));
      case 'kubernetes':
        return this.#askForToken(login.mount, signal, {
          role: login.role,
          jwt: await credential({ file: login.jwtFile }, describe),
        });
      case 'approle':
        return this.#askForToken(login.mount, signal, {
          role_id: await credential(login.roleId, describe),
          ...(login.secretId === undefined ? {} : { secret_id: await credential(login.secretId, describe) }),
        });
    }
  }

  async #askForToken(mount: string, signal: AbortSignal, json: unknown): Promise<Token> {
    const path = `auth/${encodePath(mount)}/login`;
    const { status, body } = await this.#call('POST', path, undefined, signal, json);
    const granted = tokenOf(body, undefined);
    if (status !== 200 || granted === undefined) {
      throw new KeyStoreError(`${this.#describe}: the login at auth/${mount} failed: ${meaningOf(status)}`);
    }
    return granted;
  }

  /**
   * A longer lease for the token, or `undefined` where Vault gives none that is worth it.
   *
   * @throws KeyStoreError where this Vault cannot say now, so that the next read asks again
   */
  async #renew(old: Token, signal: AbortSignal): Promise<Token | undefined> {
    const { status, body } = await this.#call('POST', 'auth/token/renew-self', old.value, signal, {});
    if (status === 307 || status >= 429) throw new KeyStoreError(`${this.#describe}: ${meaningOf(status)}`);
    const renewed = status === 200 ? tokenOf(body, old) : undefined;
    // Near its maximum life a token gets less and less: time to log in again.
    return renewed === undefined || renewed.endsAtMs - performance.now() < old.leaseMs / 2
      ? undefined
      : renewed;
  }

  async #call(
    method: 'GET' | 'POST',
    path: string,
    auth: string | undefined,
    signal: AbortSignal,
    json?: unknown,
  ): Promise<VaultAnswer> {
    const { address, namespace } = this.#settings;
    const answer = await request(`${address}/v1/${path}`, {
      method,
      dispatcher: this.#dispatcher,
      signal,
      headers: {
        accept: 'application/json',
        'x-vault-request': 'true',
        ...(auth === undefined ? {} : { 'x-vault-token': auth }),
        ...(namespace === undefined ? {} : { 'x-vault-namespace': namespace }),
        ...(json === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(json === undefined ? {} : { body: JSON.stringify(json) }),
    });
    const chunks: Buffer[] = [];
    let length = 0;
    for await (const chunk of answer.body as AsyncIterable<Buffer>) {
      length += chunk.length;
      if (length > maxBytes) throw new KeyStoreError(`${this.#describe}: the answer is too large`);
      chunks.push(chunk);
    }
    return { status: answer.statusCode, body: parseJson(Buffer.concat(chunks)) };
  }
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
function field(of: unknown, name: string): unknown {
  return typeof of === 'object' && of !== null && Object.hasOwn(of, name)
    ? (of as Record<string, unknown>)[name]
    : undefined;
}

function encodePath(path: string): string {
  return path.split('/').map(encodeURIComponent).join('/');
}

async function credential(from: FileOrValue, describe: string): Promise<string> {
  if ('value' in from) return from.value;
  let text: string;
  try {
    text = (await readText(from.file)).trim();
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
