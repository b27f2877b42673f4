/**
 * A reply's head as text that was made ahead. Node is given a list of fields for each reply and checks, compares and
 * joins every one of them again: for the dozen fields of an answer that is nearly as much as all layers do for a hit.
 *
 * Node takes no text, but its `writeHead` leaves one in `_header`, where `end` finds it; so does this. Everything
 * else stays with Node, and so does every reply that is out of the ordinary: a connection that is to end, one that
 * does not follow HTTP/1.1's rules, a reply without a body.
 */
import { type IncomingMessage, ServerResponse, STATUS_CODES } from 'node:http';
import { httpDate } from '../http-date.ts';
import { bytesBegun } from './half-close.ts';
import type { Fields } from './inbound.ts';
import { keepAliveMs } from './server.ts';

/** What Node leaves for itself between `writeHead` and `end`. */
type WithHead = ServerResponse & { _header: string | null };

/** What no field value may hold (RFC 9110 section 5.5): a line break would begin a field of somebody else's. */
const unfit = /[^\t\x20-\x7e\x80-\xff]/;

const persistence = `Connection: keep-alive\r\nKeep-Alive: timeout=${Math.floor(keepAliveMs / 1_000)}\r\n\r\n`;

/** Whether this Node keeps a head the way it is left here; else heads are written field by field. */
export const takesText = ((): boolean => {
  const asked = { method: 'GET', httpVersionMajor: 1, httpVersionMinor: 1 } as IncomingMessage;
  const response = new ServerResponse(asked) as WithHead;
  response.writeHead(200, ['content-length', '0']);
  return /^HTTP\/1\.1 200 OK\r\ncontent-length: 0\r\n.*\r\n\r\n$/s.test(String(response._header));
})();

/** The fields that every reply with an answer has, as text, and as a list where that is wanted. */
export class PreparedFields {
  /** Status line and fields. */
  readonly text: string;
  /** Fields that many answers have in common, as text: held once for all of them. */
  readonly common: string;
  /** `Vary` is among them: they know more about it than what was told before there was an answer. */
  readonly varies: boolean;
  /** `Date` is among them: the answer's own, and not the time at which the reply is sent. */
  readonly dated: boolean;
  readonly #list: () => Fields;

  /**
   * @param own the fields that are not common to many answers
   * @param common lines, as `linesOf` makes them
   * @param list gives all fields; called anew each time
   * @throws TypeError for a value that is none; it is not told
   */
  constructor(status: number, own: Fields, common: string, list: () => Fields) {
    this.text = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? 'unknown'}\r\n${linesOf(own)}`;
    // V8 joins the pieces of a text that is searched, and this one is written again and again.
    this.varies = this.text.includes('\r\nvary: ');
    this.dated = this.text.includes('\r\ndate: ');
    this.common = common;
    this.#list = list;
  }

  list(): Fields {
    return this.#list();
  }
}

/**
 * Gives Node the head of a reply that has a body of known length and whose connection goes on. `outgoing.end` sends
 * it.
 *
 * @param told further fields of this one reply
 * @throws TypeError for a value that is none; it is not told
 */
export function writePrepared(
  outgoing: ServerResponse,
  status: number,
  fields: PreparedFields,
  told: Fields,
): void {
  outgoing.statusCode = status;
  const lines = `${fields.text}${fields.common}${linesOf(told, fields.varies ? 'vary' : '')}`;
  const date = fields.dated ? '' : `Date: ${httpDate(Date.now())}\r\n`;
  (outgoing as WithHead)._header = lines + date + persistence;
  leaveOutBegun(outgoing);
}

/** Gives Node the head of any other reply. */
export function writeFields(outgoing: ServerResponse, status: number, fields: Fields): void {
  outgoing.writeHead(status, fields as string[]);
  leaveOutBegun(outgoing);
}

/** The start of the status line may have left already. */
function leaveOutBegun(outgoing: ServerResponse): void {
  const begun = bytesBegun(outgoing);
  const held = outgoing as WithHead;
  if (begun > 0 && held._header !== null) held._header = held._header.slice(begun);
}

/**
 * Fields as lines. Names are ours, or were checked with the settings.
 *
 * @param without the name of a field to leave out
 * @throws TypeError for a value that is none; it is not told
 */
export function linesOf(fields: Fields, without = ''): string {
  let lines = '';
  for (let at = 0; at < fields.length; at += 2) {
    const name = fields[at] as string;
    if (name === without) continue;
    const value = fields[at + 1] as string;
    if (unfit.test(value)) throw new TypeError(`a character that no field value may have, in ${name}`);
    lines += `${name}: ${value}\r\n`;
  }
  return lines;
}

export function listOf(fields: Fields | PreparedFields): Fields {
  return fields instanceof PreparedFields ? fields.list() : fields;
}
