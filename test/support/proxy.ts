/** Proxies that take CONNECT: one of ours, which keeps what it sees and misbehaves when asked to, and two real ones. */
import { spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer as createHttpServer, type IncomingMessage } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { type AddressInfo, connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { createServer as createTlsServer } from 'node:tls';
import { findOnPath } from './find-on-path.ts';
import type { Owner } from './process.ts';

export interface ProxyStandIn {
  readonly port: number;
  /** What was asked of it: the targets of CONNECT, and the credentials that came with them. */
  readonly asked: { readonly target: string; readonly authorization: string | undefined }[];
  /** Every byte that went up through its tunnels. */
  seen(): Buffer;
  /** Does this instead of a tunnel, from now on; `undefined`: well again. */
  behave(next: ((socket: Duplex, request: IncomingMessage) => void) | undefined): void;
}

/** @param upstreamPort where every tunnel leads, on loopback; left out: to the port that was asked for. @param tls the proxy itself speaks TLS */
export async function startProxy(
  { onTestFinished }: Owner,
  upstreamPort?: number,
  tls?: { readonly key: string; readonly cert: string },
): Promise<ProxyStandIn> {
  const asked: ProxyStandIn['asked'] = [];
  const chunks: Buffer[] = [];
  const sockets = new Set<Duplex>();
  let behaviour: ((socket: Duplex, request: IncomingMessage) => void) | undefined;
  const server = tls === undefined ? createHttpServer() : createHttpsServer(tls);
  // Anything but CONNECT would be a request that the proxy can read.
  server.on('request', (request, response) => {
    asked.push({ target: `${request.method} ${request.url}`, authorization: undefined });
    response.writeHead(500).end();
  });
  server.on('connect', (request: IncomingMessage, socket: Duplex) => {
    asked.push({ target: request.url ?? '', authorization: request.headers['proxy-authorization'] });
    sockets.add(socket.on('error', () => {}));
    if (behaviour !== undefined) return behaviour(socket, request);
    const upstream = connect(upstreamPort ?? Number(request.url?.split(':').at(-1)), '127.0.0.1', () => {
      socket.write('HTTP/1.1 200 Connection established\r\n\r\n');
      socket.on('data', (chunk: Buffer) => void chunks.push(chunk));
      socket.pipe(upstream).pipe(socket);
    });
    sockets.add(upstream.on('error', () => socket.destroy()));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.closeAllConnections();
    server.close();
  });
  return {
    port: (server.address() as AddressInfo).port,
    asked,
    seen: () => Buffer.concat(chunks),
    behave: (next) => {
      behaviour = next;
    },
  };
}

/** TLS before a server that speaks none. @returns its port */
export async function startTlsBefore(
  { onTestFinished }: Owner,
  port: number,
  tls: { readonly key: string; readonly cert: string },
): Promise<number> {
  const server = createTlsServer(tls, (socket) => {
    const inner = connect(port, '127.0.0.1');
    socket.on('error', () => inner.destroy()).pipe(inner);
    inner.on('error', () => socket.destroy()).pipe(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}

export interface RealProxy {
  readonly port: number;
  /** What it logged of requests. */
  log(): string;
}

/** The real proxies that are installed. Where CI asks for them, both have to be. */
export const realProxies = (['squid', 'tinyproxy'] as const).filter((name) => {
  if (programOf(name) !== undefined) return true;
  if (process.env['REQUIRE_PROXIES'] === 'true') throw new Error(`${name} is not installed`);
  process.stderr.write(`left out: tests through ${name}, which is not installed\n`);
  return false;
});

function programOf(name: string): string | undefined {
  // Where Debian puts servers, and few have on their path.
  return findOnPath(name) ?? [`/usr/sbin/${name}`].find((path) => existsSync(path));
}

/** Squid or tinyproxy as a process of its own, which asks for `user:password` where that is given. */
export async function startRealProxy(
  { onTestFinished }: Owner,
  name: (typeof realProxies)[number],
  credentials?: { readonly user: string; readonly password: string },
): Promise<RealProxy> {
  const folder = mkdtempSync(join(tmpdir(), `${name}-`));
  // Squid gives up root, and writes its log as another user.
  chmodSync(folder, 0o777);
  const port = await freePort();
  const log = join(folder, 'log');
  const file = join(folder, 'conf');
  writeFileSync(log, '', { mode: 0o666 });
  chmodSync(log, 0o666);
  writeFileSync(
    file,
    name === 'squid' ? squidSettings(port, folder, credentials) : tinyproxySettings(port, log, credentials),
  );
  const words = name === 'squid' ? ['-N', '-f', file] : ['-d', '-c', file];
  const child = spawn(programOf(name) ?? name, words, { stdio: 'ignore' });
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  onTestFinished(async () => {
    child.kill('SIGKILL');
    await exited;
    rmSync(folder, { recursive: true, force: true });
  });
  while (!(await takesConnections(port))) {
    if (child.exitCode !== null) throw new Error(`${name} ended: ${readFileSync(log, 'utf8')}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return { port, log: () => readFileSync(log, 'utf8') };
}

type Credentials = { readonly user: string; readonly password: string } | undefined;

function squidSettings(port: number, folder: string, credentials: Credentials): string {
  const helper = join(folder, 'helper');
  if (credentials !== undefined) {
    const line = `${credentials.user} ${credentials.password}`;
    writeFileSync(
      helper,
      `#!/bin/sh\nwhile read -r line; do [ "$line" = '${line}' ] && echo OK || echo ERR; done\n`,
    );
    chmodSync(helper, 0o755);
  }
  // The upstream's name is known to the proxy alone.
  writeFileSync(join(folder, 'hosts'), '127.0.0.1 upstream.test\n');
  return [
    `http_port 127.0.0.1:${port}`,
    `hosts_file ${join(folder, 'hosts')}`,
    `access_log stdio:${join(folder, 'log')}`,
    `cache_log ${join(folder, 'cache.log')}`,
    `pid_filename ${join(folder, 'pid')}`,
    'cache deny all',
    'shutdown_lifetime 0 seconds',
    'acl forbidden dstdomain forbidden.test',
    'http_access deny forbidden',
    ...(credentials === undefined
      ? ['http_access allow all']
      : [
          `auth_param basic program ${helper}`,
          'acl known proxy_auth REQUIRED',
          'http_access allow known',
          'http_access deny all',
        ]),
    '',
  ].join('\n');
}

function tinyproxySettings(port: number, log: string, credentials: Credentials): string {
  return [
    `Port ${port}`,
    'Listen 127.0.0.1',
    `LogFile "${log}"`,
    'LogLevel Connect',
    'MaxClients 50',
    'Timeout 60',
    ...(credentials === undefined ? [] : [`BasicAuth ${credentials.user} ${credentials.password}`]),
    '',
  ].join('\n');
}

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => resolve(port));
    });
  });
}

function takesConnections(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}
