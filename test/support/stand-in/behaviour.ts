/**
 * How the stand-in can be made to misbehave. Everything left out stays as the specification has it, so the
 * parts combine: `{ latencyMs: 50, status: 503 }`, `{ framing: 'chunked', resetAt: 10 }`.
 */
import type { Socket } from 'node:net';
import type { ReceivedRequest } from '../../../src/demo/stand-in.ts';
import type { Echo } from './echo.ts';

/**
 * A place in the answer. A number is that many bytes on the wire after the header section (with the chunks'
 * framing, where there is any); beyond the end it is the end. `connection` is before any request was read on a
 * new connection, and `before-headers` on one that is already open.
 */
export type Place = 'connection' | 'before-headers' | 'in-headers' | 'after-headers' | number | 'end';

/** Fields to send. They replace the stand-in's own of the same name; a list makes several lines; undefined removes. */
export type Fields = Readonly<Record<string, string | readonly string[] | undefined>>;

/** How the end of the body is marked. Only `length`, `chunked` and `length-and-chunked` are whole. */
export type Framing =
  | 'length'
  | 'chunked'
  /** Both fields, and a chunked body: what RFC 9112 section 6.1 calls an attempt at smuggling. */
  | 'length-and-chunked'
  /** HTTP/1.0's way: neither field; the end of the connection ends the body. */
  | 'until-close'
  /** Every chunk but the last, then FIN. */
  | 'no-last-chunk'
  /** A good chunk, then one whose size is no number. */
  | 'bad-chunk-size';

export type Coding = 'gzip' | 'deflate' | 'br' | 'zstd';

/** So many bytes of a JSON string, made while they are sent. */
export interface Filler {
  readonly bytes: number;
}

export interface Misbehaviour {
  /** Waits this long before the first byte. */
  readonly latencyMs?: number;
  /** Waits for this before the first byte, so that a test decides when the answer comes. */
  readonly until?: Promise<unknown>;
  /** Informational responses (100, 102, 103) before the answer. */
  readonly interim?: readonly { readonly status: number; readonly headers?: Fields }[];

  readonly status?: number;
  readonly reason?: string;
  readonly headers?: Fields;
  readonly body?: string | Buffer | Filler;
  /** Sends this as `Location`, with 302 where no status is given. */
  readonly redirectTo?: string;
  /** Sends the request's fields back. */
  readonly echo?: Echo;
  /** Compresses the body with each in turn and says so in `Content-Encoding`. */
  readonly compress?: readonly Coding[];

  readonly framing?: Framing;
  /** Fields after the last chunk. */
  readonly trailers?: Fields;
  /**
   * What `Content-Length` says, from the true length; a list makes several lines. The connection stays open
   * after too short a body: add `finAt: 'end'` to end it.
   */
  readonly claimLength?: (bytes: number) => number | string | readonly (number | string)[];

  /** Sends nothing more from here on, and keeps the connection open. */
  readonly stallAt?: Place;
  /** Ends the connection here with RST. */
  readonly resetAt?: Place;
  /** Ends the connection here with FIN. */
  readonly finAt?: Place;
  /** Sends the body in pieces of so many bytes (1) with a wait between them. */
  readonly drip?: { readonly everyMs: number; readonly bytes?: number; readonly headersToo?: boolean };

  /** After a whole answer, sends this on the idle connection: an answer that no request asked for. */
  readonly unsolicited?: { readonly afterMs: number; readonly bytes?: string | Buffer };
  /** Has the connection to itself: nothing else of the behaviour applies, nothing is sent by the stand-in. */
  readonly raw?: (socket: Socket, request: ReceivedRequest) => void;
}

/** What to do with a request: the same for each, or decided per request. Undefined answers as specified. */
export type Behaviour = Misbehaviour | ((request: ReceivedRequest) => Behaviour | undefined);

/** Asks until there is something to do. */
export function decide(behaviour: Behaviour, request: ReceivedRequest): Misbehaviour | undefined {
  let decided: Behaviour | undefined = behaviour;
  while (typeof decided === 'function') decided = decided(request);
  return decided;
}
