import { connect } from 'node:net';
import { describe, expect, it } from 'vitest';
import { standInKey } from '../../src/stand-in/stand-in.ts';
import { accounts, startPair, type TestGateway } from '../support/gateway.ts';

const host = 'Host: localhost\r\n';
const hidden = `GET ${accounts}?hidden HTTP/1.1\r\n${host}\r\n`;

/** The statuses of everything that came back on one connection. */
function statusesOf(came: string): number[] {
  return [...came.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status]) => Number(status));
}

/** What holds whatever is sent: one key on each upstream request, the specified paths only, nothing hidden. */
function expectNothingFoul({ standIn }: TestGateway): void {
  for (const request of standIn.requests) {
    const keys = request.rawHeaders.filter((name, at) => at % 2 === 0 && /^x.?api.?key$/i.test(name));
    expect(keys).toHaveLength(1);
    expect(request.key).toBe(standInKey);
    expect(request.method).toBe('GET');
    expect(request.target).toMatch(/^\/api\/(?:analytics\/accounts|users\/api-keys)\/(?:\?|$)/);
    expect(request.target).not.toContain('hidden');
  }
}

/** Sends bytes whose connection the gateway is expected to end by itself. */
async function refused(pair: TestGateway, bytes: string): Promise<number[]> {
  const came = await pair.exchange(Buffer.from(bytes, 'latin1'), 5_000);
  expectNothingFoul(pair);
  return statusesOf(came);
}

