/**
 * The wiring: makes the parts of a gateway from its settings and gives each what it needs of the others. Nothing
 * listens yet. Everything that knows of everything else is here and in `gateway.ts`, and nothing else is.
 */
import type { RequestListener, Server } from 'node:http';
import { hostname } from 'node:os';
import type { AdminOptions } from './admin/listener.ts';
import { countRequests, type RequestCounts } from './admin/request-counts.ts';
import { createApp } from './app.ts';
import { Authenticator } from './callers/authenticator.ts';
import { limitCallers } from './callers/limit.ts';
import { type Config, changedSettings, isLocalHost } from './config.ts';
import type { AccessLine, AccessLogOptions } from './edge/access-log.ts';
import { type CertificatePair, FollowedCertificate, readCertificate } from './edge/certificate.ts';
import { corsPolicy } from './edge/cors-policy.ts';
import { connectionsWithin, readLimits } from './edge/descriptor-limit.ts';
import { prepareReplies } from './edge/reply-fields.ts';
import { type CallerContexts, createContexts } from './edge/request-context.ts';
import { createHttpServer, replaceCertificate } from './edge/server.ts';
import type { Fleet } from './fleet/fleet.ts';
import {
  authenticatorOptions,
  bufferOptions,
  cacheOptions,
  certificateFiles,
  corsOptions,
  fleetOptions,
  gateOptions,
  operationsOf,
  replyOptions,
  retryOptions,
  transportOptions,
} from './gateway-options.ts';
import type { KeyEvent } from './key/key-event.ts';
import { type Keyring, openKeyring } from './key/keyring.ts';
import { secretReader } from './key/read-secret.ts';
import { logCallers } from './log/callers-lines.ts';
import type { LogDestination } from './log/destination.ts';
import { logFleet } from './log/fleet-lines.ts';
import { logKeyCheck } from './log/key-check-line.ts';
import { createLogger, type GatewayLogger } from './log/logger.ts';
import { createPipeline, type Pipeline } from './pipeline.ts';
import { addRoutes } from './routes.ts';
import type { Tracing } from './tracing.ts';
import { checkKey } from './upstream/own-reads.ts';
import { version } from './version.ts';

export interface GatewayOptions {
  readonly config: Config;
  /** For the key's stores alone. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Where the log goes; standard output where left out. */
  readonly logTo?: LogDestination;
  /** The longest that anything waits for the shared store, in ms; for tests on a slow machine. */
  readonly storeLimitMs?: number;
}

export interface Parts {
  readonly config: Config;
  /** When the gateway was started: wall clock, ms. */
  readonly startedAt: number;
  readonly log: GatewayLogger;
  readonly keyring: Keyring;
  readonly authenticator: Authenticator;
  readonly pipeline: Pipeline;
  /** What is shared with other gateways; `undefined` without `SHARED_STORE`. */
  readonly fleet: Fleet | undefined;
  /** What the callers' listener shows; `undefined` where it speaks plain HTTP. */
  readonly certificate: CertificatePair | undefined;
  /** The requests that wait for the upstream. */
  readonly contexts: CallerContexts;
  readonly counts: RequestCounts;
  /** Exports spans; `undefined` where no collector is set. */
  readonly tracing: Tracing | undefined;
  /** Reads the token of ADMIN_TOKEN_FROM; `undefined` where that is not set. */
  readonly readAdminToken: (() => Promise<string>) | undefined;
}

/** What the parts ask of the gateway's life. */
export interface LifeState {
  isDraining(): boolean;
  /** Why the gateway is not ready; `undefined` when it is. */
  notReady(): string | undefined;
}

/**
 * Opens the stores and composes the layers.
 *
 * @throws CertificateError, KeyStoreError, CallersFileError, PackageError for what the settings name
 */
