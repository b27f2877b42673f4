/**
 * Limits how many requests of a connection are begun before their replies have left (pipelining, RFC 9112 section
 * 9.3.2). Node reads 64 KiB at once and begins every request in them: two thousand, each with its objects and its
 * reply, for a caller that need not read any of them.
 *
 * Node's parser stops within what was read in one way only: its callback for a new request, `onIncoming`, returns
 * llhttp's code for a pause. Then `clientError` has the code `HPE_PAUSED` and says how far it came. The rest goes back
 * into the socket's buffer, and is parsed once the replies have left. Nothing is done for connections that never
 * pipeline.
 *
 * A paused socket goes on reading until its buffer is full (64 KiB), so that a caller that leaves is noticed.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { probeCaller } from './half-close.ts';

/** Requests of one connection that are under way at once. */
export const maxBegun = 16;

/** llhttp's HPE_PAUSED. */
const paused = 21;

/** What Node's server keeps on a connection, as far as it is used here. */
interface Parser {
  onIncoming(request: IncomingMessage, keepsAlive: boolean): number;
  resume(): void;
  execute(bytes: Buffer): unknown;
  /** A copy of what it was given, while it is at work on that. */
  getCurrentBuffer(): Buffer;
}
type ParsedSocket = Socket & {
  readonly parser: Parser | null;
  /** Node itself has stopped reading, until replies have left. */
  readonly _paused: boolean;
};

/** What `clientError` gets of the parser. */
export interface ParserError extends NodeJS.ErrnoException {
  readonly bytesParsed?: number;
  readonly rawPacket?: Buffer<ArrayBuffer>;
}

/** Not `Buffer.alloc(0)`: without an address the parser takes it for the end of the connection. */
const nothing = Buffer.alloc(1).subarray(0, 0);

function ignore(): void {}

/** One connection that has sent a request before the reply to an earlier one had left. */
class Pipeline {
  readonly #socket: ParsedSocket;
  /** Queued behind another, until they have left or the connection has ended. */
  readonly waiting = new Set<ServerResponse>();
  /** Requests that were queued behind another since the last pause. */
  #queued = 0;
  /** The reply to wait for, while there is no room for another request. */
  #last: ServerResponse | undefined;
  /** The parser has paused, until `#last` has left. */
  #isHeld = false;
  #isHeldBefore = false;
  /** The reply that waits behind all others. */
  #latest: ServerResponse | undefined;
  /** The reply that ends the connection; what is begun behind it is not answered. */
  #final: ServerResponse | undefined;

  constructor(socket: ParsedSocket, parser: Parser) {
    this.#socket = socket;
    const begin = parser.onIncoming;
    parser.onIncoming = (request, keepsAlive) => {
      const result = begin(request, keepsAlive);
      return this.#last === undefined ? result : paused;
    };
    // Node goes on reading when its own buffers have drained.
    socket.on('resume', () => {
      if (this.#isHeld) socket.pause();
    });
  }

  queue(outgoing: ServerResponse): void {
    this.#latest = outgoing;
    this.waiting.add(outgoing);
    outgoing.once('close', () => this.waiting.delete(outgoing));
    this.#queued += 1;
    if (this.#queued < maxBegun - 1) return;
    this.#queued = 0;
    this.#last = outgoing;
  }

  /** Call when the connection is to end: whether this reply ends it. */
  isFinal(outgoing: ServerResponse): boolean {
    // A queue that has left is no reason to wait.
    this.#final ??= this.#latest === undefined || this.#latest.writableFinished ? outgoing : this.#latest;
    return this.#final === outgoing;
  }

  /** The parser has paused as `queue` wanted. */
  hold(rest: Buffer<ArrayBuffer>): void {
    const socket = this.#socket;
    if (!this.#isHeldBefore) this.#readThroughBuffer();
    this.#isHeldBefore = true;
    this.#isHeld = true;
    // The pause came between the head of the last request and its end, at which Node goes on reading.
    socket.parser?.resume();
    socket.parser?.execute(nothing);
    socket.pause();
    if (rest.length > 0) socket.unshift(rest);
    this.#last?.once('close', () => this.#continue());
  }

  /**
   * Node's parser takes the bytes from the handle itself until `data` has a listener more; then they come through the
   * socket's buffer, also while the socket is paused. That costs more, so it is left to connections that were held.
   */
  #readThroughBuffer(): void {
    const socket = this.#socket;
    socket.on('data', ignore).off('data', ignore);
    // `end` comes when the buffer is empty, which is too late to see that a caller has gone.
    const push = socket.push.bind(socket);
    socket.push = (chunk: unknown, encoding?: BufferEncoding) => {
      const hasRoom = push(chunk, encoding);
      if (chunk === null && this.#isHeld) probeCaller(socket);
      return hasRoom;
    };
  }

  #continue(): void {
    const socket = this.#socket;
    // A reply may have ended the connection: what follows it is not answered (RFC 9112 section 9.6).
    if (!this.#isHeld || !socket.writable || socket.parser === null) return;
    if (socket._paused) {
      socket.once('drain', () => this.#continue());
      return;
    }
    this.#last = undefined;
    this.#isHeld = false;
    socket.resume();
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
    pipeline = new Pipeline(socket as ParsedSocket, parser);
    pipelines.set(socket, pipeline);
  }
  pipeline.queue(outgoing);
}

/** The replies that wait behind others; `undefined` for a connection that has never pipelined. */
export function queuedReplies(socket: object): ReadonlySet<ServerResponse> | undefined {
  return pipelines.get(socket)?.waiting;
}

/**
 * Whether a reply may end its connection: the last of those whose requests have begun by the first time that this is asked.
 * The others would be lost with it (RFC 9112 section 9.6).
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

/** Whether a parser's error is the pause that was asked for; the rest of the connection's bytes is then kept. */
export function holdPaused({ code, rawPacket, bytesParsed = 0 }: ParserError, socket: object): boolean {
  if (code !== 'HPE_PAUSED' || rawPacket === undefined) return false;
  pipelines.get(socket)?.hold(rawPacket.subarray(bytesParsed));
  return true;
}
