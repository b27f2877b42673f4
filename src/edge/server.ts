/** The HTTP server, with the limits that Node leaves open by default. */
import { constants } from 'node:crypto';
import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerOptions,
  type ServerResponse,
} from 'node:http';
import { createServer as createTlsServer, type Server as TlsServer } from 'node:https';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { SecureContextOptions, TLSSocket } from 'node:tls';
import { type RefusalFields, readRefusedHead, refusalFields } from './access-log.ts';
import { type CertificatePair, tlsRules } from './certificate.ts';
import type { Bound } from './connection-budget.ts';
import { limitConnections, maxHeaderBytes, noteRequest, resetConnection } from './connections.ts';
import { endAndLinger, followConnections } from './listen.ts';
import { countBegun, isOverfull, losesRest } from './pipelining.ts';
import {
  announcesBody,
  type FindPeer,
  findPeerBehind,
  type HeadRefusal,
  headRefusal,
  maxHeaderFields,
  requestTarget,
} from './request-head.ts';
import { keepAliveMs, pokeCaller } from './write-response.ts';

/** What `clientError` gets of the parser. */
interface ParserError extends NodeJS.ErrnoException {
  readonly bytesParsed?: number;
  readonly rawPacket?: Buffer<ArrayBuffer>;
}

export interface ServerLimits {
  /** How long a caller may take to send its request, head and body. */
  readonly headersTimeoutMs: number;
  readonly maxConnections: number;
  /** Bytes of connections that ask for nothing, all together; left out: as many as `maxConnections` take. */
  readonly maxConnectionBytes?: number;
  /** How long nothing may move on a connection; longer than a request may wait for its answer. */
  readonly stillMs: number;
  /** Whether a text holds the upstream key: such a text is not logged. */
  readonly isSecret: (text: string) => boolean;
  /** Whether the server is about to stop: what was sent before is answered, and the last reply ends its connection. */
  readonly isEnding: () => boolean;
  /** Left out: the other end of the connection is the peer. */
  readonly findPeer?: FindPeer;
  /** With it, the listener speaks TLS and nothing else. */
  readonly certificate?: CertificatePair | undefined;
}

/** What the parser or a limit refused before there was a request. */
export interface UnparsedRefusal extends RefusalFields {
  /** 0 where nothing was answered. */
  readonly status: number;
  /** The parser's, or ours. */
  readonly code: string;
  /** Why, where the code does not say it. */
  readonly reason?: string;
}

export interface ServerEvents {
  onRefused(refusal: UnparsedRefusal): void;
  /** The listener itself failed, as when descriptors are exhausted; it goes on listening. */
  onListenerError(error: Error): void;
}

/**
 * Makes a server whose requests have one good `Host`, a target in origin form, and a body that ends for certain;
 * everything else is refused here, on both listeners alike.
 */
export function createHttpServer(
  answer: RequestListener,
  limits: ServerLimits,
  events: ServerEvents,
): Server {
  const intake = new Intake(answer, limits, events);
  const listener: RequestListener = (incoming, outgoing) => intake.take(incoming, outgoing);
  const options: ServerOptions = {
    headersTimeout: limits.headersTimeoutMs,
    requestTimeout: limits.headersTimeoutMs,
    connectionsCheckingInterval: Math.min(1_000, limits.headersTimeoutMs),
    keepAliveTimeout: keepAliveMs,
    maxHeaderSize: maxHeaderBytes,
    insecureHTTPParser: false,
    // Reads have no body: nothing has to wait for its end.
    optimizeEmptyRequests: true,
    // Node refuses without a word; the intake does it with a line in the log (RFC 9112 section 3.2).
    requireHostHeader: false,
  };
  const server =
    limits.certificate === undefined
      ? createServer(options, listener)
      : createTlsServer(
          { ...options, ...secureOptions(limits.certificate), handshakeTimeout: limits.headersTimeoutMs },
          listener,
        );
  const { maxConnections, maxConnectionBytes: maxBytes = Number.POSITIVE_INFINITY } = limits;
  limitConnections(server, { maxConnections, maxBytes }, (peer, bound) =>
    intake.refuseConnection(peer, bound),
  );
  // A caller that does not read its answer would hold it in memory for ever.
  server.timeout = limits.stillMs;
  // Most versions of Node drop what exceeds their limit silently (CVE-2026-58044): with one more than may be,
  // `headRefusal` sees that, and refuses. Without a limit, a head that never ends would take ten times its own length.
  server.maxHeadersCount = maxHeaderFields + 1;
  // A caller that has ended its sending side may still read.
  (server as Server & { httpAllowHalfOpen: boolean }).httpAllowHalfOpen = true;
  const begun = limits.certificate === undefined ? 'connection' : 'secureConnection';
  server.on(begun, (socket: Socket) => socket.on('end', () => pokeCaller(socket)));
  followConnections(server, limits.certificate !== undefined);
  // No caller is asked to go on and send a body: reads have none.
  server.on('checkContinue', listener);
  server.on('checkExpectation', listener);
  // Before Node's own listener, which makes a `clientError` of it.
  server.prependListener('tlsClientError', (error: NodeJS.ErrnoException, socket: TLSSocket) =>
    intake.refuseHandshake(error, socket),
  );
  server.on('clientError', (error: ParserError, socket) => intake.refuseUnparsed(error, socket as Socket));
  server.on('drop', (dropped) => intake.refuseConnection(dropped?.remoteAddress, 'connections'));
  // No tunnels: neither CONNECT nor any upgrade.
  server.on('connect', (incoming, socket) => intake.refuseTunnel(incoming, socket));
  // `listen` reports what keeps it from listening at all.
  server.once('listening', () => server.on('error', (error) => events.onListenerError(error)));
  return server;
}

