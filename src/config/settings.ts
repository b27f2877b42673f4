/** The table of settings: of each its name, how it is read, its default and its meaning. */

import { neverDown, neverUp } from '../http/header-table.ts';
import {
  attemptLimits,
  baseUrl,
  ConfigValueError,
  duration,
  filePlace,
  flag,
  headerName,
  hostName,
  integer,
  list,
  listenHost,
  mediaRange,
  namePrefix,
  noProxy,
  oneOf,
  origin,
  percentage,
  proxyAddress,
  publicUrl,
  type Reader,
  readPattern,
  secretPlace,
  size,
  storeAddress,
  text,
  trustedProxy,
} from './values.ts';
import { workspaceName, workspaceSettings } from './workspaces.ts';

/** A row of the table. */
export interface Setting<T> {
  readonly read: Reader<T>;
  /** As it would be written; `undefined` where there is none. */
  readonly default: string | undefined;
  readonly required: boolean;
  readonly meaning: string;
}

function required<T>(read: Reader<T>, meaning: string): Setting<T> {
  return { read, default: undefined, required: true, meaning };
}

function optional<T>(read: Reader<T>, meaning: string): Setting<T | undefined> {
  return { read, default: undefined, required: false, meaning };
}

function defaulted<T>(value: string, read: Reader<T>, meaning: string): Setting<T> {
  return { read, default: value, required: false, meaning };
}

const port = integer(0, 65_535);

const logLevels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;

