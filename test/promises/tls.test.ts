import { writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { makeCertificate } from '../support/certificate.ts';
import { accounts } from '../support/gateway.ts';
import { type Owner, serve, settingsFor, standInFor, temporaryFolder } from '../support/process.ts';

const day = 86_400_000;

/** A gateway that trusts the certificates in the text, and what it answers before this upstream. */
async function read(owner: Owner, url: string, trusted = '') {
  const file = join(temporaryFolder(owner), 'authorities.pem');
  writeFileSync(file, trusted);
  const settings = { ...settingsFor(url), ...(trusted === '' ? {} : { NODE_EXTRA_CA_CERTS: file }) };
  const gateway = await serve(owner, { settings });
  const came = await gateway.ask(accounts);
  gateway.signal('SIGTERM');
  await gateway.exited;
  return came;
}

describe.concurrent('the key goes only to an upstream whose certificate is verified', () => {
  it('the key goes to an upstream whose certificate is signed by a trusted authority, for its name, in its time', async (owner) => {
    const tls = makeCertificate();
    const standIn = await standInFor(owner, { tls });
    expect((await read(owner, standIn.url, tls.cert)).status).toBe(200);
    expect(standIn.requests).toHaveLength(1);
  });

  it.for([
    ['self-signed', makeCertificate(), false],
    ['for another name', makeCertificate({ names: ['other.example'], addresses: ['127.0.0.2'] }), true],
    [
      'expired',
      makeCertificate({ notBefore: new Date(Date.now() - 2 * day), notAfter: new Date(Date.now() - day) }),
      true,
    ],
    [
      'of tomorrow',
      makeCertificate({ notBefore: new Date(Date.now() + day), notAfter: new Date(Date.now() + 2 * day) }),
      true,
    ],
  ] as const)(
    'the key does not go to an upstream whose certificate is %s',
    async ([, tls, trusted], owner) => {
      const standIn = await standInFor(owner, { tls });
      const came = await read(owner, standIn.url, trusted ? tls.cert : '');
      expect(came.json()).toMatchObject({ status: 502, code: 'upstream-unreachable' });
      expect(came.headers['proxy-status']).toBe('analytics-gateway; error=tls_certificate_error');
      expect(standIn.requests).toHaveLength(0);
    },
  );

  it('the key does not go to a peer that speaks no TLS: no byte of a request is sent', async (owner) => {
    const received: Buffer[] = [];
    const peer = createServer((socket) => {
      socket.on('error', () => {});
      socket.on('data', (chunk: Buffer) => {
        received.push(chunk);
        socket.end('HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}');
      });
    });
    await new Promise<void>((resolve) => peer.listen(0, '127.0.0.1', resolve));
    owner.onTestFinished(() => void peer.close());
    const { port } = peer.address() as { port: number };
    const came = await read(owner, `https://127.0.0.1:${port}/api`);
    expect(came.json()).toMatchObject({ status: 502, code: 'upstream-unreachable' });
    const text = Buffer.concat(received).toString('latin1');
    // A handshake record (RFC 8446 section 5.1), and nothing of HTTP.
    expect(text.startsWith('\x16\x03')).toBe(true);
    expect(text).not.toMatch(/GET \/|api-key|wa_standin/i);
  });
});
