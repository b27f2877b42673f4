/** From a Hono route to the inbound layers, and from their reply to Node's response. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { HttpBindings } from '@hono/node-server';
import type { Context, MiddlewareHandler } from 'hono';
import { compose, type Eventually, type Handler, type Layer } from '../exchange/layer.ts';
import { Trace } from '../exchange/trace.ts';
import { awaitReply } from './half-close.ts';
import { InboundRequest, type Reply } from './inbound.ts';
import { type Bindings, writtenByHandler } from './node-listener.ts';
import { isLastBegun } from './pipelining.ts';
import { writeFault, writeResponse } from './write-response.ts';

export type InboundHandler = Handler<InboundRequest, Reply>;
export type InboundLayer = Layer<InboundRequest, Reply>;

/** The path to route by: as it was sent, not as a URL parser would rewrite it. */
export function pathAsSent(_request: Request, context?: { env?: unknown }): string {
  const { url = '' } = (context as { env: HttpBindings }).env.incoming;
  const question = url.indexOf('?');
  return question === -1 ? url : url.slice(0, question);
}

export interface Answering {
  /** Asked when the reply is known: whether its connection is to end, with the last reply that is under way on it. */
  readonly endsConnection: () => boolean;
  /** Something failed that the layers did not render. */
  readonly onFault: (error: unknown) => void;
}

/**
 * Runs the layers for one exchange and writes their reply to Node's response. Operations come this way: a Fetch
 * response on the way out costs a fifth of a cache hit, and makes promises.
 *
 * @returns a promise where the reply is written later; it never rejects
 */
export function answerThrough(
  handler: Handler<InboundRequest, Reply>,
  { endsConnection, onFault }: Answering,
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
    const request = new InboundRequest(incoming, outgoing);
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

/** What belongs to the message as it is sent to the caller. */
const framing = new Set(['connection', 'content-length', 'keep-alive', 'transfer-encoding']);

async function replyOf(response: Response): Promise<Reply> {
  const { status } = response;
  const fields = [...response.headers].filter(([name]) => !framing.has(name)).flat();
  // RFC 9110 section 8.6: no length with a 204; a 304 has no body of its own.
  if (status === 204 || status === 304) return { status, fields, body: null };
  const body = Buffer.from(await response.arrayBuffer());
  return { status, fields: [...fields, 'content-length', String(body.length)], body };
}
