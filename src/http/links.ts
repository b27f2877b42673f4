/**
 * Links below one base address, and how they are led to another one: strings in JSON, and the targets of `Link` fields
 * (RFC 8288). Pure: no `this`, no I/O, no clock.
 */
import { type HeaderFields, isJsonType, singleField } from './fields.ts';
import { bufferOf, type Payload, smallBytes } from './payload.ts';

/** How a base address may be spelled at the beginning of a JSON string. */
export interface BasePattern {
  readonly expression: RegExp;
  /** The longest spelling: every character escaped, the quote and what follows included. */
  readonly maxBytes: number;
}

/** From the first byte of the address to the one behind it. */
export type Place = readonly [from: number, to: number];

const defaultPorts: Readonly<Record<string, string>> = { 'https:': '443', 'http:': '80' };

/**
 * What a JSON string begins with that names this base address: scheme and host in either case, the default port or
 * none, any character escaped (`\/`, `\u0068`), and then a slash, a query, a fragment or the end of the string.
 */
export function patternFor({ protocol, hostname, port, pathname }: URL): BasePattern {
  const digits = port || defaultPorts[protocol] || '';
  const ownPort = spelled(`:${digits}`);
  const authority = `${spelled(`${protocol}//${hostname}`, true)}${port === '' ? `(?:${ownPort}|${spelled(':')})?` : ownPort}`;
  const path = spelled(pathname.replace(/\/$/, ''));
  const boundary = `(?:["/?#]|\\\\(?:/|u00(?:${hexDigits('/')}|${hexDigits('?')}|${hexDigits('#')})))`;
  const characters = `${protocol}//${hostname}:${digits}${pathname}`.length + 2;
  return { expression: new RegExp(`"${authority}${path}(?=${boundary})`, 'g'), maxBytes: 6 * characters };
}

/** An expression for a text with any of its characters escaped as JSON allows (RFC 8259 section 7). */
function spelled(text: string, inEitherCase = false): string {
  return Array.from(text, (one) => {
    const both = inEitherCase ? [...new Set([one.toLowerCase(), one.toUpperCase()])] : [one];
    const plain = both.map((character) => character.replace(/[^A-Za-z0-9]/, '\\$&'));
    const coded = both.map((character) => `\\\\u00${hexDigits(character)}`);
    return `(?:${[...plain, ...(one === '/' ? ['\\\\/'] : []), ...coded].join('|')})`;
  }).join('');
}

function hexDigits(character: string): string {
  const hex = character.charCodeAt(0).toString(16).padStart(2, '0');
  return hex.replace(/[a-f]/g, (digit) => `[${digit}${digit.toUpperCase()}]`);
}

/** So much is read in one turn of the event loop: about a millisecond. */
const sliceBytes = 256 * 1_024;

/** Finds the strings of a JSON text that begin with the base address. Gives what each slice of the text holds. */
export function* findInJson(body: Payload, { expression, maxBytes }: BasePattern): Generator<Place[]> {
  for (let from = 0; from < body.length; from += sliceBytes) {
    const to = Math.min(from + sliceBytes, body.length);
    const end = Math.min(to + maxBytes, body.length);
    const text = typeof body === 'string' ? body.slice(from, end) : body.toString('latin1', from, end);
    const places: Place[] = [];
    expression.lastIndex = 0;
    for (let found = expression.exec(text); found !== null; found = expression.exec(text)) {
      const quote = from + found.index;
      // A quote within a string is escaped: what follows is in the middle of the string.
      if (quote < to && !isEscaped(body, quote)) places.push([quote + 1, quote + found[0].length]);
    }
    yield places;
  }
}

/** Whether a JSON answer names the base address, as far as its first 256 KiB tell. */
export function namesBase(
  { headers, body }: { readonly headers: HeaderFields; readonly body: Payload },
  pattern: BasePattern,
): boolean {
  if (!isJsonType(singleField(headers['content-type']))) return false;
  const { value: places = [] } = findInJson(body, pattern).next();
  return places.length > 0;
}

/** The runs of backslashes before two quotes never overlap, so all of them together are read once. */
function isEscaped(body: Payload, at: number): boolean {
  let start = at;
  while (start > 0 && byteAt(body, start - 1) === backslash) start--;
  return (at - start) % 2 === 1;
}

const backslash = 0x5c;

function byteAt(body: Payload, at: number): number | undefined {
  return typeof body === 'string' ? body.charCodeAt(at) : body[at];
}

/** The bytes from one place to another, with this address at all the places between. */
export function putInPlaces(
  body: Payload,
  places: readonly Place[],
  address: string,
  from = 0,
  to = body.length,
): Payload {
  const text = typeof body === 'string' ? body.slice(from, to) : body.toString('latin1', from, to);
  const starts = [from, ...places.map(([, end]) => end)];
  const ends = [...places.map(([start]) => start), to];
  const led = starts
    .map((start, index) => text.slice(start - from, (ends[index] ?? to) - from))
    .join(address);
  return typeof body === 'string' && led.length <= smallBytes ? led : bufferOf(led);
}

