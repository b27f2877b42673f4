/** The routes of the public listener, and the inbound order. */
import type { RequestListener } from 'node:http';
import { Hono } from 'hono';
import type { Authenticator } from './callers/authenticator.ts';
import { unnamedWorkspace } from './callers/caller.ts';
import type { CallerLimits } from './callers/limit.ts';
import type { Config } from './config/config.ts';
import {
  type DescribedGateway,
  type DocumentHandler,
  documentRoutes,
  type MeOptions,
} from './documents/document-routes.ts';
import { type AccessLogOptions, logAccess } from './edge/access-log.ts';
import {
  type Answering,
  answerWith,
  aroundRoutes,
  type Bindings,
  type InboundLayer,
  listenThrough,
  pathAsSent,
} from './edge/adapter.ts';
import {
  authenticate,
  authenticateWhereSent,
  limitCaller,
  searchForCredentials,
} from './edge/authenticate.ts';
import { type BufferedResponsesOptions, limitBufferedResponses } from './edge/buffered-responses.ts';
import { CallerContexts } from './edge/caller-context.ts';
import {
  corsHeaders,
  corsPolicy,
  guardHost,
  guardOrigin,
  type HostOptions,
  type OriginOptions,
} from './edge/cross-origin.ts';
import { type ForwardOptions, forward } from './edge/forward.ts';
import type { EdgeWorkspace } from './edge/inbound.ts';
import { refuseMethod, refuseUnknown, selectOperation } from './edge/operation.ts';
import { renderProblems } from './edge/problems.ts';
import { documentFields, prepareReplies } from './edge/reply-fields.ts';
import type { FindPeer } from './edge/request-head.ts';
import { identifyRequest } from './edge/request-ids.ts';
import { GatewayError } from './errors.ts';
import { compose } from './exchange/layer.ts';
import { type Operation, operationsOf } from './operations.ts';
import type { AddRoutes } from './routes.ts';

export interface AppOptions {
  readonly operations: readonly Operation[];
  /** By name; the unnamed one has the empty name. */
  readonly workspaces: ReadonlyMap<string, EdgeWorkspace>;
  readonly authenticator: Pick<Authenticator, 'authenticate' | 'credentialsOf' | 'anonymous'>;
  readonly limits: CallerLimits;
  readonly host: HostOptions;
  readonly bufferedResponses: BufferedResponsesOptions;
  readonly origin: OriginOptions;
  readonly forward: ForwardOptions;
  /** By which the listener is reached where no proxy is before it. */
  readonly scheme: 'http' | 'https';
  readonly documents: DescribedGateway;
  /** For `/me`. */
  readonly me: Omit<MeOptions, 'limits'>;
  /** Registers a team's own routes. */
  readonly addRoutes: AddRoutes;
  readonly accessLog: AccessLogOptions;
  /** Whether a text holds the upstream key. */
  readonly holdsKey: (text: string) => boolean;
  /** Something failed that the layers did not render. */
  readonly onFault: (error: unknown) => void;
  /** Why the gateway is not ready, or `undefined` when it is. */
  readonly notReady: () => string | undefined;
  readonly findPeer: FindPeer;
  /** While the gateway stops, every reply ends its connection. */
  readonly isDraining: () => boolean;
}

/** What settings and callers say of the inbound layers: also for `explain`, which has no gateway. */
export function inboundRules(
  config: Config,
  authenticator: Pick<Authenticator, 'admitsAnonymous' | 'credentialHeaders'>,
  contexts = new CallerContexts({ timeoutMs: config.REQUEST_TIMEOUT }),
) {
  const admitsAnonymous = (): boolean => authenticator.admitsAnonymous;
  const cors = corsPolicy(config, () => authenticator.credentialHeaders);
  const { ALLOWED_HOSTS: allowed } = config;
  return {
    operations: operationsOf(config),
    host: { allowed: allowed && new Set(allowed), admitsAnonymous },
    origin: { cors, admitsAnonymous },
    forward: {
      contexts,
      prepare: prepareReplies(config),
      forwardHeaders: config.FORWARD_REQUEST_HEADERS,
      unkeyedHeaders: config.FORWARD_REQUEST_HEADERS_UNKEYED,
    },
  };
}

/**
 * The inbound order. The first listed is the first to see the request. A layer keeps its counts to itself, so each is
 * made once, and routes share it.
 */
