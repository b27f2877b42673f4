/**
 * What makes two reads the same for the cache, and which stored answer a request may have by the answer's Vary
 * (RFC 9111 section 4.1). Pure: no `this`, no I/O, no clock.
 *
 * Vary is evaluated on the request as it is sent upstream. Everything but the caller's forwarded fields is the same
 * for every request (or is the key, whose generation is in the cache key), and so is a forwarded field that the cache
 * key holds. So a name that is not among the other forwarded fields distinguishes no requests.
 */
import type { UpstreamRequest } from '../exchange/exchange.ts';
import { fieldValue, trimBlanks } from '../http/fields.ts';

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
