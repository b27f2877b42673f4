/**
 * What makes two reads the same for the cache, which stored answer a request may have by the answer's Vary (RFC 9111
 * section 4.1), and whether an answer repeats what no key holds. Pure: no `this`, no I/O, no clock.
 *
 * Vary is evaluated on the request as it is sent upstream. Everything but the caller's forwarded fields is the same
 * for every request (or is the key, whose generation is in the cache key), and so is a forwarded field that the cache
 * key holds. So a name that is not among the other forwarded fields distinguishes no requests.
 *
 * Ids go up and stand in no cache key, so what an upstream makes of them must reach no other caller: else one caller could
 * write into the answers of all (cache poisoning). One pass finds all texts that are sought: a window of eight bytes is
 * moved over the answer, and what follows is compared only where the window is the beginning of a text. Neither letter case
 * nor a backslash counts, as in the `\/` of JSON. A text in any other code (HTML entities, base64) is not found.
 */
import type { Answer, UpstreamRequest } from '../exchange/exchange.ts';
import { fieldValue, trimBlanks } from '../http/fields.ts';
import { bufferOf } from '../http/payload.ts';

/**
 * The read without its caller's ids, which no key holds: what comes of it is about the read alone, even an error. So
 * it may be stored, and fits the other requests.
 */
export function withoutCallerIds(request: UpstreamRequest): UpstreamRequest {
  return request.callerIds === undefined ? request : { ...request, ids: {}, callerIds: undefined };
}

/**
 * All that goes up but the ids and the fields that no key holds, byte for byte: no spelling of a field is taken for
 * another, for the upstream may tell them apart. Lengths delimit, so that no two different reads make the same key,
 * whatever their parts contain.
 */
export function cacheKey(request: UpstreamRequest, generation: number | undefined): string {
  const { operation, path, query, keyedHeaders } = request;
  const lengths = `${operation.length}:${path.length}:${query.length}`;
  let key = `${generation ?? '-'}:${lengths}:${operation}${path}${query}`;
  for (const name in keyedHeaders) {
    const value = keyedHeaders[name] ?? '';
    key += `${name.length}:${value.length}:${name}${value}`;
  }
  return key;
}

/** The ids that go up, whether or not a request has them. */
const idNames = new Set(['x-request-id', 'traceparent', 'tracestate']);

/** Lower-case names, sorted, each once; `*` where no other request may ever have the answer. */
export type VaryNames = readonly string[] | '*';

/**
 * Reads Vary. A star in any form and a member that is no field name count as `*`. So does an id: it differs with
 * every request, so an answer that depends on it fits no other request.
 */
