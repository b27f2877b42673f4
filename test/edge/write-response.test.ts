import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { answerThrough } from '../../src/edge/adapter.ts';
import type { Reply } from '../../src/edge/inbound.ts';
import { findPeerBehind } from '../../src/edge/request-head.ts';
import { createHttpServer } from '../../src/edge/server.ts';
import { linesOf, takesText } from '../../src/edge/write-response.ts';
import { bufferOf, latin1Of, payloadOf, smallBytes } from '../../src/http/payload.ts';

const findPeer = findPeerBehind([]);

const bodies = {
  empty: Buffer.alloc(0),
  ascii: Buffer.from('{"a":1}'),
  'every byte': Buffer.from(Array.from({ length: 256 }, (_, byte) => byte)),
  'the largest that is small': Buffer.alloc(smallBytes, 'é'),
  'the smallest that is large': Buffer.alloc(smallBytes + 1, 'é'),
  megabyte: Buffer.alloc(2 ** 20, 'é'),
};

/** Replies to `/with/<body>` as with an answer, whose head is written as text, and to `/without/<body>` with the same fields. */
const answer = answerThrough(
  (request) => {
    const [, way, name = ''] = decodeURI(request.path).split('/');
    const body = bodies[name as keyof typeof bodies];
    const status = request.query === '' ? 200 : Number(request.query);
    const dated = request.field('x-date') === undefined ? [] : ['date', 'Sun, 06 Nov 1994 08:49:37 GMT'];
    const own = [...dated, 'vary', 'accept', 'content-length', String(body.length)];
    const common = ['content-type', 'application/json'];
    const fields = [...own, ...common];
    request.setHeader('x-request-id', 'r-1');
    request.setHeader('vary', 'origin');
    request.setHeader('age', '7');
    const reply: Reply = { status, fields, body: request.method === 'HEAD' ? null : payloadOf(body) };
    if (way === 'without') return reply;
    return { ...reply, fields: own, common };
  },
  { endsConnection: () => draining, onFault: (error) => faults.push(error), findPeer },
);
const limits = {
  ...{ headersTimeoutMs: 5_000, maxConnections: 10, stillMs: 5_000 },
  isSecret: () => false,
  isEnding: () => false,
};
const handlers = { onRefused: () => {}, onListenerError: () => {} };
const server = createHttpServer(answer, limits, handlers);
let draining = false;
const faults: unknown[] = [];
let port = 0;
beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  port = (server.address() as AddressInfo).port;
});
afterAll(async () => {
  await new Promise((resolve) => server.close(resolve));
});

/** All bytes that come back until the connection ends; `last` is sent once something has come. */
function exchange(text: string, last = ''): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    const socket = connect(port, '127.0.0.1', () => socket.write(text));
    socket.once('data', () => socket.write(last));
    socket.on('data', (chunk: Buffer) => chunks.push(chunk));
    socket.on('end', () => resolve(Buffer.concat(chunks)));
    socket.on('error', reject);
  });
}

const undated = (bytes: Buffer) => bytes.toString('latin1').replaceAll(/Date: [^\r]*/g, 'Date: now');
const bye = 'GET /without/ascii HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n';

async function both(request: (path: string) => string, last = ''): Promise<string> {
  const [one, other] = await Promise.all(
    ['with', 'without'].map((way) => exchange(request(way), last).then(undated)),
  );
  // Not shown whole: a megabyte of difference is no help.
  expect(one === other ? 'alike' : one?.slice(0, 600)).toBe(one === other ? 'alike' : other?.slice(0, 600));
  return one ?? '';
}

