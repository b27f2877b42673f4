/**
 * Node's request listener for a Hono app. `@hono/node-server` makes a Fetch request and a promise for every request;
 * here both are made only for routes that ask for them, because a cache hit needs neither.
 */
import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { getRequestListener, type HttpBindings } from '@hono/node-server';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { Env, Hono } from 'hono';
import { writeFault } from './write-response.ts';

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
export const writtenByHandler = RESPONSE_ALREADY_SENT;

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
