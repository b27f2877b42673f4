/**
 * One stranger, in a process of its own for the sake of its descriptors: opens connections of one kind and holds them.
 * Prints its counts, as JSON, each time its standard input has a line.
 *
 *   node bench/hazards/stranger.ts KIND COUNT PORT plain|tls
 */
import { connect, type Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { connect as connectTls } from 'node:tls';
import { isStrangerKind, type StrangerCounts, type StrangerKind, slowIssuer, stalledRead } from './kinds.ts';

const [kind = '', countText, portText, scheme] = process.argv.slice(2);
const count = Number(countText);
const port = Number(portText);
if (!isStrangerKind(kind) || !(count > 0) || !(port > 0)) throw new TypeError('KIND COUNT PORT plain|tls');

/** More would wait in the kernel's queue of connections to accept, and be dropped there. */
const atOnce = 200;

const request = (target: string): string => `GET ${target} HTTP/1.1\r\nHost: localhost\r\n\r\n`;

const largeHead = `GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ${'b'.repeat(15_900)}\r\n\r\n`;

/** A login whose signature cannot be looked at yet, for the keys of its issuer are on their way. */
function waitingLogin(): string {
  const encode = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  const header = encode({ alg: 'RS256', kid: 'one' });
  const claims = { iss: slowIssuer, aud: 'gateway', exp: Date.now() / 1_000 + 300 };
  const token = `${header}.${encode({ ...claims, jti: String(Math.random()).padEnd(10_000, 'x') })}.AAAA`;
  return `GET /api/analytics/accounts/ HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${token}\r\n\r\n`;
}

/** The first 128 KiB of a greeting by TLS that has some more: OpenSSL keeps them until it is whole. */
function longHello(): Buffer {
  const bytes = 131_000;
  const message = Buffer.alloc(bytes - 100, 1);
  message.writeUInt32BE(0x01_00_00_00 + bytes);
  const records: Buffer[] = [];
  for (let at = 0; at < message.length; at += 16_384) {
    const part = message.subarray(at, at + 16_384);
    records.push(Buffer.from([0x16, 3, 1, part.length >> 8, part.length & 255]), part);
  }
  return Buffer.concat(records);
}

/** What each connection sends when it stands. Heads stay just under the limit of 16 KiB. */
const sends: Readonly<Record<StrangerKind, string | (() => string | Buffer)>> = {
  'small-fields': `GET / HTTP/1.1\r\nHost: localhost\r\n${'a:b\r\n'.repeat(3_090)}`,
  'large-field': `GET / HTTP/1.1\r\nHost: localhost\r\nX: ${'b'.repeat(15_900)}`,
  'later-head': `${request('/livez')}GET / HTTP/1.1\r\nHost: localhost\r\nX: ${'b'.repeat(15_900)}`,
  unread: request('/openapi.json').repeat(6),
  'unread-pipelined': `${request('/openapi.json').repeat(12)}${request('/nothing').repeat(200)}`,
  'unread-heads': `${request('/openapi.json').repeat(6)}${largeHead.repeat(10)}`,
  'waiting-login': () => `${waitingLogin()}${largeHead.repeat(14)}`,
  'waiting-read': `GET /api/analytics/accounts/?${stalledRead} HTTP/1.1\r\nHost: localhost\r\nX: ${'b'.repeat(15_900)}\r\n\r\n`,
  'long-hello': longHello,
  idle: '',
  'idle-after-request': request('/livez'),
};

/** Node's own handle of a socket, as far as it is used here. */
type Unread = Socket & { readonly _handle?: { readStop(): void } | null };

const counts: StrangerCounts = { opened: 0, held: 0, ended: 0 };
let under = 0;

function open(): void {
  under += 1;
  const speaksTls = scheme === 'tls' && kind !== 'long-hello';
  const socket: Socket = speaksTls
    ? connectTls({ host: '127.0.0.1', port, rejectUnauthorized: false })
    : connect(port, '127.0.0.1');
  let isSettled = false;
  const settle = (): void => {
    if (isSettled) return;
    isSettled = true;
    under -= 1;
    while (under < atOnce && counts.opened < count) {
      counts.opened += 1;
      open();
    }
  };
  socket.once(speaksTls ? 'secureConnect' : 'connect', () => {
    counts.held += 1;
    socket.once('close', () => {
      counts.held -= 1;
    });
    // A paused socket would still read until its buffer is full, and one of TLS does more than that.
    if (kind.startsWith('unread')) (socket.pause() as Unread)._handle?.readStop();
    else socket.resume();
    const bytes = sends[kind as StrangerKind];
    socket.write(typeof bytes === 'function' ? bytes() : bytes);
    setImmediate(settle);
  });
  socket.on('error', () => {});
  socket.once('close', () => {
    counts.ended += 1;
    settle();
  });
}

for (let at = 0; at < Math.min(atOnce, count); at++) {
  counts.opened += 1;
  open();
}
createInterface({ input: process.stdin })
  .on('line', () => process.stdout.write(`${JSON.stringify(counts)}\n`))
  .on('close', () => process.exit());
