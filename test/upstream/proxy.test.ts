/** The way out through a proxy: what the transport makes of it, whatever the proxy does. */
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { noProxy, proxyAddress } from '../../src/config/values.ts';
import { GatewayError } from '../../src/errors.ts';
import { type ProxySettings, proxyFor } from '../../src/exchange/proxy.ts';
import { Trace } from '../../src/exchange/trace.ts';
import { tallyAttempts } from '../../src/upstream/attempt-tally.ts';
import { SharedBudget } from '../../src/upstream/budgets.ts';
import { sendUpstream } from '../../src/upstream/transport.ts';
import { makeCertificate } from '../support/certificate.ts';
import { type Owner, temporaryFolder } from '../support/process.ts';
import { startProxy } from '../support/proxy.ts';
import { signedRequest } from '../support/requests.ts';
import { type StandIn, standInKey, startStandIn } from '../support/stand-in/stand-in.ts';

const tls = makeCertificate({
  names: ['upstream.test', 'proxy.localhost'],
  addresses: ['127.0.0.1', '192.0.2.1'],
});
const trusted = getCACertificates();
let standIn: StandIn;
let upstreamPort: number;

beforeAll(async () => {
  setDefaultCACertificates([...trusted, tls.cert]);
  standIn = await startStandIn({ tls });
  upstreamPort = Number(new URL(standIn.url).port);
});
afterAll(async () => {
  setDefaultCACertificates(trusted);
  await standIn.close();
});

/** A transport to `upstream.test`, which the proxy alone can reach. */
function transportBy(
  owner: Owner,
  settings: ProxySettings,
  overrides: { url?: string; timeoutMs?: number } = {},
) {
  const tally = tallyAttempts();
  const transport = sendUpstream({
    baseUrl: new URL(overrides.url ?? 'https://upstream.test/api'),
    timeoutMs: overrides.timeoutMs ?? 10_000,
    maxBodyBytes: 100_000,
    connections: 8,
    mediaTypes: ['application/json'],
    userAgent: 'test',
    limitFields: [],
    bodies: new SharedBudget(2 ** 26, 0).join(),
    proxy: proxyFor(settings),
    tally,
  });
  owner.onTestFinished(() => transport.close());
  const send = async () => transport.handler(signedRequest(standInKey), new Trace(performance.now()));
  const fail = () =>
    send().then(
      () => expect.unreachable('it did not fail'),
      (error: unknown) => {
        expect(error).toBeInstanceOf(GatewayError);
        return error as GatewayError;
      },
    );
  return { send, fail, outcomes: () => tally.snapshot().outcomes.map(({ outcome }) => outcome) };
}

const by = (port: number, credentials = ''): ProxySettings => ({
  HTTPS_PROXY: proxyAddress(`http://${credentials}127.0.0.1:${port}`),
});

describe.each([
  ['by http:', undefined],
  ['by https:', tls],
] as const)('a proxy that is reached %s', (_how, own) => {
  const scheme = own === undefined ? 'http' : 'https';

  it('leads to the upstream by one CONNECT and one handshake for a connection, and sees no key', async (owner) => {
    const proxy = await startProxy(owner, upstreamPort, own);
    const settings = { HTTPS_PROXY: proxyAddress(`${scheme}://ann:pass%20word@127.0.0.1:${proxy.port}`) };
    const { send } = transportBy(owner, settings);
    for (let reads = 0; reads < 20; reads++) {
      expect((await send()).status).toBe(200);
      // The connection is free again once undici's turn is over.
      await new Promise(setImmediate);
    }
    const authorization = `Basic ${Buffer.from('ann:pass word').toString('base64')}`;
    expect(proxy.asked).toEqual([{ target: 'upstream.test:443', authorization }]);
    const seen = proxy.seen().toString('latin1');
    expect(seen.length).toBeGreaterThan(1_000);
    for (const secret of [standInKey, 'GET ', 'ann:', authorization]) expect(seen).not.toContain(secret);
    expect(standIn.requests.at(-1)?.rawHeaders.join()).not.toMatch(/proxy-/i);
  });
});