/** Where links are led from, and to what. */
export interface LinkBases {
  readonly upstream: URL;
  /** What stands in place of the upstream's base address: an address, or the path of one. */
  readonly ours: string;
}

/**
 * A link's target in place of the upstream's; `undefined` where it is not below the upstream's base address.
 *
 * @param target an address, perhaps a relative one (RFC 3986 section 5)
 * @param context the address of the answer that it stands in
 */
export function leadBack(target: string, context: URL, { upstream, ours }: LinkBases): string | undefined {
  const url = URL.parse(target, context);
  if (url === null || url.origin !== upstream.origin || url.username !== '' || url.password !== '') {
    return undefined;
  }
  const base = upstream.pathname.replace(/\/$/, '');
  if (url.pathname !== base && !url.pathname.startsWith(`${base}/`)) return undefined;
  return `${ours}${url.pathname.slice(base.length)}${url.search}${url.hash}`;
}

export interface LedLinks {
  /** The field's value; `undefined` where no link is left. */
  readonly value: string | undefined;
  /** Links that lead elsewhere, or cannot be read. */
  readonly dropped: number;
}

/** So long may a `Link` become: a short relative link grows to a whole address. */
const mostLinkCharacters = 32 * 1_024;

const blank = '[\\t ]*';
const target = new RegExp(`${blank}<([^<>]*)>`, 'y');
const parameter = new RegExp(
  `${blank};${blank}(?:([!#$%&'*+.^_\`|~0-9A-Za-z-]+)(?:${blank}=${blank}("(?:[^"\\\\]|\\\\.)*"|[^\\t ",;]*))?)?`,
  'y',
);
const separator = new RegExp(`${blank}(?:,|$)`, 'y');

/**
 * Leads the links of a `Link` field back (RFC 8288 section 3). A link with an `anchor` is about that address, which has to
 * be below the base address too; a fragment is about the answer itself. What cannot be read is dropped, and so is what
 * comes behind 32 KiB.
 *
 * @param context the address of the answer
 */
export function leadLinksBack(field: string, context: URL, bases: LinkBases): LedLinks {
  const kept: string[] = [];
  let dropped = 0;
  let at = 0;
  let characters = 0;
  while (at < field.length) {
    // An empty member says nothing (RFC 9110 section 5.6.1).
    const empty = matchAt(separator, field, at);
    if (empty !== undefined) {
      at += empty[0].length;
      continue;
    }
    const link = readLink(field, at, context, bases);
    at = link.end;
    characters += link.text?.length ?? 0;
    if (link.text !== undefined && characters <= mostLinkCharacters) kept.push(link.text);
    else dropped += 1;
    if (characters > mostLinkCharacters) break;
  }
  return { value: kept.length === 0 ? undefined : kept.join(', '), dropped };
}

function readLink(
  field: string,
  from: number,
  context: URL,
  bases: LinkBases,
): { readonly text: string | undefined; readonly end: number } {
  const begun = matchAt(target, field, from);
  const led = begun === undefined ? undefined : leadBack(begun[1] ?? '', context, bases);
  let text = led === undefined ? undefined : `<${led}>`;
  let at = from + (begun?.[0].length ?? 0);
  for (let one = matchAt(parameter, field, at); one !== undefined; one = matchAt(parameter, field, at)) {
    const [all, name, value = ''] = one;
    at += all.length;
    const written = name?.toLowerCase() === 'anchor' ? leadAnchorBack(all, value, context, bases) : all;
    text = text === undefined || written === undefined ? undefined : text + written;
  }
  const ended = matchAt(separator, field, at);
  if (ended !== undefined) return { text, end: at + ended[0].length };
  return { text: undefined, end: endOfMember(field, at) };
}

/** The parameter with its address led back; `undefined` where the link is about another place. */
function leadAnchorBack(all: string, value: string, context: URL, bases: LinkBases): string | undefined {
  const anchor = value.startsWith('"') ? value.slice(1, -1).replace(/\\(.)/g, '$1') : value;
  if (anchor.startsWith('#')) return all;
  const led = leadBack(anchor, context, bases);
  return led === undefined ? undefined : `${all.slice(0, all.length - value.length)}"${led}"`;
}

/** Behind the next comma outside quotes. */
function endOfMember(field: string, from: number): number {
  let isQuoted = false;
  for (let at = from; at < field.length; at++) {
    if (field[at] === '"') isQuoted = !isQuoted;
    else if (field[at] === '\\' && isQuoted) at++;
    else if (field[at] === ',' && !isQuoted) return at + 1;
  }
  return field.length;
}

function matchAt(expression: RegExp, text: string, at: number): RegExpExecArray | undefined {
  expression.lastIndex = at;
  return expression.exec(text) ?? undefined;
}
