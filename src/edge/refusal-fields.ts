/**
 * What the log says of a refused request, so that its sender can be found: the peer's address, the path, and the host or
 * origin where that was refused. They are a caller's text, so they are shortened and searched: a credential that was put
 * in the wrong place is not written down.
 */
import { canonicalAddress } from '../address-policy.ts';
import { holdsCredential } from '../callers/url-credential-policy.ts';
import type { GatewayError } from '../errors.ts';

export interface RefusalFields {
  /** The peer's address; left out on a Unix socket. */
  readonly peer?: string;
  /** Without its query, and its first 200 characters. */
  readonly path?: string;
  readonly host?: string;
  readonly origin?: string;
}

/** A caller's text with which it may have sent a credential. */
export interface CallerText {
  readonly peer: string | undefined;
  readonly path?: string | undefined;
  readonly host?: string | undefined;
  readonly origin?: string | undefined;
}

export interface SearchOptions {
  /** Whether a text holds the upstream key. */
  readonly isSecret: (text: string) => boolean;
  /** Names and values in turn, as they came: a credential among them is searched for by value. */
  readonly rawHeaders: readonly string[];
}

/** A request as `fieldsOfRefusedRequest` needs it. */
export interface RefusedRequest {
  readonly remoteAddress: string | undefined;
  readonly path: string;
  readonly headers: { readonly host?: string | undefined; readonly origin?: string | undefined };
  readonly rawHeaders: readonly string[];
}

const maxCharacters = 200;
const instead = '[a credential]';

/** Our tokens, damaged ones too, and JWTs. */
const tokenShapes = /wag_[A-Za-z0-9_-]{16}|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}/;

/** A value this short would be found in harmless text. */
const leastCharacters = 8;

/** Gives what may be logged of a refused request. */
export function refusalFields({ peer, ...texts }: CallerText, options: SearchOptions): RefusalFields {
  const credentials = presentedCredentials(options.rawHeaders);
  const isCredential = (text: string): boolean =>
    options.isSecret(text) || tokenShapes.test(text) || credentials.some((value) => text.includes(value));
  const fields: Record<string, string> = {};
  if (peer !== undefined) fields['peer'] = canonicalAddress(peer);
  for (const [name, text] of Object.entries(texts)) {
    if (text !== undefined) fields[name] = loggable(text, isCredential);
  }
  return fields;
}

/** The peer and path of a request that was refused with this problem, and its host or origin where that was refused. */
export function fieldsOfRefusedRequest(
  { code }: GatewayError,
  { remoteAddress, path, headers, rawHeaders }: RefusedRequest,
  isSecret: (text: string) => boolean,
): RefusalFields {
  const texts = {
    peer: remoteAddress,
    path,
    host: code === 'host-not-allowed' ? headers.host : undefined,
    origin: code === 'origin-not-allowed' ? headers.origin : undefined,
  };
  return refusalFields(texts, { isSecret, rawHeaders });
}

/** Searched as a whole, or a credential that begins before the cut would be half written down. */
function loggable(text: string, isCredential: (text: string) => boolean): string {
  if (holdsCredential(text, [], isCredential)) return instead;
  return text.slice(0, maxCharacters).replace(/[^\x21-\x7e]/g, '?');
}

/** Values of fields that carry credentials, without their scheme. */
function presentedCredentials(rawHeaders: readonly string[]): string[] {
  const values: string[] = [];
  for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] ?? '';
    if (!/authorization$|key$|token$|assertion$|^cookie$/i.test(name)) continue;
    values.push(...(rawHeaders[index + 1] ?? '').split(/[\s;,]+/));
  }
  return values.filter((value) => value.length >= leastCharacters);
}

/** The path of a request line, without scheme, authority and query. */
export function pathOf(target: string): string {
  return /^[^?#]*/.exec(target)?.[0] ?? '';
}

const requestLine = /^[A-Za-z]{1,32} ((?:https?:\/\/|\/)[^\s?#]*)\S* HTTP/;
const fieldLine = /^([A-Za-z0-9_-]+):[\t ]*(.*?)[\t ]*$/gm;

/** What can be read of a head that the parser refused: its path and its fields, as far as they are there. */
export function readRefusedHead(
  packet: Buffer,
  errorAt: number,
): { path: string | undefined; rawHeaders: string[] } {
  const text = packet.toString('latin1');
  // Good requests may come before it in the same packet.
  const before = errorAt > 0 ? text.lastIndexOf('\r\n\r\n', errorAt - 1) : -1;
  const head = before === -1 ? text : text.slice(before + 4);
  const rawHeaders = [...head.matchAll(fieldLine)].flatMap(([, name = '', value = '']) => [name, value]);
  return { path: requestLine.exec(head)?.[1], rawHeaders };
}
