/**
 * Between Node, Hono and the inbound layers: Node's request listener for a Hono app, the handlers and middleware that run
 * the layers, and their reply to Node's response. `@hono/node-server` makes a Fetch request and a promise for every
 * request; here both are made only for routes that ask for them, because a cache hit needs neither.
 */
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { getRequestListener, type HttpBindings } from '@hono/node-server';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { Context, Env, Hono, MiddlewareHandler } from 'hono';
import { compose, type Eventually, type Handler, type Layer } from '../exchange/layer.ts';
import { Trace } from '../exchange/trace.ts';
import { connectionFields } from '../http/header-table.ts';
import { InboundRequest, type Reply } from './inbound.ts';
import { isLastBegun } from './pipelining.ts';
import type { FindPeer } from './request-head.ts';
import { awaitReply, writeFault, writeResponse } from './write-response.ts';

export type InboundHandler = Handler<InboundRequest, Reply>;
export type InboundLayer = Layer<InboundRequest, Reply>;

/** The path to route by: as it was sent, not as a URL parser would rewrite it. */
export function pathAsSent(_request: Request, context?: { env?: unknown }): string {
  const { url = '' } = (context as { env: HttpBindings }).env.incoming;
  const question = url.indexOf('?');
  return question === -1 ? url : url.slice(0, question);
}

export interface Answering {
  /** Whether connections are to end, asked for each reply. The last reply under way on a connection ends it. */
  readonly endsConnection: () => boolean;
  /** Something failed that the layers did not render. */
  readonly onFault: (error: unknown) => void;
  readonly findPeer: FindPeer;
}

/**
 * Runs the layers for one exchange and writes their reply to Node's response. Operations come this way: a Fetch
 * response on the way out costs a fifth of a cache hit, and makes promises.
 *
 * @returns a promise where the reply is written later; it never rejects
 */
export function answerThrough(
  handler: Handler<InboundRequest, Reply>,
  { endsConnection, onFault, findPeer }: Answering,
): (incoming: IncomingMessage, outgoing: ServerResponse) => Eventually<void> {
  const fail = (outgoing: ServerResponse, error: unknown): void => {
    onFault(error);
    writeFault(outgoing);
  };
  const write = (request: InboundRequest, outgoing: ServerResponse, reply: Reply): void => {
    // The caller has gone.
    if (outgoing.destroyed) return;
    try {
      writeResponse(outgoing, request, reply, endsConnection() && isLastBegun(outgoing));
    } catch (error) {
      fail(outgoing, error);
    }
  };
  return (incoming, outgoing) => {
    const request = new InboundRequest(incoming, outgoing, findPeer);
    let reply: Eventually<Reply>;
    try {
      reply = handler(request, new Trace(performance.now()));
    } catch (error) {
      fail(outgoing, error);
      return;
    }
    if (!(reply instanceof Promise)) {
      write(request, outgoing, reply);
      return;
    }
    awaitReply(outgoing);
    return reply.then(
      (late) => write(request, outgoing, late),
      (error: unknown) => fail(outgoing, error),
    );
  };
}

/** A Hono handler that runs the layers. */
export function answerWith(
  handler: InboundHandler,
  answering: Answering,
): (context: Context<Bindings>) => Response {
  const answer = answerThrough(handler, answering);
  return ({ env }) => {
    // The listener speaks HTTP/1.1 alone, so these are Node's own classes.
    void answer(env.incoming as IncomingMessage, env.outgoing as ServerResponse);
    return writtenByHandler;
  };
}

/** A Hono middleware that runs layers around routes of Hono's own kind, whose responses are read whole. */
export function aroundRoutes(
  layers: readonly InboundLayer[],
  answering: Answering,
): MiddlewareHandler<Bindings> {
  return async function aroundRoute(context, next) {
    const { env } = context;
    if (context.get('isChecked')) throw new Error('a route takes one check: `checked` or `forCallers`');
    context.set('isChecked', true);
    const last: InboundHandler = async (request) => {
      context.set('caller', request.caller?.name);
      await next();
      // Hono has made a response of it already, without a body.
      if (isFault(context.error)) throw context.error;
      return replyOf(context.res);
    };
    const answer = answerThrough(compose(layers, last), answering);
    // Hono takes the first response it gets, so this waits until the route's own is written.
    await answer(env.incoming as IncomingMessage, env.outgoing as ServerResponse);
    // Hono would copy the fields of the former response to the new one.
    context.res = undefined;
    context.res = writtenByHandler;
  };
}

