/** Between Node's server, Hono's routes and the inbound layers. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { getRequestListener, type HttpBindings, RequestError } from '@hono/node-server';
import type { Hono } from 'hono';
import { andThen, type Eventually, type Handler } from '../layer.ts';
import { bufferOf } from '../payload.ts';
import { Trace } from '../trace.ts';
import { awaitReply } from './half-close.ts';
import { InboundRequest, type Reply } from './inbound.ts';
import { mergedFields, writeFault, writeResponse } from './write-response.ts';

export type Bindings = { Bindings: HttpBindings };

/** The path to route by: as it was sent, not as a URL parser would rewrite it (THREATS L7). */
export function rawPath(url = ''): string {
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

/** The same for what Hono routes. */
export function respondThrough(
  handler: Handler<InboundRequest, Reply>,
  { incoming, outgoing }: HttpBindings,
  { endsConnection }: Answering,
): Eventually<Response> {
  // The public listener speaks HTTP/1.1 alone, so these are Node's own classes.
  const request = new InboundRequest(incoming as IncomingMessage, outgoing as ServerResponse);
  return andThen(handler(request, new Trace(performance.now())), (reply) => {
    const fields = mergedFields(request, reply, endsConnection());
    const headers: Record<string, string> = {};
    for (let at = 0; at < fields.length; at += 2) headers[fields[at] ?? ''] = fields[at + 1] ?? '';
    return new Response(bodyOf(reply), { status: reply.status, headers });
  });
}

/** `Response` takes any buffer at run time; its type wants one that is not shared. */
function bodyOf({ body }: Reply): Uint8Array<ArrayBuffer> | null {
  return body === null ? null : (bufferOf(body) as Uint8Array<ArrayBuffer>);
}

/**
 * Node's listener for a Hono app.
 *
 * @param refuse answers a request that @hono/node-server cannot make a Fetch request of, as with the host 1.2.3.4.5, so
 *   that it gets a reply and a log line too
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