describe('an ambiguous message is refused once, and its connection ends (RFC 9112 sections 3, 5 and 6)', () => {
  const messages: readonly [name: string, bytes: string][] = [
    [
      'a length and chunks',
      `POST ${accounts} HTTP/1.1\r\n${host}Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${hidden}`,
    ],
    [
      'chunks and a length',
      `GET ${accounts} HTTP/1.1\r\n${host}Transfer-Encoding: chunked\r\nContent-Length: 60\r\n\r\n0\r\n\r\n${hidden}`,
    ],
    [
      'two lengths',
      `GET ${accounts} HTTP/1.1\r\n${host}Content-Length: 0\r\nContent-Length: 5\r\n\r\n${hidden}`,
    ],
    [
      'two equal lengths',
      `GET ${accounts} HTTP/1.1\r\n${host}Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello${hidden}`,
    ],
    ['a list of lengths', `GET ${accounts} HTTP/1.1\r\n${host}Content-Length: 5, 5\r\n\r\nhello${hidden}`],
    ['a signed length', `GET ${accounts} HTTP/1.1\r\n${host}Content-Length: +5\r\n\r\nhello${hidden}`],
    ['an empty length', `GET ${accounts} HTTP/1.1\r\n${host}Content-Length: \r\n\r\n${hidden}`],
    [
      'a length beyond all numbers',
      `GET ${accounts} HTTP/1.1\r\n${host}Content-Length: 99999999999999999999999\r\n\r\n${hidden}`,
    ],
    [
      'a length that hides a request',
      `GET ${accounts} HTTP/1.1\r\n${host}Content-Length: 58\r\n\r\n${hidden}`,
    ],
    [
      'chunks before a hidden request',
      `GET ${accounts} HTTP/1.1\r\n${host}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n${hidden}`,
    ],
    [
      'an unknown coding',
      `GET ${accounts} HTTP/1.1\r\n${host}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n${hidden}`,
    ],
    [
      'chunked, then another coding',
      `GET ${accounts} HTTP/1.1\r\n${host}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n${hidden}`,
    ],
    [
      'a coding on two lines',
      `GET ${accounts} HTTP/1.1\r\n${host}Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n${hidden}`,
    ],
    [
      'a space before the colon',
      `GET ${accounts} HTTP/1.1\r\n${host}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n${hidden}`,
    ],
    [
      'a vertical tab before a coding',
      `GET ${accounts} HTTP/1.1\r\n${host}Transfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n${hidden}`,
    ],
    [
      'a chunk extension without end',
      `GET ${accounts} HTTP/1.1\r\n${host}Transfer-Encoding: chunked\r\n\r\n5;${'a'.repeat(20_000)}\r\nhello\r\n0\r\n\r\n${hidden}`,
    ],
    [
      'a chunk size with a sign',
      `GET ${accounts} HTTP/1.1\r\n${host}Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n${hidden}`,
    ],
    [
      'a chunk that ends in a bare LF',
      `GET ${accounts} HTTP/1.1\r\n${host}Transfer-Encoding: chunked\r\n\r\n1\nx\n0\n\n${hidden}`,
    ],
    ['a folded field', `GET ${accounts} HTTP/1.1\r\n${host}X-A: b\r\n Content-Length: 5\r\n\r\n${hidden}`],
    ['bare LFs', `GET ${accounts} HTTP/1.1\nHost: localhost\n\n${hidden}`],
    ['a bare CR', `GET ${accounts} HTTP/1.1\r\n${host}A: b\rContent-Length: 5\r\n\r\n${hidden}`],
    ['an end of header by CR CR', `GET ${accounts} HTTP/1.1\r\n${host}A: b\r\n\rX${hidden}`],
    ['an empty field name', `GET ${accounts} HTTP/1.1\r\n${host}: x\r\n\r\n${hidden}`],
    ['a NUL in a field', `GET ${accounts} HTTP/1.1\r\n${host}A: \0\r\n\r\n${hidden}`],
    ['a NUL in the target', `GET ${accounts}?\0 HTTP/1.1\r\n${host}\r\n${hidden}`],
    ['bytes above ASCII in the target', `GET ${accounts}?\xff HTTP/1.1\r\n${host}\r\n${hidden}`],
    ['no Host in HTTP/1.1', `GET ${accounts} HTTP/1.1\r\n\r\n${hidden}`],
    ['HTTP/0.9', `GET ${accounts}\r\n\r\n`],
    ['an unknown version', `GET ${accounts} HTTP/1.9\r\n${host}\r\n${hidden}`],
    ['another protocol', `GET ${accounts} HTTPS/1.1\r\n${host}\r\n${hidden}`],
    ['the preface of HTTP/2', `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n${hidden}`],
    ['CONNECT', `CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n${hidden}`],
    ['a head over 16 KiB', `GET ${accounts} HTTP/1.1\r\n${host}X: ${'a'.repeat(20_000)}\r\n\r\n${hidden}`],
    [
      'Expect and a body',
      `GET ${accounts} HTTP/1.1\r\n${host}Content-Length: 58\r\nExpect: 100-continue\r\n\r\n${hidden}`,
    ],
    ['a TLS hello', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03'],
  ];

  it('whichever it is, with one line in the log', async () => {
    const pair = await startPair();
    const came = await Promise.all(messages.map(([, bytes]) => refused(pair, bytes)));
    const statuses = Object.fromEntries(messages.map(([name], at) => [name, came[at]]));
    for (const [name, list] of Object.entries(statuses)) {
      expect(list, name).toHaveLength(1);
      expect([400, 413, 421, 431, 505], name).toContain(list?.[0]);
    }
    expect(pair.standIn.requests).toHaveLength(0);
    const told = pair.logLines().filter(({ status }) => status !== undefined);
    expect(told.map(({ status }) => status).sort()).toEqual(came.flat().sort());
  });
});

describe('what only looks dangerous is answered once, as a plain read', () => {
  it.each([
    ['an upgrade', 'Connection: upgrade\r\nUpgrade: websocket\r\n'],
    ['an upgrade to HTTP/2', 'Connection: upgrade, http2-settings\r\nUpgrade: h2c\r\n'],
    ['an expectation without a body', 'Expect: 100-continue\r\n'],
    ['a name of the prototype', '__proto__: x\r\nconstructor: y\r\n'],
    ['a length of zero', 'Content-Length: 0\r\n'],
  ])('%s', async (_name, fields) => {
    const pair = await startPair();
    const came = await pair.exchange(`GET ${accounts} HTTP/1.1\r\n${host}${fields}\r\n`, 50);
    expect(statusesOf(came)).toEqual([200]);
    expect(pair.standIn.requests).toHaveLength(1);
    expectNothingFoul(pair);
  });

  it('requests sent in one go are answered one after the other', async () => {
    const pair = await startPair();
    pair.standIn.behave(({ target }) => ({
      latencyMs: target.endsWith('0') ? 40 : 0,
      body: JSON.stringify(target),
    }));
    const sent = Array.from({ length: 10 }, (_, at) => `GET ${accounts}?n=${at} HTTP/1.1\r\n${host}\r\n`);
    const came = await pair.exchange(sent.join(''), 300);
    const targets = [...came.matchAll(/"\/api\/analytics\/accounts\/\?n=(\d)"/g)].map(([, at]) => Number(at));
    expect(targets).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  });
});

describe('answers find their way', () => {
  it('200 different requests at once: none gets another’s', async () => {
    const { ask, standIn } = await startPair();
    standIn.behave(({ target }) => ({
      latencyMs: (target.length * 7) % 40,
      body: JSON.stringify({ target }),
    }));
    const queries = Array.from({ length: 200 }, (_, at) => `?n=${at}${'x'.repeat(at % 13)}`);
    const came = await Promise.all(queries.map((query) => ask(accounts + query)));
    expect(came.map((one) => one.json()['target'])).toEqual(queries.map((query) => accounts + query));
  });
});

describe('a request with anything changed in it', () => {
  const seed = Number(process.env['WIRE_SEED'] ?? Date.now() % 2 ** 31);
  const rounds = Number(process.env['WIRE_ROUNDS'] ?? 400);

  it(`is answered or refused, never with a 500, and never goes up foul (WIRE_SEED=${seed})`, async () => {
    const pair = await startPair({ CACHE_TTL: '0s' });
    const random = randomFrom(seed);
    const messages = Array.from({ length: rounds }, () => mutated(random));
    const statuses: number[] = [];
    // A few connections at a time, each with its own message.
    for (let at = 0; at < messages.length; at += 40) {
      const came = await Promise.all(messages.slice(at, at + 40).map((bytes) => offer(pair.port, bytes)));
      statuses.push(...came.flatMap(statusesOf));
    }
    expectNothingFoul(pair);
    // 505 says that it was no HTTP/1 request.
    expect(statuses.filter((status) => status >= 500 && status !== 505)).toEqual([]);
    expect(statuses.length).toBeGreaterThan(rounds / 2);
    expect((await pair.ask('/readyz')).status).toBe(200);
    expect(pair.logLines().filter(({ level }) => level === 'error' || level === 'fatal')).toEqual([]);
  });

  const parts = [
    '\r\n',
    '\n',
    '\r',
    ' ',
    '\t',
    ':',
    '\0',
    '\x7f',
    '\xff',
    ',',
    ';',
    '#',
    '?',
    '//',
    '/../',
    '%2f',
    '%00',
    'http://evil.example',
    '\r\n\r\n',
    'Content-Length: 5\r\n',
    'Transfer-Encoding: chunked\r\n',
    'Connection: x-api-key\r\n',
    'X-API-Key: theirs\r\n',
    'x_api_key: theirs\r\n',
    'Host: evil.example\r\n',
    'Expect: 100-continue\r\n',
    'Upgrade: h2c\r\n',
    '0\r\n\r\n',
    '-1',
    '99999999999999999999',
    'HTTP/1.1',
    'a'.repeat(9_000),
  ];

  function mutated(random: () => number): Buffer {
    let text = `GET ${accounts}?a=1 HTTP/1.1\r\n${host}Accept: */*\r\nX-Request-ID: a-1\r\nConnection: close\r\n\r\n`;
    for (let change = 0; change <= random() * 3; change++) {
      const at = Math.floor(random() * text.length);
      const part = parts[Math.floor(random() * parts.length)] ?? '';
      const cut = random() < 0.5 ? 0 : Math.floor(random() * 8);
      text =
        random() < 0.7
          ? text.slice(0, at) + part + text.slice(at + cut)
          : text.slice(0, at) +
            String.fromCharCode(text.charCodeAt(at) ^ (1 << Math.floor(random() * 8))) +
            text.slice(at + 1);
    }
    return Buffer.from(text, 'latin1');
  }
});

/** Sends a message and the end of it: what is incomplete is then answered as such at once. */
function offer(port: number, bytes: Buffer): Promise<string> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true }, () => socket.end(bytes));
    socket.on('data', (chunk: Buffer) => chunks.push(chunk));
    socket.on('error', () => {});
    socket.on('end', () => socket.destroy());
    socket.on('close', () => resolve(Buffer.concat(chunks).toString('latin1')));
  });
}

/** Numbers from 0 to 1 that follow from the seed (mulberry32). */
function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
