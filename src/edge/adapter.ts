/** Between Node's server, Hono's routes and the inbound layers. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { getRequestListener, type HttpBindings, RequestError } from '@hono/node-server';
import type { Hono } from 'hono';
import { andThen, type Eventually, type Handler } from '../layer.ts';
import { bufferOf } from '../payload.ts';
import { Trace } from '../trace.ts';
import { awaitReply } from './half-close.ts';
import { listOf, PreparedFields, takesText, writeFields, writePrepared } from './head.ts';
import { type Fields, InboundRequest, type Reply } from './inbound.ts';

export type Bindings = { Bindings: HttpBindings };

/** What is routed by: the path as it was sent, not what a URL parser made of it (THREATS L7). */
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
    if (outgoing.headersSent) {
      outgoing.destroy();
    } else {
      writeFields(outgoing, 500, ['content-length', '0']);
      outgoing.end();
    }
  };
  const write = (request: InboundRequest, outgoing: ServerResponse, reply: Reply): void => {
    // Who has gone is told nothing.
    if (outgoing.destroyed) return;
    try {
      const { status, fields, body } = reply;
      const ends = endsConnection();
      if (fields instanceof PreparedFields && body !== null && isOrdinary(request, outgoing) && !ends) {
        writePrepared(outgoing, status, fields, request.told);
      } else {
        writeFields(outgoing, status, fieldsOf(request, reply, ends));
      }
      outgoing.end(body, 'latin1');
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
    const fields = fieldsOf(request, reply, endsConnection());
    const headers: Record<string, string> = {};
    for (let at = 0; at < fields.length; at += 2) headers[fields[at] ?? ''] = fields[at + 1] ?? '';
    return new Response(bodyOf(reply), { status: reply.status, headers });
  });
}

/** Whether Node would say of this connection what a prepared head says: that it goes on. */
function isOrdinary({ headers }: InboundRequest, outgoing: ServerResponse): boolean {
  return takesText && outgoing.shouldKeepAlive && headers.expect === undefined;
}

/** The fields of a reply and what was told on its way. */
function fieldsOf({ told }: InboundRequest, { fields }: Reply, endsConnection: boolean): string[] {
  const all = [...listOf(fields)];
  const own = all.length;
  for (let at = 0; at < told.length; at += 2) {
    const name = told[at] as string;
    // Fields of the reply itself win: its `Vary` knows more than the one that CORS adds to everything.
    if (!hasField(all, own, name)) all.push(name, told[at + 1] as string);
  }
  if (endsConnection) all.push('connection', 'close');
  return all;
}

/** @param length how much of the list counts */
function hasField(fields: Fields, length: number, name: string): boolean {
  for (let at = 0; at < length; at += 2) if (fields[at] === name) return true;
  return false;
}

/** `Response` takes any buffer at run time; its type wants one that is not shared. */
function bodyOf({ body }: Reply): Uint8Array<ArrayBuffer> | null {
  return body === null ? null : (bufferOf(body) as Uint8Array<ArrayBuffer>);
}

/**
 * Node's listener for a Hono app.
 *
 * @param refuse answers what @hono/node-server cannot make a Fetch request of, as strange `Host` values. Everything
 *   gets a proper reply and its log line.
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
