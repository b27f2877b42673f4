/**
 * What is sent: ambiguous and odd messages, written from RFC 9110 and 9112 after the families of the published
 * differential studies. Each has an id in its target, and ends with a request that must never be taken out of a body.
 */
import { ambiguousRequests, plainRequests, type WireCase } from '../../../test/support/wire-cases.ts';

const host = 'Host: localhost\r\n';
const escaped = (text: string): string => JSON.stringify(text).slice(1, -1).slice(0, 60);

/** Request lines; METHOD and TARGET stand for a read. */
const requestLines: readonly string[] = [
  'GET  TARGET HTTP/1.1',
  'GET TARGET  HTTP/1.1',
  'GET\tTARGET\tHTTP/1.1',
  'GET TARGET HTTP/1.1 ',
  'GET TARGET HTTP/1.1\r',
  ' GET TARGET HTTP/1.1',
  '\r\nGET TARGET HTTP/1.1',
  '\nGET TARGET HTTP/1.1',
  '\0GET TARGET HTTP/1.1',
  'GET TARGET HTTP/01.1',
  'GET TARGET HTTP/1.10',
  'GET TARGET HTTP/1.1.1',
  'GET TARGET HTTP/1. 1',
  'GET TARGET HTTP/11',
  'GET TARGET HTTP/1',
  'GET TARGET HTTP/1.0',
  'GET TARGET HTTP/2.0',
  'GET TARGET HTTP/3.7',
  'GET TARGET http/1.1',
  'GET TARGET',
  'GET TARGET ',
  'GET TARGET HTTP/1.1 extra',
  'GET TARGET HTTP/1.1 HTTP/1.1',
  'get TARGET HTTP/1.1',
  'GET: TARGET HTTP/1.1',
  'G\0ET TARGET HTTP/1.1',
  '"GET" TARGET HTTP/1.1',
  'HEAD TARGET HTTP/1.1',
  'POST TARGET HTTP/1.1',
  'PUT TARGET HTTP/1.1',
  'OPTIONS TARGET HTTP/1.1',
  'OPTIONS * HTTP/1.1',
  'TRACE TARGET HTTP/1.1',
  'M-SEARCH TARGET HTTP/1.1',
  'SOURCE TARGET HTTP/1.1',
  'FOO TARGET HTTP/1.1',
  'PRI TARGET HTTP/1.1',
  `${'A'.repeat(300)} TARGET HTTP/1.1`,
  'CONNECT TARGET HTTP/1.1',
  'GET http://localhostTARGET HTTP/1.1',
  'GET HTTP://LOCALHOSTTARGET HTTP/1.1',
  'GET https://localhostTARGET HTTP/1.1',
  'GET http://evil.exampleTARGET HTTP/1.1',
  'GET http://localhost@evil.exampleTARGET HTTP/1.1',
  'GET http://evil.example@localhostTARGET HTTP/1.1',
  'GET http:TARGET HTTP/1.1',
  'GET http:///TARGET HTTP/1.1',
  'GET ftp://localhostTARGET HTTP/1.1',
  'GET //localhostTARGET HTTP/1.1',
  'GET localhostTARGET HTTP/1.1',
  'GET *TARGET HTTP/1.1',
  'GET ?TARGET HTTP/1.1',
  'GET TARGET#fragment HTTP/1.1',
  'GET TARGET&a b HTTP/1.1',
  'GET TARGET&\x7f HTTP/1.1',
  'GET TARGET&\xe9 HTTP/1.1',
  'GET TARGET&\x0b HTTP/1.1',
  'GET TARGET&%00%0d%0aX:y HTTP/1.1',
  'GET TARGET&%zz HTTP/1.1',
  'GET TARGET&"<>[]{}|\\^` HTTP/1.1',
  'GET /..TARGET HTTP/1.1',
  'GET /%2e%2eTARGET HTTP/1.1',
  'GET \\TARGET HTTP/1.1',
];