export function varyNames(field: string | readonly string[] | undefined): VaryNames {
  const text = fieldValue(field);
  if (text === undefined) return [];
  const names = new Set<string>();
  for (const part of text.split(',')) {
    const name = part.trim().toLowerCase();
    if (name === '') continue;
    if (!/^[!#$%&'+.^_`|~0-9a-z-]+$/.test(name)) return '*';
    if (idNames.has(name)) return '*';
    names.add(name);
  }
  return [...names].sort();
}

/** A request's values of the named fields as one text: two requests match exactly where the texts are equal. */
export function selection(names: readonly string[], headers: UpstreamRequest['headers']): string {
  let text = '';
  for (const name of names) {
    // A name like `constructor` must not find what every object inherits.
    const value = Object.hasOwn(headers, name) ? normalised(name, headers[name] ?? '') : undefined;
    // Lengths delimit, so that no two different selections make the same text; absent is not the same as empty.
    text += value === undefined ? '-;' : `${value.length}:${value};`;
  }
  return text;
}

/** All forwarded fields that no key holds, but ids, as one text: with the key, what "the very same request" means for an error. */
export function exactRequestKey(headers: UpstreamRequest['headers']): string {
  const names = Object.keys(headers).sort();
  return `${names.length}=${names.join(',')}=${selection(names, headers)}`;
}

/** Makes equivalent spellings equal (RFC 9111 section 4.1): space around commas, case of languages. */
function normalised(name: string, value: string): string {
  const plain = value.includes('"') ? trimBlanks(value) : value.split(',').map(trimBlanks).join(',');
  return name === 'accept-language' ? plain.toLowerCase() : plain;
}

/** A shorter text stands in many an answer by chance. */
const windowBytes = 8;

/** A text that is sought, as its bytes are compared. */
interface Sought {
  readonly bytes: Uint8Array;
  /** The first four bytes of its window as a number; the last four are its place in the index. */
  readonly first: number;
}

interface SoughtTexts {
  /** By the last four bytes of the window. */
  readonly byLast: ReadonlyMap<number, readonly Sought[]>;
  /** Whether any window has an end of this hash: most bytes of an answer need no more than this look. */
  readonly marks: Uint8Array;
}

/**
 * Whether the body or a field repeats one of the ids: the whole of a request id, the trace or parent id of a
 * `traceparent`, a `tracestate`, a member of it, or the name or value of one.
 *
 * @param ids those that the caller chose
 * @param passesDown whether a field reaches callers; others may repeat what they like
 */
export function repeatsIds(
  { body, headers }: Pick<Answer, 'body' | 'headers'>,
  ids: NonNullable<UpstreamRequest['callerIds']>,
  passesDown: (name: string) => boolean,
): boolean {
  const sought = indexOf(new Set(listTexts(ids).flatMap(listSpellings)));
  if (sought.byLast.size === 0) return false;
  const names = Object.keys(headers).filter(passesDown);
  const fields = names.map((name) => fieldValue(headers[name])).join('\n');
  return holdsAny(Buffer.from(fields, 'latin1'), sought) || holdsAny(bufferOf(body), sought);
}

/** What an upstream might repeat of the ids. */
function listTexts(ids: Readonly<Record<string, string>>): string[] {
  const { 'x-request-id': requestId = '', traceparent = '', tracestate = '' } = ids;
  // A name, too, is up to 256 bytes of the caller's choice.
  const members = tracestate.split(',').map((member) => member.trim());
  const parts = members.flatMap((member) => member.split('='));
  return [requestId, ...traceparent.split('-'), tracestate, ...members, ...parts];
}

/** As it came, percent-encoded, and as JSON is written by those that escape what HTML gives a meaning. */
function listSpellings(text: string): string[] {
  const escaped = text.replace(
    /["&'+<>`]/g,
    (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
  return [text, encodeURIComponent(text), escaped].map((one) => one.replaceAll('\\', '').toLowerCase());
}

function indexOf(texts: ReadonlySet<string>): SoughtTexts {
  const byLast = new Map<number, Sought[]>();
  const marks = new Uint8Array(1_024);
  for (const text of texts) {
    if (text.length < windowBytes) continue;
    const bytes = Buffer.from(text, 'latin1');
    const last = bytes.readInt32BE(4);
    const sought = { bytes, first: bytes.readInt32BE(0) };
    byLast.set(last, [...(byLast.get(last) ?? []), sought]);
    marks[markFor(last)] = 1;
  }
  return { byLast, marks };
}

function markFor(last: number): number {
  return (last ^ (last >>> 10) ^ (last >>> 20)) & 1_023;
}

const backslash = 0x5c;
const lowerCase = Uint8Array.from({ length: 256 }, (_, byte) =>
  byte >= 0x41 && byte <= 0x5a ? byte + 32 : byte,
);

function holdsAny(bytes: Uint8Array, { byLast, marks }: SoughtTexts): boolean {
  // An answer that is made of beginnings would cost a comparison at each of its bytes. It counts as one that repeats.
  let stepsLeft = bytes.length + 1_024;
  let first = 0;
  let last = 0;
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at] as number;
    if (byte === backslash) continue;
    first = (first << 8) | (last >>> 24);
    last = (last << 8) | (lowerCase[byte] as number);
    if (marks[markFor(last)] === 0) continue;
    for (const sought of byLast.get(last) ?? []) {
      if (sought.first !== first) continue;
      const equal = equalBytes(bytes, at + 1, sought.bytes);
      if (equal === sought.bytes.length) return true;
      stepsLeft -= equal;
    }
    if (stepsLeft < 0) return true;
  }
  return false;
}

/** How many bytes of a sought text stand there, its window included. */
function equalBytes(bytes: Uint8Array, from: number, sought: Uint8Array): number {
  let equal = windowBytes;
  for (let at = from; at < bytes.length && equal < sought.length; at++) {
    const byte = bytes[at] as number;
    if (byte === backslash) continue;
    if (lowerCase[byte] !== sought[equal]) break;
    equal++;
  }
  return equal;
}
