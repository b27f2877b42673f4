/**
 * Limits how many requests of a connection are under way at once (pipelining, RFC 9112 section 9.3.2). Node reads 64 KiB at
 * once and begins every request in them: two thousand, each with its objects and its reply, for a caller that need not read
 * any of them. Sixteen are answered, and where more follow the connection ends with the sixteenth: the caller repeats the
 * rest, as that section has it.
 *
 * Node's parser stops within what was read in one way only: its callback for a new request, `onIncoming`, returns
 * llhttp's code for a pause. Then `clientError` has the code `HPE_PAUSED`, now and for all that still comes. Nothing is
 * done for connections that never pipeline.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { endAndLinger } from './listen.ts';

/** Requests of one connection that are under way at once. */
export const maxBegun = 16;

/** llhttp's HPE_PAUSED. */
const paused = 21;

/** What Node's server keeps on a connection, as far as it is used here. */
interface Parser {
  onIncoming(request: IncomingMessage, keepsAlive: boolean): number;
  /** A copy of what it was given, while it is at work on that. */
  getCurrentBuffer(): Buffer;
}
type ParsedSocket = Socket & { readonly parser: Parser | null };

/** One connection that has sent a request before the reply to an earlier one had left. */
class Pipeline {
  readonly #socket: Socket;
  /** Queued behind another, until they have left or the connection has ended. */
  readonly waiting = new Set<ServerResponse>();
  /** The reply that waits behind all others. */
  #latest: ServerResponse | undefined;
  /** The reply that ends the connection; what is begun behind it is not answered. */
  #final: ServerResponse | undefined;
  /** More requests have come than may be under way. */
  isOverfull = false;

  constructor(socket: Socket, parser: Parser) {
    this.#socket = socket;
    const begin = parser.onIncoming;
    parser.onIncoming = (request, keepsAlive) => {
      if (this.waiting.size < maxBegun - 1) return begin(request, keepsAlive);
      this.#endWithLatest();
      return paused;
    };
  }

  queue(outgoing: ServerResponse): void {
    this.#latest = outgoing;
    this.waiting.add(outgoing);
    outgoing.once('close', () => this.waiting.delete(outgoing));
  }

  /** Call when the connection is to end: whether this reply ends it. */
  isFinal(outgoing: ServerResponse): boolean {
    // A queue that has left is no reason to wait.
    this.#final ??= this.#latest === undefined || this.#latest.writableFinished ? outgoing : this.#latest;
    return this.#final === outgoing;
  }

  #endWithLatest(): void {
    const latest = this.#latest;
    if (this.isOverfull || latest === undefined) return;
    this.isOverfull = true;
    // Said in its head where that has not been made yet.
    latest.shouldKeepAlive = false;
    latest.once('close', () => {
      if (this.#socket.writable) endAndLinger(this.#socket);
    });
  }
}

const pipelines = new WeakMap<object, Pipeline>();

/** Counts a request; called in the same turn as Node's server begins it. */
export function countBegun({ socket }: IncomingMessage, outgoing: ServerResponse): void {
  // It has the connection for itself.
  if (outgoing.socket !== null) return;
  const { parser } = socket as ParsedSocket;
  if (parser === null) return;
  let pipeline = pipelines.get(socket);
  if (pipeline === undefined) {
    pipeline = new Pipeline(socket, parser);
    pipelines.set(socket, pipeline);
  }
  pipeline.queue(outgoing);
}

/** The replies that wait behind others; `undefined` for a connection that has never pipelined. */
export function queuedReplies(socket: object): ReadonlySet<ServerResponse> | undefined {
  return pipelines.get(socket)?.waiting;
}

/** Whether more requests have come on a connection than may be under way: what follows is dropped. */
export function isOverfull(socket: object): boolean {
  return pipelines.get(socket)?.isOverfull === true;
}

/**
 * Whether a reply may end its connection: the last of those under way when this is first asked. The others would be lost
 * with it (RFC 9112 section 9.6).
 */
export function isLastBegun(outgoing: ServerResponse): boolean {
  return pipelines.get(outgoing.req.socket)?.isFinal(outgoing) ?? true;
}

/**
 * Whether bytes that were read behind this request are lost: once a request asks for another protocol (`Upgrade`), Node's
 * parser drops the rest of what was read, although the request is answered like every other. Call as `countBegun`.
 */
export function losesRest({ headers, socket }: IncomingMessage): boolean {
  if (headers.upgrade === undefined) return false;
  const read = (socket as ParsedSocket).parser?.getCurrentBuffer();
  if (read === undefined) return true;
  // Of this head only its end was read, so the first empty line may be that of the next head.
  const beginsWithLineEnd = read[0] === 0x0a || read[0] === 0x0d;
  // Where heads before this one, or the start of this one, make it less plain, it is taken for lost.
  return beginsWithLineEnd || read.indexOf('\r\n\r\n') !== read.length - 4;
}