/** Shows another certificate on connections that begin from now on. */
export function replaceCertificate(server: Server, certificate: CertificatePair): void {
  (server as TlsServer).setSecureContext(secureOptions(certificate));
}

function secureOptions({ cert, key }: CertificatePair): SecureContextOptions {
  // A caller that may ask for another handshake (TLS 1.2) makes OpenSSL keep another 128 KiB, which no count of bytes shows.
  return { cert, key, ...tlsRules, secureOptions: constants.SSL_OP_NO_RENEGOTIATION };
}

/** Takes what Node's parser makes of connections: hands requests on, and refuses everything else. */
class Intake {
  readonly #answer: RequestListener;
  readonly #isSecret: ServerLimits['isSecret'];
  readonly #isEnding: ServerLimits['isEnding'];
  readonly #findPeer: FindPeer;
  readonly #events: ServerEvents;
  /** Connections whose last request has come. */
  readonly #ending = new WeakSet<Duplex>();
  /** The `Host` of the last good request. */
  #goodHost: string | undefined;

  constructor(
    answer: RequestListener,
    { isSecret, isEnding, findPeer }: Pick<ServerLimits, 'isSecret' | 'isEnding' | 'findPeer'>,
    events: ServerEvents,
  ) {
    this.#answer = answer;
    this.#isSecret = isSecret;
    this.#isEnding = isEnding;
    this.#findPeer = findPeer ?? findPeerBehind([]);
    this.#events = events;
  }

