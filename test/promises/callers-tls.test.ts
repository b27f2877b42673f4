/** TLS on the callers' listener, over real sockets, with certificates made here. */
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { Agent, request } from 'node:https';
import { join } from 'node:path';
import { connect as connectTls, type SecureVersion, type TLSSocket } from 'node:tls';
import { beforeAll, describe, expect, it } from 'vitest';
import { makeCertificate } from '../support/certificate.ts';
import { checkHere, failedStart } from '../support/command-line.ts';
import { accounts, ask, exchange } from '../support/gateway.ts';
import {
  linesOf,
  type Owner,
  type Running,
  run,
  settingsFor,
  standInFor,
  start,
  temporaryFolder,
  until,
} from '../support/process.ts';
import { sharedOwner } from '../support/shared-owner.ts';

interface Pair {
  readonly cert: string;
  readonly key: string;
}

interface Secured {
  readonly running: Running;
  readonly port: number;
  readonly adminPort: number;
  readonly certFile: string;
  readonly keyFile: string;
  readonly settings: Record<string, string>;
}

function writePair({ certFile, keyFile }: Pick<Secured, 'certFile' | 'keyFile'>, { cert, key }: Pair): void {
  for (const [file, text] of [
    [certFile, cert],
    [keyFile, key],
  ] as const) {
    writeFileSync(`${file}.new`, text);
    renameSync(`${file}.new`, file);
  }
}

async function securedSettings(
  owner: Owner,
  pair: Pair,
): Promise<Omit<Secured, 'running' | 'port' | 'adminPort'>> {
  const folder = temporaryFolder(owner);
  const files = { certFile: join(folder, 'tls.crt'), keyFile: join(folder, 'tls.key') };
  writePair(files, pair);
  const standIn = await standInFor(owner);
  const tls = { TLS_CERT_FILE: files.certFile, TLS_KEY_FILE: files.keyFile };
  return { ...files, settings: { ...settingsFor(standIn.url), ...tls } };
}

async function serveSecured(owner: Owner, pair: Pair): Promise<Secured> {
  const secured = await securedSettings(owner, pair);
  const running = start(owner, ['serve'], { settings: { ...secured.settings, ADMIN_PORT: '0' } });
  const [, adminPort] = await running.printed(/"adminUrl":"http:[^"]*:(\d+)"/);
  const [, port] = await running.printed(/"url":"https:[^"]*:(\d+)"/);
  return { ...secured, running, port: Number(port), adminPort: Number(adminPort) };
}

/** What the log says from now on: several tests share a gateway. */
function linesFromNow({ running }: Secured) {
  const earlier = linesOf(running.stdout()).length;
  const lines = () => linesOf(running.stdout()).slice(earlier);
  return {
    lines,
    /** Waits for a line that begins so. */
    said: (message: string) => until(() => lines().some(({ msg }) => String(msg).startsWith(message))),
  };
}

/** The status of one read by a caller that trusts this certificate and no other. */
function read(port: number, ca: string, path = accounts): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const options = { host: '127.0.0.1', port, path, ca, agent: new Agent({ maxCachedSessions: 0 }) };
    request(options, (response) => {
      response.resume().on('end', () => resolve(response.statusCode));
    })
      .on('error', reject)
      .end();
  });
}

function handshake(
  port: number,
  ca: string,
  maxVersion: SecureVersion,
  // Level 0 lets this side offer what the gateway has to refuse.
  ciphers = 'DEFAULT@SECLEVEL=0',
): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const socket = connectTls({ host: '127.0.0.1', port, ca, minVersion: 'TLSv1', maxVersion, ciphers }, () =>
      resolve(socket),
    );
    socket.on('error', reject);
  });
}

