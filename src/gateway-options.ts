/** From the settings to the options of each part. Pure: whatever needs another part is added in `gateway-parts.ts`. */
import type { AuthenticatorOptions } from './callers/authenticator.ts';
import { type Config, isLocalListener } from './config.ts';
import type { CertificateFiles } from './edge/certificate.ts';
import type { CorsOptions } from './edge/cors-policy.ts';
import type { ReplyFieldOptions } from './edge/reply-fields.ts';
import type { FleetOptions } from './fleet/fleet.ts';
import { configuredOperations, type Operation, specifiedOperations } from './operations.ts';
import type { PipelineOptions } from './pipeline.ts';
import type { TransportOptions } from './upstream/transport.ts';
import { version } from './version.ts';

/** Replies that callers have not read yet, all together: as much as the answers in flight upstream. */
const leastBufferedBytes = 64 * 2 ** 20;

/** The reads that callers may make: those of the upstream's specification, and those of `UPSTREAM_READS`. */
export function operationsOf(config: Pick<Config, 'UPSTREAM_READS'>): readonly Operation[] {
  return [...specifiedOperations, ...configuredOperations(config.UPSTREAM_READS)];
}

/** What the callers' listener shows; `undefined` where it speaks plain HTTP. */
export function certificateFiles(config: Partial<Config>): CertificateFiles | undefined {
  const { TLS_CERT_FILE: certFile, TLS_KEY_FILE: keyFile } = config;
  return certFile === undefined || keyFile === undefined ? undefined : { certFile, keyFile };
}

/** Who may call with these settings. */
export function authenticatorOptions(
  config: Pick<
    Config,
    'CALLERS_FILE' | 'HOST' | 'UPSTREAM_READS' | 'FORWARD_REQUEST_HEADERS' | 'CALLER_FAILURES_PER_MINUTE'
  >,
): Omit<AuthenticatorOptions, 'onEvent'> {
  return {
    file: config.CALLERS_FILE,
    loopbackOnly: isLocalListener(config),
    failuresPerMinute: config.CALLER_FAILURES_PER_MINUTE,
    operations: new Set(operationsOf(config).map(({ name }) => name)),
    forwardedHeaders: new Set(config.FORWARD_REQUEST_HEADERS),
  };
}

export function cacheOptions(
  config: Config,
): Omit<PipelineOptions['cache'], 'generation' | 'onBackground' | 'shared'> {
  return {
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

export function gateOptions(config: Config): Omit<PipelineOptions['gate'], 'onChange'> {
  return {
    maxClosedMs: config.GATE_MAX_CLOSED,
    baseMs: config.RETRY_BASE,
    capMs: config.RETRY_CAP,
    maxInFlight: config.UPSTREAM_CONNECTIONS,
  };
}

/** How the upstream is reached with these settings. */
export function transportOptions(config: Config): TransportOptions {
  return {
    baseUrl: config.UPSTREAM_BASE_URL,
    timeoutMs: config.UPSTREAM_TIMEOUT,
    maxBodyBytes: config.UPSTREAM_MAX_BODY,
    connections: config.UPSTREAM_CONNECTIONS,
    mediaTypes: config.UPSTREAM_MEDIA_TYPES,
    userAgent: `workspace-analytics-gateway/${version}`,
  };
}

/** How the store is reached that gateways with these settings share; `undefined` where there is none. */
export function fleetOptions(
  config: Config,
  environment: FleetOptions['environment'],
):
  | Pick<FleetOptions, 'address' | 'passwordFrom' | 'prefix' | 'environment' | 'scope' | 'version'>
  | undefined {
  if (config.SHARED_STORE === undefined) return undefined;
  return {
    address: config.SHARED_STORE,
    passwordFrom: config.SHARED_STORE_PASSWORD_FROM,
    prefix: config.SHARED_STORE_PREFIX,
    environment,
    scope: [config.UPSTREAM_BASE_URL.href, ...config.UPSTREAM_MEDIA_TYPES].join(' '),
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
    variesByOrigin: config.CORS_ORIGINS.length > 0,
  };
}

/** How much of what callers have not read is kept, and for how long (ms). */
export function bufferOptions(config: Config): { maxBytes: number; withinMs: number } {
  return {
    maxBytes: Math.max(leastBufferedBytes, config.UPSTREAM_MAX_BODY),
    withinMs: config.REQUEST_TIMEOUT + config.HEADERS_TIMEOUT,
  };
}
