/**
 * The composition root: settings in, a listening gateway out. Everything that knows of everything else is here,
 * and nothing else is.
 */
import type { Admin } from './admin/listener.ts';
import { countRequests } from './admin/request-counts.ts';
import { createApp } from './app.ts';
import { Authenticator, type AuthenticatorOptions } from './callers/authenticator.ts';
import { limitCallers } from './callers/limit.ts';
import { type Config, changedSettings, isLocalHost, isLocalListener } from './config.ts';
import { createClaims } from './edge/claim.ts';
import { corsPolicy } from './edge/cors-policy.ts';
import { connectionsWithin, readLimits } from './edge/descriptor-limit.ts';
import { ListenError, listen } from './edge/listen.ts';
import { prepareReplies } from './edge/reply-fields.ts';
import { createHttpServer } from './edge/server.ts';
import { closeServer } from './edge/shutdown.ts';
import { GatewayError } from './errors.ts';
import type { KeyEvent } from './key/key-event.ts';
import { openKeyring } from './key/keyring.ts';
import { logCallers } from './log/callers-lines.ts';
import type { LogDestination } from './log/destination.ts';
import { createLogger, type GatewayLogger } from './log/logger.ts';
import { configuredOperations, specifiedOperations } from './operations.ts';
import { createPipeline } from './pipeline.ts';
import type { TransportOptions } from './upstream/transport.ts';
import { version } from './version.ts';

export interface GatewayOptions {
  readonly config: Config;
  /** For the key's stores alone. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Where the log goes; standard output where left out. */
  readonly logTo?: LogDestination;
}

export interface Gateway {
  /** Where the public listener can be reached. */
  readonly url: string;
  /** Where the admin listener can be reached; `undefined` for none. */
  readonly adminUrl: string | undefined;
  readonly log: GatewayLogger;
  /** How many requests wait for the upstream at the moment. */
  readonly waiting: number;
  /** `false` when the key did not come in time; the process should end and be started again. */
  readonly ready: Promise<boolean>;
  /** Reads the key's store and the callers file again at once. */
  reload(): Promise<void>;
  /** Stops: readiness fails first, running requests finish, then everything is closed. The same promise each time. */
  drain(): Promise<void>;
}

/** Unread replies of all callers together: as much as the answers in flight upstream. */
const maxBufferedBytes = 64 * 2 ** 20;

/**
 * Opens the stores, composes the layers and listens.
 *
 * @throws KeyStoreError, CallersFileError, ListenError for what the settings name
 */
