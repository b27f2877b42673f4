/**
 * Spans of requests and of upstream attempts, by OpenTelemetry's own SDK, which is loaded only where a collector is set.
 * The SDK reads the other standard names (`OTEL_…`) itself. Names are those of the semantic conventions for HTTP.
 *
 * The one place that knows OpenTelemetry. A span says what the log line says, less its texts: no query, header, subject,
 * reason or cause. Path and host are searched as for a line of the log, so that neither a key nor a token is in them.
 */

import type { AccessLine, RefusalFields } from '../edge/access-log.ts';
import { shownLibraryText } from '../edge/log-members.ts';
import { baseOf, usualBase } from '../edge/operation.ts';
import { toHundredths } from '../exchange/figures.ts';
import type { OutboundProxy } from '../exchange/proxy.ts';
import type { AttemptSpan, AttemptSpans, RequestSpan, Trace, WaitingPlace } from '../exchange/trace.ts';
import { importModule, importProblem, type LoadModule, PackageError } from '../files/optional-package.ts';
import { hostFromUrl, hostName } from '../http/address.ts';
import { version } from '../version.ts';

interface SpanContext {
  readonly traceId: string;
  readonly spanId: string;
  readonly traceFlags: number;
  readonly isRemote?: boolean;
}

type Attributes = Readonly<Record<string, string | number | boolean | undefined>>;

/** A point in OpenTelemetry's tree of spans; opaque. */
type Parent = unknown;

interface Span {
  spanContext(): SpanContext;
  isRecording(): boolean;
  updateName(name: string): void;
  setAttributes(attributes: Attributes): void;
  setStatus(status: { code: number }): void;
  addEvent(name: string, attributes: Attributes, at: number): void;
  addLink(link: { context: SpanContext }): void;
  end(at: number): void;
}

interface Tracer {
  startSpan(
    name: string,
    options: { kind: number; startTime: number; attributes?: Attributes },
    parent: Parent,
  ): Span;
}

/** What we use of `@opentelemetry/api` 1. */
export interface OtelApi {
  readonly ROOT_CONTEXT: Parent;
  readonly SpanKind: { readonly SERVER: number; readonly CLIENT: number };
  readonly SpanStatusCode: { readonly ERROR: number };
  readonly DiagLogLevel: { readonly ERROR: number };
  readonly diag: { setLogger(logger: object, options: { logLevel: number }): unknown };
  readonly trace: {
    getTracer(name: string, version: string): Tracer;
    setSpanContext(parent: Parent, context: SpanContext): Parent;
    isSpanContextValid(context: SpanContext): boolean;
  };
}

/** What we use of `@opentelemetry/sdk-node`. */
interface OtelSdk {
  readonly NodeSDK: new (
    options: object,
  ) => {
    start(): void;
    shutdown(): Promise<void>;
  };
}

/** What we use of `@opentelemetry/exporter-trace-otlp-…`. */
interface OtlpExporter {
  readonly OTLPTraceExporter: new (options: { httpAgentOptions(): unknown }) => object;
}

const packages = ['@opentelemetry/api', '@opentelemetry/sdk-node'] as const;
const serviceName = 'workspace-analytics-gateway';

/** A collector that is away is told of at most once in this time. */
const quietMs = 60_000;

/** What is left to send when the gateway ends gets so long, or a collector that is away would hold up every restart. */
const lastSpansMs = 2_000;

/** The settings that name the collector: that for traces alone comes first, and is asked as it stands. */
export interface CollectorSettings {
  readonly OTEL_EXPORTER_OTLP_ENDPOINT?: URL | undefined;
  readonly OTEL_EXPORTER_OTLP_TRACES_ENDPOINT?: URL | undefined;
}

/** @throws PackageError where a package is missing, with the setting that asks for it */
export async function loadOtel(
  settings: CollectorSettings,
  load: LoadModule = importModule,
): Promise<{ api: OtelApi; sdk: OtelSdk }> {
  try {
    const [api, sdk] = await Promise.all(packages.map(load));
    return { api: api as OtelApi, sdk: sdk as OtelSdk };
  } catch (error) {
    const setting =
      settings.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT === undefined
        ? 'OTEL_EXPORTER_OTLP_ENDPOINT'
        : 'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT';
    throw new PackageError(`${setting}: ${importProblem(error, ...packages)}`);
  }
}

