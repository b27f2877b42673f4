/**
 * What makes a request's head invalid though Node's parser lets it pass, which authority and path it means, and whether a
 * body follows it.
 * Pure: no `this`, no I/O, no clock.
 */
import { hostName } from '../http/address.ts';

/** What Node's parser has made of a request's head. */
export interface ParsedHead {
  readonly httpVersion: string;
  /** Names and values in turn, as they came. */
  readonly rawHeaders: readonly string[];
  /** The lines of a repeated field joined by commas. */
  readonly headers: { readonly 'transfer-encoding'?: string | undefined };
}

export interface HeadRefusal {
  readonly status: 400 | 431 | 505;
  /** For the log and the metrics. */
  readonly code: string;
}

export interface RequestTarget {
  /** In origin form: path and query; or `*`. */
  readonly target: string;
  /** The authority of an absolute target; `undefined` where `Host` says it. */
  readonly authority: string | undefined;
}

/** More are refused. Names and values that a head makes of its bytes take many times their length. */
export const maxHeaderFields = 100;

/**
 * Why a request is refused before anything else is done for it; `undefined` for a good one.
 *
 * @param goodHost the `Host` of an earlier good request: it needs no second look
 */
export function headRefusal(head: ParsedHead, goodHost?: string): HeadRefusal | undefined {
  // First: of a head with more fields than Node gives, the rest cannot be judged (RFC 6585 section 5).
  if (head.rawHeaders.length > 2 * maxHeaderFields) return { status: 431, code: 'HEADER_FIELDS' };
  if (head.httpVersion !== '1.1' && head.httpVersion !== '1.0') return { status: 505, code: 'HTTP_VERSION' };
  const code = hostProblem(head, goodHost) ?? codingProblem(head.headers['transfer-encoding']);
  return code === undefined ? undefined : { status: 400, code };
}

/** RFC 9112 section 3.2: one `Host` that is a name; HTTP/1.0 may do without. */
function hostProblem(
  { httpVersion, rawHeaders }: ParsedHead,
  goodHost: string | undefined,
): string | undefined {
  let host: string | undefined;
  for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] ?? '';
    if (name.length !== 4 || name.toLowerCase() !== 'host') continue;
    if (host !== undefined) return 'HOST_REPEATED';
    host = rawHeaders[index + 1] ?? '';
  }
  if (host === undefined) return httpVersion === '1.0' ? undefined : 'NO_HOST';
  return host === goodHost || hostName(host) !== undefined ? undefined : 'HOST_MALFORMED';
}

/** RFC 9112 section 6.3: where a body ends is only known if its last coding is `chunked`. */
function codingProblem(transferEncoding: string | undefined): string | undefined {
  if (transferEncoding === undefined) return undefined;
  const last = transferEncoding.slice(transferEncoding.lastIndexOf(',') + 1).trim();
  return last.toLowerCase() === 'chunked' ? undefined : 'TRANSFER_CODING';
}

const absolute = /^https?:\/\/([^/?#]*)(.*)$/is;

/**
 * Takes a request target apart (RFC 9112 section 3.2). The authority of an absolute one is what the request is for,
 * whatever its `Host` says (section 3.2.2).
 *
 * @returns `undefined` for a text that is no target, as `*` with another method than OPTIONS
 */
export function requestTarget(method: string, target: string): RequestTarget | undefined {
  if (target.startsWith('/')) return { target, authority: undefined };
  if (target === '*') return method === 'OPTIONS' ? { target, authority: undefined } : undefined;
  const [, authority = '', rest = ''] = absolute.exec(target) ?? [];
  if (hostName(authority) === undefined) return undefined;
  return { target: rest.startsWith('/') ? rest : `/${rest}`, authority };
}

/** Whether a request announces a body, be it an empty chunked one (RFC 9112 section 6.3). Reads have none: it is refused. */
export function announcesBody(headers: {
  readonly 'content-length'?: string | undefined;
  readonly 'transfer-encoding'?: string | undefined;
}): boolean {
  const length = headers['content-length'];
  return headers['transfer-encoding'] !== undefined || (length !== undefined && length !== '0');
}
