import { createServer, type Server } from 'node:http';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { GatewayError } from '../../src/errors.ts';
import type { Answer, SignedRequest } from '../../src/exchange/exchange.ts';
import { FixedContext } from '../../src/exchange/request-context.ts';
import { Trace } from '../../src/exchange/trace.ts';
import { GatheredBytes } from '../../src/http/payload.ts';
import { Key } from '../../src/key/key.ts';
import { tallyAttempts } from '../../src/upstream/attempt-tally.ts';
import { SharedBudget } from '../../src/upstream/budgets.ts';
import { judgeEnding } from '../../src/upstream/circuit-rules.ts';
import { attachKey, type CredentialKeys } from '../../src/upstream/credential.ts';
import { sendUpstream, type Transport, type TransportOptions } from '../../src/upstream/transport.ts';
import { newTrace, patientContext, requestWith, signedRequest } from '../support/requests.ts';
import type { Behaviour } from '../support/stand-in/behaviour.ts';
import { type StandIn, standInKey, startStandIn } from '../support/stand-in/stand-in.ts';

let standIn: StandIn;
let transport: Transport;

const optionsFor = (url: string, overrides: Partial<TransportOptions> = {}): TransportOptions => ({
  baseUrl: new URL(url),
  timeoutMs: 60_000,
  maxBodyBytes: 100_000,
  connections: 8,
  mediaTypes: ['application/json', 'application/*+json'],
  userAgent: 'test',
  limitFields: [],
  bodies: new SharedBudget(64 * 2 ** 20, 0).join(),
  ...overrides,
});

beforeAll(async () => {
  standIn = await startStandIn();
  transport = sendUpstream(optionsFor(standIn.url));
});
afterEach(() => {
  standIn.behave(undefined);
  standIn.reset();
});
afterAll(async () => {
  await transport.close();
  await standIn.close();
});

async function send(overrides: Partial<SignedRequest> = {}, via = transport): Promise<Answer> {
  return via.handler(signedRequest(standInKey, overrides), new Trace(performance.now()));
}