export interface TracingOptions {
  readonly settings: CollectorSettings;
  /** Of each operation, by its name, the path below the base address. */
  readonly paths: ReadonlyMap<string, string>;
  /** Of the callers' listener. */
  readonly scheme: 'http' | 'https';
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Where connections leave the network, where not by themselves. */
  readonly proxy: OutboundProxy | undefined;
  /** Called with the reason when spans could not be exported. Must not throw. */
  readonly onProblem: (reason: string) => void;
}

/**
 * Starts OpenTelemetry's SDK for this process.
 *
 * @returns `undefined` where the environment switches the SDK off (OTEL_SDK_DISABLED, OTEL_TRACES_EXPORTER=none)
 * @throws PackageError where a package is missing
 */
export async function startTracing(options: TracingOptions): Promise<Tracing | undefined> {
  const { api, sdk } = await loadOtel(options.settings);
  const { OTEL_SERVICE_NAME = '', OTEL_RESOURCE_ATTRIBUTES = '' } = options.environment;
  const isNamed = OTEL_SERVICE_NAME !== '' || /(?:^|,)\s*service\.name\s*=/.test(OTEL_RESOURCE_ATTRIBUTES);
  // Before the SDK, which sets its own where OTEL_LOG_LEVEL asks for one.
  api.diag.setLogger(problemLogger(options.onProblem), { logLevel: api.DiagLogLevel.ERROR });
  const node = new sdk.NodeSDK({
    // Metrics have an endpoint of their own, and the log is standard output.
    metricReaders: [],
    logRecordProcessors: [],
    instrumentations: [],
    textMapPropagator: null,
    ...(await exporterThrough(options)),
    ...(isNamed ? {} : { serviceName }),
  });
  node.start();
  const tracer = api.trace.getTracer(serviceName, version);
  // Never ended, so never exported: it shows whether spans are made at all.
  const trial = tracer.startSpan('trial', { kind: 0, startTime: Date.now() }, api.ROOT_CONTEXT);
  if (!api.trace.isSpanContextValid(trial.spanContext())) return undefined;
  return new Tracing(api, tracer, () => node.shutdown(), options);
}

/** The exporters of the SDK know no proxy. One for OTLP by HTTP is told of it; by gRPC its library looks itself. */
async function exporterThrough(
  { proxy, environment, settings }: TracingOptions,
  load: LoadModule = importModule,
): Promise<{ traceExporter?: object }> {
  const endpoint = settings.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT ?? settings.OTEL_EXPORTER_OTLP_ENDPOINT;
  const protocol =
    environment['OTEL_EXPORTER_OTLP_TRACES_PROTOCOL'] || environment['OTEL_EXPORTER_OTLP_PROTOCOL'];
  const isOtlp = (environment['OTEL_TRACES_EXPORTER'] || 'otlp') === 'otlp';
  if (endpoint === undefined || !proxy?.takes(endpoint) || !isOtlp || protocol === 'grpc') return {};
  const format = protocol === 'http/json' ? 'http' : 'proto';
  // Comes with the SDK.
  const { OTLPTraceExporter } = (await load(`@opentelemetry/exporter-trace-otlp-${format}`)) as OtlpExporter;
  return { traceExporter: new OTLPTraceExporter({ httpAgentOptions: () => proxy.agent }) };
}

/** Takes what the SDK says of failed exports. Its warnings are left out: they may quote a header of the collector's. */
function problemLogger(onProblem: (reason: string) => void): object {
  let quietUntilMs = 0;
  const ignore = (): void => {};
  return {
    warn: ignore,
    info: ignore,
    debug: ignore,
    verbose: ignore,
    error(text: unknown) {
      if (performance.now() < quietUntilMs) return;
      quietUntilMs = performance.now() + quietMs;
      onProblem(messageIn(String(text)));
    },
  };
}