/** Lines of fields besides a good Host; none has a body behind it but what follows in the connection. */
const fieldLines: readonly string[] = [
  'X : y',
  'X\t: y',
  'Host : evil.example',
  ' X: y',
  '\tX: y',
  'X: a\r\n\tb',
  'X: a\r\n b',
  'X:\r\n Transfer-Encoding: chunked',
  'X: a\0b',
  'X\0: y',
  'X: a\rb',
  'X: a\nTransfer-Encoding: chunked',
  'X: a\rTransfer-Encoding: chunked',
  'X: a\x0b',
  'X: \x7f',
  'X: \xff',
  'X(: y',
  'X y: z',
  'no colon',
  ':',
  'Host: localhost',
  'Host: evil.example',
  'Host: a,b',
  'hOST: evil.example',
  'X-Y: z\r\n\nTransfer-Encoding: chunked',
  'Connection: Content-Length\r\nContent-Length: 3',
  'Connection: Host',
  'Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked',
  'Connection: close, Content-Length',
  'Connection: keep-alive, X-API-Key\r\nX-API-Key: evil',
  'Proxy-Connection: keep-alive',
  'Keep-Alive: timeout=5',
  'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==',
  'Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__',
  'Upgrade: TLS/1.0\r\nConnection: Upgrade',
  'Expect: 100-continue',
  'Expect: 100-continue\r\nContent-Length: 3',
  'Expect: nonsense',
  'TE: trailers\r\nConnection: TE',
  'TE: chunked;q=1',
  'Max-Forwards: 0',
  'Range: bytes=0-1',
  'If-None-Match: *',
  'Accept-Encoding: gzip, br',
];

/** Values of Content-Length before three bytes of body. */
const lengths: readonly string[] = [
  ...['3', '03', '+3', '-0', '0x3', '3.0', '3e0', '1_0', '3 3', '3,3', '3, 3', '3,4', ' 3\t', '\x0b3', '3\0'],
  ...['3\r\nContent-Length: 3', '3\r\nContent-Length: 0', '0\r\nContent-Length: 3', '\r\n 3', '3;a'],
  ...['18446744073709551619', '4294967299', '9223372036854775808', '3\r\nContent_Length: 0', '"3"'],
];

/** What stands after the name Transfer-Encoding, before a chunked body. */
const codings: readonly string[] = [
  ...[
    'chunked',
    'Chunked',
    'chunked,',
    ',chunked',
    '"chunked"',
    'chunked;q=1',
    'identity',
    'identity, chunked',
  ],
  ...[
    'gzip, chunked',
    'chunked, chunked',
    'chunked, identity',
    'chunked identity',
    '\tchunked',
    '\x0bchunked',
  ],
  ...[
    '\x0cchunked',
    'chunked\0',
    'chunked\x0b',
    'xchunked',
    'chunkedx',
    'chunke',
    '',
    '\r\n chunked',
    'chun\0ked',
  ],
  ...['chunked\r\nTransfer-Encoding: identity', 'identity\r\nTransfer-Encoding: chunked', '\xa0chunked'],
  ...['chunked\r\nContent-Length: 3', 'chunked\r\nContent-Length: 0', 'x\r\nContent-Length: 3', 'cow\r\n'],
];

/** Names that look like it. */
const codingNames: readonly string[] = [
  ...[
    'Transfer_Encoding',
    'Transfer-Encoding ',
    'Transfer-Encoding\t',
    ' Transfer-Encoding',
    'X: y\nTransfer-Encoding',
  ],
  ...['Transfer\0-Encoding', 'TRANSFER-ENCODING', 'X: y\rTransfer-Encoding', '\x0bTransfer-Encoding'],
];

