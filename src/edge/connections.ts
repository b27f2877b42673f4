/**
 * Watches what each connection of a server holds, and keeps all of them within a budget (`ConnectionBudget`).
 *
 * A connection is priced by what can be seen of it without a cost for each request: a head that has not ended by the
 * bytes that were read of it, a reply that its caller does not read by `writableLength`, whatever its size. The prices
 * are measured (`npm run hazards -- --memory 0`), the parser's, TLS's and V8's share included.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { Server as TlsServer } from 'node:https';
import { Socket } from 'node:net';
import { failureScope } from '../http/address.ts';
import {
  type Bound,
  type BudgetedConnection,
  ConnectionBudget,
  type ConnectionBudgetLimits,
} from './connection-budget.ts';
import { maxBegun, queuedReplies } from './pipelining.ts';

/** What an idle connection holds: objects of Node and V8, buffers of libuv and, with TLS, of OpenSSL. */
const idleBytes = 12 * 1_024;
const idleTlsBytes = 64 * 1_024;
/** The texts that Node's parser makes of a head that has not ended, for each byte that was read of it. */
const bytesPerHeadByte = 2;
/** The same of whole ones, which are kept until their replies have left: V8 lets their texts go later than others. */
const bytesPerAskedByte = 4;
/** A greeting by TLS that has not ended: OpenSSL keeps up to 128 KiB of it, and takes new room as it grows. */
const bytesPerGreetingByte = 2;
/** A pipelined request whose reply waits behind others: the objects of both. */
const queuedBytes = 4 * 1_024;
/** A head does not grow beyond this: Node refuses it. */
export const maxHeaderBytes = 16 * 1_024;

/** All that have moved are measured once these are so many, or so many bytes of replies were handed to them. */
const mostUnmeasured = 64;
const mostUnmeasuredBytes = 4 * 2 ** 20;
const measureMs = 100;
/** How often handshakes are measured, of which only the bytes are seen: a thousand greetings of 128 KiB take longer. */
const measureTlsMs = 20;

/** What one idle connection is priced at. */
export function idleConnectionBytes(isTls: boolean): number {
  return isTls ? idleTlsBytes : idleBytes;
}

type ServedResponse = ServerResponse & { [countedForCaller]?: boolean; [callerUnknown]?: boolean };

/** What Node's server keeps on a connection, as far as it is used here. */
type ServedSocket = Socket & {
  _httpMessage?: ServedResponse | null;
  /** Node calls it after each read and at each write, to begin the timeout anew. */
  _unrefTimer: () => void;
  [watched]?: WatchedConnection;
};

/** Its bytes are counted for its caller (`limitBufferedResponses`), and not for its connection besides. */
const countedForCaller: unique symbol = Symbol('counted for its caller');
/** Who asks is being found out, which takes as long as the issuer of a login likes. */
const callerUnknown: unique symbol = Symbol('its caller is not known yet');
const watched: unique symbol = Symbol('watched');
const { _unrefTimer: restartTimeout } = Socket.prototype as ServedSocket;

/** Shared by all sockets, so that none has a function of its own. */
function noteMove(this: ServedSocket): void {
  restartTimeout.call(this);
  this[watched]?.move();
}

/** Says that a reply's bytes are counted for its caller, who may have other connections and addresses. */
export function countForCaller(outgoing: ServedResponse): void {
  outgoing[countedForCaller] = true;
}

/** Says whether the caller is known: until then the request does not keep its connection. */
export function noteCallerKnown(outgoing: ServedResponse, isKnown: boolean): void {
  outgoing[callerUnknown] = !isKnown;
  (outgoing.req.socket as ServedSocket)[watched]?.measureLater();
}

/** Says that a reply of so many bytes follows, which is counted for no caller. */
export function countForConnection(socket: Socket, bytes: number): void {
  (socket as ServedSocket)[watched]?.reply(bytes);
}

/** Call when a whole head has come, in the same turn. */
export function noteRequest({ socket }: IncomingMessage, outgoing: ServerResponse): void {
  (socket as ServedSocket)[watched]?.beginRequest(outgoing.socket === null);
}

/**
 * Ends a connection with a reset. After an orderly end the system would go on to hold and to send what the caller does
 * not read, for minutes.
 */
export function resetConnection(socket: Socket): void {
  // TLS has no reset of its own, but the connection below it.
  const { _parent: parent } = socket as Socket & { _parent?: Socket | null };
  const below = parent ?? socket;
  // A Unix socket has none, and one that ends in good order can no longer be reset (uv_tcp_close_reset).
  const mayReset = socket.remoteFamily !== undefined && !socket.writableEnded && !below.writableEnded;
  if (mayReset) below.resetAndDestroy();
  else socket.destroy();
}

