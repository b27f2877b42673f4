/** Makes a server listen, on an address or a Unix socket, and says in plain words why it cannot. */
import { accessSync, constants, fstatSync, lstatSync, unlinkSync } from 'node:fs';
import type { Server } from 'node:http';
import { Server as TlsServer } from 'node:https';
import { type AddressInfo, connect } from 'node:net';
import { dirname } from 'node:path';
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
    return new ListenError(`${host}=${address} ${why}: let its supervisor pass one (LISTEN_FDS)`, true);
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
