/** Requests that callers and their neighbours might send: well-formed, strange, and broken. */
import { below, pick, type Random } from '../../test/support/random.ts';
import { bytesOf, mutate } from './mutate.ts';

export interface FuzzedRequest {
  readonly listener: 'public' | 'admin';
  readonly bytes: Buffer;
  /** What the caller does after its last byte. */
  readonly ending: 'waits' | 'half-closes' | 'leaves';
}

/** What a request may carry of secrets. */
export interface Credentials {
  /** Of a caller that may do everything. */
  readonly token: string;
  /** The upstream key, as a caller's mistake. */
  readonly key: string;
}

/** Of all that are mutated, so many are left as they were made. */
const intactShare = 0.3;

export function fuzzRequest(random: Random, number: number, credentials: Credentials): FuzzedRequest {
  const listener = random() < 0.25 ? 'admin' : 'public';
  const count = random() < 0.15 ? 2 + below(random, 10) : 1;
  const text = Array.from({ length: count }, () => message(random, number, listener, credentials)).join('');
  const draw = random();
  return {
    listener,
    bytes: bytesOf(random() < intactShare ? text : mutate(text, random, wordsWith(credentials))),
    ending: draw < 0.08 ? 'leaves' : draw < 0.2 ? 'half-closes' : 'waits',
  };
}

function message(
  random: Random,
  number: number,
  listener: FuzzedRequest['listener'],
  credentials: Credentials,
): string {
  const method = random() < 0.7 ? 'GET' : pick(random, methods);
  const target = random() < 0.6 ? usualTarget(random, number, listener) : strangeTarget(random, credentials);
  const version = random() < 0.9 ? 'HTTP/1.1' : pick(random, versions);
  const lines = [
    ...(random() < 0.9 ? [`Host: ${random() < 0.85 ? 'localhost' : pick(random, hosts)}`] : []),
    ...(random() < 0.8 ? [`Authorization: Bearer ${credentials.token}`] : []),
    `X-Request-ID: case-${number}`,
    ...Array.from({ length: below(random, 6) }, () => field(random, credentials)),
  ];
  const [framing, body] = random() < 0.85 ? ['', ''] : pick(random, bodies);
  return `${method} ${target} ${version}\r\n${lines.map((line) => `${line}\r\n`).join('')}${framing}\r\n${body}`;
}

const methods = [
  'HEAD',
  'OPTIONS',
  'POST',
  'PUT',
  'DELETE',
  'PATCH',
  'TRACE',
  'CONNECT',
  'PRI',
  'get',
  'PURGE',
];
const versions = ['HTTP/1.0', 'HTTP/1.9', 'HTTP/2.0', 'HTTP/0.9', 'HTTPS/1.1', 'http/1.1', ''];
const hosts = [
  '127.0.0.1',
  'LOCALHOST:80',
  'evil.example',
  '[::1]',
  '[::ffff:127.0.0.1]',
  'a, b',
  'user@localhost',
  'localhost/path',
  'localhost:99999',
  '',
  '%6c',
  '[',
  'a'.repeat(300),
  'xn--\x80',
];

function usualTarget(random: Random, number: number, listener: FuzzedRequest['listener']): string {
  if (listener === 'admin') return pick(random, adminTargets);
  return `${pick(random, paths)}?case=${number}${random() < 0.3 ? `&${below(random, 5)}` : ''}`;
}

const paths = [
  '/api/analytics/accounts/',
  '/api/users/api-keys/',
  '/api/analytics/accounts',
  '/api/fuzz/w0/',
];
const adminTargets = [
  '/',
  '/metrics',
  '/status',
  '/livez',
  '/readyz',
  '/cache/purge',
  '/cache/purge?operation=list-accounts',
  '/cache/purge?operation=',
  '/problems/overloaded',
  '/none',
];

function strangeTarget(random: Random, { token, key }: Credentials): string {
  const targets = [
    '*',
    '/',
    '/livez',
    '/readyz',
    '/problems',
    '/problems/internal-error',
    '/problems/__proto__',
    '//evil.example/api/analytics/accounts/',
    'http://localhost/api/analytics/accounts/',
    'http://evil.example/api/analytics/accounts/',
    'https://localhost:443/api/users/api-keys/?a=1',
    'localhost:443',
    '/api/analytics/accounts/../../users/api-keys/',
    '/api/analytics/%61ccounts/',
    '/api/analytics/accounts/%2e%2e/',
    '/api\\analytics\\accounts/',
    '/api/analytics/accounts/;x=1',
    '/api/analytics/accounts/?#fragment',
    '/api/fuzz/w0/?%',
    '/api/fuzz/w0/?a=%00%0d%0aX-Evil:%201',
    `/api/fuzz/w0/?x=${encodeURIComponent(key)}`,
    `/api/analytics/accounts/?token=${token}`,
    `/api/analytics/accounts/?q=${'a'.repeat(below(random, 12_000))}`,
    `/${'a/'.repeat(below(random, 2_000))}`,
    `/api/__proto__/constructor/`,
  ];
  return pick(random, targets);
}

