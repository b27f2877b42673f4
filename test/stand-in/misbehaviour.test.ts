import { connect } from 'node:net';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { Agent, request } from 'undici';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Misbehaviour } from '../support/stand-in/behaviour.ts';
import { type EchoEncoding, echoEncodings } from '../support/stand-in/echo.ts';
import { type StandIn, standInKey, startStandIn } from '../support/stand-in/stand-in.ts';

let standIn: StandIn;
let agent: Agent;

beforeEach(async () => {
  standIn = await startStandIn();
  agent = new Agent({ connections: 1, pipelining: 1 });
});

afterEach(async () => {
  await agent.destroy();
  await standIn.close();
});

async function read() {
  const answer = await request(`${standIn.url}/analytics/accounts/`, {
    dispatcher: agent,
    headers: { 'x-api-key': standInKey },
  });
  return { status: answer.statusCode, headers: answer.headers, text: await answer.body.text() };
}

async function failure(): Promise<string> {
  return read().then(
    ({ status }) => `answered ${status}`,
    (error) => error.code ?? error.name,
  );
}

describe('a misbehaviour', () => {
  it('a misbehaviour lasts as many requests as asked for, and the connection with it', async () => {
    standIn.behave({ status: 503 }, 2);
    expect([(await read()).status, (await read()).status, (await read()).status]).toEqual([503, 503, 200]);
    standIn.behave({ status: 500 });
    expect([(await read()).status, (await read()).status]).toEqual([500, 500]);
    standIn.behave(undefined);
    expect((await read()).status).toBe(200);
    expect(standIn.counts).toMatchObject({ connections: 1, byStatus: { 200: 2, 500: 2, 503: 2 } });
  });

  it('a misbehaviour can be decided per request', async () => {
    standIn.behave((received) =>
      received.target.includes('accounts') ? { status: 418, reason: 'Tea' } : undefined,
    );
    expect((await read()).status).toBe(418);
  });

  it('a misbehaviour that drips has ended with its last byte, so that the next one finds the connection free', async () => {
    const warnings: Error[] = [];
    const onWarning = (warning: Error): number => warnings.push(warning);
    process.on('warning', onWarning);
    standIn.behave({ body: '[1]', drip: { everyMs: 100, bytes: 3 } }, 1);
    expect((await read()).text).toBe('[1]');
    standIn.behave({ body: '[2]' });
    expect((await read()).text).toBe('[2]');
    // What goes wrong in the stand-in is a warning.
    await new Promise(setImmediate);
    process.off('warning', onWarning);
    expect(warnings).toEqual([]);
    expect(standIn.counts.connections).toBe(1);
  });

  it('a misbehaviour can wait for a test', async () => {
    let release = (): void => {};
    standIn.behave({ until: new Promise<void>((resolve) => (release = resolve)), status: 500 });
    const answer = read();
    await standIn.received(1);
    expect(standIn.requests[0]?.status).toBeUndefined();
    release();
    expect((await answer).status).toBe(500);
  });
});

describe('an answer that breaks', () => {
  it.each<[Misbehaviour, string]>([
    [{ resetAt: 'connection' }, 'ECONNRESET'],
    [{ resetAt: 'before-headers' }, 'ECONNRESET'],
    [{ resetAt: 'in-headers' }, 'ECONNRESET'],
    [{ resetAt: 'after-headers' }, 'ECONNRESET'],
    [{ resetAt: 10 }, 'ECONNRESET'],
    [{ finAt: 'before-headers' }, 'UND_ERR_SOCKET'],
    [{ finAt: 'in-headers' }, 'UND_ERR_SOCKET'],
    [{ finAt: 10 }, 'UND_ERR_SOCKET'],
    [{ claimLength: (bytes) => bytes + 1, finAt: 'end' }, 'UND_ERR_SOCKET'],
    [{ claimLength: (bytes) => [bytes, bytes + 1] }, 'UND_ERR_RES_CONTENT_LENGTH_MISMATCH'],
    [{ framing: 'length-and-chunked' }, 'UND_ERR_RES_CONTENT_LENGTH_MISMATCH'],
    [{ framing: 'no-last-chunk' }, 'UND_ERR_SOCKET'],
    [{ framing: 'bad-chunk-size' }, 'HTTPParserError'],
  ])('%j leaves the reader with %s, and the next request is well', async (misbehaviour, code) => {
    await read();
    standIn.behave(misbehaviour, 1);
    expect(await failure()).toBe(code);
    expect((await read()).status).toBe(200);
    expect(standIn.counts.total).toBe(3);
  });
});