describe('a head that is written as text is, byte for byte, what Node writes', () => {
  it.each(Object.keys(bodies))(
    'a head that is written as text is what Node writes with this body: %s',
    async (name) => {
      const text = await both((way) => `GET /${way}/${encodeURI(name)} HTTP/1.1\r\nHost: a\r\n\r\n`, bye);
      expect(text).toMatch(/^HTTP\/1\.1 200 OK\r\nvary: accept\r\ncontent-length: \d+\r\ncontent-type: /);
      expect(text).toContain('\r\nx-request-id: r-1\r\nage: 7\r\nDate: now\r\nConnection: keep-alive\r\n');
      expect(text).toContain(bodies[name as keyof typeof bodies].toString('latin1'));
    },
  );

  it('a head that is written as text has a Date of its own once', async () => {
    const text = await both((way) => `GET /${way}/ascii HTTP/1.1\r\nHost: a\r\nX-Date: 1\r\n\r\n`, bye);
    expect(text.split('HTTP/1.1 200 OK')[1]?.match(/^date: .*$/gim)).toEqual([
      'date: Sun, 06 Nov 1994 08:49:37 GMT',
    ]);
  });

  it.each([
    ['a HEAD', (way) => `HEAD /${way}/ascii HTTP/1.1\r\nHost: a\r\n\r\n`, bye],
    ['another status', (way) => `GET /${way}/ascii?404 HTTP/1.1\r\nHost: a\r\n\r\n`, bye],
    ['a status without a name', (way) => `GET /${way}/ascii?299 HTTP/1.1\r\nHost: a\r\n\r\n`, bye],
    [
      'a caller that ends the connection',
      (way) => `GET /${way}/ascii HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n`,
      '',
    ],
    ['HTTP/1.0', (way) => `GET /${way}/ascii HTTP/1.0\r\n\r\n`, ''],
    ['HTTP/1.0 that goes on', (way) => `GET /${way}/ascii HTTP/1.0\r\nConnection: keep-alive\r\n\r\n`, bye],
    [
      'a caller that expects a 100',
      (way) => `GET /${way}/ascii HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n`,
      '',
    ],
    ['pipelined requests', (way) => `GET /${way}/ascii HTTP/1.1\r\nHost: a\r\n\r\n`.repeat(3) + bye, ''],
  ] as [string, (way: string) => string, string][])(
    'a head that is written as text is what Node writes for %s',
    async (_name, request, last) => {
      expect(await both(request, last)).toContain('{"a":1}'.slice(0, _name === 'a HEAD' ? 0 : undefined));
    },
  );

  it('a head is what Node writes while the gateway stops', async () => {
    draining = true;
    const text = await both((way) => `GET /${way}/ascii HTTP/1.1\r\nHost: a\r\n\r\n`);
    draining = false;
    expect(text).toContain('\r\nconnection: close\r\n');
  });

  it('a caller that half-closes gets a whole 500 where its reply fails after the first bytes of it have left', async () => {
    const late = Promise.withResolvers<Reply>();
    const answering = { endsConnection: () => false, onFault: () => {}, findPeer };
    const failing = createHttpServer(
      answerThrough(() => late.promise, answering),
      limits,
      handlers,
    );
    await new Promise<void>((resolve) => failing.listen(0, '127.0.0.1', resolve));
    const where = { port: (failing.address() as AddressInfo).port, host: '127.0.0.1', allowHalfOpen: true };
    const chunks: string[] = [];
    await new Promise((resolve) => {
      const socket = connect(where, () => socket.end('GET / HTTP/1.1\r\nHost: a\r\n\r\n'));
      socket.setEncoding('latin1').once('data', () => late.reject(new Error('a fault')));
      socket.on('data', (chunk: string) => chunks.push(chunk)).on('end', resolve);
    });
    failing.close();
    expect(chunks.join('')).toMatch(/^HTTP\/1\.1 500 Internal Server Error\r\n[^/]*\r\n\r\n$/);
  });

  it('this Node takes a head as text', () => {
    expect(takesText).toBe(true);
    expect(faults).toEqual([]);
  });
});

describe('a field value that could end its line', () => {
  it.each(['a\r\nSet-Cookie: b', 'a\nb', 'a\rb', 'a\0b', 'a\x7fb', 'aĀb'])(
    'a field value that could end its line is refused, and is not in the message: %j',
    (value) => {
      const refusal = expect.objectContaining({ message: expect.not.stringContaining('b') });
      expect(() => linesOf(['x-one', 'fine', 'x-two', value])).toThrow(refusal);
    },
  );
  it('a field value that could end its line is not sent where a layer sets it', async () => {
    const late = createServer(
      answerThrough(
        (request) => {
          request.setHeader('x-late', 'a\r\nx-other: b');
          return {
            status: 200,
            fields: ['content-length', '0'],
            common: [],
            body: '',
          };
        },
        { endsConnection: () => false, onFault: () => {}, findPeer },
      ),
    );
    await new Promise<void>((resolve) => late.listen(0, '127.0.0.1', resolve));
    const answered = await fetch(`http://127.0.0.1:${(late.address() as AddressInfo).port}/`);
    late.close();
    late.closeAllConnections();
    expect(answered.status).toBe(500);
    expect(answered.headers.has('x-other')).toBe(false);
  });
});

describe('a payload', () => {
  it.each(Object.entries(bodies))('a payload keeps its bytes and its length: %s', (_name, body) => {
    const payload = payloadOf(body);
    expect(payload).toHaveLength(body.length);
    expect(bufferOf(payload).equals(body)).toBe(true);
    expect(latin1Of(payload)).toBe(body.toString('latin1'));
    expect(typeof payload).toBe(body.length <= smallBytes ? 'string' : 'object');
  });
});
