/**
 * What of the upstream may pass at all. Pure: no `this`, no I/O, no clock.
 *
 * A caller believes a 200, so all that could be wrong with one is found before a byte of it is sent.
 */

import { hasNoContent } from '../exchange/exchange.ts';
import { type HeaderFields, isJsonType, singleField } from '../http/fields.ts';
import { codingOf } from './content-coding.ts';

/** Prepares the check of media types against `UPSTREAM_MEDIA_TYPES`; ranges are lower-cased. */
export function acceptMediaTypes(ranges: readonly string[]): (contentType: string | undefined) => boolean {
  const expressions = ranges.map(
    (range) => new RegExp(`^${range.replace(/[.+^$()[\]{}|\\?]/g, '\\$&').replaceAll('*', '[^/;,\\s]+')}$`),
  );
  // Answers repeat the same few values: the last one that was accepted is not checked again.
  let accepted: string | undefined;
  return (contentType) => {
    if (contentType !== undefined && contentType === accepted) return true;
    const mediaType = contentType?.split(';', 1)[0]?.trim().toLowerCase() ?? '';
    if (!expressions.some((expression) => expression.test(mediaType))) return false;
    accepted = contentType;
    return true;
  };
}

export interface ResponseLimits {
  readonly maxBodyBytes: number;
  readonly isAcceptedType: (contentType: string | undefined) => boolean;
  /** The request carried validators of the cache, so that a 304 is an answer to us. */
  readonly revalidating: boolean;
}

export type InvalidHead = {
  readonly reason: string;
  readonly proxyError: 'http_protocol_error' | 'http_response_content_coding' | 'http_response_body_size';
};

/**
 * Why a response cannot pass, by its head alone, or `undefined`.
 *
 * 3xx: never followed, never passed, for `X-API-Key` would travel along a redirect. 206: we ask for no ranges.
 * 401 and 429 are for the layers above to deal with; they never reach a caller as such.
 */
export function invalidHead(
  status: number,
  headers: HeaderFields,
  limits: ResponseLimits,
): InvalidHead | undefined {
  const because = (reason: string): InvalidHead => ({ reason, proxyError: 'http_protocol_error' });
  if (status === 304) return limits.revalidating ? undefined : because('a 304 that was not asked for');
  if (status >= 300 && status < 400) return because(`a redirect (${status})`);
  if (status === 206) return because('a partial answer (206) that was not asked for');
  if (status > 599) return because(`a status outside HTTP (${status})`);
  const length = headers['content-length'];
  if (typeof length === 'object' || (length !== undefined && headers['transfer-encoding'] !== undefined)) {
    // RFC 9112 section 6.3, rules 3 and 5: a recipient that believes the other one sees another answer.
    return because('two statements of its length');
  }
  const coding = codingOf(headers);
  if (coding === undefined) {
    const reason = 'several content codings or an unknown one';
    return { reason, proxyError: 'http_response_content_coding' };
  }
  if (Number(length) > limits.maxBodyBytes) {
    return { reason: 'a body over UPSTREAM_MAX_BODY', proxyError: 'http_response_body_size' };
  }
  const isSuccess = status < 300;
  if (isSuccess && !hasNoContent(status) && !limits.isAcceptedType(singleField(headers['content-type']))) {
    return because('a success whose media type is not in UPSTREAM_MEDIA_TYPES');
  }
  return undefined;
}

/**
 * Whether the end of a body is only known by the end of the connection (RFC 9112 section 6.3, rule 8). Then a
 * truncated body looks like a whole one.
 */
function endsWithConnection(headers: HeaderFields): boolean {
  return headers['content-length'] === undefined && headers['transfer-encoding'] === undefined;
}

/** Whether bytes are one whole JSON text, to the letter. */
function isWholeJson(body: Buffer): boolean {
  try {
    JSON.parse(body.toString('utf8'));
    return true;
  } catch {
    return false;
  }
}

const quote = 0x22;
const backslash = 0x5c;
const openBrace = 0x7b;
const closeBrace = 0x7d;
const blanks = new Set([0x20, 0x09, 0x0a, 0x0d]);
/** What a JSON text can begin with (RFC 8259 sections 2 and 3): an object, an array, a string, a number, a name. */
const beginnings = new Set(Buffer.from('{["-0123456789tfn'));

/**
 * Whether bytes begin like a JSON text, and every string and bracket in them is closed: a third of the cost of
 * parsing, and enough to find any truncation. A `Content-Length` that is too small truncates an answer so that its framing
 * still looks whole.
 */
export function isClosedJson(body: Buffer): boolean {
  const end = body.length;
  let at = 0;
  while (blanks.has(body[at] as number)) at++;
  if (!beginnings.has(body[at] as number)) return false;
  let depth = 0;
  while (at < end) {
    const byte = body[at++] as number;
    if (byte === quote) {
      let inside = 0;
      do {
        if (at >= end) return false;
        inside = body[at++] as number;
        if (inside === backslash) at++;
      } while (inside !== quote);
      // `[` and `{` differ in one bit only, and so do `]` and `}`.
    } else if ((byte | 0x20) === openBrace) depth++;
    else if ((byte | 0x20) === closeBrace) depth--;
  }
  return depth === 0;
}

/** Whether a success is all there. Errors pass with whatever body they have. */
export function isWhole(status: number, headers: HeaderFields, body: Buffer): boolean {
  if (status >= 300 || hasNoContent(status)) return true;
  if (endsWithConnection(headers)) return isWholeJson(body);
  return !isJsonType(singleField(headers['content-type'])) || isClosedJson(body);
}