describe('an answer that stalls', () => {
  it.each<[Misbehaviour, RegExp]>([
    [{ stallAt: 'before-headers' }, /^$/],
    [{ stallAt: 'in-headers' }, /^HTTP\/1\.1 200 OK\r\n(?!.*\r\n\r\n)/s],
    [{ stallAt: 'after-headers', body: '[]' }, /\r\n\r\n$/],
    [{ stallAt: 1, body: '[]' }, /\r\n\r\n\[$/],
    [{ claimLength: (bytes) => bytes + 1, body: '[]' }, /Content-Length: 3\r\n\r\n\[\]$/],
  ])('%j sends no more and keeps the connection open', async (misbehaviour, sent) => {
    standIn.behave(misbehaviour);
    let text = '';
    let ended = false;
    const reading = bytesOf((so) => {
      text = so;
      return false;
    }).finally(() => {
      ended = true;
    });
    await standIn.received(1);
    await expect.poll(() => text).toMatch(sent);
    // The end of the stand-in ends it; until then it is open.
    expect(ended).toBe(false);
    await standIn.close();
    expect(await reading).toMatch(sent);
  });
});

/** What comes back on a connection of its own, until it has gone quiet or was ended. */
function bytesOf(until: (text: string) => boolean): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(Number(new URL(standIn.url).port), '127.0.0.1');
    let text = '';
    socket.setEncoding('latin1');
    socket.on('data', (data) => {
      text += data;
      if (until(text)) socket.destroy();
    });
    socket.on('error', reject);
    socket.on('close', () => resolve(text));
    socket.write(`GET /api/users/api-keys/ HTTP/1.1\r\nHost: stand-in\r\nX-API-Key: ${standInKey}\r\n\r\n`);
  });
}

describe('the bytes', () => {
  it('the bytes of an answer are those of the fields asked for, in several lines of one name, instead of the usual ones', async () => {
    standIn.behave({
      headers: { date: 'yesterday', 'Content-Type': undefined, Vary: ['a', 'b'], Age: '007' },
      body: '[]',
      finAt: 'end',
    });
    const text = await bytesOf(() => false);
    expect(text).toBe(
      'HTTP/1.1 200 OK\r\nContent-Length: 2\r\ndate: yesterday\r\nVary: a\r\nVary: b\r\nAge: 007\r\n\r\n[]',
    );
  });

  it('the bytes of an answer hold informational responses before the answer', async () => {
    standIn.behave({ interim: [{ status: 100 }, { status: 103, headers: { Link: '</a>' } }], finAt: 'end' });
    expect(await bytesOf(() => false)).toMatch(
      /^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 103 Early Hints\r\nLink: <\/a>\r\n\r\nHTTP\/1\.1 200 OK\r\n/,
    );
  });

  it('the bytes of an answer are chunks with trailers', async () => {
    standIn.behave({ framing: 'chunked', body: 'abc', trailers: { 'X-Late': 'yes' }, finAt: 'end' });
    const text = await bytesOf(() => false);
    expect(text).toContain('Transfer-Encoding: chunked\r\n');
    expect(text).not.toContain('Content-Length');
    expect(text).toMatch(/\r\n\r\n3\r\nabc\r\n0\r\nX-Late: yes\r\n\r\n$/);
  });

  it('the bytes of an answer end where asked for, counted from the end of the header section', async () => {
    standIn.behave({ body: '0123456789', finAt: 4 });
    expect(await bytesOf(() => false)).toMatch(/\r\n\r\n0123$/);
    standIn.behave({ body: '0123456789', finAt: 'after-headers' });
    expect(await bytesOf(() => false)).toMatch(/Content-Length: 10\r\n\r\n$/);
    standIn.behave({ body: '0123456789', finAt: 'before-headers' });
    expect(await bytesOf(() => false)).toBe('');
  });

  it('the bytes of an unsolicited answer come on the idle connection', async () => {
    standIn.behave({ body: '[]', unsolicited: { afterMs: 1 } });
    const text = await bytesOf((so) => so.includes('no caller here'));
    expect(text.match(/HTTP\/1\.1 200 OK/g)).toHaveLength(2);
  });

  it('the bytes of an answer are whatever a function writes', async () => {
    standIn.behave({ raw: (socket, { key }) => socket.end(`anything ${key}`) });
    expect(await bytesOf(() => false)).toBe(`anything ${standInKey}`);
  });

  it('the bytes of an answer come late and slowly', async () => {
    const startMs = performance.now();
    standIn.behave({ body: '[1,2,3]', latencyMs: 30, drip: { everyMs: 5 }, finAt: 'end' });
    expect(await bytesOf(() => false)).toMatch(/\[1,2,3\]$/);
    // Timers may fire up to a millisecond early; nothing bounds the time from above.
    expect(performance.now() - startMs).toBeGreaterThanOrEqual(29 + 6 * 4);
  });
});