async function failure(work: Promise<unknown>): Promise<GatewayError> {
  const error = await work.then(
    () => new Error('it did not fail'),
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(GatewayError);
  return error as GatewayError;
}

describe('the upstream request is built, not forwarded', () => {
  it('the upstream request is a GET of base, path and query with one key and the gateway’s own fields', async () => {
    await send({ query: '?b=2&a=%20', ids: { 'x-request-id': 'r1' }, headers: { 'accept-language': 'de' } });
    const [request] = standIn.requests;
    expect(request).toMatchObject({
      method: 'GET',
      target: '/api/analytics/accounts/?b=2&a=%20',
      key: standInKey,
    });
    expect(
      request?.rawHeaders
        .map((text, index) => (index % 2 === 0 ? text.toLowerCase() : ''))
        .filter((name) => name !== '')
        .sort(),
    ).toEqual([
      'accept',
      'accept-encoding',
      'accept-language',
      'connection',
      'host',
      'user-agent',
      'via',
      'x-api-key',
      'x-request-id',
    ]);
    expect(request?.headers).toMatchObject({
      accept: 'application/json',
      'accept-encoding': 'identity',
      via: '1.1 analytics-gateway',
    });
  });

  it('the upstream request keeps the gateway’s fields whatever is to be forwarded', async () => {
    await send({
      headers: { 'x-api-key': 'theirs', accept: 'text/html', via: 'x' },
      ids: { 'user-agent': 'x' },
    });
    expect(standIn.requests[0]?.headers).toMatchObject({
      'x-api-key': standInKey,
      accept: 'application/json',
      'user-agent': 'test',
    });
  });
});

describe('an attempt that has a span', () => {
  const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
  const own = '00-4bf92f3577b34da6a3ce929d0e0e4736-b7ad6b7169203331-01';
  const ended: string[] = [];
  const spans = { beginAttempt: () => ({ traceParent: own, end: (how: string) => void ended.push(how) }) };

  it.each([
    ['in place of its caller’s', traceparent, { traceparent, tracestate: 'a=b' }, own],
    ['where its caller named none', undefined, { 'x-request-id': 'r' }, own],
    ['not where the exchange leaves out what its caller chose', traceparent, {}, undefined],
  ])('is the upstream’s parent %s', async (_, callers, ids, expected) => {
    const traced = sendUpstream(optionsFor(standIn.url, { spans }));
    const trace = new Trace(performance.now());
    trace.traceParent = callers;
    await traced.handler(signedRequest(standInKey, { ids }), trace);
    await traced.close();
    expect(standIn.requests[0]?.headers['traceparent']).toBe(expected);
    expect(ended.at(-1)).toBe('200');
  });

  it('ends it however it fails', async () => {
    ended.length = 0;
    const traced = sendUpstream(optionsFor(standIn.url, { spans, timeoutMs: 1_000 }));
    standIn.behave({ resetAt: 'before-headers' });
    await failure(send({}, traced));
    standIn.behave({ stallAt: 'before-headers' });
    await failure(send({}, traced));
    const context = new FixedContext(performance.now() + 10_000, { name: '', weight: 1, background: false });
    context.end(new Error('the caller left'));
    await send({ context }, traced).catch(() => undefined);
    await traced.close();
    expect(ended).toEqual(['upstream-unreachable', 'upstream-timeout', 'abandoned']);
  });
});

describe('an answer is handed up whole and unchanged', () => {
  it('an answer is handed up with its status, fields, bytes and times', async () => {
    const answer = await send();
    expect(answer).toMatchObject({ status: 200, generation: 1 });
    expect(JSON.parse(answer.body.toString())).toBeDefined();
    expect(answer.receivedMs).toBeGreaterThanOrEqual(answer.sentMs);
  });

  it.each([400, 401, 403, 404, 429, 500, 502, 503])(
    'an answer in a content coding is read also with status %i, whatever its body',
    async (status) => {
      standIn.behave({ status, headers: { 'content-type': 'text/html' }, body: '<h1>no</h1>' });
      expect(await send()).toMatchObject({ status, body: '<h1>no</h1>' });
    },
  );

  it.each<[string, Behaviour]>([
    ['chunked', { framing: 'chunked' }],
    ['ended by the connection, when it is whole JSON', { framing: 'until-close', body: '[1,2]' }],
    ['after interim responses', { interim: [{ status: 103 }, { status: 102 }] }],
    [
      'of a media type with a suffix',
      { headers: { 'content-type': 'application/problem+json; charset=utf-8' } },
    ],
    ['in drips', { body: '[1,2,3]', drip: { everyMs: 1 } }],
  ])('an answer is handed up whole and unchanged: %s', async (_name, behaviour) => {
    standIn.behave(behaviour);
    expect((await send()).status).toBe(200);
  });

  it('an answer is handed up with field values that have no blanks around them (RFC 9110 section 5.5)', async () => {
    const headers = { etag: '"a" \t', 'x-two': ['b ', 'c'], 'content-encoding': 'identity ' };
    standIn.behave({ headers });
    expect((await send()).headers).toMatchObject({ etag: '"a"', 'x-two': ['b', 'c'] });
  });

  it('an answer holds no more memory than its own bytes', async () => {
    expect(await send()).toMatchObject({ body: expect.any(String) });
    standIn.behave({ body: JSON.stringify('x'.repeat(40_000)) });
    const { body } = (await send()) as { body: Buffer };
    expect(body.buffer.byteLength - body.length).toBeLessThanOrEqual(1_024);
    // Head and body come in one read of the socket.
    standIn.behave({ body: JSON.stringify('x'.repeat(20_000)), headers: { 'x-long': 'x'.repeat(4_000) } });
    const whole = (await send()) as { body: Buffer };
    expect(whole.body.buffer.byteLength - whole.body.length).toBeLessThanOrEqual(1_024);
  });
});

const codings = { gzip: gzipSync, deflate: deflateSync, br: brotliCompressSync, zstd: zstdCompressSync };

describe('an answer that comes in small pieces', () => {
  it('the pieces that were copied do not pile up, whatever else V8 has to do', () => {
    const bodyBytes = 4 * 2 ** 20;
    const before = process.memoryUsage().arrayBuffers;
    const bodies: GatheredBytes[] = [];
    let mostBytes = 0;
    for (let count = 1; count <= 16; count++) {
      const body = new GatheredBytes();
      bodies.push(body);
      while (body.length < bodyBytes) body.add(Buffer.allocUnsafeSlow(65_536), bodyBytes);
      mostBytes = Math.max(mostBytes, process.memoryUsage().arrayBuffers - before - count * bodyBytes);
    }
    expect(bodies.map(({ length }) => length)).toEqual(Array(16).fill(bodyBytes));
    expect(mostBytes).toBeLessThan(8 * 2 ** 20);
  });

  it('an answer that comes byte by byte takes little more than its bytes, whatever was read with each', async () => {
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    const head =
      'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n"\r\n';
    // Each byte comes with an extension of its chunk that fills what is read at once.
    const long = `1;x=${'y'.repeat(65_000)}\r\na\r\n`;
    const pieces = Buffer.from(`${head}${'1\r\na\r\n'.repeat(90_000)}${long.repeat(500)}`);
    const written = Promise.withResolvers<() => void>();
    const server = createTcpServer((socket) =>
      socket.once('data', () =>
        socket.write(pieces, () => written.resolve(() => socket.end('1\r\n"\r\n0\r\n\r\n'))),
      ),
    );
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const own = sendUpstream(optionsFor(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`));
    const held = (): number => {
      collect();
      const { heapUsed, arrayBuffers } = process.memoryUsage();
      return heapUsed + arrayBuffers;
    };
    const before = held();
    const answer = send({}, own);
    const end = await written.promise;
    // What is free is given back by another thread, late where the machine is busy; what is held stays.
    await expect.poll(() => held() - before).toBeLessThan(5e6);
    end();
    expect((await answer).body.length).toBe(90_502);
    await own.close();
    server.close();
  });
});

describe.each(Object.entries(codings))('an answer in the coding %s', (coding, encode) => {
  const text = JSON.stringify({ a: 'x'.repeat(50_000) });
  const coded = encode(text);
  const headers = { 'content-encoding': coding };

  it.each<[string, Behaviour]>([
    ['states its length', {}],
    ['comes in chunks', { framing: 'chunked' }],
    ['ends with the connection', { framing: 'until-close' }],
    ['comes in drips', { drip: { everyMs: 1, bytes: 20 } }],
    ['is an error', { status: 503 }],
    ['names it in capitals', { headers: { 'content-encoding': coding.toUpperCase() } }],
  ])('an answer that %s is handed up as an identity answer', async (_name, behaviour) => {
    standIn.behave({ body: coded, headers, ...behaviour });
    const answer = await send();
    expect(answer.body.toString()).toBe(text);
    expect(answer.headers).not.toHaveProperty('content-encoding');
    expect(answer.headers['content-length']).toBe(String(text.length));
  });

  it.each<[string, Buffer]>([
    ['is cut', coded.subarray(0, -1)],
    ['is cut in the middle', coded.subarray(0, coded.length >> 1)],
    ['is followed by other bytes', Buffer.concat([coded, Buffer.from('x')])],
    ['is followed by zeros', Buffer.concat([coded, Buffer.alloc(8)])],
    ['is none at all', Buffer.from(text)],
  ])('an answer that %s is refused', async (_name, body) => {
    standIn.behave({ body, headers });
    expect(await failure(send())).toMatchObject({
      code: 'upstream-invalid-response',
      proxyError: 'http_response_content_coding',
    });
  });

  it('an answer that grows beyond UPSTREAM_MAX_BODY is refused after that many bytes', async () => {
    standIn.behave({ compress: [coding as keyof typeof codings], body: { bytes: 4 * 2 ** 20 } });
    expect(await failure(send())).toMatchObject({
      code: 'upstream-invalid-response',
      proxyError: 'http_response_body_size',
    });
  });

  it('an answer that ends after its caller has left is given up', async () => {
    const controller = new AbortController();
    standIn.behave({ compress: [coding as keyof typeof codings], body: { bytes: 90_000 } });
    const answered = send({ context: patientContext(controller.signal) });
    await standIn.received(1);
    controller.abort(new Error('left'));
    await expect(answered).rejects.toThrow('left');
  });
});

describe('an answer that asks to wait', () => {
  it('is read once, also by the fields that an operator names', async () => {
    const tally = tallyAttempts();
    const limitFields = ['x-ratelimit-reset-requests'];
    const own = sendUpstream(optionsFor(standIn.url, { limitFields, tally }));
    const waitOf = async (status: number, headers: Record<string, string>, via = own) => {
      standIn.behave({ status, headers, body: '{}' });
      return (await send({}, via)).statedWaitMs;
    };
    const inRequests = { 'x-ratelimit-remaining-requests': '0', 'x-ratelimit-reset-requests': '1m30s' };
    expect(await waitOf(429, { 'retry-after': '1.5' })).toBe(1_500);
    expect(await waitOf(503, { 'retry-after': '2' })).toBe(2_000);
    expect(await waitOf(429, inRequests)).toBe(90_000);
    expect(await waitOf(429, inRequests, transport)).toBeUndefined();
    expect(await waitOf(200, { ...inRequests, 'retry-after': '7' })).toBeUndefined();
    expect(await waitOf(429, {})).toBeUndefined();
    expect(tally.snapshot().unreadableWaits).toEqual([]);
    expect(await waitOf(429, { ...inRequests, 'retry-after': 'soon', ratelimit: 'x' })).toBe(90_000);
    expect(await waitOf(500, { 'retry-after': 'soon' })).toBeUndefined();
    expect(tally.snapshot().unreadableWaits).toEqual([
      { field: 'retry-after', count: 2 },
      { field: 'ratelimit', count: 1 },
    ]);
    await own.close();
  });
});

describe('an answer in a content coding', () => {
  const text = '{"a":1}';

  it('an answer in x-gzip is read as gzip, and a gzip of several members is read whole', async () => {
    const body = Buffer.concat([gzipSync('{"a":'), gzipSync('1}')]);
    standIn.behave({ body, headers: { 'content-encoding': 'x-gzip' } });
    expect((await send()).body).toBe(text);
  });

  it('a coded answer is decoded under no-transform as well: we asked for no coding and answer for the origin', async () => {
    standIn.behave({
      compress: ['gzip'],
      body: text,
      headers: { 'cache-control': 'private, no-transform' },
    });
    const { body, headers } = await send();
    expect(body).toBe(text);
    expect(headers).toMatchObject({ 'cache-control': 'private, no-transform', 'content-length': '7' });
    expect(headers).not.toHaveProperty('content-encoding');
  });

  it('a coded error without a body has none', async () => {
    standIn.behave({ status: 404, body: '', headers: { 'content-encoding': 'gzip' } });
    const answer = await send();
    expect(answer).toMatchObject({ status: 404, body: '' });
    expect(answer.headers).not.toHaveProperty('content-encoding');
  });

  it('a decoded answer has a weak entity tag and no digests: the strong ones are about the coded bytes', async () => {
    const fields = { etag: '"v1"', 'repr-digest': 'sha-256=:AA==:', 'content-digest': 'sha-256=:AA==:' };
    standIn.behave({ compress: ['gzip'], body: text, headers: fields });
    const { headers } = await send();
    expect(headers['etag']).toBe('W/"v1"');
    expect(headers).not.toHaveProperty('repr-digest');
    expect(headers).not.toHaveProperty('content-digest');
    standIn.behave({ status: 304, body: '', headers: { etag: '"v1"' } });
    const confirmed = await send({ validators: { 'if-none-match': 'W/"v1"' } });
    expect(confirmed.headers['etag']).toBe('W/"v1"');
    const other = await send({ validators: { 'if-none-match': '"v1"' } });
    expect(other.headers['etag']).toBe('"v1"');
  });
});

describe('an answer that could be a lie is refused', () => {
  it.each<[string, Behaviour, string?]>([
    ['a redirect', { redirectTo: 'http://127.0.0.1:1/' }],
    ['a permanent redirect', { status: 308, redirectTo: '/api/users/api-keys/' }],
    ['a 304 that was not asked for', { status: 304, body: '' }],
    ['a partial answer', { status: 206, headers: { 'content-range': 'bytes 0-1/10' } }],
    ['HTML with 200', { headers: { 'content-type': 'text/html' }, body: '<p>' }],
    ['a 200 without a media type', { headers: { 'content-type': undefined } }],
    ['two media types', { headers: { 'content-type': ['application/json', 'text/html'] } }],
    ['a chain of codings', { compress: ['gzip', 'br'] }, 'http_response_content_coding'],
    [
      'two lines of codings',
      { headers: { 'content-encoding': ['gzip', 'gzip'] } },
      'http_response_content_coding',
    ],
    ['an unknown coding', { headers: { 'content-encoding': 'compress' } }, 'http_response_content_coding'],
    [
      'the name of a method as a coding',
      { headers: { 'content-encoding': 'constructor' } },
      'http_response_content_coding',
    ],
    [
      'a coding that is only claimed',
      { headers: { 'content-encoding': 'gzip' } },
      'http_response_content_coding',
    ],
    ['a coding around no JSON', { compress: ['br'], body: '{"a":' }, 'http_response_incomplete'],
    ['a coded success without a body', { body: '', headers: { 'content-encoding': 'br' } }],
    ['a body that says it is too large', { body: { bytes: 200_000 } }, 'http_response_body_size'],
    [
      'a body that turns out too large',
      { body: { bytes: 200_000 }, framing: 'chunked' },
      'http_response_body_size',
    ],
    [
      'a body shorter than it says',
      { claimLength: (bytes) => bytes + 10, finAt: 'end' },
      'http_response_incomplete',
    ],
    ['a body longer than it says', { claimLength: (bytes) => bytes - 2 }, 'http_response_incomplete'],
    ['invalid JSON', { body: 'hello' }, 'http_response_incomplete'],
    ['a cut body (FIN)', { finAt: 100 }, 'http_response_incomplete'],
    ['a cut body (RST)', { resetAt: 100 }, 'http_response_incomplete'],
    ['chunks without a last one', { framing: 'no-last-chunk' }, 'http_response_incomplete'],
    ['a bad chunk', { framing: 'bad-chunk-size' }, 'http_protocol_error'],
    ['two lengths', { claimLength: (bytes) => [bytes, bytes + 1] }],
    ['length and chunks at once', { framing: 'length-and-chunked' }],
    [
      'JSON cut by the end of the connection',
      { framing: 'until-close', body: '[1,2', finAt: 'end' },
      'http_response_incomplete',
    ],
    [
      'a head over 32 KiB',
      { headers: { 'x-long': 'x'.repeat(40_000) } },
      'http_response_header_section_size',
    ],
  ])('an answer that could be a lie is refused: %s', async (_name, behaviour, proxyError) => {
    standIn.behave(behaviour);
    const error = await failure(send());
    expect(error.code).toBe('upstream-invalid-response');
    if (proxyError !== undefined) expect(error.proxyError).toBe(proxyError);
  });

  it('an exchange whose answer is refused is broken off, and does not hold its connection until it ends', async () => {
    standIn.behave({ headers: { 'content-type': 'text/html' }, stallAt: 50 });
    const before = standIn.counts.aborted;
    await failure(send());
    await expect.poll(() => standIn.counts.aborted).toBe(before + 1);
  });

  it('a connection is not used again after an answer that is a lie', async () => {
    standIn.behave({ claimLength: (bytes) => bytes - 5 }, 1);
    await send().catch(() => undefined);
    expect(JSON.parse((await send()).body.toString())).toBeDefined();
  });
});

describe('what stands in the way is sorted', () => {
  it.each<[string, Behaviour, string, string]>([
    [
      'a reset before the answer',
      { resetAt: 'before-headers' },
      'upstream-unreachable',
      'connection_terminated',
    ],
    [
      'an end before the answer',
      { finAt: 'before-headers' },
      'upstream-unreachable',
      'connection_terminated',
    ],
  ])('a failure on the way is sorted: %s', async (_name, behaviour, code, proxyError) => {
    standIn.behave(behaviour);
    expect(await failure(send())).toMatchObject({ code, proxyError });
  });

  it.each<[string, Behaviour]>([
    ['before the head', { stallAt: 'before-headers' }],
    ['in the body', { stallAt: 50 }],
    ['in endless drips', { drip: { everyMs: 20 } }],
  ])('a stall %s ends in time', async (_name, behaviour) => {
    const hasty = sendUpstream(optionsFor(standIn.url, { timeoutMs: 1_000 }));
    standIn.behave(behaviour);
    expect(await failure(send({}, hasty))).toMatchObject({
      code: 'upstream-timeout',
      proxyError: 'http_response_timeout',
    });
    await hasty.close();
  });

  it('a wait for a connection that others have in use is no failure to connect', async () => {
    const narrow = sendUpstream(optionsFor(standIn.url, { timeoutMs: 1_000, connections: 1 }));
    standIn.behave({ stallAt: 'before-headers' });
    const all = await Promise.all(Array.from({ length: 20 }, () => failure(send({}, narrow))));
    for (const { proxyError } of all) {
      expect(['http_response_timeout', 'connection_limit_reached']).toContain(proxyError);
    }
    await narrow.close();
  });

  it('a connection that ends before its TLS handshake is a failure to connect', async () => {
    const server = createTcpServer((socket) => socket.destroy());
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    const lost = sendUpstream(optionsFor(`https://127.0.0.1:${port}/api`));
    expect(await failure(send({}, lost))).toMatchObject({
      code: 'upstream-unreachable',
      proxyError: 'connection_refused',
    });
    await lost.close();
    await new Promise((resolve) => server.close(resolve));
  });

  it('an upstream without a listener is a failure to connect', async () => {
    const server: Server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    await new Promise((resolve) => server.close(resolve));
    const lost = sendUpstream(optionsFor(`http://127.0.0.1:${port}/api`));
    expect(await failure(send({}, lost))).toMatchObject({
      code: 'upstream-unreachable',
      proxyError: 'connection_refused',
    });
    await lost.close();
  });

  it('an upstream whose name does not resolve is a failure to connect', async () => {
    const lost = sendUpstream(optionsFor('http://upstream.invalid/api'));
    expect(await failure(send({}, lost))).toMatchObject({
      code: 'upstream-unreachable',
      proxyError: 'dns_error',
    });
    await lost.close();
  });
});

describe('the context decides how long an exchange lasts', () => {
  it('an exchange ends when its context does, with the context’s reason', async () => {
    const controller = new AbortController();
    standIn.behave({ stallAt: 50 });
    const answered = send({ context: patientContext(controller.signal) });
    const reason = new Error('left');
    await standIn.received(1);
    controller.abort(reason);
    await expect(answered).rejects.toBe(reason);
  });

  it('nothing is sent for a caller that has left already', async () => {
    const reason = new Error('left');
    await expect(send({ context: patientContext(AbortSignal.abort(reason)) })).rejects.toBe(reason);
    expect(standIn.requests).toHaveLength(0);
  });
});

describe('bytes that were not asked for reach no caller', () => {
  it('unsolicited bytes reach no caller, even on a connection that is used again', async () => {
    const poison = 'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n"POISON"';
    for (let round = 0; round < 20; round++) {
      standIn.behave({ unsolicited: { afterMs: 0, bytes: poison } }, 1);
      await send();
      await new Promise((resolve) => setTimeout(resolve, 3));
      expect((await send()).body.toString()).not.toContain('POISON');
    }
  });
});

describe('what is loaded of undici', () => {
  it('the pool that is loaded of undici is the one that its entry exports', async () => {
    const { default: Pool } = await import('undici/lib/dispatcher/pool.js');
    expect(Pool).toBe((await import('undici')).Pool);
  });
});

describe('a connection lives a minute', () => {
  afterEach(() => {
    vi.useRealTimers();
  });

  it('a connection lives a minute, then a new one is opened, and exchanges under way end well', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    const renewed = sendUpstream(optionsFor(standIn.url));
    await send({}, renewed);
    await send({}, renewed);
    const before = standIn.counts.connections;
    const { promise: until, resolve: goOn } = Promise.withResolvers<void>();
    standIn.behave({ until }, 1);
    const slow = send({}, renewed);
    await standIn.received(3);
    vi.advanceTimersByTime(60_000);
    expect((await send({}, renewed)).status).toBe(200);
    expect(standIn.counts.connections).toBe(before + 1);
    goOn();
    expect((await slow).status).toBe(200);
    await renewed.close();
  });
});

describe('bodies in flight together stay under 64 MiB', () => {
  it('bodies beyond 64 MiB wait for the others, and then go on', async () => {
    const roomy = sendUpstream(optionsFor(standIn.url, { maxBodyBytes: 10_000_000, connections: 20 }));
    standIn.behave({ body: { bytes: 8_000_000 } });
    const answers = await Promise.all(Array.from({ length: 12 }, () => send({}, roomy)));
    expect(answers.every(({ body }) => body.length === 8_000_000)).toBe(true);
    expect(standIn.requests).toHaveLength(12);
    await roomy.close();
  });

  const inChunks: Behaviour = { body: { bytes: 4_000_000 }, framing: 'chunked' };
  const inGzip: Behaviour = { body: { bytes: 4_000_000 }, compress: ['gzip'] };

  it.each<[string, Behaviour]>([
    ['in chunks', inChunks],
    ['in a coding', inGzip],
  ])('bodies %s, whose length is not told, wait for each other, and all come', async (_name, behaviour) => {
    const bodies = new SharedBudget(5e6, 0).join();
    const own = sendUpstream(optionsFor(standIn.url, { maxBodyBytes: 5e6, bodies, connections: 12 }));
    standIn.behave(behaviour);
    const answers = await Promise.all(Array.from({ length: 12 }, () => send({}, own)));
    expect(answers.map(({ body }) => body.length)).toEqual(Array(12).fill(4_000_000));
    expect(bodies.used).toBe(0);
    await own.close();
  });

  describe.each<[string, Behaviour]>([
    ['whose length is told', { body: { bytes: 4_000_000 } }],
    ['in chunks', inChunks],
    ['in a coding', inGzip],
  ])('a body %s that waits for room', (_name, behaviour) => {
    const timeoutMs = 54_321;

    /** Has all room taken, and the place of the one that goes on where there is none. */
    async function fullTransport() {
      const bodies = new SharedBudget(10e6, 0).join();
      const own = sendUpstream(optionsFor(standIn.url, { maxBodyBytes: 5e6, bodies, timeoutMs }));
      bodies.takeAnyway(10e6);
      standIn.behave(inChunks);
      const given = Promise.withResolvers<() => void>();
      await send({ keepRoom: given.resolve }, own);
      standIn.behave(behaviour);
      const giveOne = await given.promise;
      const give = (): void => {
        bodies.give(10e6);
        giveOne();
      };
      return { own, give };
    }

    it('a body that waits for room is not late: its attempt has its time anew once it has room', async () => {
      const { own, give } = await fullTransport();
      const started: unknown[] = [];
      const running = new Set<unknown>();
      const { setTimeout, clearTimeout } = globalThis;
      vi.spyOn(globalThis, 'setTimeout').mockImplementation(((...args: Parameters<typeof setTimeout>) => {
        const timer = setTimeout(...args);
        if (args[1] !== timeoutMs) return timer;
        started.push(timer);
        running.add(timer);
        return timer;
      }) as typeof setTimeout);
      vi.spyOn(globalThis, 'clearTimeout').mockImplementation((timer) => {
        running.delete(timer);
        clearTimeout(timer);
      });
      const answer = send({}, own);
      await vi.waitFor(() => expect([started.length, running.size]).toEqual([1, 0]));
      give();
      expect((await answer).body.length).toBe(4_000_000);
      expect(started.length).toBeGreaterThan(1);
      expect(running.size).toBe(0);
      vi.restoreAllMocks();
      await own.close();
    });

    it.each([
      ['until its deadline', false],
      ['until just before its deadline', true],
    ])('a body that waits for room %s says nothing of the upstream', async (_until, isGivenRoom) => {
      const { own, give } = await fullTransport();
      const ending = new AbortController();
      const trace = newTrace();
      const request = signedRequest(standInKey, { context: patientContext(ending.signal) });
      const failed = failure(Promise.resolve(own.handler(request, trace)));
      await vi.waitFor(() => expect(trace.upstreamStatus).toBe(200));
      await new Promise((resolve) => setTimeout(resolve, 100));
      if (isGivenRoom) give();
      ending.abort(new GatewayError('upstream-timeout'));
      expect(judgeEnding(await failed, true)).toBe('unknown');
      if (!isGivenRoom) give();
      await own.close();
    });
  });

  it('bodies that wait to be searched for the key keep their room until they have been', async () => {
    const bodies = new SharedBudget(10e6, 0).join();
    const own = sendUpstream(optionsFor(standIn.url, { maxBodyBytes: 5e6, bodies }));
    standIn.behave({ body: { bytes: 4_000_000 } });
    const searches: (() => void)[] = [];
    const leakIn = () => new Promise<undefined>((resolve) => searches.push(() => resolve(undefined)));
    const key = new Key(standInKey, 1);
    const keyring = { current: key, usable: key, accepted: () => {}, scrub: { leakIn } };
    const read = attachKey(keyring as unknown as CredentialKeys)(own.handler);
    const answers = [1, 2, 3].map(() => read(requestWith(patientContext()), newTrace()));
    for (const done of [1, 2, 3]) {
      await vi.waitFor(() => expect(searches).toHaveLength(done));
      await new Promise((resolve) => setTimeout(resolve, 50));
      expect(searches).toHaveLength(done);
      expect(bodies.used).toBe(4_000_000);
      searches[done - 1]?.();
    }
    await Promise.all(answers);
    expect(bodies.used).toBe(0);
    await own.close();
  });

  it.each<[string, Behaviour]>([
    ['that states its length', { body: '[1]' }],
    ['in chunks', { body: '[1]', framing: 'chunked' }],
  ])(
    'a small body %s is read while nine stalled ones of 8 MiB hold all of the bound',
    async (_name, small) => {
      const roomy = sendUpstream(optionsFor(standIn.url, { maxBodyBytes: 8 * 2 ** 20, connections: 20 }));
      standIn.behave({ body: { bytes: 8 * 2 ** 20 }, stallAt: 200_000 });
      let settled = 0;
      const controller = new AbortController();
      const stalled = Array.from({ length: 9 }, () =>
        send({ context: patientContext(controller.signal) }, roomy).catch(() => settled++),
      );
      await standIn.received(9);
      // Until their heads have been read.
      await new Promise((resolve) => setTimeout(resolve, 100));
      standIn.behave(small);
      expect((await send({}, roomy)).body).toBe('[1]');
      expect(settled).toBe(0);
      controller.abort(new Error('left'));
      await Promise.all(stalled);
      await roomy.close();
    },
  );
});