/** The message of an error that the SDK has made a JSON text of. The words of an answer may quote what was sent. */
function messageIn(text: string): string {
  try {
    const { message, code } = JSON.parse(text) as { message?: unknown; code?: unknown };
    if (/^\d{3}$/.test(String(code))) return `the collector answered ${code}`;
    return typeof message === 'string' ? shownLibraryText(message) : 'unknown';
  } catch {
    return text.slice(0, 200);
  }
}

/** Makes the spans. A span that is not sampled costs little, and its ids go up all the same. */
export class Tracing {
  readonly #api: OtelApi;
  readonly #tracer: Tracer;
  readonly #shutDown: () => Promise<void>;
  readonly #scheme: string;
  readonly #paths: ReadonlyMap<string, string>;

  constructor(
    api: OtelApi,
    tracer: Tracer,
    shutDown: () => Promise<void>,
    { paths, scheme }: Pick<TracingOptions, 'paths' | 'scheme'>,
  ) {
    this.#api = api;
    this.#tracer = tracer;
    this.#shutDown = shutDown;
    this.#scheme = scheme;
    this.#paths = paths;
  }

  /** The spans of a workspace's attempts. @param upstream its base address: the host and port stand in each span */
  spansOf(workspace: string, upstream: URL): AttemptSpans {
    const about = {
      'server.address': hostFromUrl(upstream.hostname),
      'server.port': Number(upstream.port) || (upstream.protocol === 'http:' ? 80 : 443),
      'analytics_gateway.workspace': workspace || undefined,
    };
    return {
      beginAttempt: (trace, operation, isBackground) =>
        this.#beginAttempt(trace, operation, isBackground, about),
    };
  }

  /** Begins the span of a request, below the caller's own where it named one. */
  beginRequest(trace: Trace): void {
    const { trace: api, ROOT_CONTEXT, SpanKind } = this.#api;
    const epochMs = Date.now() - performance.now();
    const parent =
      trace.traceParent === undefined
        ? ROOT_CONTEXT
        : api.setSpanContext(ROOT_CONTEXT, remoteContext(trace.traceParent));
    const startTime = epochMs + trace.startedMs;
    trace.span = new ServerSpan(
      this.#tracer.startSpan('request', { kind: SpanKind.SERVER, startTime }, parent),
      epochMs,
    );
  }

  /** Ends it with the facts of the log line. @param target asked only for a span that is sampled */
  endRequest({ span, joined }: Trace, line: AccessLine, path: string, target: () => RefusalFields): void {
    if (!(span instanceof ServerSpan)) return;
    const { otel } = span;
    if (otel.isRecording()) {
      const route = this.#routeOf(line, path);
      otel.updateName(route === undefined ? line.method : `${line.method} ${route}`);
      otel.setAttributes({
        ...attributesOf(line),
        ...targetAttributes(target()),
        'http.route': route,
        'url.scheme': this.#scheme,
      });
    }
    if (line.status >= 500) otel.setStatus({ code: this.#api.SpanStatusCode.ERROR });
    if (joined?.span instanceof ServerSpan) otel.addLink({ context: joined.span.otel.spanContext() });
    otel.end(span.epochMs + performance.now());
  }

  /** The route of an operation as callers spell it; one name for all values of a parameter. */
  #routeOf({ operation }: AccessLine, path: string): string | undefined {
    const below = operation === undefined ? undefined : this.#paths.get(operation);
    if (below === undefined) return undefined;
    return baseOf(path)?.name === undefined ? usualBase + below : `/w/:workspace${usualBase}${below}`;
  }

  /** Begins the span of an attempt, below its request's. One that no request waits for begins a trace of its own. */
  #beginAttempt(trace: Trace, operation: string, isBackground: boolean, about: Attributes): AttemptSpan {
    const { trace: api, ROOT_CONTEXT, SpanKind, SpanStatusCode } = this.#api;
    const request = trace.span instanceof ServerSpan ? trace.span : undefined;
    const epochMs = request?.epochMs ?? Date.now() - performance.now();
    const parent =
      request === undefined ? ROOT_CONTEXT : api.setSpanContext(ROOT_CONTEXT, request.otel.spanContext());
    const path = this.#paths.get(operation);
    const attributes = {
      'http.request.method': 'GET',
      'url.template': path,
      'http.request.resend_count': trace.attempts || undefined,
      'analytics_gateway.operation': operation,
      'analytics_gateway.background': isBackground || undefined,
      'analytics_gateway.key_generation': trace.generation,
      ...about,
    };
    const startTime = epochMs + performance.now();
    const options = { kind: SpanKind.CLIENT, startTime, attributes };
    const span = this.#tracer.startSpan(path === undefined ? 'GET' : `GET ${path}`, options, parent);
    return {
      traceParent: traceParentFor(span.spanContext()),
      end(outcome) {
        const status = Number(outcome);
        if (status >= 100) span.setAttributes({ 'http.response.status_code': status });
        if (!(status < 400)) {
          span.setAttributes({ 'error.type': outcome });
          span.setStatus({ code: SpanStatusCode.ERROR });
        }
        span.end(epochMs + performance.now());
      },
    };
  }

