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
import { queuedReplies } from './pipelining.ts';

/** What an idle connection holds: objects of Node and V8, buffers of libuv and, with TLS, of OpenSSL. */
const idleBytes = 12 * 1_024;
const idleTlsBytes = 64 * 1_024;
/** The texts that Node's parser makes of a head that has not ended, for each byte that was read of it. */
const bytesPerHeadByte = 2;
/** What waits to be sent by TLS is there twice, encrypted as well. */
const bytesPerUnsentByte = 1;
const bytesPerUnsentTlsByte = 2;
/** A pipelined request whose reply waits behind others: the objects of both. */
const queuedBytes = 4 * 1_024;
/** A head does not grow beyond this: Node refuses it. */
export const maxHeaderBytes = 16 * 1_024;

/** So many connections may hold more than was measured of them, a read or a reply each, and such replies so much. */
const mostUnmeasured = 64;
const mostUnmeasuredBytes = 4 * 2 ** 20;
const measureMs = 100;

/** What one idle connection is priced at. */
export function idleConnectionBytes(isTls: boolean): number {
  return isTls ? idleTlsBytes : idleBytes;
}

type ServedResponse = ServerResponse & { [countedForCaller]?: boolean };

/** What Node's server keeps on a connection, as far as it is used here. */
type ServedSocket = Socket & {
  _httpMessage?: ServedResponse | null;
  /** Node calls it after each read and at each write, to begin the timeout anew. */
  _unrefTimer: () => void;
  [watched]?: WatchedConnection;
};

/** Its bytes are counted for its caller (`limitBufferedResponses`), and not for its connection besides. */
const countedForCaller: unique symbol = Symbol('counted for its caller');
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

/** Says that a reply of so many bytes follows, which is counted for no caller. */
export function countForConnection(socket: Socket, bytes: number): void {
  (socket as ServedSocket)[watched]?.reply(bytes);
}

/** Call when a whole head has come, in the same turn. */
export function noteRequest({ socket }: IncomingMessage): void {
  (socket as ServedSocket)[watched]?.beginRequest();
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
  readonly #bytesPerUnsentByte: number;
  /** What the server has accepted. */
  readonly #accepted: Socket;
  /** What speaks HTTP; not there during a TLS handshake. */
  #served: ServedSocket | undefined;
  #readBytes = 0;
  /** Where the last read began. */
  #readFrom = 0;
  /** Where the read began that had the end of the last whole head: at most so much is a head that has not ended. */
  #headFrom = 0;
  isUnmeasured = false;

  constructor(connections: Connections, accepted: Socket, isTls: boolean) {
    this.#connections = connections;
    this.#accepted = accepted;
    this.#idleBytes = idleConnectionBytes(isTls);
    this.#bytesPerUnsentByte = isTls ? bytesPerUnsentTlsByte : bytesPerUnsentByte;
    this.address = failureScope(accepted.remoteAddress);
  }

  serve(socket: ServedSocket): void {
    this.#served = socket;
    socket[watched] = this;
    socket._unrefTimer = noteMove;
  }

  move(): void {
    this.#noteRead();
    if (!this.isUnmeasured) this.#connections.measureLater(this);
  }

  beginRequest(): void {
    this.#noteRead();
    this.#headFrom = this.#readFrom;
  }

  reply(bytes: number): void {
    if (!this.isUnmeasured) this.#connections.measureLater(this);
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
    if (served === undefined) return this.#idleBytes;
    const { writableLength, readableLength, _httpMessage: reply } = served;
    const queued = queuedReplies(served);
    // Of pipelined bytes it is not known when each was read.
    const head =
      queued === undefined ? Math.min(this.#readBytes - this.#headFrom, maxHeaderBytes) : maxHeaderBytes;
    let bytes = this.#idleBytes + bytesPerHeadByte * head + readableLength;
    if (reply?.[countedForCaller] !== true) bytes += this.#bytesPerUnsentByte * writableLength;
    for (const one of (queued ?? []) as Iterable<ServedResponse>) {
      bytes += queuedBytes;
      if (one !== reply && one[countedForCaller] !== true) bytes += one.writableLength;
    }
    return bytes;
  }

  isBusy(): boolean {
    const reply = this.#served?._httpMessage;
    return reply !== undefined && reply !== null && !reply.writableEnded;
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

  constructor(limits: ConnectionBudgetLimits, onEnded: (peer: string | undefined, bound: Bound) => void) {
    this.#budget = new ConnectionBudget(limits);
    this.onEnded = onEnded;
  }

  add(accepted: Socket, isTls: boolean): WatchedConnection {
    const connection = new WatchedConnection(this, accepted, isTls);
    accepted.once('close', () => this.#budget.remove(connection));
    if (!isTls) connection.serve(accepted as ServedSocket);
    // None is ended for what another held a moment ago.
    this.measure();
    this.#budget.add(connection);
    return connection;
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
  /** TLS connections that are not known to speak HTTP yet. */
  const shaking = new WeakMap<Socket, WatchedConnection>();
  server.on('connection', (accepted: Socket) => {
    const connection = connections.add(accepted, isTls);
    if (isTls) shaking.set(accepted, connection);
  });
  if (isTls) {
    server.on('secureConnection', (socket: ServedSocket & { _parent?: Socket }) => {
      const { _parent: accepted } = socket;
      if (accepted !== undefined) shaking.get(accepted)?.serve(socket);
    });
  }
  const timer = setInterval(() => connections.measure(), measureMs);
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
