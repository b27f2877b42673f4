/**
 * The composition root: makes the parts of a gateway from its settings and gives each what it needs of the others. Only
 * this room imports every other. Nothing listens yet.
 */
import type { RequestListener, Server } from 'node:http';
import { hostname } from 'node:os';
import { RequestCounts } from '../admin/request-counts.ts';
import { createApp, inboundRules } from '../app.ts';
import { Authenticator } from '../callers/authenticator.ts';
import { callersFileRules } from '../callers/callers-file.ts';
import { CallerLimits, firstInUse } from '../callers/limit.ts';
import type { Config } from '../config/config.ts';
import type { Environment } from '../config/values.ts';
import type { OpenApiPatch } from '../documents/openapi-patch.ts';
import { type AccessLine, type AccessLogOptions, fieldsOfTracedRequest } from '../edge/access-log.ts';
import { CallerContexts } from '../edge/caller-context.ts';
import {
  type CertificatePair,
  type CertificateSnapshot,
  certificateFiles,
  FollowedCertificate,
  readCertificate,
} from '../edge/certificate.ts';
import {
  bodyBytesWithin,
  type Connections,
  connectionBytesWithin,
  connectionsWithin,
  readMemory,
  readProcessLimits,
} from '../edge/connection-budget.ts';
import { idleConnectionBytes } from '../edge/connections.ts';
import { shownLibraryText } from '../edge/log-members.ts';
import { baseOf } from '../edge/operation.ts';
import { findPeerBehind } from '../edge/request-head.ts';
import { createHttpServer, replaceCertificate } from '../edge/server.ts';
import { proxyFor } from '../exchange/proxy.ts';
import type { Fleet, FleetMember } from '../fleet/fleet.ts';
import type { MemberFigures } from '../fleet/membership.ts';
import { openAdminToken } from '../key/key-source.ts';
import { Scrubber } from '../key/scrub.ts';
import { logCallers, logFleet } from '../log/event-lines.ts';
import { createLogger, type GatewayLogger, type LogDestination } from '../log/logger.ts';
import type { Tracing } from '../log/tracing.ts';
import { operationsOf } from '../operations.ts';
import { addRoutes } from '../routes.ts';
import { version } from '../version.ts';
import {
  connectionBudget,
  createBounds,
  createWorkspace,
  type KeyedWorkspace,
  openKeys,
  storeOptions,
  type Workspace,
} from './workspace.ts';

export interface GatewayOptions {
  readonly config: Config;
  /** For the key's stores alone. */
  readonly environment: Environment;
  /** Where the log goes; standard output where left out. */
  readonly logTo?: LogDestination;
  /** The longest that anything waits for the shared store, in ms; for tests on a slow machine. */
  readonly storeLimitMs?: number;
}

export interface Parts {
  readonly config: Config;
  /** When the gateway was started: wall clock, ms. */
  readonly startedAt: number;
  /** The same by the clock that cannot be set: ms. */
  readonly startedMs: number;
  readonly log: GatewayLogger;
  /** Finds the key by its value, in the log and in answers. */
  readonly scrub: Scrubber;
  /** By name; the unnamed one has the empty name and is the first. At least one. */
  readonly workspaces: ReadonlyMap<string, Workspace>;
  readonly authenticator: Authenticator;
  /** What the callers' listener shows; `undefined` where it speaks plain HTTP. */
  readonly certificate: CertificatePair | undefined;
  /** How many connections there may be. */
  readonly connections: Connections;
  /** The requests that wait for the upstream. */
  readonly contexts: CallerContexts;
  readonly counts: RequestCounts;
  /** What the operator adds to the API document; `undefined` without OPENAPI_PATCH_FILE. */
  readonly openApiPatch: OpenApiPatch | undefined;
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
  /** The certificate in force; `undefined` where callers are answered by plain HTTP, and until the gateway listens. */
  certificate(): CertificateSnapshot | undefined;
}

/**
 * Opens the stores and composes the layers.
 *
 * @throws CertificateError, KeyStoreError, CallersFileError, PackageError for what the settings name
 */