class WatchedConnection implements BudgetedConnection {
  readonly address: string;
  readonly #connections: Connections;
  readonly #idleBytes: number;
  /** What the server has accepted. */
  readonly #accepted: Socket;
  /** What speaks HTTP; not there during a TLS handshake. */
  #served: ServedSocket | undefined;
  #readBytes = 0;
  /** Where the last read began. */
  #readFrom = 0;
  /** Where the read began in which the last whole head ended: a head that has not ended holds at most what came since. */
  #headFrom = 0;
  /** The same of the first request whose reply is awaited. */
  #askedFrom = 0;
  isUnmeasured = false;

  constructor(connections: Connections, accepted: Socket, isTls: boolean) {
    this.#connections = connections;
    this.#accepted = accepted;
    this.#idleBytes = idleConnectionBytes(isTls);
    this.address = failureScope(accepted.remoteAddress);
  }

  serve(socket: ServedSocket): void {
    this.#served = socket;
    socket[watched] = this;
    socket._unrefTimer = noteMove;
  }

  move(): void {
    this.#noteRead();
    this.measureLater();
  }

  measureLater(): void {
    if (!this.isUnmeasured) this.#connections.measureLater(this);
  }

  /** @param isQueued its reply waits behind others */
  beginRequest(isQueued: boolean): void {
    this.#noteRead();
    if (!isQueued) this.#askedFrom = this.#headFrom;
    this.#headFrom = this.#readFrom;
  }

  reply(bytes: number): void {
    this.measureLater();
    this.#connections.noteUnmeasured(bytes);
  }

  #noteRead(): void {
    const readBytes = this.#served?.bytesRead ?? 0;
    if (readBytes === this.#readBytes) return;
    this.#readFrom = this.#readBytes;
    this.#readBytes = readBytes;
  }

  heldBytes(): number {
    const served = this.#served;
    if (served === undefined) return this.#idleBytes + bytesPerGreetingByte * this.#accepted.bytesRead;
    const { writableLength, readableLength, _httpMessage: reply } = served;
    const queued = queuedReplies(served);
    let bytes = this.#idleBytes + this.#headsBytes(queued !== undefined) + readableLength;
    if (reply?.[countedForCaller] !== true) bytes += writableLength;
    for (const one of (queued ?? []) as Iterable<ServedResponse>) {
      bytes += queuedBytes;
      if (one !== reply && one[countedForCaller] !== true) bytes += one.writableLength;
    }
    return bytes;
  }

