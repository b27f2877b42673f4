/** The routes of the public listener, and the inbound order. */
import { type Context, Hono } from 'hono';
import type { Directory } from './callers/directory.ts';
import type { CallerLimits } from './callers/limit.ts';
import { type AccessLine, logAccess } from './edge/access-log.ts';
import { type Bindings, listenThrough, rawPath, receive } from './edge/adapter.ts';
import { authenticate } from './edge/authenticate.ts';
import { serveDocument } from './edge/documents.ts';
import { type ForwardOptions, forward } from './edge/forward.ts';
import { guardHost, type HostOptions } from './edge/host.ts';
import type { InboundRequest, Reply } from './edge/inbound.ts';
import { limitCaller } from './edge/limit.ts';
import { selectOperation } from './edge/operation.ts';
import { guardOrigin, type OriginOptions, tellReaders } from './edge/origin.ts';
import { answerProbe } from './edge/probe.ts';
import { renderProblems } from './edge/problems.ts';
import { identifyRequest } from './edge/request-id.ts';
import { boundUnsent, type UnsentOptions } from './edge/unsent.ts';
import { compose, type Handler } from './layer.ts';
import { matchOperations, type Operation } from './operations.ts';

export interface AppOptions {
  readonly operations: readonly Operation[];
  readonly directory: Pick<Directory, 'recognise'>;
  readonly limits: CallerLimits;
  readonly host: HostOptions;
  readonly unsent: UnsentOptions;
  readonly origin: OriginOptions;
  readonly forward: ForwardOptions;
  /** Whether a text holds the upstream key. */
  readonly isSecret: (text: string) => boolean;
  readonly writeAccess: (line: AccessLine) => void;
  /** A request has come that will have its line. */
  readonly beginAccess: () => void;
  /** Something failed that the layers did not render. */
  readonly onFault: (error: unknown) => void;
  /** Why the gateway is not ready, or `undefined` when it is. */
  readonly notReady: () => string | undefined;
  /** While the gateway stops, every reply ends its connection. */
  readonly isDraining: () => boolean;
}

export function createApp(options: AppOptions): ReturnType<typeof listenThrough> {
  /** What every request passes, but for probes. */
  const everyone = [
    identifyRequest(options.isSecret),
    logAccess(options.writeAccess, options.beginAccess),
    renderProblems(),
    boundUnsent(options.unsent),
    tellReaders(options.origin.cors),
    guardHost(options.host),
    guardOrigin(options.origin),
  ];
  const operations = compose(
    [
      ...everyone,
      authenticate(options.directory),
      limitCaller(options.limits),
      selectOperation(matchOperations(options.operations)),
    ],
    forward(options.forward),
  );
  /** Documents for people, and the refusal of whatever is not there: nobody is asked who they are. */
  const documents = compose(everyone, serveDocument);

  const through = (handler: Handler<InboundRequest, Reply>) => (context: Context<Bindings>) =>
    receive(handler, context.env, options.isDraining);

  const app = new Hono<Bindings>({
    getPath: (_request, context) => rawPath(context?.env as Bindings['Bindings']),
  });
  app.all('/api', through(operations));
  app.all('/api/*', through(operations));
  const probes = new Map([
    ['/livez', () => answerProbe(undefined, options.isDraining())],
    ['/readyz', () => answerProbe(options.notReady(), options.isDraining())],
  ]);
  for (const [path, probe] of probes) app.get(path, probe);
  // A target that is no path (absolute, `*`) could mean anything, so whoever sends one is asked who it is.
  app.notFound((context) => through(rawPath(context.env).startsWith('/') ? documents : operations)(context));
  // The layers render every failure; only a fault in the outermost of them gets here.
  app.onError((error) => {
    options.onFault(error);
    return new Response(null, { status: 500 });
  });

  return listenThrough(app, (exchange) => {
    // Probes are answered whatever the `Host`, also one that no URL can be made of.
    const { method } = exchange.incoming;
    const probe = method === 'GET' || method === 'HEAD' ? probes.get(rawPath(exchange)) : undefined;
    if (probe === undefined) return receive(operations, exchange, options.isDraining);
    return method === 'GET' ? probe() : new Response(null, probe());
  });
}
