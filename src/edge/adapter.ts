/** Between Node's server, Hono's routes and the inbound layers. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { getRequestListener, type HttpBindings, RequestError } from '@hono/node-server';
import type { Hono } from 'hono';
import { andThen, type Eventually, type Handler } from '../layer.ts';
import { Trace } from '../trace.ts';
import { InboundRequest, type Reply } from './inbound.ts';

export type Bindings = { Bindings: HttpBindings };

/** What Hono routes by: the path as it was sent, not what a URL parser made of it (THREATS L7). */
export function rawPath(exchange: HttpBindings): string {
  const target = exchange.incoming.url ?? '';
  const question = target.indexOf('?');
  return question === -1 ? target : target.slice(0, question);
}

/**
 * Runs the layers for one exchange.
 *
 * @param endsConnection asked when the reply is known: whether its connection is to end with it
 */
export function receive(
  handler: Handler<InboundRequest, Reply>,
  { incoming, outgoing }: HttpBindings,
  endsConnection: () => boolean,
): Eventually<Response> {
  // The public listener speaks HTTP/1.1 alone, so these are Node's own classes.
  const request = new InboundRequest(incoming as IncomingMessage, outgoing as ServerResponse);
  return andThen(handler(request, new Trace(performance.now())), (reply) => {
    // A copy of the many that were prepared, then the few of this request: the other way round costs twice as much.
    const headers: Record<string, string> = { ...reply.headers };
    const { replyFields } = request;
    for (const name in replyFields) {
      // Fields of the reply itself win: its `Vary` knows more than the one that CORS adds to everything.
      if (headers[name] === undefined) headers[name] = replyFields[name] as string;
    }
    if (endsConnection()) headers['connection'] = 'close';
    return new Response(bodyOf(reply), { status: reply.status, headers });
  });
}

/** `Response` takes any buffer at run time; its type wants one that is not shared. */
function bodyOf(reply: Reply): string | Uint8Array<ArrayBuffer> | null {
  return reply.body as string | Uint8Array<ArrayBuffer> | null;
}

/**
 * Node's listener for a Hono app.
 *
 * @param refuse answers what @hono/node-server cannot make a Fetch request of: absolute or malformed targets,
 *   strange `Host` values. Everything gets a proper reply and its log line.
 */
export function listenThrough(
  app: Hono<Bindings>,
  refuse: (exchange: HttpBindings) => Eventually<Response>,
): (incoming: IncomingMessage, outgoing: ServerResponse) => void {
  let current: HttpBindings | undefined;
  const listener = getRequestListener(app.fetch, {
    // Requests of HTTP/1.0 may come without `Host`; the host check decides about them.
    hostname: 'localhost',
    errorHandler: (error) =>
      // A request that cannot be built is reported in the same turn, so `current` is the right one.
      error instanceof RequestError && current !== undefined
        ? refuse(current)
        : new Response(null, { status: 500 }),
  });
  return (incoming, outgoing) => {
    current = { incoming, outgoing };
    void listener(incoming, outgoing);
  };
}