  /** Sends what is left, for at most so many ms, and two seconds. Never rejects. @returns whether the collector took it */
  async close(withinMs: number): Promise<boolean> {
    const { promise: timeIsUp, resolve } = Promise.withResolvers<false>();
    const timer = setTimeout(() => resolve(false), Math.min(Math.max(0, withinMs), lastSpansMs));
    const sent = this.#shutDown().then(
      () => true,
      () => false,
    );
    const isSent = await Promise.race([sent, timeIsUp]);
    clearTimeout(timer);
    return isSent;
  }
}

/** The span of a caller's request. */
class ServerSpan implements RequestSpan {
  readonly otel: Span;
  /** The wall clock where the monotonic one was 0: one for all times of a request, so that they are in order. */
  readonly epochMs: number;

  constructor(otel: Span, epochMs: number) {
    this.otel = otel;
    this.epochMs = epochMs;
  }

  get traceId(): string {
    return this.otel.spanContext().traceId;
  }

  get spanId(): string {
    return this.otel.spanContext().spanId;
  }

  get traceFlags(): string {
    return flagsOf(this.otel.spanContext());
  }

  waited(place: WaitingPlace, fromMs: number, untilMs: number): void {
    const ms = toHundredths(untilMs - fromMs);
    if (ms >= 1)
      this.otel.addEvent(`${place}.wait`, { 'analytics_gateway.waited_ms': ms }, this.epochMs + fromMs);
  }
}

/** Of where a request came from and went to; what the search or a grammar refused is left out or shown as in the log. */
function targetAttributes({ peer, path, host = '' }: RefusalFields): Attributes {
  const name = hostName(host);
  const [, port] = /:(\d+)$/.exec(host) ?? [];
  return {
    'url.path': path,
    'client.address': peer,
    'server.address': name === undefined ? undefined : hostFromUrl(name),
    'server.port': name === undefined || port === undefined ? undefined : Number(port),
  };
}

function attributesOf(line: AccessLine): Attributes {
  return {
    'http.request.method': line.method,
    'http.response.status_code': line.status,
    'error.type': line.problem ?? (line.status >= 500 ? String(line.status) : undefined),
    'analytics_gateway.request_id': line.requestId,
    'analytics_gateway.caller': line.caller,
    'analytics_gateway.workspace': line.workspace,
    'analytics_gateway.operation': line.operation,
    'analytics_gateway.cache': line.cache,
    'analytics_gateway.gate': line.gate,
    'analytics_gateway.attempts': line.attempts,
    'analytics_gateway.waited_ms': line.waitedMs,
  };
}

/** @param traceParent valid, of version 00 (W3C Trace Context section 3.2) */
function remoteContext(traceParent: string): SpanContext {
  return {
    traceId: traceParent.slice(3, 35),
    spanId: traceParent.slice(36, 52),
    traceFlags: Number.parseInt(traceParent.slice(53, 55), 16) & 1,
    isRemote: true,
  };
}

function traceParentFor(context: SpanContext): string {
  return `00-${context.traceId}-${context.spanId}-${flagsOf(context)}`;
}

/** The one flag that all versions share: sampled. */
function flagsOf({ traceFlags }: SpanContext): string {
  return (traceFlags & 1) === 1 ? '01' : '00';
}