  /** What is held of heads that have not ended, and of those that are kept because their replies have not left. */
  #headsBytes(hasPipelined: boolean): number {
    if ((this.#served?._httpMessage ?? null) === null) {
      // Of pipelined bytes it is not known when each was read.
      const begun = hasPipelined
        ? maxHeaderBytes
        : Math.min(this.#readBytes - this.#headFrom, maxHeaderBytes);
      return bytesPerHeadByte * begun;
    }
    const read = this.#readBytes - this.#askedFrom;
    const asked = hasPipelined ? Math.max(read, maxHeaderBytes) : read;
    return bytesPerAskedByte * Math.min(asked, (hasPipelined ? maxBegun : 2) * maxHeaderBytes);
  }

  isBusy(): boolean {
    const served = this.#served;
    const reply = served?._httpMessage;
    if (served === undefined || reply === undefined || reply === null || reply.writableEnded) return false;
    // A reply that is awaited keeps one request, and not fifteen more of 16 KiB each behind it.
    return reply[callerUnknown] !== true && (queuedReplies(served)?.size ?? 0) === 0;
  }

  end(bound: Bound): void {
    this.#connections.onEnded(this.#accepted.remoteAddress, bound);
    resetConnection(this.#served ?? this.#accepted);
  }
}

/** The connections of one server. */
class Connections {
  readonly #budget: ConnectionBudget;
  readonly onEnded: (peer: string | undefined, bound: Bound) => void;
  /** Connections on which something has moved since they were measured. */
  #unmeasured: WatchedConnection[] = [];
  /** Of replies that were given to them. */
  #unmeasuredBytes = 0;
  /** TLS connections that are not known to speak HTTP yet. Nothing tells when something moves on them. */
  readonly #shaking = new Map<Socket, WatchedConnection>();

  constructor(limits: ConnectionBudgetLimits, onEnded: (peer: string | undefined, bound: Bound) => void) {
    this.#budget = new ConnectionBudget(limits);
    this.onEnded = onEnded;
  }

  add(accepted: Socket, isTls: boolean): void {
    const connection = new WatchedConnection(this, accepted, isTls);
    accepted.once('close', () => {
      this.#shaking.delete(accepted);
      this.#budget.remove(connection);
    });
    if (isTls) this.#shaking.set(accepted, connection);
    else connection.serve(accepted as ServedSocket);
    // None is ended for what another held a moment ago.
    this.measure();
    this.#budget.add(connection);
  }

  /** A handshake has ended: from now on the connection is seen through the socket that speaks HTTP. */
  serve(accepted: Socket, served: ServedSocket): void {
    this.#shaking.get(accepted)?.serve(served);
    this.#shaking.delete(accepted);
  }

  /** A handshake tells nothing of what moves on it. */
  measureShaking(): void {
    for (const connection of this.#shaking.values()) connection.measureLater();
  }

  measureLater(connection: WatchedConnection): void {
    connection.isUnmeasured = true;
    this.#unmeasured.push(connection);
    if (this.#unmeasured.length >= mostUnmeasured) this.measure();
  }

  noteUnmeasured(bytes: number): void {
    this.#unmeasuredBytes += bytes;
    if (this.#unmeasuredBytes >= mostUnmeasuredBytes) this.measure();
  }

  measure(): void {
    const unmeasured = this.#unmeasured;
    if (unmeasured.length === 0) return;
    this.#unmeasured = [];
    this.#unmeasuredBytes = 0;
    for (const connection of unmeasured) {
      connection.isUnmeasured = false;
      this.#budget.measure(connection);
    }
    this.#budget.enforce();
  }
}

/** No more is given to a TLS connection at once. A record has 16 KiB. */
const tlsPieceBytes = 16 * 1_024;

type Written = (error?: Error | null) => void;
type Chunks = { chunk: Buffer | string; encoding: BufferEncoding }[];

/**
 * Writes by TLS in pieces, each once the one before has left. Node encrypts at once what it is given, and keeps as much
 * memory for as long as the connection lives: 4 MiB for a caller that has read one answer of that size and is idle.
 */
function writeInPieces(socket: Socket): void {
  const { _write: write, _writev: writeAll } = socket;
  const writeRest = (bytes: Buffer, at: number, done: Written): void => {
    const piece = bytes.subarray(at, at + tlsPieceBytes);
    const isLast = at + piece.length === bytes.length;
    const next: Written = (error) => {
      if (isLast || error) done(error);
      // Not at once: a thousand pieces that leave without a wait would be a thousand calls within each other.
      else process.nextTick(writeRest, bytes, at + piece.length, done);
    };
    write.call(socket, piece, 'buffer' as BufferEncoding, next);
  };
  socket._write = (chunk: Buffer | string, encoding, done) => {
    if (chunk.length <= tlsPieceBytes) write.call(socket, chunk, encoding, done);
    else writeRest(typeof chunk === 'string' ? Buffer.from(chunk, encoding) : chunk, 0, done);
  };
  socket._writev = (chunks: Chunks, done) => {
    if (chunks.reduce((sum, { chunk }) => sum + chunk.length, 0) <= tlsPieceBytes) {
      writeAll?.call(socket, chunks, done);
      return;
    }
    const [first, ...rest] = chunks;
    const next: Written = (error) =>
      error || rest.length === 0 ? done(error) : socket._writev?.(rest, done);
    if (first === undefined) done();
    else socket._write(first.chunk, first.encoding, next);
  };
}

/**
 * Keeps the connections of a server within limits.
 *
 * @param onEnded a connection was ended to make room
 */
export function limitConnections(
  server: Server | TlsServer,
  limits: ConnectionBudgetLimits,
  onEnded: (peer: string | undefined, bound: Bound) => void,
): void {
  const isTls = server instanceof TlsServer;
  const connections = new Connections(limits, onEnded);
  server.on('connection', (accepted: Socket) => connections.add(accepted, isTls));
  if (isTls) {
    server.on('secureConnection', (socket: ServedSocket & { _parent?: Socket }) => {
      const { _parent: accepted } = socket;
      if (accepted !== undefined) connections.serve(accepted, socket);
      writeInPieces(socket);
    });
  }
  const look = (): void => {
    connections.measureShaking();
    connections.measure();
  };
  const timer = setInterval(look, isTls ? measureTlsMs : measureMs);
  timer.unref();
  server.once('close', () => clearInterval(timer));
  // Node would end it in good order, with what its caller did not read.
  server.on('timeout', (socket: Socket) => {
    if (socket.writableLength > 0) resetConnection(socket);
    else socket.destroy();
  });
  // One more than there may be: it is accepted, and then the budget says which of them has to go.
  server.maxConnections = limits.maxConnections + 1;
}