/** Whether what a route threw has no response of its own, as Hono's HTTPException has one. */
function isFault(error: Error | undefined): error is Error {
  return error !== undefined && !('getResponse' in error);
}

async function replyOf(response: Response): Promise<Reply> {
  const { status } = response;
  // Node frames the message as it is sent.
  const isFraming = (name: string): boolean => name === 'content-length' || connectionFields.has(name);
  const fields = [...response.headers].filter(([name]) => !isFraming(name)).flat();
  // RFC 9110 section 8.6: no length with a 204; a 304 has no body of its own.
  if (status === 204 || status === 304) return { status, fields, body: null };
  const body = Buffer.from(await response.arrayBuffer());
  return { status, fields: [...fields, 'content-length', String(body.length)], body };
}

export type Bindings = {
  Bindings: HttpBindings;
  Variables: {
    /** The gateway's own layers run around the route. */
    isChecked?: boolean;
    /** The name of the caller, behind a check of callers. */
    caller?: string | undefined;
  };
};

/** What a handler returns that writes to Node's response by itself, now or later. */
const writtenByHandler = RESPONSE_ALREADY_SENT;

/** @param onFault something failed that the app did not render */
export function listenThrough<E extends Env & Bindings>(
  app: Hono<E>,
  onFault: (error: unknown) => void,
): RequestListener {
  function fail(outgoing: ServerResponse, error: unknown): void {
    onFault(error);
    writeFault(outgoing);
  }

  return (incoming, outgoing) => {
    try {
      const request = new LazyRequest(incoming, outgoing) as unknown as Request;
      const response = app.fetch(request, { incoming, outgoing });
      if (response === writtenByHandler) return;
      writeLater(response, incoming, outgoing).catch((error: unknown) => fail(outgoing, error));
    } catch (error) {
      fail(outgoing, error);
    }
  };
}

/** A Fetch response, or the promise of one: from a middleware, a route of a team's own, or HEAD. */
async function writeLater(
  eventual: Response | Promise<Response>,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
): Promise<void> {
  const response = await eventual;
  // For HEAD, Hono copies the response of GET.
  if (response.headers.has('x-hono-already-sent')) return;
  // Node's request is not read by `send`; where no URL can be made of its `Host` (1.2.3.4.5), the response is sent too.
  const send = getRequestListener(() => response, { hostname: 'localhost', errorHandler: () => response });
  await send(incoming, outgoing);
}

/** The Fetch request of an exchange, made when a route reads more of it than its method. */
class LazyRequest {
  readonly method: string;
  readonly #incoming: IncomingMessage;
  readonly #outgoing: ServerResponse;
  #request: Request | undefined;

  constructor(incoming: IncomingMessage, outgoing: ServerResponse) {
    this.method = incoming.method ?? 'GET';
    this.#incoming = incoming;
    this.#outgoing = outgoing;
  }

  get whole(): Request {
    this.#request ??= makeRequest(this.#incoming, this.#outgoing);
    return this.#request;
  }
}

// Everything else a Fetch request has. Requests to this server have no body (edge/server.ts).
for (const name of ['url', 'headers', 'signal', 'body', 'bodyUsed'] as const) {
  Object.defineProperty(LazyRequest.prototype, name, {
    get(this: LazyRequest) {
      return this.whole[name];
    },
  });
}
for (const name of ['text', 'json', 'arrayBuffer', 'blob', 'formData', 'clone'] as const) {
  Object.defineProperty(LazyRequest.prototype, name, {
    value(this: LazyRequest) {
      return this.whole[name]();
    },
  });
}

function makeRequest(incoming: IncomingMessage, outgoing: ServerResponse): Request {
  const { method = 'GET', url = '/', headers, rawHeaders } = incoming;
  const address = URL.parse(`http://${headers.host ?? 'localhost'}${url}`) ?? new URL('http://localhost/');
  const fields: [string, string][] = [];
  for (let at = 0; at < rawHeaders.length; at += 2)
    fields.push([rawHeaders[at] ?? '', rawHeaders[at + 1] ?? '']);
  const left = new AbortController();
  outgoing.once('close', () => {
    if (!outgoing.writableFinished) left.abort();
  });
  return new Request(address, { method, headers: fields, signal: left.signal });
}
