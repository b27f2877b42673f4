/**
 * The way out of a network that lets connections out through a proxy alone: `CONNECT` (RFC 9110 section 9.3.6), and TLS
 * with the other end within. The proxy sees the other end's name and port, and nothing of what is sent there. Whatever it
 * answers but a 2xx ends the connection: nothing else is ever sent to it, and no redirect is followed.
 */
import { once } from 'node:events';
import { constants } from 'node:fs';
import { readFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import type { Agent } from 'node:https';
import { isIP } from 'node:net';
import type { Duplex } from 'node:stream';
import { type ConnectionOptions, connect as connectTls, type TLSSocket } from 'node:tls';
import { connectionFault, errorCode, type ProxyErrorType, SettingError } from '../errors.ts';
import { hostFromUrl, hostInUrl, isLoopbackHost, type NoProxy, type ProxyAddress } from '../http/address.ts';

/** What makes the way out. */
export interface ProxySettings {
  readonly HTTPS_PROXY?: ProxyAddress | undefined;
  readonly NO_PROXY?: NoProxy | undefined;
  /** A file with credentials instead of the address's: `user:password`, or a whole value. Read for each connection. */
  readonly PROXY_AUTHORIZATION_FROM?: string | undefined;
}

/** The way out of the network; `undefined` where no proxy is named. */
export function proxyFor(settings: ProxySettings): OutboundProxy | undefined {
  const { HTTPS_PROXY: address, NO_PROXY, PROXY_AUTHORIZATION_FROM: file } = settings;
  return address === undefined ? undefined : new OutboundProxy(address, file, NO_PROXY);
}

/** The proxy gave no connection. The message is ours, names the proxy and the other end, and holds no credential. */
export class ProxyError extends SettingError {
  override readonly name = 'ProxyError';
  readonly type: ProxyErrorType;

  constructor(message: string, type: ProxyErrorType) {
    super(message);
    this.type = type;
  }
}

/** How undici asks for a connection. */
type Connector = (
  options: { readonly hostname: string; readonly port: string },
  callback: (...result: [error: null, socket: TLSSocket] | [error: Error, socket: null]) => void,
) => void;

/** How long the other end of a connection may take that a library opens. */
const libraryTimeoutMs = 10_000;
const keepAliveDelayMs = 60_000;

export class OutboundProxy {
  readonly #address: ProxyAddress;
  readonly #authorizationFile: string | undefined;
  readonly #besides: NoProxy | undefined;
  #agent: Agent | undefined;

  constructor(address: ProxyAddress, authorizationFile: string | undefined, besides: NoProxy | undefined) {
    this.#address = address;
    this.#authorizationFile = authorizationFile;
    this.#besides = besides;
  }

  get #described(): string {
    const { host, port, isTls } = this.#address;
    return `${isTls ? 'https' : 'http'}://${hostInUrl(host)}:${port}`;
  }

  /** Whether the way to an address leads through the proxy: only `https:` does, and never to this machine. */
  takes({ protocol, hostname, port }: Pick<URL, 'protocol' | 'hostname' | 'port'>): boolean {
    const host = hostFromUrl(hostname);
    return protocol === 'https:' && !isLoopbackHost(host) && !this.#besides?.names(host, Number(port) || 443);
  }

  /** For what connects by Node's own HTTPS: goes through the proxy, or past it where it has to. */
  get agent(): Agent {
    this.#agent ??= makeAgent(this);
    return this.#agent;
  }

  /** The proxy as it may be shown, where it is the way to an address. */
  describedFor(address: URL): string | undefined {
    return this.takes(address) ? this.#described : undefined;
  }

  /** Opens connections for undici. @param timeoutMs one connection; half of it is the proxy's */
  connector(timeoutMs: number): Connector {
    return ({ hostname, port }, callback) => {
      this.connect({ host: hostFromUrl(hostname), port: Number(port) || 443 }, timeoutMs).then(
        (socket) => callback(null, socket),
        (error: Error) => callback(error, null),
      );
    };
  }

  /**
   * A TLS connection with the other end, through the proxy.
   *
   * @param options of TLS; the other end is always verified
   * @throws ProxyError where the proxy gives no connection; what TLS throws
   */
  async connect(
    options: ConnectionOptions & { readonly host: string; readonly port: number },
    timeoutMs: number,
  ): Promise<TLSSocket> {
    const { host, port } = options;
    const socket = await this.#tunnel(`${hostInUrl(host)}:${port}`, timeoutMs / 2);
    const servername = isIP(host) === 0 ? host : undefined;
    const secure = connectTls({
      ALPNProtocols: ['http/1.1'],
      ...options,
      ...(servername === undefined ? {} : { servername }),
      socket,
      // Said here, so that no environment variable can unsay it.
      rejectUnauthorized: true,
    });
    const late = Object.assign(new Error('no TLS connection in time'), { code: 'ETIMEDOUT' });
    const timer = setTimeout(() => secure.destroy(late), timeoutMs / 2);
    try {
      await once(secure, 'secureConnect');
    } finally {
      clearTimeout(timer);
    }
    return secure.setNoDelay(true).setKeepAlive(true, keepAliveDelayMs);
  }

  /** @param target the other end, as `host:port` */
  async #tunnel(target: string, timeoutMs: number): Promise<Duplex> {
    const { host, port, isTls } = this.#address;
    const authorization = await this.authorization();
    const headers = { host: target, ...(authorization && { 'proxy-authorization': authorization }) };
    const options = { host, port, method: 'CONNECT', path: target, headers, agent: false as const };
    // Not by `import`, which reads all that a module has, and with that loads fetch.
    const request = isTls
      ? process.getBuiltinModule('node:https').request({ ...options, rejectUnauthorized: true })
      : process.getBuiltinModule('node:http').request(options);
    const late = this.#error(`gave no connection to ${target} within ${timeoutMs} ms`, 'connection_timeout');
    const timer = setTimeout(() => request.destroy(late), timeoutMs);
    // Only the first error is waited for.
    request.on('error', () => {});
    let answer: [IncomingMessage, Duplex, Buffer];
    try {
      answer = (await once(request.end(), 'connect')) as typeof answer;
    } catch (error) {
      throw error === late ? late : this.#failure(error);
    } finally {
      clearTimeout(timer);
    }
    const [{ statusCode = 0 }, socket, head] = answer;
    const isGiven = statusCode >= 200 && statusCode < 300;
    // The other end of a TLS connection never speaks first: such bytes are the proxy's own.
    if (isGiven && head.length === 0) return socket;
    socket.on('error', () => {}).destroy();
    throw isGiven
      ? this.#error('sent bytes of its own behind its answer to CONNECT', 'http_protocol_error')
      : this.#refusal(statusCode, target, authorization !== undefined);
  }

  /**
   * The value of `Proxy-Authorization`; `undefined` where the proxy asks for none.
   *
   * @throws ProxyError where the file of PROXY_AUTHORIZATION_FROM has none
   */
  async authorization(): Promise<string | undefined> {
    const file = this.#authorizationFile;
    const { credentials } = this.#address;
    if (file === undefined) return credentials && basic(credentials);
    let text: string;
    try {
      // A pipe that nothing writes to has no text then; it would occupy a thread for ever.
      const flag = constants.O_RDONLY | (constants.O_NONBLOCK ?? 0);
      text = (await readFile(file, { encoding: 'utf8', flag })).trim();
    } catch (error) {
      const why = `its file cannot be read (${errorCode(error)})`;
      throw new ProxyError(`PROXY_AUTHORIZATION_FROM: ${why}`, 'proxy_configuration_error');
    }
    // A scheme and what belongs to it (RFC 9110 section 11.4); a user's name has no blank in it.
    if (/^[A-Za-z][\w-]* +[\x21-\x7e][\x20-\x7e]*$/.test(text)) return text;
    if (/^[^\s:]+:[^\r\n\0]*$/.test(text)) return basic(text);
    const why = 'its file holds neither user:password nor a whole value like "Bearer …"';
    throw new ProxyError(`PROXY_AUTHORIZATION_FROM: ${why}`, 'proxy_configuration_error');
  }

  #refusal(status: number, target: string, hadCredentials: boolean): ProxyError {
    // Tinyproxy says 401 of credentials that are wrong.
    if (status === 407 || status === 401) {
      const what = hadCredentials
        ? `refuses the credentials that it was given (${status})`
        : `asks for credentials (${status}), and neither HTTPS_PROXY nor PROXY_AUTHORIZATION_FROM has any`;
      return this.#error(what, 'proxy_configuration_error');
    }
    if (status === 403)
      return this.#error(`does not allow connections to ${target} (403)`, 'proxy_configuration_error');
    if (status >= 500)
      return this.#error(`could not connect to ${target} (${status})`, 'destination_unavailable');
    return this.#error(`answered ${status} to CONNECT ${target}`, 'http_protocol_error');
  }

  #failure(error: unknown): ProxyError {
    const code = errorCode(error) ?? '';
    if (code === 'HPE_HEADER_OVERFLOW')
      return this.#error('answered CONNECT with too large a head', 'http_protocol_error');
    if (code.startsWith('HPE_')) return this.#error('does not answer CONNECT in HTTP', 'http_protocol_error');
    if (/CERT|SSL|TLS|EPROTO/.test(code))
      return this.#error(`gave no TLS connection (${code})`, 'tls_protocol_error');
    const [type, words] = connectionFault(code) ?? [];
    if (type === 'connection_terminated')
      return this.#error('closed the connection before it answered CONNECT', type);
    if (type !== undefined && words !== undefined) return this.#error(words, type);
    return this.#error(`failed (${code || 'unknown'})`, 'connection_refused');
  }

  #error(what: string, type: ProxyErrorType): ProxyError {
    return new ProxyError(`the proxy ${this.#described} ${what}`, type);
  }
}

function basic(credentials: string): string {
  return `Basic ${Buffer.from(credentials).toString('base64')}`;
}

function makeAgent(proxy: OutboundProxy): Agent {
  const agent = new (process.getBuiltinModule('node:https').Agent)();
  const connectDirectly = agent.createConnection.bind(agent);
  agent.createConnection = (options, callback) => {
    const host = options.host ?? 'localhost';
    const port = Number(options.port ?? 443);
    if (!proxy.takes({ protocol: 'https:', hostname: host, port: String(port) }))
      return connectDirectly(options, callback);
    proxy.connect({ ...(options as ConnectionOptions), host, port }, libraryTimeoutMs).then(
      (socket) => callback?.(null, socket),
      // Node takes an error alone; its types ask for a connection as well.
      (error: Error) => (callback as ((error: Error) => void) | undefined)?.(error),
    );
    return undefined;
  };
  return agent;
}
