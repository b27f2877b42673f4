/**
 * How a server begins to listen, and how it ends without losing a request that was sent before: what the kernel has
 * accepted is accepted here, what lies unread is read and answered, and only then a connection is ended.
 */
import { accessSync, constants, fstatSync, lstatSync, unlinkSync } from 'node:fs';
import type { Server } from 'node:http';
import { Server as TlsServer } from 'node:https';
import { type AddressInfo, connect, Server as NetServer, type Socket } from 'node:net';
import { dirname } from 'node:path';
import type { Duplex } from 'node:stream';
import { SettingError } from '../errors.ts';
import { hostInUrl, passedSocket, socketPath } from '../http/address.ts';

/** Why the gateway cannot listen, in plain words that name the setting and not its value. */
export class ListenError extends SettingError {
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

/** No setting is wrong: the next start may succeed (listen(2), socket(2)). */
const machineLacks: Readonly<Record<string, string>> = {
  EMFILE: 'the process has too many files open (ulimit -n)',
  ENFILE: 'the machine has too many files open',
  ENOBUFS: 'the machine has no memory for sockets',
  ENOMEM: 'the machine has no memory for sockets',
};

function whyNotListening(
  code: string | undefined,
  path: string | undefined,
  address: string,
  { host, port }: ListenSettings,
): ListenError {
  if (address.startsWith('fd:')) {
    const why = 'names no socket that this process was started with and may listen on';
    const todo =
      'let its supervisor pass one (LISTEN_FDS), and start the program without npx, which passes none on';
    return new ListenError(`${host}=${address} ${why}: ${todo}`, true);
  }
  if (code === 'EADDRINUSE') {
    const instead = path !== undefined ? `choose another path in ${host}` : `choose another ${port}`;
    return new ListenError(`${address} is in use: ${instead}, or stop what listens there`, false);
  }
  const lacking = machineLacks[code ?? ''];
  if (lacking !== undefined) return new ListenError(`${address} cannot be listened on: ${lacking}`, false);
  if (path !== undefined) return new ListenError(noSocket(host), true);
  if (code === 'EACCES')
    return new ListenError(`${port} needs rights we do not have: choose one above 1023`, false);
  return new ListenError(`${host} is not an address of this machine`, true);
}

function noSocket(setting: string): string {
  return `${setting} names a socket in a folder that does not exist or may not be written to`;
}

/** Why `listen` would refuse a socket, as far as its folder says; `undefined` for addresses, and where it may be made. */
export function socketProblem(host: string, setting: string): string | undefined {
  const path = socketPath(host);
  if (path === undefined) return undefined;
  try {
    accessSync(dirname(path), constants.W_OK | constants.X_OK);
    return undefined;
  } catch {
    return noSocket(setting);
  }
}

export interface ListenOptions {
  /** How messages name the settings. */
  readonly settings?: ListenSettings;
  /** Other processes of the same user may listen there too. */
  readonly reusePort?: boolean;
}

/** As many as the system allows (net.core.somaxconn): a passed socket holds what comes while no process accepts. */
const passedBacklog = 65_535;

/**
 * Starts listening.
 *
 * @returns where the listener can be reached: an `http:` or `https:` address, `unix:/path`, or `fd:3` where a passed
 * socket has no address
 * @throws ListenError
 */
export async function listen(
  server: Server,
  host: string,
  port: number,
  { settings = { host: 'HOST', port: 'PORT' }, reusePort = false }: ListenOptions = {},
): Promise<string> {
  const path = socketPath(host);
  const fd = passedSocket(host);
  if (path !== undefined) await removeStaleSocket(path);
  // Of any other descriptor Node would end the process.
  if (fd !== undefined && !isSocket(fd)) throw whyNotListening(undefined, undefined, host, settings);
  await new Promise<void>((resolve, reject) => {
    const fail = ({ code }: NodeJS.ErrnoException): void =>
      reject(
        whyNotListening(
          code,
          path,
          path ?? (fd === undefined ? `${hostInUrl(host)}:${port}` : host),
          settings,
        ),
      );
    server.once('error', fail);
    // Only the owner and group of a socket file may call, from the moment it exists. `listen` makes the file within
    // this call, so no other file gets this mask.
    const mask = path === undefined ? undefined : process.umask(0o117);
    const shared = reusePort ? { reusePort } : {};
    const where = fd === undefined ? { host, port, ...shared } : { fd, backlog: passedBacklog };
    server.listen(path === undefined ? where : { path }, () => {
      server.off('error', fail);
      resolve();
    });
    if (mask !== undefined) process.umask(mask);
  });
  if (path !== undefined) return `unix:${path}`;
  const bound = server.address() as AddressInfo | null;
  if (bound === null) return host;
  const { address, port: taken } = bound;
  const scheme = server instanceof TlsServer ? 'https' : 'http';
  return `${scheme}://${hostInUrl(address)}:${taken}`;
}

function isSocket(fd: number): boolean {
  try {
    return fstatSync(fd).isSocket();
  } catch {
    return false;
  }
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

/** How many connections the kernel holds for a listener at most: Node's backlog of 511, and one. */
const mostWaiting = 512;
/** Node accepts one connection in a turn of its event loop. After so many turns without one, none waits. */
const turnsWithoutOne = 3;
/** How often connections are looked at while a server stops. */
const lookMs = 100;
/** A connection that awaits no reply is ended after this many looks without a byte from it. */
const looksUntilIdle = 3;
/** How long a peer may take to end its side once ours has ended. */
const lingerMs = 1_000;

type ServedSocket = Socket & {
  /** The reply that is awaited or being handed over. */
  readonly _httpMessage?: object | null;
  /** Below TLS: the connection itself. */
  readonly _parent?: Socket;
};

/** What was seen of a connection that awaits no reply. */
interface Seen {
  readonly bytesRead: number;
  /** Looks since then. */
  looks: number;
}

/** The open connections of a server. */
class Connections {
  /** All that have come, and those that were dropped because there were too many. */
  begun = 0;
  readonly #open = new Set<ServedSocket>();
  /** TLS connections before the end of their handshake: not among the open ones. */
  readonly #handshaking = new Set<ServedSocket>();
  readonly #seen = new WeakMap<ServedSocket, Seen>();

  constructor(server: Server, isTls: boolean) {
    server.on('drop', () => {
      this.begun += 1;
    });
    server.on('connection', (socket: ServedSocket) => {
      this.begun += 1;
      if (isTls) keep(this.#handshaking, socket);
      else this.#take(socket);
    });
    server.on('secureConnection', (socket: ServedSocket) => {
      if (socket._parent !== undefined) this.#handshaking.delete(socket._parent);
      this.#take(socket);
    });
  }

  /** Ends connections on which nothing has come for a while. */
  endIdle(): void {
    for (const socket of this.#open) if (!socket.writableEnded && this.#isIdle(socket)) endAndLinger(socket);
    // A handshake that has begun has a time limit of its own.
    for (const socket of this.#handshaking)
      if (socket.bytesRead === 0 && this.#isIdle(socket)) socket.destroy();
  }

  destroyAll(): void {
    for (const socket of [...this.#open, ...this.#handshaking]) socket.destroy();
  }

  #take(socket: ServedSocket): void {
    keep(this.#open, socket);
    socket.destroySoon = lingerInstead;
  }

  #isIdle(socket: ServedSocket): boolean {
    const { bytesRead } = socket;
    const seen = this.#seen.get(socket);
    const awaitsReply = (socket._httpMessage ?? null) !== null || socket.writableLength > 0;
    if (awaitsReply || seen?.bytesRead !== bytesRead) {
      this.#seen.set(socket, { bytesRead, looks: 0 });
      return false;
    }
    seen.looks += 1;
    return seen.looks >= looksUntilIdle;
  }
}

function keep(sockets: Set<ServedSocket>, socket: ServedSocket): void {
  sockets.add(socket);
  socket.once('close', () => sockets.delete(socket));
}

const connectionsOf = new WeakMap<Server, Connections>();

/** Follows a server's connections, so that `closeServer` can end them. Call before it listens. */
export function followConnections(server: Server, isTls: boolean): void {
  connectionsOf.set(server, new Connections(server, isTls));
}

/**
 * Ends our side, and reads and drops what still comes until the peer has ended its own, for a moment. To close while bytes
 * are unread is a reset, which can take the last reply with it (RFC 9112 section 9.6).
 */
export function endAndLinger(socket: Duplex, last?: string): void {
  const linger = (): void => {
    const timer = setTimeout(() => socket.destroy(), lingerMs);
    timer.unref();
    socket.once('close', () => clearTimeout(timer));
  };
  if (socket.writableFinished) linger();
  else socket.once('finish', linger);
  socket.end(last);
  socket.resume();
}

/** Node closes a connection as soon as a reply that ends it was handed over. */
function lingerInstead(this: Socket): void {
  endAndLinger(this);
}

/**
 * Stops listening and waits until every connection has ended.
 *
 * @param isHeld others hold the listening socket: what waits there is for the next process, and is not accepted here.
 * There is no end of it otherwise, and none of it is refused
 * @param graceMs when some are still open after this long, `onOverdue` is called and, a moment later, they are cut
 */
export async function closeServer(
  server: Server,
  graceMs: number,
  onOverdue: () => void,
  isHeld = false,
): Promise<void> {
  const connections = connectionsOf.get(server);
  if (connections === undefined) throw new TypeError('the connections of this server are not followed');
  let isOver = false;
  const lastMs = Math.min(1_000, graceMs / 10);
  const overdue = setTimeout(onOverdue, graceMs - lastMs);
  const cut = (): void => {
    isOver = true;
    connections.destroyAll();
  };
  const end = setTimeout(cut, graceMs - lastMs / 4);
  if (!isHeld) await acceptWaiting(connections, () => isOver);
  // Not Node's own `close` for HTTP: it ends connections that have a request unread in the kernel, and no longer ends those
  // whose head does not come to an end.
  const closed = new Promise<void>((resolve) => NetServer.prototype.close.call(server, () => resolve()));
  // One look in the same turn as each poll for bytes: however late the timer is, what had come by then was read.
  const look = (): void => void setImmediate(() => connections.endIdle());
  look();
  const looking = setInterval(look, Math.min(lookMs, graceMs / (10 * looksUntilIdle)));
  await closed;
  clearInterval(looking);
  clearTimeout(overdue);
  clearTimeout(end);
  // Ends Node's look at slow heads.
  server.close();
}

/** A listener that closes resets the connections that wait for it: all that wait now are accepted first. */
async function acceptWaiting(connections: Connections, isOver: () => boolean): Promise<void> {
  const most = connections.begun + mostWaiting;
  let before = connections.begun;
  for (let turns = 0; turns < turnsWithoutOne && connections.begun < most && !isOver(); turns++) {
    await new Promise((resolve) => setImmediate(resolve));
    if (connections.begun !== before) turns = -1;
    before = connections.begun;
  }
}