export async function openParts(options: GatewayOptions): Promise<Parts> {
  const { config, environment, logTo } = options;
  const startedAt = Date.now();
  // First, because it leaves nothing to close where it fails.
  const files = certificateFiles(config);
  const certificate = files && (await readCertificate(files));
  // The log searches for the key by value, and the keyring logs: one of the two has to come first.
  let redact = (text: string): string => text;
  const log = createLogger({ level: config.LOG_LEVEL, redact: (text) => redact(text), destination: logTo });
  const tracing = await openTracing(options, log);
  const keyring = await openKeyring({
    from: config.UPSTREAM_API_KEY_FROM,
    previousFrom: config.UPSTREAM_API_KEY_PREVIOUS_FROM,
    environment,
    refreshMs: config.UPSTREAM_API_KEY_REFRESH,
    onEvent: ({ level, message, ...fields }: KeyEvent) => log.events[level](fields, message),
  });
  redact = (text) => keyring.scrub.redact(text);
  const authenticator = new Authenticator({
    ...authenticatorOptions(config),
    onEvent: (event) => logCallers(log.events, event),
  });
  const readAdminToken = await openAdminToken(options);
  const fleet = await openFleet(options, startedAt, keyring, log);
  const pipeline = createPipeline({
    cache: {
      ...cacheOptions(config),
      shared: fleet?.reads,
      generation: keyring.generation,
      onBackground: (event) => log.events.debug(event, 'refreshed in the background'),
    },
    retry: retryOptions(config),
    circuit: {
      onChange: (change) => log.events.warn(change, `the circuit to the upstream is ${change.to}`),
    },
    gate: {
      ...gateOptions(config),
      makeScheduler: fleet?.makeScheduler,
      onChange: ({ from, to, closedForMs, statedWaitMs, perSecond, waiting }) =>
        log.events.info({ from, to, closedForMs, statedWaitMs, perSecond, waiting }, 'gate state changed'),
    },
    credential: { keyring },
    transport: { ...transportOptions(config), spans: tracing },
  });
  return {
    config,
    startedAt,
    log,
    keyring,
    authenticator,
    pipeline,
    fleet,
    certificate,
    contexts: createContexts(),
    counts: countRequests(),
    tracing,
    readAdminToken,
  };
}

/** Reads the token once, so that a wrong setting is told of at the start. */
async function openAdminToken({ config, environment }: GatewayOptions): Promise<Parts['readAdminToken']> {
  const { ADMIN_TOKEN_FROM: from, ADMIN_PORT } = config;
  if (from === undefined || ADMIN_PORT === 'off') return undefined;
  const read = secretReader(from, environment, 'ADMIN_TOKEN_FROM');
  await read();
  return read;
}

/** OpenTelemetry is loaded only where spans are exported. */
async function openTracing(
  { config, environment }: GatewayOptions,
  log: GatewayLogger,
): Promise<Tracing | undefined> {
  if (config.OTEL_EXPORTER_OTLP_ENDPOINT === undefined) return undefined;
  const { startTracing } = await import('./tracing.ts');
  return startTracing({
    upstream: config.UPSTREAM_BASE_URL,
    environment,
    onProblem: (reason) => log.events.warn({ reason }, 'spans could not be exported'),
  });
}

/** The store's client is loaded only where it is used. */
async function openFleet(
  { config, environment, storeLimitMs: limitMs }: GatewayOptions,
  startedAt: number,
  keyring: Keyring,
  log: GatewayLogger,
): Promise<Fleet | undefined> {
  const options = fleetOptions(config, environment);
  if (options === undefined) return undefined;
  const { joinFleet } = await import('./fleet/fleet.ts');
  return joinFleet({
    ...options,
    ...{ host: hostname(), startedAt, limitMs },
    key: () => keyring.current,
    onChange: (change) => logFleet(log.events, change),
  });
}

/** Ends what `openParts` opened, but for the log. */
export async function closeParts({ pipeline, fleet, authenticator, keyring }: Parts): Promise<void> {
  await pipeline.close();
  await fleet?.close();
  authenticator.close();
  keyring.close();
}

/** The callers' listener: the app with its layers, behind a server with its limits. */
export function createCallersServer(parts: Parts, life: LifeState): Server {
  const { config, counts, log } = parts;
  const maxConnections = connectionsWithin(readLimits(), config.MAX_CONNECTIONS, config.UPSTREAM_CONNECTIONS);
  if (maxConnections < config.MAX_CONNECTIONS) {
    log.events.warn(
      { maxConnections },
      'the limit of open files allows fewer connections than MAX_CONNECTIONS',
    );
  }
  return createHttpServer(
    appOf(parts, life),
    {
      headersTimeoutMs: config.HEADERS_TIMEOUT,
      maxConnections,
      stillMs: config.REQUEST_TIMEOUT + config.HEADERS_TIMEOUT,
      isSecret: (text) => isSecret(parts, text),
      certificate: parts.certificate,
    },
    {
      onRefused(refusal) {
        counts.refuse(refusal.code);
        log.events.info(refusal, 'refused before there was a request');
      },
      onListenerError: (error) => log.events.error({ err: error }, 'the listener failed'),
    },
  );
}

/** Keeps the callers' server on the pair that its files hold. @returns `undefined` where it speaks plain HTTP */
export function followCertificate(
  { config, certificate, log }: Parts,
  server: Server,
): FollowedCertificate | undefined {
  const files = certificateFiles(config);
  if (files === undefined || certificate === undefined) return undefined;
  return new FollowedCertificate(files, certificate, {
    onReplaced(pair) {
      replaceCertificate(server, pair);
      log.events.info({ validTo: pair.validTo }, 'the certificate for callers was replaced');
    },
    onProblem: (reason) =>
      log.events.warn({ reason }, 'the new certificate for callers cannot be used: the one before is kept'),
  });
}

