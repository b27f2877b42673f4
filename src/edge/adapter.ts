/** From a Hono route to the inbound layers, and from their reply to Node's response. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { HttpBindings } from '@hono/node-server';
import type { Context, MiddlewareHandler } from 'hono';
import { compose, type Eventually, type Handler, type Layer } from '../layer.ts';
import { Trace } from '../trace.ts';
import { awaitReply } from './half-close.ts';
import { InboundRequest, type Reply } from './inbound.ts';
import { type Bindings, writtenByHandler } from './node-listener.ts';
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
  /** Asked when the reply is known: whether its connection is to end with it. */
  readonly endsConnection: () => boolean;
  /** Something failed that the layers did not render. */
  readonly onFault: (error: unknown) => void;
}

/**
 * Runs the layers for one exchange and writes their reply to Node's response. Operations come this way: a Fetch
 * response on the way out costs a fifth of a cache hit, and makes promises.
 */
export function answerThrough(
  handler: Handler<InboundRequest, Reply>,
  { endsConnection, onFault }: Answering,
): (incoming: IncomingMessage, outgoing: ServerResponse) => void {
  const fail = (outgoing: ServerResponse, error: unknown): void => {
    onFault(error);
    writeFault(outgoing);
  };
  const write = (request: InboundRequest, outgoing: ServerResponse, reply: Reply): void => {
    // The caller has gone.
    if (outgoing.destroyed) return;
    try {
      writeResponse(outgoing, request, reply, endsConnection());
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
    reply.then(
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
    answer(env.incoming as IncomingMessage, env.outgoing as ServerResponse);
    return writtenByHandler;
  };
}

/** A Hono middleware that runs layers around routes of Hono's own kind, whose responses are read whole. */
export function aroundRoutes(
  layers: readonly InboundLayer[],
  answering: Answering,
): MiddlewareHandler<Bindings> {
  return async function aroundRoute(context, next) {
    const last: InboundHandler = async () => {
      await next();
      return replyOf(context.res);
    };
    return answerWith(compose(layers, last), answering)(context);
  };
}

async function replyOf(response: Response): Promise<Reply> {
  const body = Buffer.from(await response.arrayBuffer());
  const fields = [...response.headers].flat();
  return { status: response.status, fields: [...fields, 'content-length', String(body.length)], body };
}
