/** The HTTP server with the limits Node leaves open by default, and the way it ends. */
import { lstatSync, unlinkSync } from 'node:fs';
import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
} from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { probeCaller } from './half-close.ts';
import { announcesBody } from './message-body.ts';
import { countBegun, holdPaused, type ParserError } from './pipelining.ts';
import { pathOf, type RefusalFacts, readRefusedHead, refusalFacts } from './refusal-facts.ts';
import { type HeadRefusal, headRefusal, requestTarget } from './request-head-policy.ts';

export interface ServerLimits {
  /** How long a caller may take to send its request, head and body. */
  readonly headersTimeoutMs: number;
  readonly maxConnections: number;
  /** How long nothing may move on a connection; longer than a request may wait for its answer. */
  readonly stillMs: number;
  /** Whether a text holds the upstream key: such a text is not logged. */
  readonly isSecret: (text: string) => boolean;
}

/** What the parser or a limit refused before there was a request. */
export interface UnparsedRefusal extends RefusalFacts {
  /** 0 where nothing was answered. */
  readonly status: number;
  /** The parser's, or ours. */
  readonly code: string;
  /** Why, where the code does not say it. */
  readonly reason?: string;
}

export interface ServerEvents {
  onRefused(refusal: UnparsedRefusal): void;
  /** The listener itself is in trouble, as when descriptors are exhausted; it goes on listening. */
  onTrouble(error: Error): void;
}

/** Node's parser refuses larger heads with 431. */
const maxHeaderBytes = 16 * 1_024;
/** Longer than load balancers keep idle connections, so that it is they who close. */
export const keepAliveMs = 65_000;