  take(incoming: IncomingMessage, outgoing: ServerResponse): void {
    const { socket } = incoming;
    countBegun(incoming, outgoing);
    noteRequest(incoming, outgoing);
    // What follows an announced body may be part of it for a proxy in between (RFC 9112 section 9.6), and what follows
    // lost bytes may be the rest of them: not ours. Nor can what follows our end of the connection be answered.
    if (this.#ending.has(socket) || !socket.writable) return;
    const refusal = headRefusal(incoming, this.#goodHost) ?? settleTarget(incoming);
    if (refusal !== undefined) {
      this.#ending.add(socket);
      this.#events.onRefused({ ...refusal, ...this.#refusalFieldsOf(incoming) });
      outgoing.writeHead(refusal.status, { connection: 'close', 'content-length': '0' }).end();
      return;
    }
    this.#goodHost = incoming.headers.host;
    if (announcesBody(incoming.headers) || losesRest(incoming)) {
      this.#ending.add(socket);
      outgoing.shouldKeepAlive = false;
    }
    // Requests that were read together have then all begun, so that the reply to the first does not end the others.
    if (this.#isEnding()) process.nextTick(this.#answer, incoming, outgoing);
    else this.#answer(incoming, outgoing);
  }

  refuseUnparsed(error: ParserError, socket: Socket): void {
    if (brokenOff.has(error.code)) {
      socket.destroy();
      return;
    }
    // A foul body belongs to a request that has its own answer, and its own line; what is too much has none.
    if (this.#ending.has(socket) || isOverfull(socket)) return;
    this.#ending.add(socket);
    const status = statusOfRefusal(error.code);
    this.#events.onRefused(describeUnparsed(status, error, socket, this.#isSecret));
    refuseBarely(socket, status);
  }

  /** No TLS connection came about, so there is nothing to answer with. */
  refuseHandshake(error: NodeJS.ErrnoException, socket: TLSSocket): void {
    this.#ending.add(socket);
    socket.destroy();
    if (error.code === 'ECONNRESET') return;
    const { code = 'unknown' } = error;
    const reason = code === 'ERR_SSL_HTTP_REQUEST' ? { reason: 'plain HTTP: this port speaks TLS' } : {};
    const fields = refusalFields(
      { peer: socket.remoteAddress },
      { isSecret: this.#isSecret, rawHeaders: [] },
    );
    this.#events.onRefused({ status: 0, code, ...reason, ...fields });
  }

  refuseTunnel(incoming: IncomingMessage, socket: Duplex): void {
    // Node has handed the connection over, its listeners included: without the one for errors, a reset ends the process;
    // without the other, replies before this request that are not read stay for ever.
    socket.on('error', () => socket.destroy());
    socket.once('timeout', () => resetConnection(socket as Socket));
    this.#events.onRefused({ status: 400, code: 'CONNECT', ...this.#refusalFieldsOf(incoming) });
    refuseBarely(socket, 400);
  }

  /** There are too many, or they hold too much: one that asks for nothing was ended to make room. */
  refuseConnection(peer: string | undefined, bound: Bound): void {
    const fields = refusalFields({ peer }, { isSecret: this.#isSecret, rawHeaders: [] });
    const code = bound === 'connections' ? 'MAX_CONNECTIONS' : 'CONNECTION_MEMORY';
    this.#events.onRefused({ status: 0, code, ...fields });
  }

  #refusalFieldsOf({ socket, url = '', rawHeaders, headers: { host } }: IncomingMessage): RefusalFields {
    const peer = this.#findPeer(socket.remoteAddress, rawHeaders);
    const texts = { peer, target: url, host };
    return refusalFields(texts, { isSecret: this.#isSecret, rawHeaders });
  }
}

const badTarget: HeadRefusal = { status: 400, code: 'TARGET' };

/** Leaves a target in origin form, and the authority that it is for in `Host` (RFC 9112 section 3.2.2). */
function settleTarget(incoming: IncomingMessage): HeadRefusal | undefined {
  const { method = '', url = '' } = incoming;
  if (url.startsWith('/')) return undefined;
  const settled = requestTarget(method, url);
  if (settled === undefined) return badTarget;
  incoming.url = settled.target;
  if (settled.authority !== undefined) incoming.headers.host = settled.authority;
  return undefined;
}

/**
 * A connection that broke off asked for nothing: load balancers and browsers do it all day. Of one that was ended here by
 * a reset, TLS tells that its writes were given up, or that it can read no more.
 */
const brokenOff: ReadonlySet<string | undefined> = new Set(['ECONNRESET', 'EPIPE', 'ECANCELED', 'EBADF']);

/** How every TLS connection begins: a record of a handshake (RFC 8446 section 5.1). */
function isTlsHandshake(packet: Buffer | undefined): boolean {
  return packet?.[0] === 0x16 && packet[1] === 0x03;
}

/** What can be said of bytes that the parser refused. */
function describeUnparsed(
  status: number,
  { code = 'unknown', rawPacket, bytesParsed = 0 }: ParserError,
  { remoteAddress: peer }: Socket,
  isSecret: (text: string) => boolean,
): UnparsedRefusal {
  if (isTlsHandshake(rawPacket)) {
    const reason = 'a TLS handshake: this port speaks plain HTTP';
    return {
      status,
      code: 'TLS_HANDSHAKE',
      reason,
      ...refusalFields({ peer }, { isSecret, rawHeaders: [] }),
    };
  }
  const { target, rawHeaders } =
    rawPacket === undefined ? { target: undefined, rawHeaders: [] } : readRefusedHead(rawPacket, bytesParsed);
  return { status, code, ...refusalFields({ peer, target }, { isSecret, rawHeaders }) };
}

/** What Node itself would answer to what its parser refuses. */
function statusOfRefusal(code: string | undefined): number {
  switch (code) {
    case 'HPE_HEADER_OVERFLOW':
      return 431;
    case 'HPE_CHUNK_EXTENSIONS_OVERFLOW':
      return 413;
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return 408;
    default:
      return 400;
  }
}

const reasons: Readonly<Record<number, string>> = {
  400: 'Bad Request',
  408: 'Request Timeout',
  413: 'Payload Too Large',
  431: 'Request Header Fields Too Large',
};

/** Answers bytes that are no request and ends their connection, once the replies to earlier requests of it have left. */
function refuseBarely(socket: Duplex, status: number): void {
  const { _httpMessage: earlier } = socket as Socket & { _httpMessage?: ServerResponse | null };
  if (earlier !== undefined && earlier !== null && !earlier.destroyed) {
    earlier.once('close', () => refuseBarely(socket, status));
    return;
  }
  // One of the replies may have ended the connection.
  if (!socket.writable) return;
  endAndLinger(
    socket,
    `HTTP/1.1 ${status} ${reasons[status]}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`,
  );
}