describe('a body', () => {
  it('a body can be huge, and is valid JSON', async () => {
    standIn.behave({ body: { bytes: 300_000 } });
    const { text, headers } = await read();
    expect(headers['content-length']).toBe('300000');
    expect(JSON.parse(text)).toMatch(/^a{299998}$/);
    standIn.behave({ body: { bytes: 300_000 }, framing: 'chunked' });
    expect((await read()).text).toBe(text);
  });

  it('a body can be compressed in a chain, and be a bomb', async () => {
    standIn.behave({ compress: ['gzip', 'br'], body: { bytes: 1_000_000 } });
    const answer = await request(`${standIn.url}/nowhere`, { dispatcher: agent });
    const bytes = Buffer.from(await answer.body.arrayBuffer());
    expect(answer.headers['content-encoding']).toBe('gzip, br');
    expect(bytes.length).toBeLessThan(2_000);
    expect(gunzipSync(brotliDecompressSync(bytes))).toHaveLength(1_000_000);
  });

  it('the body of another status is a JSON error, of a success the specified data', async () => {
    standIn.behave({ status: 502 });
    expect((await read()).text).toBe('{"detail":"Bad Gateway"}');
    standIn.behave({ status: 206 });
    expect(JSON.parse((await read()).text)).toHaveLength(15);
  });

  it('a body is not sent with 204 and 304 (RFC 9110 section 6.4.1)', async () => {
    for (const status of [204, 304]) {
      standIn.behave({ status });
      const answer = await read();
      expect(answer).toMatchObject({ status, text: '' });
      expect(answer.headers['content-length']).toBeUndefined();
    }
    expect(standIn.counts.connections).toBe(1);
  });
});

describe('a redirect', () => {
  it.each([
    [{ redirectTo: 'https://elsewhere.example/api/' }, 302],
    [{ redirectTo: 'https://elsewhere.example/api/', status: 307 }, 307],
  ])('%j says where to', async (behaviour, status) => {
    standIn.behave(behaviour);
    const answer = await read();
    expect(answer.status).toBe(status);
    expect(answer.headers['location']).toBe('https://elsewhere.example/api/');
  });
});

describe('an echo', () => {
  const plain: Record<EchoEncoding, (text: string) => string> = {
    raw: (text) => text,
    base64: (text) => Buffer.from(text, 'base64').toString(),
    'base64-shifted-1': (text) => Buffer.from(text, 'base64').toString().slice(1),
    'base64-shifted-2': (text) => Buffer.from(text, 'base64').toString().slice(2),
    base64url: (text) => Buffer.from(text, 'base64url').toString(),
    hex: (text) => Buffer.from(text, 'hex').toString(),
    'hex-upper': (text) => Buffer.from(text.toLowerCase(), 'hex').toString(),
    percent: decodeURIComponent,
    'percent-every-byte': decodeURIComponent,
    json: (text) => JSON.parse(`"${text}"`),
    'json-every-character': (text) => JSON.parse(`"${text}"`),
  };

  it.each(echoEncodings)('an echo holds the key as %s', async (as) => {
    standIn.behave({ echo: { in: 'header', of: 'key', as, field: 'Content-Language' } });
    expect(plain[as](String((await read()).headers['content-language']))).toBe(standInKey);
    standIn.behave({ echo: { in: 'body', as } });
    const body = (await read()).text;
    const { echo } = JSON.parse(body);
    expect(as.startsWith('json') ? echo : plain[as](echo)).toContain(`x-api-key: ${standInKey}`);
    if (as !== 'raw' && as !== 'json') expect(body).not.toContain(standInKey);
  });

  it('an echo comes in the reason phrase', async () => {
    standIn.behave({ echo: { in: 'reason', of: 'key' }, finAt: 'end' });
    expect(await bytesOf(() => false)).toMatch(/^HTTP\/1\.1 200 wa_standin/);
  });
});

describe('the connection', () => {
  it('a connection is refused when asked for, and then taken again on the same port', async () => {
    await read();
    await standIn.refuseConnections(true);
    // The first may still try the connection that was dropped.
    await expect.poll(failure).toBe('ECONNREFUSED');
    await standIn.refuseConnections(false);
    expect((await read()).status).toBe(200);
  });

  it('a new connection is reset before any request was read', async () => {
    standIn.behave({ resetAt: 'connection' }, 1);
    await expect(bytesOf(() => false)).rejects.toMatchObject({ code: 'ECONNRESET' });
    expect(standIn.counts).toMatchObject({ connections: 1, total: 0 });
    expect((await read()).status).toBe(200);
  });

  it('a connection that its owner ends before the answer counts as aborted', async () => {
    standIn.behave({ stallAt: 'before-headers' }, 1);
    const leaving = new AbortController();
    const stalled = request(standIn.url, { dispatcher: agent, signal: leaving.signal });
    await standIn.received(1);
    leaving.abort();
    await expect(stalled).rejects.toThrow();
    await expect.poll(() => standIn.counts.aborted).toBe(1);
  });

  it('a connection that its owner ends during the latency counts as aborted', async () => {
    await standIn.close();
    standIn = await startStandIn({ latencyMs: 100 });
    const leaving = new AbortController();
    const waiting = request(standIn.url, { dispatcher: agent, signal: leaving.signal });
    await standIn.received(1);
    leaving.abort();
    await expect(waiting).rejects.toThrow();
    await expect.poll(() => standIn.counts).toMatchObject({ aborted: 1, byStatus: {} });
    expect((await read()).status).toBe(200);
  });

  it('the connection of a stalled answer does not keep the stand-in from closing', async () => {
    standIn.behave({ stallAt: 10 });
    const stalled = failure();
    await standIn.received(1);
    await standIn.close();
    expect(await stalled).toBe('UND_ERR_SOCKET');
  });
});
