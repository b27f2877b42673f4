import { connect } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { accounts, startPair } from '../support/gateway.ts';
import type { Behaviour } from '../support/stand-in/behaviour.ts';

const request = (path: string) => `GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`;

/** Sends requests and the end of sending at once; gives back all that comes until the gateway ends the connection. */
function halfClose(port: number, bytes: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true }, () => socket.end(bytes));
    onTestFinished(() => void socket.destroy());
    socket.on('data', (chunk: Buffer) => chunks.push(chunk));
    socket.on('error', reject);
    socket.on('end', () => resolve(Buffer.concat(chunks).toString('latin1')));
  });
}

function heldBack(): { until: Promise<void>; release: () => void } {
  let release = (): void => {};
  const until = new Promise<void>((resolve) => {
    release = resolve;
  });
  return { until, release };
}

describe('a caller that ends its sending side after its request', () => {
  it('a caller that half-closes gets its answer, from memory and from the upstream', async () => {
    const pair = await startPair();
    const { until, release } = heldBack();
    pair.standIn.behave({ until, body: '{"late":true}' });
    const miss = halfClose(pair.port, request(accounts));
    await expect.poll(() => pair.gateway.waiting).toBe(1);
    // Long enough for the first bytes of the status line to leave by themselves.
    await new Promise((resolve) => setTimeout(resolve, 100));
    expect(pair.gateway.waiting).toBe(1);
    release();
    expect(await miss).toMatch(/^HTTP\/1\.1 200 OK\r\n[\s\S]*\r\n\r\n\{"late":true\}$/);
    expect(await halfClose(pair.port, request(accounts))).toMatch(
      /^HTTP\/1\.1 200 OK\r\n[\s\S]*\{"late":true\}$/,
    );
    expect(pair.logLines().filter(({ status }) => status === 499)).toEqual([]);
  });

  it('a caller that half-closes gets a problem as well, and each answer of several requests', async () => {
    const pair = await startPair({ RETRY_LIMIT: '0' });
    pair.standIn.behave(({ target }) => ({
      // Long enough that what the first reply began could go on while the second one is awaited.
      latencyMs: target.endsWith('=2') ? 300 : 60,
      body: JSON.stringify(target),
    }));
    const came = await halfClose(pair.port, [1, 2, 3].map((at) => request(`${accounts}?n=${at}`)).join(''));
    // Nothing stands between the replies.
    expect(came).toMatch(/^(?:HTTP\/1\.1 200 OK\r\n(?:[^\r]+\r\n)+\r\n"[^"]+"){3}$/);
    expect([...came.matchAll(/\?n=(\d)/g)].map(([, at]) => at)).toEqual(['1', '2', '3']);
    pair.standIn.behave({ latencyMs: 60, status: 301 });
    expect(await halfClose(pair.port, request(`${accounts}?n=4`))).toMatch(/^HTTP\/1\.1 502 Bad Gateway\r\n/);
  });

  it('a caller that half-closes gets its answer from the admin listener', async () => {
    const pair = await startPair({ ADMIN_PORT: '0' });
    const port = Number(new URL(pair.gateway.adminUrl ?? '').port);
    for (const path of ['/status', '/metrics', '/']) {
      expect(await halfClose(port, request(path))).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
    }
  });
});

describe('a caller that has gone', () => {
  it('a caller that has gone is noticed though its connection ended as a half-close does', async () => {
    const pair = await startPair();
    const { until, release } = heldBack();
    onTestFinished(release);
    pair.standIn.behave({ until });
    const socket = connect(pair.port, '127.0.0.1', () => socket.write(request(accounts)));
    await expect.poll(() => pair.gateway.waiting).toBe(1);
    socket.destroy();
    await expect.poll(() => pair.gateway.waiting).toBe(0);
    expect(pair.logLines()).toContainEqual(expect.objectContaining({ status: 499 }));
  });

  it('a caller that half-closes and goes after its first answer is noticed while its second one is awaited', async () => {
    const pair = await startPair();
    const { until, release } = heldBack();
    onTestFinished(release);
    pair.standIn.behave(({ target }) =>
      target.endsWith('?second') ? { until } : { latencyMs: 60, body: '"first"' },
    );
    const both = request(accounts) + request(`${accounts}?second`);
    const socket = connect({ port: pair.port, host: '127.0.0.1', allowHalfOpen: true }, () =>
      socket.end(both),
    );
    let came = '';
    socket.setEncoding('latin1').on('data', (text: string) => {
      came += text;
      if (came.includes('"first"')) socket.destroy();
    });
    await pair.standIn.received(2);
    await expect.poll(() => pair.gateway.waiting).toBe(0);
    expect(pair.logLines()).toContainEqual(expect.objectContaining({ status: 499 }));
  });
});

describe('a 205', () => {
  it('a 205 has no content, whatever the upstream sent with it (RFC 9110 section 15.3.6)', async () => {
    const pair = await startPair();
    pair.standIn.behave({ status: 205, body: '{"a":1}' });
    const came = await pair.ask(accounts);
    expect([came.status, came.body.length]).toEqual([205, 0]);
    expect(came.headers).toMatchObject({ 'content-length': '0' });
    expect(came.headers).not.toHaveProperty('content-type');
    // The connection goes on where the reply ends.
    const two = await pair.exchange(request(accounts) + request('/livez'));
    expect(two.match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 205', 'HTTP/1.1 200']);
    expect(two).not.toContain('{"a":1}');
  });

  it.each<[string, Behaviour]>([
    ['without a media type', { headers: { 'content-type': undefined } }],
    ['with a media type', {}],
    ['in empty chunks', { framing: 'chunked' }],
    ['in a coding', { headers: { 'content-encoding': 'gzip' } }],
  ])('a 205 that is empty passes %s', async (_name, behaviour) => {
    const pair = await startPair();
    pair.standIn.behave({ status: 205, body: '', ...behaviour });
    for (const method of ['GET', 'HEAD']) {
      const came = await pair.ask(accounts, { method });
      expect([came.status, came.body.length]).toEqual([205, 0]);
    }
  });
});