describe('with TLS_CERT_FILE and TLS_KEY_FILE, the callers’ listener', () => {
  const pair = makeCertificate({ names: ['gateway.example'] });
  const shared = sharedOwner();
  let secured: Secured;
  beforeAll(async () => {
    secured = await serveSecured(shared, pair);
  });

  it('the callers’ listener with TLS_CERT_FILE and TLS_KEY_FILE answers by https: to those who trust its certificate, and says until when it holds', async () => {
    expect(await read(secured.port, pair.cert)).toBe(200);
    await expect(read(secured.port, makeCertificate().cert)).rejects.toThrow();
    expect(linesOf(secured.running.stdout()).find(({ msg }) => msg === 'listening')).toMatchObject({
      validTo: expect.stringMatching(/^\d{4}-\d{2}-\d{2}T/),
    });
  });

  it('the callers’ listener with TLS_CERT_FILE and TLS_KEY_FILE speaks TLS 1.2 and 1.3, and refuses 1.1 and ciphers with CBC with a line in the log', async () => {
    const { lines, said } = linesFromNow(secured);
    for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
      const socket = await handshake(secured.port, pair.cert, version);
      expect(socket.getProtocol()).toBe(version);
      socket.destroy();
    }
    await expect(handshake(secured.port, pair.cert, 'TLSv1.1')).rejects.toThrow();
    const cbc = 'ECDHE-ECDSA-AES128-SHA256:ECDHE-ECDSA-AES256-SHA@SECLEVEL=0';
    await expect(handshake(secured.port, pair.cert, 'TLSv1.2', cbc)).rejects.toThrow();
    await said('refused before there was a request');
    expect(lines()).toContainEqual(
      expect.objectContaining({ status: 0, code: 'ERR_SSL_UNSUPPORTED_PROTOCOL', peer: '127.0.0.1' }),
    );
  });

  it('the callers’ listener with TLS_CERT_FILE and TLS_KEY_FILE answers nothing to plain HTTP, and says in the log what was tried', async () => {
    const { lines, said } = linesFromNow(secured);
    const answer = await exchange(secured.port, 'GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n', 300);
    expect(answer).not.toContain('HTTP/1.1');
    await said('refused before there was a request');
    expect(lines()).toContainEqual(
      expect.objectContaining({ code: 'ERR_SSL_HTTP_REQUEST', reason: 'plain HTTP: this port speaks TLS' }),
    );
  });

  it('the callers’ listener with TLS_CERT_FILE and TLS_KEY_FILE answers all of the sixteen requests that a caller may send at once', async () => {
    const socket = await handshake(secured.port, pair.cert, 'TLSv1.3');
    let text = '';
    socket.setEncoding('latin1').on('data', (piece: string) => {
      text += piece;
    });
    const one = `GET ${accounts} HTTP/1.1\r\nHost: localhost\r\n\r\n`;
    socket.write(one.repeat(15) + one.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n'));
    await new Promise((resolve) => socket.once('close', resolve));
    expect(text.match(/HTTP\/1\.1 200 OK/g)).toHaveLength(16);
  });

  it('the callers’ listener with TLS_CERT_FILE and TLS_KEY_FILE is asked by https: for its health', async (owner) => {
    const settings = { ...secured.settings, PORT: String(secured.port) };
    const healthy = await run(owner, ['healthcheck'], { settings });
    expect(healthy).toEqual({ status: 0, stdout: 'ready\n', stderr: '' });
    // The last of those that share the gateway.
    secured.running.signal('SIGTERM');
    expect(await secured.running.exited).toBe(0);
    expect(secured.running.stdout()).not.toContain('PRIVATE KEY');
  });
});

