/**
 * What `vault:mount/path#field` and the environment say about a HashiCorp Vault or OpenBao. Pure: no `this`, no
 * I/O, no clock. The names are Vault's own where it has one. Not a part of `vault-store.ts`, which brings undici and is
 * loaded when a Vault is asked.
 */

import type { Environment } from '../config/values.ts';
import { isLoopbackHost } from '../http/address.ts';

export type VaultLogin =
  /** A token from the environment; renewed by us as long as Vault lets us. */
  | { readonly method: 'token'; readonly token: string }
  /** A file that an agent keeps up to date: read each time, renewed by the agent. */
  | { readonly method: 'token-file'; readonly file: string }
  | { readonly method: 'kubernetes'; readonly mount: string; readonly role: string; readonly jwtFile: string }
  | {
      readonly method: 'approle';
      readonly mount: string;
      readonly roleId: FileOrValue;
      readonly secretId: FileOrValue | undefined;
    };

/** A credential itself, or the file that holds it. */
export type FileOrValue = { readonly value: string } | { readonly file: string };

export interface VaultSettings {
  /** The base address, without a slash at its end. */
  readonly address: string;
  readonly namespace: string | undefined;
  readonly mount: string;
  readonly path: string;
  readonly field: string;
  readonly login: VaultLogin;
}

const serviceAccountToken = '/var/run/secrets/kubernetes.io/serviceaccount/token';

/** @returns the settings, or what is wrong with them, without a value in it */
export function parseVaultSettings(
  reference: string,
  environment: Environment,
): VaultSettings | { readonly reason: string } {
  const parts = /^([^/#?\s]+)\/([^#?]+)#([^#\s]+)$/.exec(reference);
  const [, mount, path, field] = parts ?? [];
  if (mount === undefined || path === undefined || field === undefined) {
    return { reason: '"vault:" is followed by mount/path#field, as vault:secret/team/analytics#key' };
  }
  if ([mount, ...path.split('/')].some((segment) => ['', '.', '..'].includes(segment))) {
    return { reason: 'the path after "vault:" has an empty segment or one of dots' };
  }
  const address = parseAddress(environment['VAULT_ADDR']);
  if ('reason' in address) return address;
  const login = parseLogin(environment);
  if ('reason' in login) return login;
  return { ...address, namespace: environment['VAULT_NAMESPACE'] || undefined, mount, path, field, login };
}

function parseAddress(text: string | undefined): { address: string } | { reason: string } {
  if (!text) return { reason: 'VAULT_ADDR is not set' };
  const url = URL.parse(text);
  if (url === null || !['http:', 'https:'].includes(url.protocol)) {
    return { reason: 'VAULT_ADDR is not an address as https://vault.example:8200' };
  }
  if (url.username !== '' || url.password !== '' || url.search !== '' || url.hash !== '') {
    return { reason: 'VAULT_ADDR has credentials, a query or a fragment' };
  }
  if (url.protocol === 'http:' && !isLoopbackHost(url.hostname)) {
    return {
      reason: 'VAULT_ADDR is http: to another machine, where the key could be read on the way; use https:',
    };
  }
  return { address: url.href.replace(/\/+$/, '') };
}

function parseLogin(environment: Environment): VaultLogin | { readonly reason: string } {
  const has = (name: string) => Boolean(environment[name]);
  const ways = [
    has('VAULT_TOKEN') && 'VAULT_TOKEN',
    has('VAULT_TOKEN_FILE') && 'VAULT_TOKEN_FILE',
    has('VAULT_ROLE') && 'VAULT_ROLE',
    (has('VAULT_ROLE_ID') || has('VAULT_ROLE_ID_FILE')) && 'VAULT_ROLE_ID',
  ].filter((way) => way !== false);
  if (ways.length === 0) {
    return { reason: 'none of VAULT_TOKEN, VAULT_TOKEN_FILE, VAULT_ROLE and VAULT_ROLE_ID is set' };
  }
  if (ways.length > 1)
    return { reason: `${ways.join(' and ')} are set, but only one way to log in can be used` };
  switch (ways[0]) {
    case 'VAULT_TOKEN':
      return { method: 'token', token: environment['VAULT_TOKEN'] ?? '' };
    case 'VAULT_TOKEN_FILE':
      return { method: 'token-file', file: environment['VAULT_TOKEN_FILE'] ?? '' };
    case 'VAULT_ROLE':
      return {
        method: 'kubernetes',
        mount: environment['VAULT_AUTH_MOUNT'] || 'kubernetes',
        role: environment['VAULT_ROLE'] ?? '',
        jwtFile: environment['VAULT_JWT_FILE'] || serviceAccountToken,
      };
    default: {
      const roleId = fileOrValue(environment, 'VAULT_ROLE_ID');
      if (roleId === undefined) return { reason: 'VAULT_ROLE_ID is not set' };
      return {
        method: 'approle',
        mount: environment['VAULT_AUTH_MOUNT'] || 'approle',
        roleId,
        secretId: fileOrValue(environment, 'VAULT_SECRET_ID'),
      };
    }
  }
}

function fileOrValue(environment: Environment, name: string): FileOrValue | undefined {
  const file = environment[`${name}_FILE`];
  const value = environment[name];
  if (file) return { file };
  return value ? { value } : undefined;
}