export async function startGateway({ config, environment, logTo }: GatewayOptions): Promise<Gateway> {
  const startedAt = Date.now();
  // The log searches for the key by value, and the keyring logs: one of the two has to come first.
  let redact = (text: string): string => text;
  const log = createLogger({ level: config.LOG_LEVEL, redact: (text) => redact(text), destination: logTo });

  const keyring = await openKeyring({
    from: config.UPSTREAM_API_KEY_FROM,
    previousFrom: config.UPSTREAM_API_KEY_PREVIOUS_FROM,
    environment,
    refreshMs: config.UPSTREAM_API_KEY_REFRESH,
    onEvent: (event: KeyEvent) => {
      const { level, message, ...facts } = event;
      log.events[level](facts, message);
    },
  });
  redact = (text) => keyring.scrub.redact(text);
  const holdsKey = (text: string): boolean => keyring.scrub.redact(text) !== text;

  const operations = [...specifiedOperations, ...configuredOperations(config.UPSTREAM_READS)];
  const authenticator = new Authenticator({
    ...authenticatorOptions(config),
    onEvent: (event) => logCallers(log.events, event),
  });

  const pipeline = createPipeline({
    cache: {
      ttlMs: config.CACHE_TTL,
      staleWhileRevalidateMs: config.CACHE_STALE_WHILE_REVALIDATE,
      staleIfErrorMs: config.CACHE_STALE_IF_ERROR,
      maxBytes: config.CACHE_MAX_BYTES,
      maxEntryBytes: config.CACHE_MAX_ENTRY_BYTES,
      generation: keyring.generation,
      refreshTimeoutMs: config.REQUEST_TIMEOUT,
      onBackground: (event) => log.events.debug(event, 'refreshed in the background'),
    },
    retry: { limit: config.RETRY_LIMIT, baseMs: config.RETRY_BASE, capMs: config.RETRY_CAP },
    circuit: {
      onChange: (change) => log.events.warn(change, `the circuit to the upstream is ${change.to}`),
    },
    gate: {
      maxClosedMs: config.GATE_MAX_CLOSED,
      baseMs: config.RETRY_BASE,
      capMs: config.RETRY_CAP,
      maxInFlight: config.UPSTREAM_CONNECTIONS,
      onChange: (state) => log.events.info(state, 'gate state changed'),
    },
    credential: { keyring },
    transport: transportOptions(config),
  });

  const claims = createClaims();
  const cors = corsPolicy({
    origins: config.CORS_ORIGINS,
    requestHeaders: config.FORWARD_REQUEST_HEADERS,
    credentialHeaders: () => authenticator.credentialHeaders,
    responseHeaders: config.FORWARD_RESPONSE_HEADERS,
  });
  const admitsAnonymous = (): boolean => authenticator.admitsAnonymous;
  const counts = countRequests();
  let draining: Promise<void> | undefined;

  function notReady(): string | undefined {
    if (draining !== undefined) return 'shutting down';
    return keyring.current === undefined ? 'no key is loaded yet' : undefined;
  }

  /** While no key is known, anything could be one. */
  function isSecret(text: string): boolean {
    return keyring.current === undefined || holdsKey(text);
  }

  const listener = createApp({
    operations,
    authenticator,
    limits: limitCallers(),
    host: {
      allowed: config.ALLOWED_HOSTS === undefined ? undefined : new Set(config.ALLOWED_HOSTS),
      admitsAnonymous,
    },
    bufferedResponses: {
      maxBytes: Math.max(maxBufferedBytes, config.UPSTREAM_MAX_BODY),
      withinMs: config.REQUEST_TIMEOUT + config.HEADERS_TIMEOUT,
      onUnread: (unread) => log.events.warn(unread, 'a reply was not read; its connection was ended'),
    },
    origin: { cors, admitsAnonymous },
    forward: {
      outbound: pipeline.send,
      claims,
      prepare: prepareReplies({
        forward: config.FORWARD_RESPONSE_HEADERS,
        cacheControl: config.CALLER_CACHE_CONTROL,
        variesByOrigin: config.CORS_ORIGINS.length > 0,
      }),
      timeoutMs: config.REQUEST_TIMEOUT,
      forwardHeaders: config.FORWARD_REQUEST_HEADERS,
    },
    holdsKey,
    accessLog: {
      // One line, one increment: what is counted is the line.
      write(line) {
        counts.count(line);
        log.access(line);
      },
      begin: counts.begin,
      isSecret,
    },
    onFault: (error) => log.events.error({ err: error }, 'a request could not be answered'),
    notReady,
    isDraining: () => draining !== undefined,
  });

  const maxConnections = connectionsWithin(readLimits(), config.MAX_CONNECTIONS, config.UPSTREAM_CONNECTIONS);
  if (maxConnections < config.MAX_CONNECTIONS) {
    log.events.warn(
      { maxConnections },
      'the limit of open files allows fewer connections than MAX_CONNECTIONS',
    );
  }
  const server = createHttpServer(
    listener,
    {
      headersTimeoutMs: config.HEADERS_TIMEOUT,
      maxConnections,
      stillMs: config.REQUEST_TIMEOUT + config.HEADERS_TIMEOUT,
      isSecret,
    },
    {
      onRefused(refusal) {
        counts.refuse(refusal.code);
        log.events.info(refusal, 'refused before there was a request');
      },
      onTrouble: (error) => log.events.error({ err: error }, 'the listener is in trouble'),
    },
  );

  async function openAdminListener(port: number): Promise<Admin> {
    // Whoever switches it off does not pay for it.
    const { openAdmin } = await import('./admin/listener.ts');
    return openAdmin({
      sources: {
        version,
        startedAt,
        operations: operations.map(({ name }) => name),
        changedSettings: changedSettings(config),
        notReady,
        requests: counts.snapshot,
        key: keyring.health,
        gate: pipeline.gate.snapshot,
        circuit: pipeline.circuit.snapshot,
        cache: pipeline.cache.snapshot,
        attempts: pipeline.attempts.snapshot,
        callers: (most) => authenticator.snapshot(most),
        waiting: () => claims.waiting,
        connections: () =>
          new Promise((resolve) => server.getConnections((_error, connections) => resolve(connections ?? 0))),
        purge: pipeline.cache.purge,
      },
      hosts: {
        listensOn: config.ADMIN_HOST,
        isLocal: isLocalHost(config.ADMIN_HOST),
        allowed: config.ALLOWED_HOSTS,
      },
      port,
      redact: (text) => keyring.scrub.redact(text),
      isSecret,
      onPurge: (purged) => log.events.info(purged, 'stored answers were purged by hand'),
      onRefused: (refusal) => log.events.info(refusal, 'the admin listener refused a request'),
      onTrouble: (error) => log.events.error({ err: error }, 'the admin listener is in trouble'),
    });
  }

  /** Two gateways on one machine need no setting: the second goes without a listener that nobody asked for by name. */
  async function openAdminIfFree(port: number): Promise<Admin | undefined> {
    try {
      return await openAdminListener(port);
    } catch (error) {
      const isAskedFor = changedSettings(config).some((name) => name.startsWith('ADMIN_'));
      if (isAskedFor || !(error instanceof ListenError)) throw error;
      log.events.warn({ reason: error.message }, 'there is no admin listener');
      return undefined;
    }
  }

  async function closeParts(): Promise<void> {
    await pipeline.close();
    authenticator.close();
    keyring.close();
  }

  let admin: Admin | undefined;
  let url: string;
  try {
    // Before the callers' one: whoever calls has a gateway that stays.
    if (config.ADMIN_PORT !== 'off') admin = await openAdminIfFree(config.ADMIN_PORT);
    url = await listen(server, config.HOST, config.PORT);
  } catch (error) {
    await admin?.close();
    await closeParts();
    await log.close();
    throw error;
  }
  if (admin !== undefined) log.events.info({ adminUrl: admin.url }, 'the admin listener is open');
  log.events.info({ url, version }, 'listening');

  async function stop(): Promise<void> {
    log.events.info({ waiting: claims.waiting }, 'stopping');
    await new Promise((resolve) => setTimeout(resolve, config.SHUTDOWN_DELAY));
    const graceMs = config.SHUTDOWN_GRACE - config.SHUTDOWN_DELAY;
    await closeServer(server, graceMs, () => claims.abandonAll(new GatewayError('shutting-down')));
    await closeParts();
    // Metrics can be read to the end.
    await admin?.close();
    const { started, finished, aborted } = counts.snapshot();
    log.events.info({ started, finished: finished - aborted, aborted }, 'stopped');
    await log.close();
  }

  return {
    url,
    adminUrl: admin?.url,
    log,
    get waiting() {
      return claims.waiting;
    },
    ready: keyring.ready,
    reload() {
      authenticator.reload();
      return keyring.reload();
    },
    drain() {
      draining ??= stop();
      return draining;
    },
  };
}

/** Who may call with these settings. */
export function authenticatorOptions(config: Config): Omit<AuthenticatorOptions, 'onEvent'> {
  const operations = [...specifiedOperations, ...configuredOperations(config.UPSTREAM_READS)];
  return {
    file: config.CALLERS_FILE,
    loopbackOnly: isLocalListener(config),
    failuresPerMinute: config.CALLER_FAILURES_PER_MINUTE,
    operations: new Set(operations.map(({ name }) => name)),
    forwardedHeaders: new Set(config.FORWARD_REQUEST_HEADERS),
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