describe('what fails at the proxy is upstream-unreachable, in words of its own', () => {
  const answer = (text: string) => (socket: Duplex) => void socket.end(text);
  it.for<[string, (socket: Duplex) => void, RegExp]>([
    [
      '407',
      answer('HTTP/1.1 407 No\r\nProxy-Authenticate: Basic\r\n\r\n'),
      /refuses the credentials .*\(407\)$/,
    ],
    [
      '403',
      answer('HTTP/1.1 403 No\r\n\r\n<p>blocked'),
      /does not allow connections to upstream\.test:443 \(403\)$/,
    ],
    ['502', answer('HTTP/1.1 502 No\r\n\r\n'), /could not connect to upstream\.test:443 \(502\)$/],
    [
      'a redirect',
      answer('HTTP/1.1 302 No\r\nLocation: http://127.0.0.1/\r\n\r\n'),
      /answered 302 to CONNECT/,
    ],
    ['no HTTP', answer('SSH-2.0-proxy\r\n'), /does not answer CONNECT in HTTP$/],
    [
      'an answer and bytes of its own',
      answer('HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n{}'),
      /bytes of its own/,
    ],
    [
      'the end of the connection',
      (socket) => void socket.destroy(),
      /closed the connection before it answered/,
    ],
    [
      'half an answer',
      (socket) => void socket.write('HTTP/1.1 200', () => socket.destroy()),
      /closed the connection/,
    ],
    ['too large a head', answer(`HTTP/1.1 200 OK\r\nX: ${'x'.repeat(70_000)}\r\n\r\n`), /too large a head/],
    ['nothing', () => {}, /gave no connection to upstream\.test:443 within 150 ms$/],
    ['an answer without an end', (socket) => void socket.write('HTTP/1.1 200 OK\r\nX: '), /within 150 ms$/],
  ])('%s', async ([, behaviour, reason], owner) => {
    const proxy = await startProxy(owner, upstreamPort);
    proxy.behave(behaviour);
    // Only where the proxy is too late does the test wait for that.
    const timeoutMs = reason.source.includes('within') ? 300 : 60_000;
    const { fail, outcomes } = transportBy(owner, by(proxy.port, 'ann:secret@'), { timeoutMs });
    standIn.reset();
    const { code, message } = await fail();
    expect({ code, message }).toEqual({
      code: 'upstream-unreachable',
      message: expect.stringMatching(reason),
    });
    expect(message).toContain(`the proxy http://127.0.0.1:${proxy.port} `);
    expect(message).not.toMatch(/secret|ann/);
    expect(outcomes()).toEqual(['proxy-failed']);
    expect(proxy.asked.map(({ target }) => target)).toEqual(['upstream.test:443']);
    expect(standIn.requests).toEqual([]);
  });

  it('a tunnel in which the other end says nothing ends in time, and is closed', async (owner) => {
    const proxy = await startProxy(owner);
    const closed = new Promise<void>((resolve) => {
      proxy.behave((socket) => {
        socket.once('end', resolve).once('close', resolve).resume();
        socket.write('HTTP/1.1 200 OK\r\n\r\n');
      });
    });
    const { fail, outcomes } = transportBy(owner, by(proxy.port), { timeoutMs: 300 });
    expect((await fail()).proxyError).toBe('connection_timeout');
    expect(outcomes()).toEqual(['upstream-timeout']);
    await closed;
  });

  it('nothing that listens there, or a name that is not known', async (owner) => {
    const server = createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    const { port } = server.address() as { port: number };
    await new Promise((resolve) => server.close(resolve));
    expect((await transportBy(owner, by(port)).fail()).message).toMatch(/refused the connection$/);
    const unknown = { HTTPS_PROXY: proxyAddress('http://proxy.invalid:3128') };
    expect((await transportBy(owner, unknown).fail()).message).toMatch(
      /host name that (?:is not known|cannot be)/,
    );
  });

  it('the proxy is used again once it works', async (owner) => {
    const proxy = await startProxy(owner, upstreamPort);
    proxy.behave(answer('HTTP/1.1 502 No\r\n\r\n'));
    const { send, fail } = transportBy(owner, by(proxy.port));
    await fail();
    proxy.behave(undefined);
    expect((await send()).status).toBe(200);
  });

  it('a certificate that the proxy made itself is not taken for the upstream’s', async (owner) => {
    const forged = await startStandIn({
      tls: makeCertificate({ names: ['upstream.test'], subject: 'forged' }),
    });
    owner.onTestFinished(() => forged.close());
    const proxy = await startProxy(owner, Number(new URL(forged.url).port));
    const { proxyError } = await transportBy(owner, by(proxy.port)).fail();
    expect(proxyError).toBe('tls_certificate_error');
    expect(forged.requests).toEqual([]);
  });
});

describe('the credentials in a file', () => {
  it.for([
    ['ann:pass word', `Basic ${Buffer.from('ann:pass word').toString('base64')}`],
    ['Bearer abc.def', 'Bearer abc.def'],
  ])('%s is sent as %s, and a new value with the next connection', async ([text, value], owner) => {
    const proxy = await startProxy(owner, upstreamPort);
    const file = join(temporaryFolder(owner), 'authorization');
    writeFileSync(file, `${text}\n`);
    const settings = { ...by(proxy.port), PROXY_AUTHORIZATION_FROM: file };
    await transportBy(owner, settings).send();
    writeFileSync(file, 'bob:other');
    await transportBy(owner, settings).send();
    expect(proxy.asked.map(({ authorization }) => authorization)).toEqual([
      value,
      `Basic ${Buffer.from('bob:other').toString('base64')}`,
    ]);
  });

  it.for([['secret'], ['Bearer \r\nX: secret'], ['']])(
    '%j is refused, unsaid',
    async ([text = ''], owner) => {
      const file = join(temporaryFolder(owner), 'authorization');
      writeFileSync(file, text);
      const proxy = proxyFor({ ...by(1), PROXY_AUTHORIZATION_FROM: file });
      await expect(proxy?.authorization()).rejects.toThrow(
        /^PROXY_AUTHORIZATION_FROM: its file holds neither [^\r\n]*$/,
      );
      await expect(proxy?.authorization()).rejects.not.toThrow(/secret/);
    },
  );
});

it('what NO_PROXY names, what is on loopback and what is http: goes by itself', async (owner) => {
  const proxy = await startProxy(owner, upstreamPort);
  const settings = { ...by(proxy.port), NO_PROXY: noProxy('.internal,192.0.2.0/24') };
  const way = proxyFor(settings);
  const taken = (address: string) => way?.takes(new URL(address));
  expect(taken('https://upstream.test/')).toBe(true);
  for (const direct of [
    'https://a.internal',
    'https://192.0.2.7',
    'https://127.0.0.1',
    'https://[::1]',
    'http://upstream.test',
  ])
    expect(taken(direct), direct).toBe(false);
  expect((await transportBy(owner, settings, { url: standIn.url }).send()).status).toBe(200);
  expect(proxy.asked).toEqual([]);
});
