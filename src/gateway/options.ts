/** From the settings to the options of each part. Pure: whatever needs another part is added in `gateway/parts.ts`. */
import type { AuthenticatorOptions } from '../callers/authenticator.ts';
import { type Config, isLocalHost } from '../config/config.ts';
import type { WorkspaceConfig } from '../config/workspaces.ts';
import type { CertificateFiles } from '../edge/certificate.ts';
import type { CorsOptions } from '../edge/cors.ts';
import { fieldsDown, type ReplyFieldOptions } from '../edge/reply-fields.ts';
import type { FleetOptions } from '../fleet/fleet.ts';
import { configuredOperations, type Operation, specifiedOperations } from '../operations.ts';
import type { PipelineOptions } from '../pipeline.ts';
import type { TransportOptions } from '../upstream/transport.ts';
import { version } from '../version.ts';

/** Replies that callers have not read yet, all together: as much as the answers in flight upstream. */
const leastBufferedBytes = 64 * 2 ** 20;

/** The answers in flight together, unless a single one may be larger. */
const bodiesInFlightBytes = 64 * 2 ** 20;

/** The reads that callers may make: those of the upstream's specification, and those of `UPSTREAM_READS`. */
export function operationsOf(config: Pick<Config, 'UPSTREAM_READS'>): readonly Operation[] {
  return [...specifiedOperations, ...configuredOperations(config.UPSTREAM_READS)];
}

/** What the callers' listener shows; `undefined` where it speaks plain HTTP. */
export function certificateFiles(config: Partial<Config>): CertificateFiles | undefined {
  const { TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile } = config;
  return certFile === undefined || keyFile === undefined ? undefined : { certFile, keyFile };
}

/** Who may call with these settings. @param workspaces the names of all workspaces, empty for the unnamed one */
export function authenticatorOptions(
  config: Pick<
    Config,
    'CALLERS_FILE' | 'HOST' | 'UPSTREAM_READS' | 'FORWARD_REQUEST_HEADERS' | 'CALLER_FAILURES_PER_MINUTE'
  >,
  workspaces: readonly string[],
): Omit<AuthenticatorOptions, 'onEvent'> {
  return {
    file: config.CALLERS_FILE,
    loopbackOnly: isLocalHost(config.HOST),
    failuresPerMinute: config.CALLER_FAILURES_PER_MINUTE,
    operations: new Set(operationsOf(config).map(({ name }) => name)),
    workspaces,
    forwardedHeaders: new Set(config.FORWARD_REQUEST_HEADERS),
  };
}

export function cacheOptions(
  config: Config,
): Omit<PipelineOptions['cache'], 'generation' | 'onBackground' | 'shared'> {
  const down = fieldsDown(replyOptions(config));
  return {
    passesDown: (field) => down.has(field),
    ttlMs: config.CACHE_TTL,
    staleWhileRevalidateMs: config.CACHE_STALE_WHILE_REVALIDATE,
    staleIfErrorMs: config.CACHE_STALE_IF_ERROR,
    maxBytes: config.CACHE_MAX_BYTES,
    maxEntryBytes: config.CACHE_MAX_ENTRY_BYTES,
    refreshTimeoutMs: config.REQUEST_TIMEOUT,
  };
}

export function retryOptions(config: Config): PipelineOptions['retry'] {
  return { limit: config.RETRY_LIMIT, baseMs: config.RETRY_BASE, capMs: config.RETRY_CAP };
}

export function gateOptions(
  config: Config,
  { limits }: Pick<WorkspaceConfig, 'limits'>,
  connections: number,
): Omit<PipelineOptions['gate'], 'onChange'> {
  const usedPart = 1 - config.UPSTREAM_LIMIT_RESERVE;
  return {
    limits: limits.map((limit) => ({
      ...limit,
      most: Math.max(Math.floor(limit.most * usedPart + 1e-9), 1),
    })),
    maxClosedMs: config.GATE_MAX_CLOSED,
    baseMs: config.RETRY_BASE,
    capMs: config.RETRY_CAP,
    maxInFlight: connections,
    limitFields: config.UPSTREAM_LIMIT_HEADERS,
  };
}