export function inboundLayers(
  options: Pick<
    AppOptions,
    | 'operations'
    | 'workspaces'
    | 'authenticator'
    | 'limits'
    | 'host'
    | 'bufferedResponses'
    | 'origin'
    | 'accessLog'
    | 'holdsKey'
  >,
) {
  const { authenticator, accessLog, holdsKey } = options;
  /** What every request passes except probes. */
  const everyRequest = {
    identifyRequest: identifyRequest(searchForCredentials({ authenticator, holdsKey: accessLog.isSecret })),
    logAccess: logAccess(accessLog),
    renderProblems: renderProblems(),
    limitBufferedResponses: limitBufferedResponses(options.bufferedResponses),
    corsHeaders: corsHeaders(options.origin.cors),
    guardHost: guardHost(options.host),
    guardOrigin: guardOrigin(options.origin),
  };
  /** What a request of a caller passes. */
  const callers = {
    ...everyRequest,
    authenticate: authenticate(authenticator),
    limitCaller: limitCaller(options.limits),
  };
  /** What a read passes; `forward` comes last. */
  const operations = {
    ...callers,
    selectOperation: selectOperation({
      workspaces: options.workspaces,
      operations: options.operations,
      holdsCredential: searchForCredentials({ authenticator, holdsKey }),
    }),
  };
  /** What a request for a document passes. */
  const documents = {
    ...everyRequest,
    guardOrigin: guardOrigin({ ...options.origin, admitsLinks: true }),
  };
  return { everyRequest, callers, operations, documents };
}

export function createApp(options: AppOptions): RequestListener {
  const app = new Hono<Bindings>({ getPath: pathAsSent });
  const { isDraining: endsConnection, onFault, findPeer } = options;
  const answering: Answering = { endsConnection, onFault, findPeer };
  const layers = inboundLayers(options);
  const everyRequest = Object.values(layers.everyRequest);
  const callers = Object.values(layers.callers);
  const operations = Object.values(layers.operations);

  app.get('/livez', () => answerProbe(undefined, options.isDraining()));
  app.get('/readyz', () => answerProbe(options.notReady(), options.isDraining()));
  const refuseOthers = answerWith(compose(everyRequest, refuseMethod), answering);
  for (const path of ['/livez', '/readyz']) app.all(path, refuseOthers);
  addDocuments(app, options, layers, answering);
  // The operations of the table, and the refusal of every other path there: its caller has to authenticate too.
  const answerRead = answerWith(
    compose(operations, forward(options.forward, searchForCredentials(options))),
    answering,
  );
  app.all('/api/*', answerRead);
  const hasNamed = [...options.workspaces.keys()].some((name) => name !== unnamedWorkspace);
  if (hasNamed) app.all('/w/:workspace/api/*', answerRead);

  options.addRoutes(app, {
    checked: aroundRoutes(everyRequest, answering),
    forCallers: aroundRoutes(callers, answering),
  });

  const refuseHere = refuseUnknown(options.operations);
  const refuse = answerWith(compose(everyRequest, refuseHere), answering);
  // Behind a check the layers run already.
  app.notFound((context) => (context.get('isChecked') ? refuseHere() : refuse(context)));
  app.onError((error, context) => {
    if ('getResponse' in error) return error.getResponse();
    // A problem that a checked route threw is rendered by the layers around it.
    const isProblem = error instanceof GatewayError && context.get('isChecked') === true;
    if (!isProblem) options.onFault(error);
    return new Response(null, { status: 500 });
  });
  return listenThrough(app, options.onFault);
}

/** Registers what writers of callers read. */
function addDocuments(
  app: Hono<Bindings>,
  { operations, authenticator, scheme, limits, me, documents: described }: AppOptions,
  { documents, everyRequest, callers: { authenticate } }: ReturnType<typeof inboundLayers>,
  answering: Answering,
): void {
  const routes = documentRoutes({
    operations,
    anonymous: () => authenticator.anonymous,
    scheme,
    limits,
    ...me,
    ...described,
  });
  const open = Object.values(documents);
  const groups: (readonly [readonly InboundLayer[], Readonly<Record<string, DocumentHandler>>])[] = [
    [open, routes.open],
    [[...open, authenticateWhereSent(authenticator)], routes.ofCaller],
    // It is not counted for the limit: a caller that has used it up can read so.
    [[...Object.values(everyRequest), authenticate], routes.forCaller],
  ];
  for (const [layers, handlers] of groups) {
    for (const [path, handler] of Object.entries(handlers)) {
      app.all(path, answerWith(compose(layers, handler), answering));
    }
  }
}

/**
 * The reply to a health probe: short plain text, without credentials and for any well-formed `Host`. It is not logged.
 *
 * @param problem why the answer is no (503), or `undefined` for yes (200)
 * @param endsConnection whether the connection is to end with the reply
 */
function answerProbe(problem: string | undefined, endsConnection: boolean): Response {
  return new Response(problem === undefined ? 'ok\n' : `${problem}\n`, {
    status: problem === undefined ? 200 : 503,
    headers: { ...documentFields, ...(endsConnection ? { connection: 'close' } : {}) },
  });
}
