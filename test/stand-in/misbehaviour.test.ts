import { connect } from 'node:net';
import { Agent, request } from 'undici';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
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

// What a test that finds no key anywhere would not miss; `upstream/transport.test.ts` and `catalogue.test.ts` have the rest.
describe('the bytes', () => {
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

  it('the bytes of an unsolicited answer come on the idle connection', async () => {
    standIn.behave({ body: '[]', unsolicited: { afterMs: 1 } });
    const text = await bytesOf((so) => so.includes('no caller here'));
    expect(text.match(/HTTP\/1\.1 200 OK/g)).toHaveLength(2);
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
