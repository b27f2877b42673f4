/**
 * What is tried on the wire, as data. `test/promises/wire.test.ts` runs every case on both listeners, or from the
 * upstream, of the gateway from its sources and of the built program with the image's flags: a new case is one row.
 */
import type { Misbehaviour } from './stand-in/behaviour.ts';

/** A name, and bytes as Latin-1. */
export type WireCase = readonly [name: string, bytes: string];

const host = 'Host: localhost\r\n';
/** A request that must never be taken for one, where it follows another. */
const hiddenAt = (target: string): string => `GET ${target}?hidden HTTP/1.1\r\n${host}\r\n`;

/** Field names that an object has without anybody's doing: one may not be read, set or end anything. */
export const prototypeNames = [
  '__proto__',
  'constructor',
  'prototype',
  'toString',
  'valueOf',
  'hasOwnProperty',
  'isPrototypeOf',
  '__defineGetter__',
  '__lookupSetter__',
] as const;

/**
 * Ambiguous messages: each is refused once, and its connection ends (RFC 9112 sections 3, 5 and 6).
 *
 * @param target a path that the listener answers with 200
 */
export function ambiguousRequests(target: string): readonly WireCase[] {
  const hidden = hiddenAt(target);
  return [
    [
      'a length and chunks',
      `POST ${target} HTTP/1.1\r\n${host}Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${hidden}`,
    ],
    [
      'chunks and a length',
      `GET ${target} HTTP/1.1\r\n${host}Transfer-Encoding: chunked\r\nContent-Length: 60\r\n\r\n0\r\n\r\n${hidden}`,
    ],
    [
      'two lengths',
      `GET ${target} HTTP/1.1\r\n${host}Content-Length: 0\r\nContent-Length: 5\r\n\r\n${hidden}`,
    ],
    [
      'two equal lengths',
      `GET ${target} HTTP/1.1\r\n${host}Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello${hidden}`,
    ],
    ['a list of lengths', `GET ${target} HTTP/1.1\r\n${host}Content-Length: 5, 5\r\n\r\nhello${hidden}`],
    ['a signed length', `GET ${target} HTTP/1.1\r\n${host}Content-Length: +5\r\n\r\nhello${hidden}`],
    ['an empty length', `GET ${target} HTTP/1.1\r\n${host}Content-Length: \r\n\r\n${hidden}`],
    [
      'a length beyond all numbers',
      `GET ${target} HTTP/1.1\r\n${host}Content-Length: 99999999999999999999999\r\n\r\n${hidden}`,
    ],
    ['a length that hides a request', `GET ${target} HTTP/1.1\r\n${host}Content-Length: 58\r\n\r\n${hidden}`],
    [
      'chunks before a hidden request',
      `GET ${target} HTTP/1.1\r\n${host}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n${hidden}`,
    ],
    [
      'an unknown coding',
      `GET ${target} HTTP/1.1\r\n${host}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n${hidden}`,
    ],
    [
      'chunked, then another coding',
      `GET ${target} HTTP/1.1\r\n${host}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n${hidden}`,
    ],
    [
      'a coding on two lines',
      `GET ${target} HTTP/1.1\r\n${host}Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n${hidden}`,
    ],
    [
      'a space before the colon',
      `GET ${target} HTTP/1.1\r\n${host}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n${hidden}`,
    ],
    [
      'a vertical tab before a coding',
      `GET ${target} HTTP/1.1\r\n${host}Transfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n${hidden}`,
    ],
    [
      'a chunk extension without end',
      `GET ${target} HTTP/1.1\r\n${host}Transfer-Encoding: chunked\r\n\r\n5;${'a'.repeat(20_000)}\r\nhello\r\n0\r\n\r\n${hidden}`,
    ],
    [
      'a chunk size with a sign',
      `GET ${target} HTTP/1.1\r\n${host}Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n${hidden}`,
    ],
    [
      'a chunk that ends in a bare LF',
      `GET ${target} HTTP/1.1\r\n${host}Transfer-Encoding: chunked\r\n\r\n1\nx\n0\n\n${hidden}`,
    ],
    ['a folded field', `GET ${target} HTTP/1.1\r\n${host}X-A: b\r\n Content-Length: 5\r\n\r\n${hidden}`],
    ['bare LFs', `GET ${target} HTTP/1.1\nHost: localhost\n\n${hidden}`],
    ['a bare CR', `GET ${target} HTTP/1.1\r\n${host}A: b\rContent-Length: 5\r\n\r\n${hidden}`],
    ['an end of header by CR CR', `GET ${target} HTTP/1.1\r\n${host}A: b\r\n\rX${hidden}`],
    ['an empty field name', `GET ${target} HTTP/1.1\r\n${host}: x\r\n\r\n${hidden}`],
    ['a NUL in a field', `GET ${target} HTTP/1.1\r\n${host}A: \0\r\n\r\n${hidden}`],
    ['a NUL in the target', `GET ${target}?\0 HTTP/1.1\r\n${host}\r\n${hidden}`],
    ['bytes above ASCII in the target', `GET ${target}?\xff HTTP/1.1\r\n${host}\r\n${hidden}`],
    ['no Host in HTTP/1.1', `GET ${target} HTTP/1.1\r\n\r\n${hidden}`],
    ['HTTP/0.9', `GET ${target}\r\n\r\n`],
    ['an unknown version', `GET ${target} HTTP/1.9\r\n${host}\r\n${hidden}`],
    ['another protocol', `GET ${target} HTTPS/1.1\r\n${host}\r\n${hidden}`],
    ['the preface of HTTP/2', `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n${hidden}`],
    ['CONNECT', `CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n${hidden}`],
    ['a head over 16 KiB', `GET ${target} HTTP/1.1\r\n${host}X: ${'a'.repeat(20_000)}\r\n\r\n${hidden}`],
    [
      'Expect and a body',
      `GET ${target} HTTP/1.1\r\n${host}Content-Length: 58\r\nExpect: 100-continue\r\n\r\n${hidden}`,
    ],
    ['a TLS hello', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03'],
  ];
}

/** What only looks dangerous: each is answered once, with 200, as a plain read. */
export function plainRequests(target: string): readonly WireCase[] {
  const withFields = (fields: string): string => `GET ${target} HTTP/1.1\r\n${host}${fields}\r\n`;
  return [
    ['an upgrade', withFields('Connection: upgrade\r\nUpgrade: websocket\r\n')],
    ['an upgrade to HTTP/2', withFields('Connection: upgrade, http2-settings\r\nUpgrade: h2c\r\n')],
    ['an expectation without a body', withFields('Expect: 100-continue\r\n')],
    ['a length of zero', withFields('Content-Length: 0\r\n')],
    ...prototypeNames.map((name) => [`a field named ${name}`, withFields(`${name}: x\r\n`)] as const),
    ...prototypeNames.map(
      (name) => [`two fields named ${name}`, withFields(`${name}: x\r\n${name}: y\r\n`)] as const,
    ),
    [
      'all names of the prototype together',
      withFields(prototypeNames.map((name) => `${name}: x\r\n`).join('')),
    ],
    [
      'fields named by Connection after the prototype',
      withFields('Connection: __proto__, constructor, keep-alive\r\n__proto__: x\r\n'),
    ],
  ];
}

/** An answer of the upstream, and the statuses that its caller may get. */
export type AnswerCase = readonly [name: string, answer: Misbehaviour, statuses: readonly number[]];

/** Bytes in place of everything that the stand-in would send; then the connection ends. */
const raw = (bytes: string): Misbehaviour => ({ raw: (socket) => socket.end(bytes, 'latin1') });
const good = 'Content-Type: application/json\r\nContent-Length: 2\r\n';

/** What the upstream may send: none of it ends the gateway, and each caller gets one whole reply. */
export const upstreamAnswers: readonly AnswerCase[] = [
  ...prototypeNames.map((name) => [`a field named ${name}`, { headers: { [name]: 'x' } }, [200]] as const),
  ...prototypeNames.map(
    (name) => [`two fields named ${name}`, { headers: { [name]: ['x', 'y'] } }, [200]] as const,
  ),
  [
    'fields of the prototype in a 304 that was not asked for',
    { status: 304, headers: { ['__proto__']: 'x', constructor: 'y' } },
    [502],
  ],
  [
    'a trailer named __proto__',
    { framing: 'chunked', trailers: { ['__proto__']: 'x', constructor: 'y' } },
    [200],
  ],
  [
    'members of the body named as the prototype’s',
    { body: '{"__proto__":{"a":1},"constructor":{"prototype":{"b":2}}}' },
    [200],
  ],
  ['Vary by a name of the prototype', { headers: { Vary: '__proto__, constructor' } }, [200]],
  ['directives named as the prototype’s', { headers: { 'Cache-Control': '__proto__=1, toString' } }, [200]],
  [
    'an interim answer with a field __proto__',
    { interim: [{ status: 103, headers: { ['__proto__']: 'x' } }] },
    [200],
  ],
  ['an invalid line', raw(`HTTP/1.1 200 OK\r\nno colon\r\n${good}\r\n{}`), [502]],
  ['an empty field name', raw(`HTTP/1.1 200 OK\r\n: x\r\n${good}\r\n{}`), [502]],
  ['a NUL in a field', raw(`HTTP/1.1 200 OK\r\nA: \0\r\n${good}\r\n{}`), [502]],
  ['another protocol', raw('SSH-2.0-OpenSSH_9.9\r\n'), [502]],
  ['HTTP/0.9', raw('{}'), [502]],
  ['a status of two digits', raw(`HTTP/1.1 20 OK\r\n${good}\r\n{}`), [502]],
  ['a status of four digits', raw(`HTTP/1.1 2000 OK\r\n${good}\r\n{}`), [502]],
  [
    'two answers to one request',
    raw(`HTTP/1.1 200 OK\r\n${good}\r\n{}HTTP/1.1 200 OK\r\n${good}\r\n{}`),
    [200, 502],
  ],
  [
    'a switch of protocols',
    raw('HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n'),
    [502],
  ],
];