/** Bodies that are chunked, or nearly. */
const chunkedBodies: readonly string[] = [
  ...[
    '3\r\nabc\r\n0\r\n\r\n',
    '3;a=b\r\nabc\r\n0\r\n\r\n',
    '3;a="b;c"\r\nabc\r\n0\r\n\r\n',
    '3;\r\nabc\r\n0\r\n\r\n',
  ],
  ...[
    '3 ;a\r\nabc\r\n0\r\n\r\n',
    '3 \r\nabc\r\n0\r\n\r\n',
    '3\t\r\nabc\r\n0\r\n\r\n',
    ' 3\r\nabc\r\n0\r\n\r\n',
  ],
  ...[
    '3;a\nabc\r\n0\r\n\r\n',
    '3;a\rb\r\nabc\r\n0\r\n\r\n',
    '3;a\0\r\nabc\r\n0\r\n\r\n',
    '3;a="\r\n"\r\nabc\r\n0\r\n\r\n',
  ],
  ...['3;a\x0b\r\nabc\r\n0\r\n\r\n', '3;\xff\r\nabc\r\n0\r\n\r\n', '2;\n78\r\n32\r\n0\r\n\r\n'],
  ...[
    '0x3\r\nabc\r\n0\r\n\r\n',
    '+3\r\nabc\r\n0\r\n\r\n',
    '-3\r\nabc\r\n0\r\n\r\n',
    '3_0\r\nabc\r\n0\r\n\r\n',
  ],
  ...[
    '003\r\nabc\r\n0\r\n\r\n',
    '00000000000000000003\r\nabc\r\n0\r\n\r\n',
    '3.\r\nabc\r\n0\r\n\r\n',
    '3x\r\nabc\r\n0\r\n\r\n',
  ],
  ...[
    '10000000000000003\r\nabc\r\n0\r\n\r\n',
    '100000003\r\nabc\r\n0\r\n\r\n',
    'fffffffffffffffd\r\nabc\r\n0\r\n\r\n',
  ],
  ...['7fffffffffffffff\r\nabc\r\n0\r\n\r\n', 'ffffffff\r\nabc\r\n0\r\n\r\n', '80000000\r\nabc\r\n0\r\n\r\n'],
  ...[
    '3\nabc\n0\n\n',
    '3\r\nabc\n0\r\n\r\n',
    '3\r\nabc\r\n0\n\n',
    '3\r\nabc\r\n0\r\n\n',
    '3\rabc\r\n0\r\n\r\n',
  ],
  ...[
    '3\r\nabcXX0\r\n\r\n',
    '3\r\nabc0\r\n\r\n',
    '3\r\nabcd\r\n0\r\n\r\n',
    '3\r\nab\r\n0\r\n\r\n',
    '\r\n3\r\nabc\r\n0\r\n\r\n',
  ],
  ...[
    '3\r\nabc\r\n\r\n0\r\n\r\n',
    '3\r\nabc\r\n00\r\n\r\n',
    '3\r\nabc\r\n0;a=b\r\n\r\n',
    '3\r\nabc\r\n0\r\r\n\r\n',
    '0\r\n\r\n',
  ],
  ...[
    '3\r\nabc\r\n0\r\nX: y\r\n\r\n',
    '3\r\nabc\r\n0\r\nContent-Length: 70\r\n\r\n',
    '3\r\nabc\r\n0\r\nHost: evil\r\n\r\n',
  ],
  ...[
    '3\r\nabc\r\n0\r\nX-API-Key: evil\r\n\r\n',
    '3\r\nabc\r\n0\r\nX : y\r\n\r\n',
    '3\r\nabc\r\n0\r\n X: y\r\n\r\n',
  ],
  ...[
    '3\r\nabc\r\n0\r\nno colon\r\n\r\n',
    '3\r\nabc\r\n0\r\nX: a\nb\r\n\r\n',
    '3\r\nabc\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n',
  ],
];

/**
 * @param targetAt the read whose query has this id
 * @returns names and bytes; the payload at an index has this index as its id
 */