export const settings = {
  UPSTREAM_BASE_URL: required(
    baseUrl,
    'The upstream’s base address. https:, or http: on loopback; no credentials, query or fragment in it.',
  ),
  UPSTREAM_ALLOW_HTTP: defaulted(
    'false',
    flag,
    'Allow an http: upstream that is not on loopback. The key then travels unencrypted.',
  ),
  UPSTREAM_API_KEY: optional(
    text,
    'The key itself, where the environment is the store. At least 16 visible ASCII characters.',
  ),
  UPSTREAM_API_KEY_FROM: defaulted(
    'env:UPSTREAM_API_KEY',
    text,
    'Where the key comes from: env:NAME, file:/path, exec:command args, vault:mount/path#field, aws-sm:name#field or gcp-sm:projects/….',
  ),
  UPSTREAM_API_KEY_PREVIOUS_FROM: optional(
    text,
    'A second key to fall back to while a rotation is under way; written like UPSTREAM_API_KEY_FROM.',
  ),
  UPSTREAM_API_KEY_REFRESH: defaulted(
    '60s',
    duration(1_000),
    'How often a store that cannot be watched is asked again.',
  ),
  UPSTREAM_API_KEY_CHECK: defaulted(
    'on',
    oneOf('on', 'off'),
    'One read of /users/api-keys/ after the start, so that the log says at once whether the upstream accepts the key, and one before a new key replaces a key that works; off leaves both out.',
  ),
  WORKSPACES: defaulted(
    '',
    listOrNothing(workspaceName),
    'Names of workspaces, comma-separated, each with a key of its own (UPSTREAM_API_KEY_FROM_<NAME>). The unnamed workspace then exists only if UPSTREAM_API_KEY_FROM or UPSTREAM_API_KEY is set.',
  ),
  UPSTREAM_READS: defaulted(
    '',
    listOrNothing(readPattern),
    'Further reads to allow, comma-separated, as they stand behind the base address: /analytics/posts/,/analytics/reports/:id/.',
  ),
  UPSTREAM_MEDIA_TYPES: defaulted(
    'application/json, application/*+json',
    list(mediaRange),
    'Media types of successes that pass; any other is an invalid response. */* lets all through.',
  ),
  UPSTREAM_LIMIT: optional(
    attemptLimits,
    'The upstream’s limit where it is known, such as 60/1m,10000/1d (units s m h d): no more attempts in any window of these lengths. What is learned from 429s may only be lower.',
  ),
  UPSTREAM_LIMIT_RESERVE: defaulted(
    '0%',
    percentage,
    'The part of UPSTREAM_LIMIT that is left to other programs with the same key.',
  ),
  UPSTREAM_LIMIT_HEADERS: defaulted(
    '',
    listOrNothing(headerName(new Set())),
    'Further response headers in which the upstream says how long to wait, comma-separated, such as X-RateLimit-Reset-Requests. One with reset in its name counts where its -remaining- says that nothing is left.',
  ),
  UPSTREAM_TIMEOUT: defaulted(
    '10s',
    duration(10),
    'One attempt, from its start to the last byte of the body, less what it waits for room where others hold all of it.',
  ),
  UPSTREAM_MAX_BODY: defaulted(
    '8MiB',
    size(1_024, 2 ** 30),
    'The largest answer accepted. Answers are read whole and checked before any of them is sent.',
  ),
  UPSTREAM_CONNECTIONS: defaulted(
    '64',
    integer(1, 10_000),
    'Attempts at once. The bodies in flight together stay under 64 MiB, or a sixteenth of the memory.',
  ),
  HTTPS_PROXY: optional(
    proxyAddress,
    'The proxy through which every https: connection leaves the network, by CONNECT: http://[user:password@]host[:port], or https://…. Also written https_proxy.',
  ),
  HTTP_PROXY: optional(
    text,
    'Read for its contradiction alone: the gateway sends nothing over http: through a proxy, and does not start with an http: upstream that this proxy would take. Also written http_proxy.',
  ),
  NO_PROXY: optional(
    noProxy,
    'What is reached without the proxy, comma-separated: domains with all below them and addresses, each with :port where only that is meant; networks like 10.0.0.0/8; * for all. Loopback always is. Also written no_proxy.',
  ),
  PROXY_AUTHORIZATION_FROM: optional(
    filePlace,
    'Where the credentials for the proxy are, file:/path, instead of in HTTPS_PROXY: user:password, or a whole value of Proxy-Authorization. Read for each connection.',
  ),
  REQUEST_TIMEOUT: defaulted('25s', duration(10), 'One caller’s request, retries and waiting included.'),
  HEADERS_TIMEOUT: defaulted('10s', duration(100), 'How long a caller may take to send its request.'),
  MAX_CONNECTIONS: defaulted(
    '10000',
    integer(1, 1_000_000),
    'Callers’ connections at once. Where there would be more, the address with the most loses its oldest that asks for nothing.',
  ),
  HOST: defaulted(
    '127.0.0.1',
    listenHost,
    'Address of the public listener, unix:/path.sock, or fd:3 for a socket that the process was started with, as a .socket unit of systemd passes it. Who holds that socket keeps callers waiting, not refused, while the gateway starts again.',
  ),
  PORT: defaulted(
    '8080',
    port,
    'Port of the public listener; 0 takes a free one. With HOST=fd:3 it tells healthcheck alone where to ask.',
  ),
  REUSE_PORT: defaulted(
    'off',
    oneOf('on', 'off'),
    'Whether other processes of the same user may listen on HOST and PORT too, so that a new version starts beside the old one, or several share the work. Each needs an ADMIN_PORT of its own.',
  ),
  TLS_CERT_FILE: optional(
    text,
    'Certificate of the public listener with its chain, in PEM: with it and TLS_KEY_FILE the listener speaks TLS 1.2 and later, and nothing else. Both are read again when they change.',
  ),
  TLS_KEY_FILE: optional(
    text,
    'Private key of the certificate in TLS_CERT_FILE, in PEM, without a passphrase.',
  ),
  ADMIN_HOST: defaulted(
    '127.0.0.1',
    listenHost,
    'Address of the admin listener (metrics, status, console, purge), or unix:/path.sock. Reading asks for no credential.',
  ),
  ADMIN_PORT: defaulted('9091', portOrOff, 'Port of the admin listener; 0 takes a free one, off for none.'),
  ADMIN_TOKEN_FROM: optional(
    secretPlace,
    'Where the token of POST /cache/purge is kept, env:NAME or file:/path; at least 16 visible ASCII characters. It is asked for where the admin listener is not on loopback or a Unix socket; without it nothing can be purged there.',
  ),
  CALLERS_FILE: optional(
    text,
    'Callers, their token hashes and grants. Without it only an anonymous caller exists, and the gateway starts on loopback or a Unix socket only.',
  ),
  ALLOWED_HOSTS: optional(
    list(hostName),
    'Host names that are answered, compared without port and case. By default loopback names where an anonymous caller exists, else any.',
  ),
  TRUSTED_PROXIES: defaulted(
    '',
    listOrNothing(trustedProxy),
    'Addresses and networks of balancers, as 10.0.0.0/8, and unix for a Unix socket: their X-Forwarded-For and Forwarded say whose address stands in the log and has a failure counted.',
  ),
  PUBLIC_BASE_URL: optional(
    publicUrl,
    'The address that callers use, such as https://gateway.internal, without /api. Links to the upstream in JSON answers and Link fields are led back to it; without it only those of Link fields are, by their path.',
  ),
  CALLER_FAILURES_PER_MINUTE: defaulted(
    '300',
    integer(0, 1_000_000),
    'Failed authentications from one address before it gets 429; no credential, bad tokens and signatures count each by itself, and 200 signatures a second are always verified; 0 for no limit.',
  ),
  CALLER_CACHE_CONTROL: defaulted(
    'private, no-cache',
    oneOf('private, no-cache', 'upstream'),
    'What Cache-Control tells callers about keeping answers; upstream passes the upstream’s caching headers on as they came.',
  ),
  CORS_ORIGINS: defaulted(
    '',
    listOrNothing(origin),
    'Browser origins that may read answers, comma-separated and exact.',
  ),
  CACHE_TTL: defaulted(
    '15s',
    duration(),
    'Freshness of a 200 where the upstream states none; 0s: only what it states.',
  ),
  CACHE_STALE_WHILE_REVALIDATE: defaulted(
    '15s',
    duration(),
    'How long a stale answer is given while a new one is fetched, where the upstream states nothing; 0s: only what it states.',
  ),
  CACHE_STALE_IF_ERROR: defaulted(
    '5m',
    duration(),
    'How long a stale answer is given while the upstream fails, where it states nothing; 0s: only what it states.',
  ),
  CACHE_MAX_BYTES: defaulted('64MiB', size(0), 'All that the cache may hold.'),
  CACHE_MAX_ENTRY_BYTES: defaulted('4MiB', size(0), 'The largest single answer it may hold.'),
  RETRY_LIMIT: defaulted(
    '4',
    integer(0, 100),
    'How often a request that was answered with 429 goes up again; after other transient failures it does once. 0: never.',
  ),
  RETRY_BASE: defaulted(
    '500ms',
    duration(1),
    'First backoff; it doubles with each retry, and jitter only adds.',
  ),
  RETRY_CAP: defaulted('8s', duration(1), 'Longest backoff, before jitter.'),
  GATE_MAX_CLOSED: defaulted(
    '5m',
    duration(),
    'The longest time that one 429, or what a success says is left, may hold all requests; 0s switches the gate off and each request waits for itself.',
  ),
  FORWARD_REQUEST_HEADERS: defaulted(
    '',
    listOrNothing(headerName(neverUp)),
    'Further request headers to pass up. Requests that differ in one share no answer.',
  ),
  FORWARD_REQUEST_HEADERS_UNKEYED: defaulted(
    '',
    listOrNothing(headerName(neverUp)),
    'Of these, the ones that change no answer unless its Vary names them: requests that differ in them share answers.',
  ),
  FORWARD_RESPONSE_HEADERS: defaulted(
    '',
    listOrNothing(headerName(neverDown)),
    'Further response headers to pass down.',
  ),
  SHARED_STORE: optional(
    storeAddress,
    'Valkey or Redis, 7 or later, that several gateways share: redis://[user@]host[:port][/database], unix:/path, redis+sentinel://[user@]host[:port],…/master or redis+cluster://[user@]host[:port],…; with TLS rediss://, rediss+sentinel:// or rediss+cluster://.',
  ),
  SHARED_STORE_PASSWORD_FROM: optional(
    secretPlace,
    'Where the password of the shared store is: file:/path or env:NAME. Read again for each connection.',
  ),
  SHARED_STORE_SENTINEL_PASSWORD_FROM: optional(
    secretPlace,
    'Where the password of the sentinels is, if they want one: file:/path or env:NAME.',
  ),
  SHARED_STORE_PREFIX: defaulted(
    'analytics-gateway',
    namePrefix,
    'Begins every name in the shared store. Gateways with the same prefix act as one.',
  ),
  OPENAPI_PATCH_FILE: optional(
    text,
    'A JSON merge patch (RFC 7396) onto /openapi.json: the parameters and schemas of the upstream that you know. Read and checked at the start.',
  ),
  SHUTDOWN_DELAY: defaulted('0s', duration(), 'How long to serve on after readiness fails.'),
  SHUTDOWN_GRACE: defaulted('30s', duration(), 'How long a drain may take, the delay included.'),
  OTEL_EXPORTER_OTLP_ENDPOINT: optional(
    baseUrl,
    'The collector that spans of requests and attempts are sent to, such as http://localhost:4318. OpenTelemetry’s SDK does it, which has to be installed beside the gateway and reads its other variables (OTEL_…) itself.',
  ),
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: optional(
    baseUrl,
    'The same for traces alone, with its path, such as http://localhost:4318/v1/traces. It comes before the other.',
  ),
  LOG_LEVEL: defaulted('info', oneOf(...logLevels), 'pino level; silent for none.'),
  LOG_FORMAT: optional(
    oneOf('json', 'text'),
    'json, or text for people. Where it is not set, text on a terminal, json elsewhere.',
  ),
} as const;

export type SettingName = keyof typeof settings;

/** What people read of each setting, those of a workspace included. */
export const describedSettings = {
  ...settings,
  ...Object.fromEntries(
    Object.entries(workspaceSettings).map(([name, row]) => [
      `${name}_<NAME>`,
      { default: undefined, ...row },
    ]),
  ),
};

function listOrNothing<T>(member: Reader<T>): Reader<readonly T[]> {
  const members = list(member);
  return (value) => (value === '' ? [] : members(value));
}

function portOrOff(value: string): number | 'off' {
  if (value === 'off') return 'off';
  try {
    return port(value);
  } catch (error) {
    throw new ConfigValueError(`${(error as Error).message}, or off`);
  }
}