function appOf(parts: Parts, life: LifeState): RequestListener {
  const { config, log, authenticator } = parts;
  const admitsAnonymous = (): boolean => authenticator.admitsAnonymous;
  const cors = corsPolicy({
    ...corsOptions(config),
    credentialHeaders: () => authenticator.credentialHeaders,
  });
  return createApp({
    operations: operationsOf(config),
    authenticator,
    limits: limitCallers(parts.fleet?.buckets),
    host: {
      allowed: config.ALLOWED_HOSTS === undefined ? undefined : new Set(config.ALLOWED_HOSTS),
      admitsAnonymous,
    },
    bufferedResponses: {
      ...bufferOptions(config),
      onUnread: (unread) => log.events.warn(unread, 'a reply was not read; its connection was ended'),
    },
    origin: { cors, admitsAnonymous },
    forward: {
      outbound: parts.pipeline.send,
      contexts: parts.contexts,
      prepare: prepareReplies(replyOptions(config)),
      timeoutMs: config.REQUEST_TIMEOUT,
      forwardHeaders: config.FORWARD_REQUEST_HEADERS,
    },
    scheme: parts.certificate === undefined ? 'http' : 'https',
    addRoutes,
    holdsKey: (text) => holdsKey(parts, text),
    accessLog: accessLogOptions(parts),
    onFault: (error) => log.events.error({ err: error }, 'a request could not be answered'),
    notReady: life.notReady,
    isDraining: life.isDraining,
  });
}

function accessLogOptions(parts: Parts): AccessLogOptions {
  const { counts, log, tracing } = parts;
  // One line, one increment: what is counted is the line.
  const write = (line: AccessLine): void => {
    counts.count(line);
    log.access(line);
  };
  const untraced = { write, begin: counts.begin, isSecret: (text: string) => isSecret(parts, text) };
  if (tracing === undefined) return untraced;
  return {
    ...untraced,
    begin(trace) {
      counts.begin();
      tracing.beginRequest(trace);
    },
    write(line, trace) {
      write(line);
      tracing.endRequest(trace, line);
    },
  };
}

/** @param server the callers' server, whose connections are shown */
export function adminOptions(parts: Parts, life: LifeState, server: Server, port: number): AdminOptions {
  const { config, log, keyring, pipeline } = parts;
  return {
    sources: {
      version,
      startedAt: parts.startedAt,
      operations: operationsOf(config).map(({ name }) => name),
      changedSettings: changedSettings(config),
      notReady: life.notReady,
      requests: parts.counts.snapshot,
      key: keyring.health,
      gate: pipeline.gate.snapshot,
      circuit: pipeline.circuit.snapshot,
      cache: pipeline.cache.snapshot,
      attempts: pipeline.attempts.snapshot,
      callers: (most) => parts.authenticator.snapshot(most),
      log: log.losses,
      waiting: () => parts.contexts.waiting,
      connections: () =>
        new Promise((resolve) => server.getConnections((_error, connections) => resolve(connections ?? 0))),
      purge: pipeline.cache.purge,
      fleet: () => parts.fleet?.snapshot(),
    },
    hosts: {
      listensOn: config.ADMIN_HOST,
      isLocal: isLocalHost(config.ADMIN_HOST),
      allowed: config.ALLOWED_HOSTS,
    },
    readToken: parts.readAdminToken,
    port,
    redact: (text) => keyring.scrub.redact(text),
    isSecret: (text) => isSecret(parts, text),
    onPurge: (purged) => log.events.info(purged, 'stored answers were purged by hand'),
    onRefused: (refusal) => log.events.info(refusal, 'the admin listener refused a request'),
    onFault: (error) => log.events.error({ err: error }, 'the admin listener failed'),
  };
}

/** Reads once with the key, and logs what comes of it. @returns how to end that before its time */
export function startKeyCheck({ config, keyring, log, pipeline }: Parts): () => void {
  const check = checkKey(pipeline.send, keyring.ready, config.REQUEST_TIMEOUT);
  void logKeyCheck(log.events, check.outcome, keyring.firstRefusal);
  return check.end;
}

function holdsKey({ keyring }: Parts, text: string): boolean {
  return keyring.scrub.redact(text) !== text;
}

/** While no key is known, any text could hold it. */
function isSecret(parts: Parts, text: string): boolean {
  return parts.keyring.current === undefined || holdsKey(parts, text);
}