export async function openParts(options: GatewayOptions): Promise<Parts> {
  const { config, environment, logTo } = options;
  const startedAt = Date.now();
  const startedMs = performance.now();
  // First, because it leaves nothing to close where it fails.
  const files = certificateFiles(config);
  const certificate = files && (await readCertificate(files));
  const proxy = proxyFor(config);
  // Once, so that a wrong file is told of at the start.
  await proxy?.authorization();
  const openApiPatch = await readPatch(config);
  const scrub = new Scrubber();
  const redact = (text: string): string => scrub.redact(text);
  const { LOG_LEVEL: level, LOG_FORMAT: format } = config;
  const log = createLogger({ level, format, redact, destination: logTo });
  const tracing = await openTracing(options, log);
  const keyed = await openKeys({ config, environment, log, scrub });
  const authenticator = new Authenticator({
    ...callersFileRules(config, operationsOf(config), namesOf(config)),
    file: config.CALLERS_FILE,
    failuresPerMinute: config.CALLER_FAILURES_PER_MINUTE,
    proxy,
    onEvent: (event) => logCallers(log.events, event),
  });
  const readAdminToken = openAdminToken(config, environment);
  // Once, so that a wrong setting is told of at the start.
  await readAdminToken?.();
  const connections = connectionsWithin(readProcessLimits(), {
    callers: config.MAX_CONNECTIONS,
    upstream: connectionBudget(config).all,
  });
  const bounds = createBounds(config, bodyBytesWithin(readMemory()), connections.upstream);
  const workspaces = new Map<string, Workspace>();
  const contexts = new CallerContexts({ timeoutMs: config.REQUEST_TIMEOUT });
  const counts = new RequestCounts();
  const figures = (): MemberFigures => ({
    requests: counts.finished,
    attempts: [...workspaces.values()].reduce(
      (sum, { pipeline }) => sum + pipeline.attempts.snapshot().attempts,
      0,
    ),
    waiting: contexts.waiting,
  });
  const member = await openFleet(options, startedAt, figures);
  for (const one of keyed) {
    const fleet = member && joinFleet(member, config, one);
    const spans = tracing?.spansOf(one.own.name, one.own.baseUrl);
    workspaces.set(one.own.name, createWorkspace(one, config, bounds, { fleet, spans }));
  }
  return {
    config,
    startedAt,
    startedMs,
    log,
    scrub,
    workspaces,
    authenticator,
    certificate,
    connections,
    contexts,
    counts,
    tracing,
    openApiPatch,
    readAdminToken,
  };
}

/** @throws SettingError for a patch that would make no API document */
async function readPatch(config: Config): Promise<OpenApiPatch | undefined> {
  if (config.OPENAPI_PATCH_FILE === undefined) return undefined;
  const { readOpenApiPatch } = await import('../documents/openapi-patch.ts');
  return readOpenApiPatch(config.OPENAPI_PATCH_FILE, operationsOf(config));
}

/** OpenTelemetry is loaded only where spans are exported. */
async function openTracing(
  { config, environment }: GatewayOptions,
  log: GatewayLogger,
): Promise<Tracing | undefined> {
  if (!(config.OTEL_EXPORTER_OTLP_ENDPOINT ?? config.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT)) return undefined;
  const { startTracing } = await import('../log/tracing.ts');
  return startTracing({
    settings: config,
    paths: new Map(operationsOf(config).map(({ name, path }) => [name, path])),
    scheme: config.TLS_CERT_FILE === undefined ? 'http' : 'https',
    environment,
    proxy: proxyFor(config),
    onProblem: (reason) =>
      log.events.warn({ reason: shownLibraryText(reason) }, 'spans could not be exported'),
  });
}

/** The store's client is loaded only where it is used. */
async function openFleet(
  { config, environment, storeLimitMs: limitMs }: GatewayOptions,
  startedAt: number,
  figures: () => MemberFigures,
): Promise<FleetMember | undefined> {
  const options = storeOptions(config, environment);
  if (options === undefined) return undefined;
  const { FleetMember } = await import('../fleet/fleet.ts');
  return new FleetMember({ ...options, host: hostname(), version, startedAt, limitMs, figures });
}

/** Each workspace has records of its own in the store. */
function joinFleet(member: FleetMember, config: Config, { own, keyring, events }: KeyedWorkspace): Fleet {
  return member.join({
    name: own.name,
    // Links in answers lead to the public address: gateways that have another one share none.
    scope: [own.baseUrl.href, ...config.UPSTREAM_MEDIA_TYPES, config.PUBLIC_BASE_URL ?? []].flat().join(' '),
    operations: operationsOf(config).map((operation) => operation.name),
    key: () => keyring.current,
    onChange: (change) => logFleet(events, change),
  });
}

/** Ends what `openParts` opened, but for the log. */
export async function closeParts({ workspaces, authenticator }: Parts): Promise<void> {
  await Promise.all([...workspaces.values()].map(({ pipeline }) => pipeline.close()));
  await Promise.all([...workspaces.values()].map(({ fleet }) => fleet?.close()));
  authenticator.close();
  for (const { keyring } of workspaces.values()) keyring.close();
}

