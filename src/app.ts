/** The routes of the public listener, and the inbound order. */
import type { RequestListener } from 'node:http';
import { Hono } from 'hono';
import type { Authenticator } from './callers/authenticator.ts';
import type { CallerLimits } from './callers/limit.ts';
import { type AccessLogOptions, logAccess } from './edge/access-log.ts';
import {
  type Answering,
  answerThrough,
  type Bindings,
  listenThrough,
  rawPath,
  respondThrough,
} from './edge/adapter.ts';
import { authenticate } from './edge/authenticate.ts';
import { type BufferedResponsesOptions, limitBufferedResponses } from './edge/buffered-responses.ts';
import { serveDocument } from './edge/documents.ts';
import { type ForwardOptions, forward } from './edge/forward.ts';
import { guardHost, type HostOptions } from './edge/host.ts';
import { limitCaller } from './edge/limit.ts';
import { selectOperation } from './edge/operation.ts';
import { corsHeaders, guardOrigin, type OriginOptions } from './edge/origin.ts';
import { answerProbe } from './edge/probe.ts';
import { renderProblems } from './edge/problems.ts';
import { identifyRequest } from './edge/request-id.ts';
import { compose } from './layer.ts';
import { matchOperations, type Operation } from './operations.ts';

export interface AppOptions {
  readonly operations: readonly Operation[];
  readonly authenticator: Pick<Authenticator, 'authenticate' | 'credentialOf'>;
  readonly limits: CallerLimits;
  readonly host: HostOptions;
  readonly bufferedResponses: BufferedResponsesOptions;
  readonly origin: OriginOptions;
  readonly forward: ForwardOptions;
  readonly accessLog: AccessLogOptions;
  /** Whether a text holds the upstream key. */
  readonly holdsKey: (text: string) => boolean;
  /** Something failed that the layers did not render. */
  readonly onFault: (error: unknown) => void;
  /** Why the gateway is not ready, or `undefined` when it is. */
  readonly notReady: () => string | undefined;
  /** While the gateway stops, every reply ends its connection. */
  readonly isDraining: () => boolean;
}

export function createApp(options: AppOptions): RequestListener {
  /** The layers of every request except probes. */
  const onEveryRequest = [
    identifyRequest(options.accessLog.isSecret),
    logAccess(options.accessLog),
    renderProblems(),
    limitBufferedResponses(options.bufferedResponses),
    corsHeaders(options.origin.cors),
    guardHost(options.host),
    guardOrigin(options.origin),
  ];
  const operations = compose(
    [
      ...onEveryRequest,
      authenticate(options.authenticator),
      limitCaller(options.limits),
      selectOperation(matchOperations(options.operations), options),
    ],
    forward(options.forward),
  );
  /** Documents for people, and the refusal of unknown paths: without authentication. */
  const documents = compose(onEveryRequest, serveDocument);

  const answering: Answering = { endsConnection: options.isDraining, onFault: options.onFault };
  const answerOperation = answerThrough(operations, answering);

  const app = new Hono<Bindings>({
    getPath: (_request, context) => rawPath((context?.env as Bindings['Bindings'] | undefined)?.incoming.url),
  });
  const probes = new Map([
    ['/livez', () => answerProbe(undefined, options.isDraining())],
    ['/readyz', () => answerProbe(options.notReady(), options.isDraining())],
  ]);
  for (const [path, probe] of probes) app.get(path, probe);
  app.notFound(({ env }) => respondThrough(documents, env, answering));
  // The layers render every failure; only a fault in the outermost of them gets here.
  app.onError((error) => {
    options.onFault(error);
    return new Response(null, { status: 500 });
  });
  const answerOther = listenThrough(app, (exchange) => {
    // Probes are answered whatever the `Host`, also a name that no URL can be made of, as 1.2.3.4.5.
    const { method } = exchange.incoming;
    const probe =
      method === 'GET' || method === 'HEAD' ? probes.get(rawPath(exchange.incoming.url)) : undefined;
    if (probe === undefined) return respondThrough(documents, exchange, answering);
    return method === 'GET' ? probe() : new Response(null, probe());
  });

  return (incoming, outgoing) => {
    if (isForOperation(rawPath(incoming.url))) answerOperation(incoming, outgoing);
    else answerOther(incoming, outgoing);
  };
}

/** `*` (OPTIONS alone has it) means operations too, so its caller has to authenticate. */
function isForOperation(path: string): boolean {
  return path === '/api' || path.startsWith('/api/') || path === '*';
}