export function payloads(targetAt: (id: number) => string): WireCase[] {
  const makers: [name: string, make: (target: string, hidden: string) => string][] = [
    ...ambiguousRequests('').map(([name], at): [string, (target: string) => string] => [
      name,
      (target) => ambiguousRequests(target)[at]?.[1] ?? '',
    ]),
    ...plainRequests('').map(([name], at): [string, (target: string) => string] => [
      name,
      (target) => plainRequests(target)[at]?.[1] ?? '',
    ]),
    ...requestLines.flatMap((line): [string, (target: string, hidden: string) => string][] => [
      [
        `line ${escaped(line)}`,
        (target, hidden) => `${line.replace('TARGET', target)}\r\n${host}\r\n${hidden}`,
      ],
      [
        `line ${escaped(line)}, bare LF`,
        (target, hidden) => `${line.replace('TARGET', target)}\n${host}\r\n${hidden}`,
      ],
    ]),
    ...fieldLines.flatMap((line): [string, (target: string, hidden: string) => string][] => [
      [
        `field ${escaped(line)}`,
        (target, hidden) => `GET ${target} HTTP/1.1\r\n${host}${line}\r\n\r\n${hidden}`,
      ],
      [
        `first field ${escaped(line)}`,
        (target, hidden) => `GET ${target} HTTP/1.1\r\n${line}\r\n${host}\r\n${hidden}`,
      ],
    ]),
    ...['GET', 'POST'].flatMap((method): [string, (target: string, hidden: string) => string][] => [
      ...lengths.map((value): [string, (target: string, hidden: string) => string] => [
        `${method}, length ${escaped(value)}`,
        (target, hidden) =>
          `${method} ${target} HTTP/1.1\r\n${host}Content-Length: ${value}\r\n\r\nabc${hidden}`,
      ]),
      ...codings.map((value): [string, (target: string, hidden: string) => string] => [
        `${method}, coding ${escaped(value)}`,
        (target, hidden) =>
          `${method} ${target} HTTP/1.1\r\n${host}Transfer-Encoding: ${value}\r\n\r\n3\r\nabc\r\n0\r\n\r\n${hidden}`,
      ]),
      ...codingNames.flatMap((name): [string, (target: string, hidden: string) => string][] => [
        [
          `${method}, coding by ${escaped(name)}`,
          (target, hidden) =>
            `${method} ${target} HTTP/1.1\r\n${host}${name}: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n${hidden}`,
        ],
        [
          `${method}, length and coding by ${escaped(name)}`,
          (target, hidden) =>
            `${method} ${target} HTTP/1.1\r\n${host}Content-Length: ${13 + hidden.length}\r\n${name}: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n${hidden}`,
        ],
      ]),
      ...chunkedBodies.map((body): [string, (target: string, hidden: string) => string] => [
        `${method}, chunks ${escaped(body)}`,
        (target, hidden) =>
          `${method} ${target} HTTP/1.1\r\n${host}Transfer-Encoding: chunked\r\n\r\n${body}${hidden}`,
      ]),
    ]),
    [
      'POST in HTTP/1.0, chunked',
      (target, hidden) =>
        `POST ${target} HTTP/1.0\r\n${host}Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${hidden}`,
    ],
    ['two reads in one go', (target, hidden) => `GET ${target} HTTP/1.1\r\n${host}\r\n${hidden}`],
    [
      'a read behind Connection: close',
      (target, hidden) => `GET ${target} HTTP/1.1\r\n${host}Connection: close\r\n\r\n${hidden}`,
    ],
  ];
  return makers.map(([name, make], id): WireCase => {
    const target = targetAt(id);
    return [name, make(target, `GET ${target}&hidden HTTP/1.1\r\n${host}\r\n`)];
  });
}

const json = 'Content-Type: application/json\r\n';
const two = `${json}Content-Length: 2\r\n`;
const chunked = `HTTP/1.1 200 OK\r\n${json}Transfer-Encoding: chunked\r\n\r\n`;

