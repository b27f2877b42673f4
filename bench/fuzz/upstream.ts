/**
 * The fuzzer's upstream: a plain socket server. It checks every request that the gateway sends, to the byte, and
 * answers with the case's bytes or, where a case has none, with a good answer.
 */

import type { AddressInfo } from 'node:net';
import { createServer, type Socket } from 'node:net';
import type { Random } from '../../test/support/random.ts';
import type { FuzzedAnswer } from './answers.ts';
import { piecesOf } from './mutate.ts';

export interface FuzzUpstream {
  readonly url: string;
  /** From now on, requests of this case get this answer. */
  prepare(number: number, answer: FuzzedAnswer, random: Random): void;
  forget(): void;
  /** Requests since the last call that no gateway should send; each with its case where it names one. */
  takeFoul(): readonly Foul[];
  close(): void;
}

export interface Foul {
  readonly number: number | undefined;
  readonly what: string;
}

const requestLine =
  /^GET (\/api\/(?:analytics\/accounts|users\/api-keys|fuzz\/w\d+)\/(?:\?[\x21\x22\x24-\x7e]*)?) HTTP\/1\.1$/;
const fieldLine = /^([a-z0-9-]+): ?([\t\x20-\x7e\x80-\xff]*)$/;
/** All that may go up: what the gateway says itself, the cache's validators, trace context, and FORWARD_REQUEST_HEADERS. */
const mayGoUp = new Set([
  'accept',
  'accept-encoding',
  'connection',
  'host',
  'if-modified-since',
  'if-none-match',
  'traceparent',
  'tracestate',
  'user-agent',
  'via',
  'x-api-key',
  'x-fuzz',
  'x-request-id',
]);

/** Why a request's head is one that the gateway must not send, or `undefined`. */
function foulIn(head: string, key: string): string | undefined {
  const [first = '', ...lines] = head.split('\r\n');
  if (!requestLine.test(first)) return 'a request line that is not canonical';
  const fields = lines.map((line) => fieldLine.exec(line.replace(/^[^:]*/, (name) => name.toLowerCase())));
  if (fields.includes(null)) return 'an invalid field line';
  const names = fields.map((field) => field?.[1] ?? '');
  const stranger = names.find((name) => !mayGoUp.has(name));
  if (stranger !== undefined) return `the field ${stranger}`;
  const twice = names.find((name, at) => names.indexOf(name) !== at);
  if (twice !== undefined) return `the field ${twice} twice`;
  return fields[names.indexOf('x-api-key')]?.[2] === key ? undefined : 'no key, or another one';
}

export async function startFuzzUpstream(key: string): Promise<FuzzUpstream> {
  const prepared = new Map<number, { readonly answer: FuzzedAnswer; readonly random: Random }>();
  const sockets = new Set<Socket>();
  let foul: Foul[] = [];

  function onHead(socket: Socket, head: string): void {
    const named = /[?&]case=(\d+)/.exec(head)?.[1];
    const number = named === undefined ? undefined : Number(named);
    const what = foulIn(head, key);
    if (what !== undefined)
      foul.push({ number, what: `upstream got ${what}: ${JSON.stringify(head.slice(0, 500))}` });
    const told = number === undefined ? undefined : prepared.get(number);
    if (told === undefined) {
      const body = JSON.stringify({ head: head.length });
      socket.write(
        `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
      );
    } else {
      void deliver(socket, told.answer, told.random);
    }
  }

  const server = createServer((socket) => {
    sockets.add(socket);
    let text = '';
    socket.setEncoding('latin1');
    socket.on('data', (chunk: string) => {
      text += chunk;
      for (let end = text.indexOf('\r\n\r\n'); end !== -1; end = text.indexOf('\r\n\r\n')) {
        const head = text.slice(0, end);
        text = text.slice(end + 4);
        onHead(socket, head);
      }
    });
    socket.on('error', () => {});
    socket.on('close', () => {
      sockets.delete(socket);
      if (text !== '')
        foul.push({ number: undefined, what: `upstream got half a request: ${text.slice(0, 200)}` });
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/api`,
    prepare: (number, answer, random) => void prepared.set(number, { answer, random }),
    forget: () => prepared.clear(),
    takeFoul() {
      const taken = foul;
      foul = [];
      return taken;
    },
    close() {
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

async function deliver(socket: Socket, { bytes, ending }: FuzzedAnswer, random: Random): Promise<void> {
  for (const piece of piecesOf(bytes, random)) {
    if (socket.destroyed) return;
    socket.write(piece);
    await new Promise((next) => setImmediate(next));
  }
  if (ending === 'resets') socket.resetAndDestroy();
  if (ending === 'ends') socket.end();
}
