/** Answers that an upstream might give: as specified, strange, and broken; the key in some of them. */
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import { Received } from '../../src/demo/stand-in.ts';
import { below, pick, type Random } from '../../test/support/random.ts';
import { echoBody, echoEncodings, echoText } from '../../test/support/stand-in/echo.ts';
import { bytesOf, mutate } from './mutate.ts';

export interface FuzzedAnswer {
  readonly bytes: Buffer;
  /** What the upstream does after its last byte. It keeps no connection: the next answer on it would be in doubt. */
  readonly ending: 'ends' | 'resets' | 'hangs';
}

const intactShare = 0.35;

export function fuzzAnswer(random: Random, key: string): FuzzedAnswer {
  const interim = random() < 0.1 ? pick(random, interims) : '';
  const text = interim + message(random, key);
  const draw = random();
  return {
    bytes: bytesOf(random() < intactShare ? text : mutate(text, random, [...words, key, key.slice(0, 8)])),
    ending: draw < 0.1 ? 'resets' : draw < 0.15 ? 'hangs' : 'ends',
  };
}

function message(random: Random, key: string): string {
  const status = random() < 0.6 ? 200 : pick(random, statuses);
  const reason = random() < 0.9 ? 'OK' : pick(random, ['', key, '\xe4', 'a'.repeat(2_000)]);
  const [coding, body] = bodyOf(random, key);
  const lines = [
    ...(random() < 0.9 ? ['Content-Type: application/json'] : [pick(random, contentTypes)]),
    ...(coding === undefined ? [] : [`Content-Encoding: ${coding}`]),
    ...Array.from({ length: below(random, 6) }, () => field(random, key)),
  ];
  const [framing, framed] = frame(random, body);
  const head = [`HTTP/1.1 ${status} ${reason}`, ...lines, ...framing].join('\r\n');
  return `${head}\r\n\r\n${framed}`;
}

const statuses = [
  0, 99, 100, 101, 103, 201, 202, 203, 204, 205, 206, 226, 300, 301, 302, 304, 307, 400, 401, 403, 404, 405,
  407, 409, 410, 416, 422, 429, 451, 500, 501, 502, 503, 504, 511, 599, 600, 999,
];
const contentTypes = [
  'Content-Type: application/problem+json',
  'Content-Type: text/html',
  'Content-Type: application/json; charset=utf-16',
  'Content-Type: application/json\r\nContent-Type: text/html',
  'Content-Type:',
  'X-No-Type: 1',
];
const interims = [
  'HTTP/1.1 100 Continue\r\n\r\n',
  'HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n',
  'HTTP/1.1 102 Processing\r\n\r\n'.repeat(20),
  'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n',
];

const compressors = {
  gzip: gzipSync,
  'x-gzip': gzipSync,
  deflate: deflateSync,
  br: brotliCompressSync,
  'gzip, gzip': (body: Buffer) => gzipSync(gzipSync(body)),
  nonsense: (body: Buffer) => body,
  identity: (body: Buffer) => body,
};
const codings = Object.keys(compressors) as (keyof typeof compressors)[];

function bodyOf(random: Random, key: string): readonly [coding: string | undefined, body: string] {
  const body = plainBody(random, key);
  if (random() < 0.85) return [undefined, body];
  const coding = pick(random, codings);
  return [coding, compressors[coding](bytesOf(body)).toString('latin1')];
}

function plainBody(random: Random, key: string): string {
  const draw = random();
  const request = new Received('GET', '/', [], key, 0);
  if (draw < 0.2) {
    return echoBody({ in: 'body', of: 'key', as: pick(random, echoEncodings) }, request).toString('latin1');
  }
  if (draw < 0.3)
    return pick(random, ['', '{', '[]]', '"', 'null', '\x00', '<html>', '{"a":1}{"b":2}', '[[[[']);
  if (draw < 0.35) return JSON.stringify('x'.repeat(below(random, 90_000)));
  if (draw < 0.4) return `${'['.repeat(5_000)}${']'.repeat(5_000)}`;
  return JSON.stringify({ data: 'x'.repeat(below(random, 3_000)), __proto__: { a: 1 } });
}