/** How many connections there may be, and what they may hold, with warnings where that is less than was asked for. */
function connectionLimits({ config, connections, certificate, log }: Parts) {
  const { callers: maxConnections, upstream: upstreamConnections } = connections;
  if (maxConnections < config.MAX_CONNECTIONS) {
    log.events.warn(
      { maxConnections },
      'the limit of open files allows fewer connections than MAX_CONNECTIONS',
    );
  }
  if (upstreamConnections < config.UPSTREAM_CONNECTIONS) {
    log.events.warn(
      { upstreamConnections },
      'the limit of open files allows fewer attempts at once than UPSTREAM_CONNECTIONS',
    );
  }
  const maxConnectionBytes = connectionBytesWithin(readMemory());
  const idleConnections = Math.floor(maxConnectionBytes / idleConnectionBytes(certificate !== undefined));
  if (idleConnections < maxConnections) {
    log.events.warn(
      { idleConnections, maxConnectionBytes },
      'the memory of the process holds fewer idle connections than MAX_CONNECTIONS',
    );
  }
  return { maxConnections, maxConnectionBytes };
}

/** The callers' listener: the app with its layers, behind a server with its limits. */
export function createCallersServer(parts: Parts, life: LifeState): Server {
  const { config, counts, log } = parts;
  return createHttpServer(
    appOf(parts, life),
    {
      headersTimeoutMs: config.HEADERS_TIMEOUT,
      ...connectionLimits(parts),
      stillMs: config.REQUEST_TIMEOUT + config.HEADERS_TIMEOUT,
      isSecret: (text) => isSecret(parts, text),
      isEnding: life.isDraining,
      findPeer: findPeerBehind(config.TRUSTED_PROXIES),
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
  return createApp({
    ...inboundRules(config, authenticator, parts.contexts),
    workspaces: new Map(
      [...parts.workspaces].map(([name, { pipeline }]) => [name, { name, send: pipeline.send }]),
    ),
    authenticator,
    limits: new CallerLimits(
      firstInUse([...parts.workspaces.values()].flatMap(({ fleet }) => fleet?.buckets ?? [])),
    ),
    bufferedResponses: {
      maxBytes: Math.max(bodyBytesWithin(readMemory()), config.UPSTREAM_MAX_BODY),
      withinMs: config.REQUEST_TIMEOUT + config.HEADERS_TIMEOUT,
      onUnread: (unread) => log.events.warn(unread, 'a reply was not read; its connection was ended'),
    },
    scheme: parts.certificate === undefined ? 'http' : 'https',
    documents: {
      requestTimeoutMs: config.REQUEST_TIMEOUT,
      patch: parts.openApiPatch,
      linksLeadPast: () =>
        [...parts.workspaces.values()].some(({ pipeline }) => pipeline.links.snapshot().leadPast),
    },
    me: { publicBase: config.PUBLIC_BASE_URL, today: parts.counts.today },
    addRoutes,
    holdsKey: (text) => parts.scrub.holdsKey(text),
    accessLog: accessLogOptions(parts),
    onFault: (error) => log.events.error({ err: error }, 'a request could not be answered'),
    notReady: life.notReady,
    findPeer: findPeerBehind(config.TRUSTED_PROXIES),
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
  const untraced = {
    write,
    begin: counts.begin,
    isSecret: (text: string, path: string) => isSecret(parts, text, path),
  };
  if (tracing === undefined) return untraced;
  return {
    ...untraced,
    begin(trace) {
      counts.begin();
      tracing.beginRequest(trace);
    },
    write(line, trace, request) {
      write(line);
      tracing.endRequest(trace, line, request.path, () => fieldsOfTracedRequest(request, untraced.isSecret));
    },
  };
}

function namesOf({ workspaces }: Config): readonly string[] {
  return workspaces.map(({ name }) => name);
}

/**
 * While a key is not known, any text could hold it. But a request that names a workspace whose key is known has no reason
 * to hold another's.
 */
export function isSecret(parts: Parts, text: string, path?: string): boolean {
  const { scrub, workspaces } = parts;
  if (scrub.holdsKey(text)) return true;
  const named = (path === undefined ? undefined : baseOf(path)?.name) || undefined;
  const isNamedKnown = named !== undefined && workspaces.get(named)?.keyring.current !== undefined;
  let areAllKnown = true;
  // All of them, also where the answer is known: the time would tell whether there is such a workspace.
  for (const { keyring } of workspaces.values()) if (keyring.current === undefined) areAllKnown = false;
  return !areAllKnown && !isNamedKnown;
}