function field(random: Random, { token, key }: Credentials): string {
  const fields = [
    `X-API-Key: ${token}`,
    `X-API-Key: ${key}`,
    `x_api_key: ${key}`,
    `Authorization: Bearer ${key}`,
    `Authorization: Basic ${Buffer.from(`x:${key}`).toString('base64')}`,
    'Authorization: Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.',
    `X-Request-ID: ${key}`,
    `X-Request-ID: ${key.slice(0, 6)}`,
    'Accept-Encoding: gzip, br;q=0.5, *;q=0',
    'Accept-Encoding: br',
    'Accept: text/html',
    'If-None-Match: "a", W/"b", *',
    'If-None-Match: *',
    'If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT',
    'If-Modified-Since: tomorrow',
    'Range: bytes=0-1',
    'Cache-Control: no-cache',
    'Cache-Control: only-if-cached, max-age="0"',
    'Cache-Control: max-stale=99999999999999999999, min-fresh=-1',
    'Pragma: no-cache',
    'Origin: https://app.example',
    'Origin: null',
    'Origin: https://evil.example',
    'Access-Control-Request-Method: GET',
    'Access-Control-Request-Headers: authorization, x-api-key',
    'Access-Control-Request-Private-Network: true',
    'Sec-Fetch-Site: cross-site',
    'Sec-Fetch-Mode: navigate',
    'Sec-Fetch-Dest: document',
    'traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
    `tracestate: a=${'x'.repeat(below(random, 3_000))}`,
    'Connection: close',
    'Connection: keep-alive, x-api-key, authorization',
    'Connection: upgrade, http2-settings',
    'Upgrade: h2c',
    'Upgrade: websocket',
    'HTTP2-Settings: AAMAAABkAAQAAP__',
    'Expect: 100-continue',
    'Expect: nonsense',
    'TE: trailers, chunked',
    'Trailer: X-API-Key',
    'X-Forwarded-Host: evil.example',
    'X-Original-URL: /api/users/api-keys/',
    'X-HTTP-Method-Override: DELETE',
    'Cookie: a=1',
    'Content-Length: 0',
    'Content-Length: 00',
    '__proto__: x',
    'constructor: y',
    'hasOwnProperty: z',
    'x-fuzz: \xe4\xf6\xfc',
    `x-fuzz: ${'b'.repeat(below(random, 15_000))}`,
  ];
  return pick(random, fields);
}

/** Lines of framing, and what follows the head. */
const bodies: readonly (readonly [lines: string, body: string])[] = [
  ['Content-Length: 5\r\n', 'hello'],
  ['Content-Length: 50\r\n', 'hello'],
  ['Content-Length: 5\r\nContent-Length: 6\r\n', 'hello'],
  ['Content-Length: +5\r\n', 'hello'],
  ['Content-Length: 99999999999999999999\r\n', ''],
  ['Transfer-Encoding: chunked\r\n', '5\r\nhello\r\n0\r\n\r\n'],
  ['Transfer-Encoding: chunked\r\n', '5;ext=1\r\nhello\r\n0\r\nX-API-Key: a\r\n\r\n'],
  ['Transfer-Encoding: chunked\r\n', '-1\r\n\r\n'],
  ['Transfer-Encoding: chunked\r\n', 'fffffffffffffffff\r\n'],
  ['Transfer-Encoding: chunked\r\nContent-Length: 4\r\n', '0\r\n\r\n'],
  ['Transfer-Encoding: identity\r\n', 'hello'],
  ['Transfer-Encoding: gzip, chunked\r\n', '0\r\n\r\n'],
  ['Transfer-Encoding: chunked, identity\r\n', '0\r\n\r\n'],
  ['Transfer-Encoding:\tchunked\r\n', '0\r\n\r\n'],
];

/** Pieces that mean something to a parser. */
function wordsWith({ token, key }: Credentials): readonly string[] {
  return [...words, token, key, key.slice(0, 8), encodeURIComponent(key)];
}

const words = [
  '\r\n',
  '\n',
  '\r',
  '\r\n\r\n',
  '\n\n',
  ' ',
  '\t',
  '\v',
  ':',
  '\0',
  '\x7f',
  '\x80',
  '\xff',
  ',',
  ';',
  '#',
  '?',
  '"',
  '//',
  '/../',
  '%2f',
  '%00',
  '%',
  '0',
  '-1',
  '99999999999999999999',
  '0x10',
  'NaN',
  'HTTP/1.1',
  'GET ',
  'Host: evil.example\r\n',
  'Content-Length: 5\r\n',
  'Transfer-Encoding: chunked\r\n',
  'Connection: close\r\n',
  '__proto__: x\r\n',
  '0\r\n\r\n',
  '\r\n folded',
  'a'.repeat(9_000),
  'X: y\r\n'.repeat(300),
];