/** Answers of a server, after which it ends the connection. */
export const oddAnswers: readonly WireCase[] = [
  ...[
    '2\r\n{}\r\n0\r\n\r\n',
    '2;a=b\r\n{}\r\n0\r\n\r\n',
    '2;\n{}\r\n0\r\n\r\n',
    '2\n{}\n0\n\n',
    '2 \r\n{}\r\n0\r\n\r\n',
  ],
  ...[
    '0x2\r\n{}\r\n0\r\n\r\n',
    '2\r\n{}\r\n',
    '2\r\n{}\r\n0\r\nContent-Length: 9\r\n\r\n',
    '10000000000000002\r\n{}\r\n0\r\n\r\n',
  ],
  ...[
    '2\r\n{}XX0\r\n\r\n',
    '-2\r\n{}\r\n0\r\n\r\n',
    '2\r\n{}\r\n0\r\n X: y\r\n\r\n',
    '\r\n2\r\n{}\r\n0\r\n\r\n',
  ],
]
  .map((body): WireCase => [`chunks ${escaped(body)}`, chunked + body])
  .concat(
    [
      `HTTP/1.1 200\r\n${two}\r\n{}`,
      `HTTP/1.1 200 \r\n${two}\r\n{}`,
      `HTTP/1.0 200 OK\r\n${json}\r\n{}`,
      `HTTP/1.0 200 OK\r\n${json}Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
      `HTTP/2.0 200 OK\r\n${two}\r\n{}`,
      `http/1.1 200 OK\r\n${two}\r\n{}`,
      `ICY 200 OK\r\n${two}\r\n{}`,
      `\r\nHTTP/1.1 200 OK\r\n${two}\r\n{}`,
      `HTTP/1.1  200 OK\r\n${two}\r\n{}`,
      `HTTP/1.1 200 OK\n${two.replaceAll('\r', '')}\n{}`,
      `HTTP/1.1 200 OK\r\nX: a\r\n b\r\n${two}\r\n{}`,
      `HTTP/1.1 200 OK\r\nX : a\r\n${two}\r\n{}`,
      `HTTP/1.1 200 OK\r\nX: a\rb\r\n${two}\r\n{}`,
      `HTTP/1.1 200 OK\r\n${two}Content-Length: 2\r\n\r\n{}`,
      `HTTP/1.1 200 OK\r\n${two}Content-Length: 1\r\n\r\n{}`,
      `HTTP/1.1 200 OK\r\n${json}Content-Length: 2, 2\r\n\r\n{}`,
      `HTTP/1.1 200 OK\r\n${json}Content-Length: +2\r\n\r\n{}`,
      `HTTP/1.1 200 OK\r\n${json}Content-Length: -2\r\n\r\n{}`,
      `HTTP/1.1 200 OK\r\n${json}Content-Length: 18446744073709551618\r\n\r\n{}`,
      `HTTP/1.1 200 OK\r\n${json}Content-Length: 9\r\n\r\n{}`,
      `HTTP/1.1 200 OK\r\n${two}Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
      `HTTP/1.1 200 OK\r\n${json}Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
      `HTTP/1.1 200 OK\r\n${json}Transfer-Encoding: xchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`,
      `HTTP/1.1 200 OK\r\n${json}Transfer-Encoding: identity\r\n\r\n{}`,
      `HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n${two}\r\n{}`,
      `HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\n${two}\r\n{}`,
      `HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nHTTP/1.1 200 OK\r\n${two}\r\n{}`,
      `HTTP/1.1 204 No Content\r\n${two}\r\n{}`,
      `HTTP/1.1 205 Reset Content\r\n${two}\r\n{}`,
      `HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-1/2\r\n${two}\r\n{}`,
      `HTTP/1.1 304 Not Modified\r\n${two}\r\n{}`,
      `HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n${two}\r\n{}`,
      `HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:1/\r\n${two}\r\n{}`,
      `HTTP/1.1 999 Odd\r\n${two}\r\n{}`,
      `HTTP/1.1 099 Odd\r\n${two}\r\n{}`,
      `HTTP/1.1 503 Busy\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>`,
      `HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>`,
      '',
      '\0',
      'HTTP/1.1 200 OK\r\n',
    ].map((bytes): WireCase => [`answer ${escaped(bytes.replace(json, ''))}`, bytes]),
  );