describe('a certificate that is replaced', () => {
  let inForce = makeCertificate();
  const shared = sharedOwner();
  let secured: Secured;
  beforeAll(async () => {
    secured = await serveSecured(shared, inForce);
  });

  /** Puts a good one in place, and waits until it is in force. */
  async function replace(): Promise<void> {
    const { said } = linesFromNow(secured);
    inForce = makeCertificate();
    writePair(secured, inForce);
    await said('the certificate for callers was replaced');
  }

  it('a certificate that is replaced is shown to new connections, while those that are open go on', async () => {
    const first = inForce;
    const open = await handshake(secured.port, first.cert, 'TLSv1.3');
    await replace();
    expect(await read(secured.port, inForce.cert)).toBe(200);
    await expect(read(secured.port, first.cert)).rejects.toThrow();
    const answer = new Promise<string>((resolve) => open.once('data', (data) => resolve(data.toString())));
    open.write('GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n');
    expect(await answer).toMatch(/^HTTP\/1\.1 200 OK/);
    open.destroy();
  });

  it.for([
    ['with the key of another', { ...makeCertificate(), key: makeCertificate().key }, 'is not the key of'],
    ['with half a file', { ...makeCertificate(), cert: '-----BEGIN CERT' }, 'holds no certificate'],
    [
      'that has expired',
      makeCertificate({
        notBefore: new Date(Date.now() - 2 * 86_400_000),
        notAfter: new Date(Date.now() - 86_400_000),
      }),
      'has expired',
    ],
  ] as const)(
    'a certificate that is replaced by one %s is kept, and the log says why',
    async ([, bad, reason]) => {
      const { lines } = linesFromNow(secured);
      writePair(secured, bad);
      await expect.poll(lines).toContainEqual(
        expect.objectContaining({
          level: 'warn',
          msg: expect.stringMatching(/^the new certificate for callers cannot be used/),
          reason: expect.stringContaining(reason),
        }),
      );
      expect(await read(secured.port, inForce.cert)).toBe(200);
      await replace();
      expect(await read(secured.port, inForce.cert)).toBe(200);
    },
  );

  it('a certificate that cannot be used makes the verdict degraded while the one before is in force', async () => {
    const codes = async (): Promise<string[]> => {
      const came = await ask({ host: '127.0.0.1', port: secured.adminPort }, '/status', {});
      return (came.json()['reasons'] as { code: string }[]).map(({ code }) => code);
    };
    expect(await codes()).toEqual([]);
    writePair(secured, { ...makeCertificate(), key: makeCertificate().key });
    secured.running.signal('SIGHUP');
    await until(async () => (await codes()).join() === 'certificate-refused');
    writePair(secured, makeCertificate());
    secured.running.signal('SIGHUP');
    await until(async () => (await codes()).length === 0);
  });

  it('a certificate that is replaced is read at once on SIGHUP, and a bad one is named at once', async () => {
    const { said } = linesFromNow(secured);
    writeFileSync(secured.keyFile, readFileSync(secured.certFile));
    secured.running.signal('SIGHUP');
    await said('the new certificate for callers cannot be used');
    // The last of those that share the gateway.
    secured.running.signal('SIGTERM');
    expect(await secured.running.exited).toBe(0);
  });
});

describe('a certificate that cannot be used', () => {
  it.for([
    ['serve', failedStart],
    [
      'check',
      async (settings: Record<string, string>) => {
        const { both, stdout } = await checkHere(settings);
        expect(both).toEqual([2, 2]);
        return { status: both[0], text: stdout, logged: '' };
      },
    ],
  ] as const)(
    'a certificate that cannot be used ends %s with 2, and names the setting and no value',
    async ([, command], owner) => {
      const other = makeCertificate().key;
      const { settings, certFile } = await securedSettings(owner, { ...makeCertificate(), key: other });
      const { status, text, logged } = await command(settings);
      expect(text).toContain('TLS_KEY_FILE is not the key of the first certificate in TLS_CERT_FILE');
      expect(text + logged).not.toContain(certFile);
      expect(status).toBe(2);
    },
  );

  it('a certificate that cannot be used ends the start with 2 where a file is missing, or the other setting', async (owner) => {
    const { settings } = await securedSettings(owner, makeCertificate());
    const missing = { ...settings, TLS_KEY_FILE: '/none/tls.key' };
    const { text, status } = await failedStart(missing);
    expect(text).toContain('TLS_KEY_FILE names a file that cannot be read (ENOENT)');
    expect(status).toBe(2);
    const { TLS_KEY_FILE: _, ...half } = settings;
    const refused = await failedStart(half);
    expect(refused.text).toContain('TLS_CERT_FILE and TLS_KEY_FILE must be set together');
    expect(refused.status).toBe(2);
  });
});