/**
 * Attempts at once, of all workspaces together. Half of them belong to the workspaces in equal parts, at least one to
 * each; so many workspaces that one each is more than half make it more.
 */
export function connectionBudget(config: Config): { own: number; common: number; all: number } {
  const { UPSTREAM_CONNECTIONS: most, workspaces } = config;
  if (workspaces.length === 1) return { own: most, common: 0, all: most };
  const own = Math.max(1, Math.floor(most / 2 / workspaces.length));
  const common = Math.max(most - own * workspaces.length, Math.ceil(most / 2));
  return { own, common, all: own * workspaces.length + common };
}

/** Bytes of answers in flight, of all workspaces together. What is common holds the largest answer there may be. */
export function bodyBudget(config: Config): { own: number; common: number } {
  const common = Math.max(bodiesInFlightBytes / 2, config.UPSTREAM_MAX_BODY);
  // Less than one answer would not keep a workspace working while another has all that is common.
  const own = Math.max(bodiesInFlightBytes / 2 / config.workspaces.length, config.UPSTREAM_MAX_BODY);
  return { own, common };
}

/** How the upstream is reached with these settings, for one workspace. */
export function transportOptions(
  config: Config,
  { baseUrl }: Pick<WorkspaceConfig, 'baseUrl'>,
  connections: number,
): Omit<TransportOptions, 'bodies' | 'slots'> {
  return {
    baseUrl,
    timeoutMs: config.UPSTREAM_TIMEOUT,
    maxBodyBytes: config.UPSTREAM_MAX_BODY,
    connections,
    mediaTypes: config.UPSTREAM_MEDIA_TYPES,
    userAgent: `workspace-analytics-gateway/${version}`,
    limitFields: config.UPSTREAM_LIMIT_HEADERS,
  };
}

/**
 * How the store is reached that gateways with these settings share, for one workspace, which has records of its own;
 * `undefined` where there is none.
 */
export function fleetOptions(
  config: Config,
  { name, baseUrl }: Pick<WorkspaceConfig, 'name' | 'baseUrl'>,
  environment: FleetOptions['environment'],
):
  | Pick<
      FleetOptions,
      'address' | 'passwordFrom' | 'prefix' | 'environment' | 'workspace' | 'scope' | 'operations' | 'version'
    >
  | undefined {
  if (config.SHARED_STORE === undefined) return undefined;
  return {
    address: config.SHARED_STORE,
    passwordFrom: config.SHARED_STORE_PASSWORD_FROM,
    prefix: name === '' ? config.SHARED_STORE_PREFIX : `${config.SHARED_STORE_PREFIX}:workspace:${name}`,
    environment,
    workspace: name,
    scope: [baseUrl.href, ...config.UPSTREAM_MEDIA_TYPES].join(' '),
    operations: operationsOf(config).map((operation) => operation.name),
    version,
  };
}

export function corsOptions(config: Config): Omit<CorsOptions, 'credentialHeaders'> {
  return {
    origins: config.CORS_ORIGINS,
    requestHeaders: config.FORWARD_REQUEST_HEADERS,
    responseHeaders: config.FORWARD_RESPONSE_HEADERS,
  };
}

export function replyOptions(config: Config): ReplyFieldOptions {
  return {
    forward: config.FORWARD_RESPONSE_HEADERS,
    cacheControl: config.CALLER_CACHE_CONTROL,
    variesBy: [
      ...(config.CORS_ORIGINS.length > 0 ? ['origin'] : []),
      ...config.FORWARD_REQUEST_HEADERS.filter(
        (name) => !config.FORWARD_REQUEST_HEADERS_UNKEYED.includes(name),
      ),
    ],
  };
}

/** How much of what callers have not read is kept, and for how long (ms). */
export function bufferOptions(config: Config): { maxBytes: number; withinMs: number } {
  return {
    maxBytes: Math.max(leastBufferedBytes, config.UPSTREAM_MAX_BODY),
    withinMs: config.REQUEST_TIMEOUT + config.HEADERS_TIMEOUT,
  };
}
