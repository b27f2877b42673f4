/** A request as the edge sees it: the raw bytes of Node's parser, nothing normalised, and what the layers found. */

import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Authenticated, Caller } from '../callers/caller.ts';
import type { Answer, UpstreamRequest } from '../exchange/exchange.ts';
import type { Handler } from '../exchange/layer.ts';
import { fieldValue, ownField } from '../http/fields.ts';
import type { Payload } from '../http/payload.ts';
import type { OperationMatch } from '../operations.ts';
import { countForCaller, countForConnection, noteCallerKnown, resetConnection } from './connections.ts';
import type { FindPeer } from './request-head.ts';

/** Header fields as a list, lower-case names and values in turn: Node writes a list for half the price of a record. */
export type Fields = readonly string[];

/** What goes to the caller. Lists may be shared between replies: never change one. */
export interface Reply {
  readonly status: number;
  readonly fields: Fields;
  /**
   * Of a reply with an upstream's answer: further fields, the same list for many answers. Then `fields` is the same list
   * for each reply with that answer, and both are serialised once.
   */
  readonly common?: Fields;
  readonly body: Payload | null;
}

/** A workspace as the edge sees it. */
export interface EdgeWorkspace {
  /** Empty for the unnamed workspace. */
  readonly name: string;
  /** The outbound layers of this workspace. */
  readonly send: Handler<UpstreamRequest, Answer>;
}

const none: Fields = [];

export class InboundRequest {
  readonly method: string;
  /** The request target in origin form, as it stands in the request line. */
  readonly target: string;
  /** The target up to its query. */
  readonly path: string;
  /** The query in its exact bytes, without its `?`. */
  readonly query: string;
  readonly headers: IncomingHttpHeaders;
  /** Names and values in turn, as they came: repeated fields are only seen here. */
  readonly rawHeaders: readonly string[];
  /** The other end of the connection; `undefined` on a Unix socket. */
  readonly remoteAddress: string | undefined;
  /** Fields of this one reply, whatever it will be: set by the layers, merged when it is written. */
  readonly replyHeaders: string[] = [];
  /** Set by the layer `forward`: a list that many replies share, so that it is serialised once. */
  cacheFields: Fields = none;
  /** Set by the layer `authenticate`. */
  caller: Caller | undefined = undefined;
  /** How it was recognised: set with it. */
  authenticated: Authenticated | undefined = undefined;
  /** Both are set by the layer `selectOperation`. */
  workspace: EdgeWorkspace | undefined = undefined;
  match: OperationMatch | undefined = undefined;
  readonly #outgoing: ServerResponse;
  readonly #socket: Socket;

  readonly #findPeer: FindPeer;

  constructor(incoming: IncomingMessage, outgoing: ServerResponse, findPeer: FindPeer) {
    this.method = incoming.method ?? '';
    this.target = incoming.url ?? '';
    const question = this.target.indexOf('?');
    this.path = question === -1 ? this.target : this.target.slice(0, question);
    this.query = question === -1 ? '' : this.target.slice(question + 1);
    this.headers = incoming.headers;
    this.rawHeaders = incoming.rawHeaders;
    this.remoteAddress = incoming.socket.remoteAddress;
    this.#outgoing = outgoing;
    this.#socket = incoming.socket;
    this.#findPeer = findPeer;
  }

  /** Who sent the request, as far as TRUSTED_PROXIES are believed: for the log and the limit of failures alone. */
  get peer(): string | undefined {
    return this.#findPeer(this.remoteAddress, this.rawHeaders);
  }

  /** Sets a field of the reply, whatever it will be; the last value of a name holds. */
  setHeader(name: string, value: string): void {
    const { replyHeaders } = this;
    const at = replyHeaders.indexOf(name);
    if (at !== -1 && at % 2 === 0) replyHeaders[at + 1] = value;
    else replyHeaders.push(name, value);
  }

  /** A field of this reply that a layer has set. */
  replyHeader(name: string): string | undefined {
    const at = this.replyHeaders.indexOf(name);
    return at === -1 ? undefined : this.replyHeaders[at + 1];
  }

  /** A field's value; the lines of a repeated one joined by commas, as Node does for all but singular fields. */
  field(name: string): string | undefined {
    return fieldValue(ownField(this.headers, name));
  }

  /** Calls back once when the reply has left, or its connection has ended before that. */
  onceDone(listener: () => void): void {
    this.#outgoing.once('close', listener);
  }

  /** Ends the connection, whatever of the reply has left. */
  destroy(): void {
    // Not the response: one that is queued has no connection yet, and would end alone.
    resetConnection(this.#socket);
  }

  /** Says whether the caller is known. */
  noteCallerKnown(isKnown: boolean): void {
    noteCallerKnown(this.#outgoing, isKnown);
  }

  /** So many bytes of a reply follow that are counted for its connection, for it has no caller. */
  countForConnection(bytes: number): void {
    countForConnection(this.#socket, bytes);
  }

  /** The reply's bytes are counted for its caller, and not for its connection. */
  countForCaller(): void {
    countForCaller(this.#outgoing);
  }

  /** Whether the reply waits behind an earlier one of its connection (pipelining). */
  get isQueued(): boolean {
    return this.#outgoing.socket === null;
  }

  /** Calls back when the connection ends. If that is before the reply is made, the caller has left. */
  onAbort(listener: () => void): void {
    const outgoing = this.#outgoing;
    // It may have gone while the request was authenticated.
    if (outgoing.destroyed || outgoing.socket?.destroyed === true) queueMicrotask(listener);
    else outgoing.on('close', listener);
  }

  /** Removes a listener of `onAbort`. */
  offAbort(listener: () => void): void {
    this.#outgoing.off('close', listener);
  }
}
