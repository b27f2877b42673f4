/** Real balancers as they are commonly set: whose address stands in the log, and has failures counted. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { enrol, startWith } from '../support/callers-files.ts';
import { findOnPath } from '../support/find-on-path.ts';
import { accounts, type TestGateway } from '../support/gateway.ts';

const nginx = findOnPath('nginx');
const haproxy = findOnPath('haproxy');

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address() as { port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}

function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'gateway-balancer-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Starts a balancer that ends with the test, once it answers. @returns its port */
async function startBalancer(program: string, words: readonly string[], port: number): Promise<number> {
  const child: ChildProcess = spawn(program, words, { stdio: 'ignore' });
  const exited = new Promise((resolve) => child.once('close', resolve));
  onTestFinished(async () => {
    child.kill('SIGKILL');
    await exited;
  });
  await expect.poll(() => send(port, { path: '/livez' }).catch(() => 0)).toBe(200);
  return port;
}

interface Sent {
  readonly path?: string;
  /** The sender's own address. */
  readonly from?: string;
  readonly headers?: Record<string, string | string[]>;
}

/** Sends a request from an address of loopback, without a credential. @returns the status */
function send(port: number, { path = accounts, from = '127.0.0.1', headers = {} }: Sent): Promise<number> {
  const host = from.includes(':') ? '::1' : '127.0.0.1';
  return new Promise((resolve, reject) => {
    request({ host, port, path, localAddress: from, headers, agent: false }, (response) => {
      response.resume().once('end', () => resolve(response.statusCode ?? 0));
    })
      .once('error', reject)
      .end();
  });
}

/** What nginx's guide to `Forwarded` gives. */
const nginxForwarded = `
  map $remote_addr $forwarded_node {
    ~^[0-9.]+$        "for=$remote_addr";
    ~^[0-9A-Fa-f:.]+$ "for=\\"[$remote_addr]\\"";
    default           "for=unknown";
  }
  map $http_forwarded $forwarded_list {
    ""      $forwarded_node;
    default "$http_forwarded, $forwarded_node";
  }`;

const xForwardedFor = 'proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;';

/** @param to where it sends, as nginx writes it: `127.0.0.1:8080`, or `unix:/path:` */
async function startNginx(to: string, fields: string): Promise<number> {
  const [folder, port] = [temporaryFolder(), await freePort()];
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    .map((kind) => `${kind}_temp_path ${join(folder, kind)};`)
    .join('\n  ');
  writeFileSync(
    join(folder, 'nginx.conf'),
    `daemon off;
${process.getuid?.() === 0 ? 'user root;' : ''}
pid ${join(folder, 'nginx.pid')};
error_log ${join(folder, 'error.log')} crit;
events {}
http {
  ${temporary}
  access_log off;
  ${nginxForwarded}
  server {
    listen 127.0.0.1:${port};
    listen [::1]:${port};
    location / {
      proxy_pass http://${to};
      proxy_set_header Host localhost;
      ${fields}
    }
  }
}
`,
  );
  const words = ['-p', folder, '-e', join(folder, 'error.log'), '-c', join(folder, 'nginx.conf')];
  return startBalancer(nginx ?? '', words, port);
}

async function startHaproxy(toPort: number): Promise<number> {
  const [folder, port] = [temporaryFolder(), await freePort()];
  writeFileSync(
    join(folder, 'haproxy.cfg'),
    `defaults
  mode http
  timeout connect 5s
  timeout client 5s
  timeout server 5s
  option forwardfor
listen gateway
  bind 127.0.0.1:${port}
  http-request set-header Host localhost
  server one 127.0.0.1:${toPort}
`,
  );
  return startBalancer(haproxy ?? '', ['-db', '-f', join(folder, 'haproxy.cfg')], port);
}

const entries = [enrol('script').entry];

/** A gateway that admits two failures a minute from one address. */
function startGateway(settings: Record<string, string>): Promise<TestGateway> {
  return startWith(entries, { CALLER_FAILURES_PER_MINUTE: '2', ...settings });
}

function loggedPeers({ logLines }: TestGateway): unknown[] {
  return logLines().flatMap(({ msg, status, peer }) =>
    msg === 'request' && (status === 401 || status === 429) ? [peer] : [],
  );
}