export function createPublicServer(
  answer: RequestListener,
  limits: ServerLimits,
  events: ServerEvents,
): Server {
  const { isSecret } = limits;
  /** Connections whose last request has come. */
  const ending = new WeakSet<Duplex>();
  let goodHost: string | undefined;
  const listener: RequestListener = (incoming, outgoing) => {
    const { socket } = incoming;
    countBegun(incoming, outgoing);
    // What follows a body nobody wanted may be part of it for someone in between (RFC 9112 section 9.6): not ours.
    if (ending.has(socket)) return;
    const refusal = headRefusal(incoming, goodHost) ?? settleTarget(incoming);
    if (refusal !== undefined) {
      ending.add(socket);
      events.onRefused({ ...refusal, ...factsOfHead(incoming, isSecret) });
      outgoing.writeHead(refusal.status, { connection: 'close', 'content-length': '0' }).end();
      return;
    }
    goodHost = incoming.headers.host;
    if (announcesBody(incoming.headers)) {
      ending.add(socket);
      outgoing.shouldKeepAlive = false;
    }
    answer(incoming, outgoing);
  };
  const server = createServer(
    {
      headersTimeout: limits.headersTimeoutMs,
      requestTimeout: limits.headersTimeoutMs,
      connectionsCheckingInterval: Math.min(1_000, limits.headersTimeoutMs),
      keepAliveTimeout: keepAliveMs,
      maxHeaderSize: maxHeaderBytes,
      insecureHTTPParser: false,
      // Reads have no body: nothing has to wait for its end.
      optimizeEmptyRequests: true,
      // Node refuses without a word; the listener does it with a line in the log (RFC 9112 section 3.2).
      requireHostHeader: false,
    },
    listener,
  );
  server.maxConnections = limits.maxConnections;
  // A caller that has ended its sending side may still read (RFC 9112 section 9.6 has it so for both sides).
  (server as Server & { httpAllowHalfOpen: boolean }).httpAllowHalfOpen = true;
  server.on('connection', (socket) => socket.on('end', () => probeCaller(socket)));
  // A caller that does not read its answer would hold it in memory for ever.
  server.timeout = limits.stillMs;
  // 0 lifts Node's limit, which drops fields silently; `selectOperation` counts and refuses (CVE-2026-58044).
  server.maxHeadersCount = 0;
  // Nobody is told to go on and send a body: reads have none.
  server.on('checkContinue', listener);
  server.on('checkExpectation', listener);
  server.on('clientError', (error: ParserError, socket) => {
    if (holdPaused(error, socket)) return;
    // A connection that broke off asked for nothing: load balancers and browsers do it all day.
    if (error.code === 'ECONNRESET' || error.code === 'EPIPE') {
      socket.destroy();
      return;
    }
    const status = statusOfRefusal(error.code);
    // A foul body belongs to a request that has its own answer, and its own line.
    if (ending.has(socket)) return;
    ending.add(socket);
    events.onRefused(describeRefused(status, error, socket as Socket, isSecret));
    refuseBarely(socket, status);
  });
  server.on('drop', (dropped) => {
    const peer = dropped?.remoteAddress;
    events.onRefused({
      status: 0,
      code: 'MAX_CONNECTIONS',
      ...refusalFacts({ peer }, { isSecret, rawHeaders: [] }),
    });
  });
  // No tunnels: neither CONNECT nor any upgrade.
  server.on('connect', (incoming, socket: Duplex) => {
    events.onRefused({ status: 400, code: 'CONNECT', ...factsOfHead(incoming, isSecret) });
    refuseBarely(socket, 400);
  });
  // What keeps it from listening at all is told by `listen`.
  server.once('listening', () => server.on('error', (error) => events.onTrouble(error)));
  return server;
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

function factsOfHead(
  { socket, url = '', rawHeaders, headers: { host } }: IncomingMessage,
  isSecret: (text: string) => boolean,
): RefusalFacts {
  return refusalFacts({ peer: socket.remoteAddress, path: pathOf(url), host }, { isSecret, rawHeaders });
}

/** How every TLS connection begins: a record of a handshake (RFC 8446 section 5.1). */
function isTlsHandshake(packet: Buffer | undefined): boolean {
  return packet?.[0] === 0x16 && packet[1] === 0x03;
}

/** What can be said of bytes that the parser refused. */
function describeRefused(
  status: number,
  { code = 'unknown', rawPacket, bytesParsed = 0 }: ParserError,
  { remoteAddress: peer }: Socket,
  isSecret: (text: string) => boolean,
): UnparsedRefusal {
  if (isTlsHandshake(rawPacket)) {
    const reason = 'a TLS handshake: this port speaks plain HTTP';
    return { status, code: 'TLS_HANDSHAKE', reason, ...refusalFacts({ peer }, { isSecret, rawHeaders: [] }) };
  }
  const { path, rawHeaders } =
    rawPacket === undefined ? { path: undefined, rawHeaders: [] } : readRefusedHead(rawPacket, bytesParsed);
  return { status, code, ...refusalFacts({ peer, path }, { isSecret, rawHeaders }) };
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

/** Answers what is no request and ends its connection, once the replies to earlier requests of it have left. */
function refuseBarely(socket: Duplex, status: number): void {
  const { _httpMessage: earlier } = socket as Socket & { _httpMessage?: ServerResponse | null };
  if (earlier !== undefined && earlier !== null && !earlier.destroyed) {
    earlier.once('close', () => refuseBarely(socket, status));
    return;
  }
  // One of the replies may have ended the connection.
  if (!socket.writable) return;
  socket.end(`HTTP/1.1 ${status} ${reasons[status]}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`, () =>
    socket.destroy(),
  );
}

/** Why the gateway cannot listen, in plain words that name the setting and not its value. */
export class ListenError extends Error {
  override readonly name = 'ListenError';
  /** The setting is wrong, rather than the machine busy. */
  readonly isSetting: boolean;

  constructor(message: string, isSetting: boolean) {
    super(message);
    this.isSetting = isSetting;
  }
}

/** The settings that say where to listen, for messages. */
export interface ListenSettings {
  readonly host: string;
  readonly port: string;
}

function whyNotListening(
  code: string | undefined,
  isSocketFile: boolean,
  { host, port }: ListenSettings,
): ListenError {
  if (code === 'EADDRINUSE') {
    const instead = isSocketFile ? `choose another path in ${host}` : `choose another ${port}`;
    return new ListenError(`the address is in use: ${instead}, or stop what listens there`, false);
  }
  if (isSocketFile) {
    return new ListenError(
      `${host} names a socket in a folder that does not exist or may not be written to`,
      true,
    );
  }
  if (code === 'EACCES')
    return new ListenError(`${port} needs rights we do not have: choose one above 1023`, false);
  return new ListenError(`${host} is not an address of this machine`, true);
}

/**
 * Starts listening.
 *
 * @returns where the listener can be reached: an `http:` address, or `unix:/path`
 * @throws ListenError
 */
export async function listen(
  server: Server,
  host: string,
  port: number,
  settings: ListenSettings = { host: 'HOST', port: 'PORT' },
): Promise<string> {
  const path = host.startsWith('unix:') ? host.slice('unix:'.length) : undefined;
  if (path !== undefined) await removeStaleSocket(path);
  await new Promise<void>((resolve, reject) => {
    const fail = ({ code }: NodeJS.ErrnoException): void =>
      reject(whyNotListening(code, path !== undefined, settings));
    server.once('error', fail);
    // A socket file is how a sidecar says who may call: its owner and group, from the moment it is there. It is
    // made within the call, so nothing else is made with this mask.
    const mask = path === undefined ? undefined : process.umask(0o117);
    server.listen(path === undefined ? { host, port } : { path }, () => {
      server.off('error', fail);
      resolve();
    });
    if (mask !== undefined) process.umask(mask);
  });
  if (path !== undefined) return `unix:${path}`;
  const { address, port: taken, family } = server.address() as AddressInfo;
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${taken}`;
}

/** A process that was killed leaves its socket file behind; one that still answers keeps it. */
async function removeStaleSocket(path: string): Promise<void> {
  const code = await new Promise<string | undefined>((resolve) => {
    const socket = connect(path);
    socket.once('connect', () => {
      socket.destroy();
      resolve(undefined);
    });
    socket.once('error', (error: NodeJS.ErrnoException) => resolve(error.code));
  });
  // Connecting to a file that is no socket is refused as well.
  if (code === 'ECONNREFUSED' && lstatSync(path).isSocket()) unlinkSync(path);
}

/** How often connections that have become idle are closed. */
const sweepMs = 100;

/** In so many turns of the event loop, what has arrived is accepted, read and parsed. */
const settlingTurns = 3;

/**
 * Stops listening and waits until every connection has ended.
 *
 * `server.close()` alone waits for keep-alive connections to time out, so idle ones are closed here, again and
 * again: a connection becomes idle when its last answer is sent.
 *
 * @param graceMs when they are still open after this long, `onOverdue` is called and, a moment later, they are cut
 */
export async function closeServer(server: Server, graceMs: number, onOverdue: () => void): Promise<void> {
  // `close` ends idle connections at once, also those whose request has arrived and was not read yet.
  for (let turn = 0; turn < settlingTurns; turn++) await new Promise((resolve) => setImmediate(resolve));
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  const lastMs = Math.min(1_000, graceMs / 10);
  const sweep = setInterval(() => server.closeIdleConnections(), sweepMs);
  const overdue = setTimeout(onOverdue, graceMs - lastMs);
  const cut = setTimeout(() => server.closeAllConnections(), graceMs - lastMs / 4);
  await closed;
  clearInterval(sweep);
  clearTimeout(overdue);
  clearTimeout(cut);
}
