import { writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { variableOf } from '../../src/config/workspaces.ts';
import { makeCertificate } from '../support/certificate.ts';
import { type Served, serve, settingsFor, standInFor, temporaryFolder } from '../support/process.ts';
import { sharedOwner } from '../support/shared-owner.ts';
import { standInKey } from '../support/stand-in/stand-in.ts';
import { accountsOf } from '../support/workspaces.ts';

const day = 86_400_000;
/** Each has a subject of its own: of two with the same, a verifier may take the wrong one for the authority. */
const certificates = {
  trusted: makeCertificate({ subject: 'trusted' }),
  'self-signed': makeCertificate({ subject: 'self-signed' }),
  'for another name': makeCertificate({
    subject: 'other',
    names: ['other.example'],
    addresses: ['127.0.0.2'],
  }),
  expired: makeCertificate({
    subject: 'expired',
    notBefore: new Date(Date.now() - 2 * day),
    notAfter: new Date(Date.now() - day),
  }),
  'of tomorrow': makeCertificate({
    subject: 'of tomorrow',
    notBefore: new Date(Date.now() + day),
    notAfter: new Date(Date.now() + 2 * day),
  }),
};
type Kind = keyof typeof certificates;
const kinds = Object.keys(certificates) as Kind[];

const workspaceOf = (kind: Kind | 'plain'): string => kind.replaceAll(' ', '-');

describe('the key goes only to an upstream whose certificate is verified', () => {
  const shared = sharedOwner();
  const standIns = new Map<Kind, Awaited<ReturnType<typeof standInFor>>>();
  /** What came to the peer that speaks no TLS. */
  const received: Buffer[] = [];
  let gateway: Served;
  const read = (kind: Kind | 'plain') => gateway.ask(accountsOf(workspaceOf(kind)));

  // One gateway, with a workspace for each upstream.
  beforeAll(async () => {
    const peer = createServer((socket) => {
      socket.on('error', () => {});
      socket.on('data', (chunk: Buffer) => {
        received.push(chunk);
        socket.end('HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}');
      });
    });
    await new Promise<void>((resolve) => peer.listen(0, '127.0.0.1', resolve));
    shared.onTestFinished(() => void peer.close());
    const { port } = peer.address() as { port: number };
    const urls: [Kind | 'plain', string][] = [['plain', `https://127.0.0.1:${port}/api`]];
    for (const kind of kinds) {
      const standIn = await standInFor(shared, { tls: certificates[kind] });
      standIns.set(kind, standIn);
      urls.push([kind, standIn.url]);
    }
    const authorities = join(temporaryFolder(shared), 'authorities.pem');
    const trusted = kinds.filter((kind) => kind !== 'self-signed').map((kind) => certificates[kind].cert);
    writeFileSync(authorities, trusted.join(''));
    const { UPSTREAM_API_KEY: _, ...others } = settingsFor(standIns.get('trusted')?.url ?? '');
    gateway = await serve(shared, {
      settings: {
        ...others,
        NODE_EXTRA_CA_CERTS: authorities,
        KEY: standInKey,
        WORKSPACES: urls.map(([kind]) => workspaceOf(kind)).join(),
        ...Object.fromEntries(
          urls.flatMap(([kind, url]) => [
            [variableOf('UPSTREAM_BASE_URL', workspaceOf(kind)), url],
            [variableOf('UPSTREAM_API_KEY_FROM', workspaceOf(kind)), 'env:KEY'],
          ]),
        ),
      },
    });
  });

  it('the key goes to an upstream whose certificate is signed by a trusted authority, for its name, in its time', async () => {
    expect((await read('trusted')).status).toBe(200);
    expect(standIns.get('trusted')?.requests).toHaveLength(1);
  });

  it.for([
    ['self-signed', 'DEPTH_ZERO_SELF_SIGNED_CERT'],
    ['for another name', 'ERR_TLS_CERT_ALTNAME_INVALID'],
    ['expired', 'CERT_HAS_EXPIRED'],
    ['of tomorrow', 'CERT_NOT_YET_VALID'],
  ] as const)('the key does not go to an upstream whose certificate is %s', async ([kind, reason]) => {
    const came = await read(kind);
    expect(came.json()).toMatchObject({ status: 502, code: 'upstream-unreachable' });
    expect(came.headers['proxy-status']).toBe('analytics-gateway; error=tls_certificate_error');
    expect(standIns.get(kind)?.requests).toHaveLength(0);
    await gateway.printed(new RegExp(reason));
  });

  it('the key does not go to a peer that speaks no TLS: no byte of a request is sent', async () => {
    const came = await read('plain');
    expect(came.json()).toMatchObject({ status: 502, code: 'upstream-unreachable' });
    const text = Buffer.concat(received).toString('latin1');
    // A handshake record (RFC 8446 section 5.1), and nothing of HTTP.
    expect(text.startsWith('\x16\x03')).toBe(true);
    expect(text).not.toMatch(/GET \/|api-key|wa_standin/i);
  });
});