describe.skipIf(nginx === undefined)('behind nginx', () => {
  it('each caller has its own address in the log, and its own failures, whatever its field began with', async () => {
    const pair = await startGateway({ TRUSTED_PROXIES: '127.0.0.1' });
    const port = await startNginx(`127.0.0.1:${pair.port}`, xForwardedFor);
    const greedy = { from: '127.0.0.2', headers: { 'x-forwarded-for': ['198.51.100.1', '127.0.0.1'] } };
    const statuses = [];
    for (const sent of [greedy, greedy, greedy, { from: '127.0.0.3' }]) statuses.push(await send(port, sent));
    expect(statuses).toEqual([401, 401, 429, 401]);
    expect(loggedPeers(pair)).toEqual(['127.0.0.2', '127.0.0.2', '127.0.0.2', '127.0.0.3']);
  });

  it('a caller of IPv6 is known by X-Forwarded-For and by Forwarded', async () => {
    for (const fields of [xForwardedFor, 'proxy_set_header Forwarded $forwarded_list;']) {
      const pair = await startGateway({ TRUSTED_PROXIES: '127.0.0.0/8' });
      const port = await startNginx(`127.0.0.1:${pair.port}`, fields);
      expect(await send(port, { from: '::1', headers: { forwarded: 'for="[2001:db8::1]:80"' } })).toBe(401);
      // A Forwarded of the caller's own beside the proxy's X-Forwarded-For: neither is believed.
      const believed = fields === xForwardedFor ? '127.0.0.1' : '::1';
      expect(loggedPeers(pair)).toEqual([believed]);
    }
  });

  it('Forwarded is read as its usual map writes it, behind what the caller sent', async () => {
    const pair = await startGateway({ TRUSTED_PROXIES: '127.0.0.1' });
    const fields = 'proxy_set_header Forwarded $forwarded_list; proxy_set_header X-Forwarded-For "";';
    const port = await startNginx(`127.0.0.1:${pair.port}`, fields);
    await send(port, { from: '127.0.0.2' });
    await send(port, { from: '127.0.0.2', headers: { forwarded: 'for=198.51.100.1' } });
    await send(port, { from: '127.0.0.3', headers: { 'x-forwarded-for': '198.51.100.1' } });
    expect(loggedPeers(pair)).toEqual(['127.0.0.2', '127.0.0.2', '127.0.0.3']);
  });

  it('on a Unix socket the callers are known where unix is trusted', async () => {
    const socket = join(temporaryFolder(), 'gateway.sock');
    const pair = await startGateway({ HOST: `unix:${socket}`, TRUSTED_PROXIES: 'unix' });
    const port = await startNginx(`unix:${socket}:`, xForwardedFor);
    await send(port, { from: '127.0.0.2' });
    expect(loggedPeers(pair)).toEqual(['127.0.0.2']);
  });
});

describe.skipIf(haproxy === undefined)('behind HAProxy', () => {
  it('each caller has its own address in the log, and its own failures', async () => {
    const pair = await startGateway({ TRUSTED_PROXIES: '127.0.0.1' });
    const port = await startHaproxy(pair.port);
    const greedy = { from: '127.0.0.2', headers: { 'x-forwarded-for': '198.51.100.1' } };
    const statuses = [];
    for (const sent of [greedy, greedy, greedy, { from: '127.0.0.3' }]) statuses.push(await send(port, sent));
    expect(statuses).toEqual([401, 401, 429, 401]);
    expect(loggedPeers(pair)).toEqual(['127.0.0.2', '127.0.0.2', '127.0.0.2', '127.0.0.3']);
  });

  it.skipIf(nginx === undefined)('a chain of HAProxy and nginx tells the caller', async () => {
    const pair = await startGateway({ TRUSTED_PROXIES: '127.0.0.1' });
    const port = await startHaproxy(await startNginx(`127.0.0.1:${pair.port}`, xForwardedFor));
    await send(port, { from: '127.0.0.2', headers: { 'x-forwarded-for': '198.51.100.1, unknown' } });
    expect(loggedPeers(pair)).toEqual(['127.0.0.2']);
  });
});

describe('a peer that is not trusted', () => {
  it('is the one in the log, whatever it says of itself', async () => {
    const pair = await startGateway({ TRUSTED_PROXIES: '10.0.0.0/8' });
    const headers = { 'x-forwarded-for': '10.1.1.1', forwarded: 'for=10.1.1.1' };
    const statuses = [];
    for (let at = 0; at < 3; at++) statuses.push(await send(pair.port, { from: '127.0.0.2', headers }));
    expect(statuses).toEqual([401, 401, 429]);
    expect(loggedPeers(pair)).toEqual(['127.0.0.2', '127.0.0.2', '127.0.0.2']);
  });
});