function frame(random: Random, body: string): readonly [lines: readonly string[], framed: string] {
  const draw = random();
  if (draw < 0.55) return [[`Content-Length: ${body.length}`], body];
  if (draw < 0.75) return [['Transfer-Encoding: chunked'], chunked(random, body)];
  if (draw < 0.8) return [['Connection: close'], body];
  const lines = pick(random, [
    [`Content-Length: ${body.length + 1}`],
    [`Content-Length: ${Math.max(0, body.length - 1)}`],
    [`Content-Length: ${body.length}`, `Content-Length: ${body.length + 2}`],
    [`Content-Length: ${body.length}, ${body.length}`],
    ['Content-Length: -1'],
    ['Content-Length: 99999999999999999999'],
    [`Content-Length: ${body.length}`, 'Transfer-Encoding: chunked'],
    ['Transfer-Encoding: gzip, chunked'],
    ['Transfer-Encoding: chunked, chunked'],
    ['Transfer-Encoding: identity'],
  ]);
  return [lines, random() < 0.5 ? body : chunked(random, body)];
}

function chunked(random: Random, body: string): string {
  const cut = below(random, body.length + 1);
  const chunks = [body.slice(0, cut), body.slice(cut)]
    .filter((chunk) => chunk !== '')
    .map((chunk) => `${chunk.length.toString(16)}${random() < 0.1 ? ';ext="a"' : ''}\r\n${chunk}\r\n`);
  return `${chunks.join('')}0\r\n${random() < 0.1 ? 'X-Trailer: 1\r\n' : ''}\r\n`;
}

function field(random: Random, key: string): string {
  const echoed = echoText(
    { in: 'header', of: 'key', as: pick(random, echoEncodings) },
    new Received('GET', '/', [], key, 0),
  );
  const fields = [
    `X-Echo: ${echoed}`,
    `Content-Language: ${echoed}`,
    `ETag: "${echoed}"`,
    `Retry-After: ${echoed}`,
    `Location: http://127.0.0.1:9/${echoed}`,
    `Last-Modified: ${echoed}`,
    `Vary: ${echoed}`,
    `X-${key.replaceAll(/[^\w-]/g, '')}: 1`,
    'ETag: W/"weak"',
    'ETag: no quotes',
    'ETag: "a"\r\nETag: "b"',
    'Cache-Control: max-age=60',
    'Cache-Control: private="", no-cache="\tauthorization"',
    'Cache-Control: max-age=99999999999999999999, s-maxage=-1, stale-if-error="x"',
    'Cache-Control: max-age=1, max-age=2',
    'Age: -1',
    'Age: 99999999999999999999',
    'Date: not a date',
    'Date: Sun, 06 Nov 1994 08:49:37 GMT',
    'Expires: 0',
    'Expires: Sun, 06 Nov 2094 08:49:37 UTC',
    'Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT',
    'Vary: *',
    'Vary: Accept, x-fuzz, __proto__',
    'Retry-After: 1e309',
    'Retry-After: -1',
    'Retry-After: Fri, 31 Dec 9999 23:59:59 GMT',
    'Set-Cookie: a=1',
    'Server: origin',
    'Link: </x>; rel=next',
    'Connection: X-Echo, Content-Type',
    'Connection: close',
    'Keep-Alive: timeout=0',
    'Keep-Alive: timeout=99999999999',
    'Upgrade: h2c',
    'Trailer: X-Trailer',
    'WWW-Authenticate: Basic',
    '__proto__: x',
    'constructor: y',
    ': no name',
    'X-Bad name: 1',
    'X-High: \xff\xfe',
    ' folded: 1',
    `X-Long: ${'a'.repeat(below(random, 20_000))}`,
    'X-Many: 1\r\n'.repeat(below(random, 300)).trimEnd() || 'X-One: 1',
    'X-Control: \x01\x02',
  ];
  return pick(random, fields);
}

const words = [
  '\r\n',
  '\n',
  '\r',
  '\r\n\r\n',
  ' ',
  '\t',
  ':',
  '\0',
  '\x80',
  '\xff',
  '"',
  ',',
  '{',
  '}',
  '\\',
  '0\r\n\r\n',
  '0',
  '-1',
  '99999999999999999999',
  'HTTP/1.1 200 OK\r\n',
  'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}',
  'Content-Length: 5\r\n',
  'Transfer-Encoding: chunked\r\n',
  'Content-Encoding: gzip\r\n',
  '__proto__: x\r\n',
  '\\u0077',
  '%77',
  'a'.repeat(9_000),
  'X: y\r\n'.repeat(300),
];
