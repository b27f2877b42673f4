/**
 * Writes a reply to Node's response; the one file that knows how Node keeps a head.
 *
 * Node checks, compares and joins each field of each reply: for the dozen fields of an answer that costs nearly as much as
 * all layers do for a hit. So the head of an answer is written as text into `_header`, where Node's own `writeHead` leaves
 * its text and `end` finds it. The lists of an answer are the same for every hit, and are serialised once. Every other
 * reply goes through `writeHead`: a connection that is to end, one that does not follow HTTP/1.1's rules, a reply without a
 * body.
 *
 * It also answers a caller that has ended its sending side (half-close), and notices one that has gone. TCP says the same of
 * both: only what is sent shows the difference, for a peer that has gone answers with a reset. So while a reply is
 * awaited, the first bytes of its status line leave one by one; they are the same whatever the reply will be. The first byte
 * provokes the reset, and a later one meets it: their pauses double, for the sake of slow networks.
 */
import { type IncomingMessage, ServerResponse, STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import { httpDate } from '../http/date.ts';
import type { Fields, InboundRequest, Reply } from './inbound.ts';

/** Longer than load balancers keep idle connections, so that load balancers close first. */
export const keepAliveMs = 65_000;

/** What Node leaves for itself between `writeHead` and `end`. */
type WithHead = ServerResponse & { _header: string | null };

/** What no field value may hold (RFC 9110 section 5.5): a line break would begin a field of another's choice. */
const unfit = /[^\t\x20-\x7e\x80-\xff]/;

const persistence = `Connection: keep-alive\r\nKeep-Alive: timeout=${Math.floor(keepAliveMs / 1_000)}\r\n\r\n`;

/** Whether this Node keeps a head the way it is left here; else heads are written field by field. */
export const takesText = ((): boolean => {
  const asked = { method: 'GET', httpVersionMajor: 1, httpVersionMinor: 1 } as IncomingMessage;
  const response = new ServerResponse(asked) as WithHead;
  response.writeHead(200, ['content-length', '0']);
  return /^HTTP\/1\.1 200 OK\r\ncontent-length: 0\r\n.*\r\n\r\n$/s.test(String(response._header));
})();

/**
 * Writes a reply, and the fields that were set for it on its way.
 *
 * @param endsConnection whether the connection is to end with it
 * @throws TypeError for an invalid field value, before anything has left; the value is not in its message
 */
export function writeResponse(
  outgoing: ServerResponse,
  request: InboundRequest,
  reply: Reply,
  endsConnection: boolean,
): void {
  const { status, common, body } = reply;
  if (common !== undefined && body !== null && !endsConnection && keepsAlive(request, outgoing)) {
    outgoing.statusCode = status;
    (outgoing as WithHead)._header = headOf(reply, common, request);
  } else {
    outgoing.writeHead(status, mergedFields(request, reply, endsConnection));
  }
  leaveOutBegun(outgoing);
  outgoing.end(body, 'latin1');
}

/** Ends a response with a bare 500, or with its connection where it has begun. */
export function writeFault(outgoing: ServerResponse): void {
  if (outgoing.headersSent) {
    outgoing.destroy();
    return;
  }
  outgoing.writeHead(500, { 'content-length': '0' });
  leaveOutBegun(outgoing);
  outgoing.end();
}

/**
 * All fields of a reply. Its own win over those that were set on its way: its `Vary` knows more than the one that
 * CORS sets for everything.
 */
function mergedFields(
  { cacheFields, replyHeaders }: InboundRequest,
  { fields, common = [] }: Reply,
  endsConnection: boolean,
): string[] {
  const all = [...fields, ...common, ...cacheFields];
  const own = all.length;
  for (let at = 0; at < replyHeaders.length; at += 2) {
    const name = replyHeaders[at] as string;
    if (!hasField(all, own, name)) all.push(name, replyHeaders[at + 1] as string);
  }
  if (endsConnection) all.push('connection', 'close');
  return all;
}

/** @param length how much of the list counts */
function hasField(fields: Fields, length: number, name: string): boolean {
  for (let at = 0; at < length; at += 2) if (fields[at] === name) return true;
  return false;
}

/** Whether Node would say of this connection that it goes on. */
function keepsAlive({ headers }: InboundRequest, outgoing: ServerResponse): boolean {
  return takesText && outgoing.shouldKeepAlive && headers.expect === undefined;
}

/** The start of the status line may have left already. */
function leaveOutBegun(outgoing: ServerResponse): void {
  const begun = bytesBegun(outgoing);
  const held = outgoing as WithHead;
  if (begun > 0 && held._header !== null) held._header = held._header.slice(begun);
}

const lines: unique symbol = Symbol('lines');

/** A list that has been serialised keeps its text, and so lives and dies with it. */
type Serialised = Fields & { [lines]?: string };

function headOf(
  { status, fields }: Reply,
  common: Fields,
  { cacheFields, replyHeaders }: InboundRequest,
): string {
  const own = `${statusLine(status)}${keptLinesOf(fields)}${keptLinesOf(common)}${keptLinesOf(cacheFields)}`;
  const set = linesOf(replyHeaders, hasField(fields, fields.length, 'vary') ? 'vary' : '');
  // An answer from the store has its own date, and not the time at which the reply leaves.
  const date = hasField(fields, fields.length, 'date') ? '' : `Date: ${httpDate(Date.now())}\r\n`;
  return `${own}${set}${date}${persistence}`;
}

function statusLine(status: number): string {
  return status === 200
    ? 'HTTP/1.1 200 OK\r\n'
    : `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'unknown'}\r\n`;
}

function keptLinesOf(fields: Serialised): string {
  const kept = fields[lines];
  if (kept !== undefined) return kept;
  const text = linesOf(fields);
  // V8 joins the pieces of a text that is searched, and this one is written again and again.
  text.includes('\0');
  fields[lines] = text;
  return text;
}

/**
 * Fields as lines. Names are ours, or were checked with the settings.
 *
 * @param without the name of a field to leave out
 * @throws TypeError for an invalid value; the value is not in its message
 */
export function linesOf(fields: Fields, without = ''): string {
  let text = '';
  for (let at = 0; at < fields.length; at += 2) {
    const name = fields[at] as string;
    if (name === without) continue;
    const value = fields[at + 1] as string;
    if (unfit.test(value)) throw new TypeError(`a character that no field value may have, in ${name}`);
    text += `${name}: ${value}\r\n`;
  }
  return text;
}

/** How every reply begins. */
const beginning = 'HTTP/1.1 ';
const firstPauseMs = 10;

/** How much of the status line of a reply that is awaited has left. A property, for a map would cost the collector. */
const begun = Symbol('begun');

type Response = ServerResponse & { [begun]?: number };
type ReplyingSocket = Socket & { readonly _httpMessage?: Response | null };

/** Says that a reply comes later, and that whatever writes it asks `bytesBegun`. */
export function awaitReply(outgoing: Response): void {
  outgoing[begun] = 0;
}

/** How many bytes of the status line have left already. */
function bytesBegun(outgoing: Response): number {
  return outgoing[begun] ?? 0;
}

/** Call when a caller has ended its sending side; once more does nothing. */
export function pokeCaller(socket: ReplyingSocket): void {
  const reply = socket._httpMessage;
  if (reply?.[begun] !== 0) return;
  // Its next reply is awaited just so.
  reply.once('close', () => pokeCaller(socket));
  sendNextByte(socket, reply, firstPauseMs);
}

function sendNextByte(socket: ReplyingSocket, reply: Response, pauseMs: number): void {
  const sent = bytesBegun(reply);
  if (reply.headersSent || !socket.writable || sent === beginning.length) return;
  reply[begun] = sent + 1;
  socket.write(beginning.charAt(sent), 'latin1');
  setTimeout(sendNextByte, pauseMs, socket, reply, 2 * pauseMs).unref();
}
