/**
 * The response fields of an answer. Only fields that the table (`http/header-table.ts`) or FORWARD_RESPONSE_HEADERS lets
 * down come down; all others stop here, as do hop-by-hop fields and those that `Connection` names.
 *
 * The fields that are the same for every reply with an answer are prepared once and kept with the answer.
 */
import { hash } from 'node:crypto';
import type { Config } from '../config/config.ts';
import type { Answer } from '../exchange/exchange.ts';
import type { CacheOutcome, Trace } from '../exchange/trace.ts';
import { dateOfAnswer, httpDate } from '../http/date.ts';
import { connectionOptions, fieldValue, type HeaderFields, ownField, singleField } from '../http/fields.ts';
import {
  bodyFields,
  neverDown,
  passedCaching,
  passedDown,
  remadeDown,
  singleFields,
} from '../http/header-table.ts';
import { viaName } from '../version.ts';
import type { Fields } from './inbound.ts';
import { type ContentCoding as Coding, codedEntityTag, entityTagOf } from './representation.ts';

/** Answers are data, whatever they claim to be: nothing may run, frame or embed them. */
export const securityFields = {
  'x-content-type-options': 'nosniff',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'; sandbox",
  'cross-origin-resource-policy': 'same-origin',
} as const;

/** Of every reply (RFC 9110 section 7.6.3), the gateway's own included: a caller need not distinguish them. */
export const viaField = { via: viaName } as const;

/** A record of fields as a list. */
export function listed(fields: Readonly<Record<string, string>>): string[] {
  return Object.entries(fields).flat();
}

/** Fields of every problem. */
export const problemFields = {
  ...viaField,
  'content-type': 'application/problem+json',
  'cache-control': 'no-store',
  ...securityFields,
} as const;

/** Fields of the documents and probes that are text for people. */
export const documentFields = {
  ...viaField,
  'content-type': 'text/plain; charset=utf-8',
  'cache-control': 'no-store',
  ...securityFields,
} as const;

/** Of every answer. */
const everyAnswers = listed({ ...viaField, ...securityFields });

export interface PreparedReply {
  /** By coding, with its own `ETag` and `Content-Length`: the same list each time. */
  fields(coding: Coding): Fields;
  /** The same of a 304 for that coding (RFC 9110 section 15.4.5): no body, so nothing that describes one. */
  notModified(coding: Coding): Fields;
  /** What every answer has besides: the same list for all of them. */
  readonly common: Fields;
  /** The upstream's, or for a 200 without one a strong one from the body; suffixed for a coding. */
  etag(coding: Coding): string | undefined;
  /** The upstream's. */
  readonly lastModified: string | undefined;
  /** The upstream's, or the time of receipt where the upstream gave no valid one: `Age` and `Expires` count from it. */
  readonly date: string;
}

/** Which fields go down to callers, and by which of a request's they differ. */
export type ReplySettings = Pick<
  Config,
  | 'CALLER_CACHE_CONTROL'
  | 'CORS_ORIGINS'
  | 'FORWARD_REQUEST_HEADERS'
  | 'FORWARD_REQUEST_HEADERS_UNKEYED'
  | 'FORWARD_RESPONSE_HEADERS'
>;

/** The names of the upstream's fields that are passed down unchanged. */
function unchangedFields(settings: ReplySettings): string[] {
  const isUpstreams = settings.CALLER_CACHE_CONTROL === 'upstream';
  const isPassed = (name: string): boolean =>
    !neverDown.has(name) && (name !== 'cache-control' || isUpstreams);
  const caching = isUpstreams ? passedCaching : [];
  return [...new Set([...passedDown, ...settings.FORWARD_RESPONSE_HEADERS, ...caching])].filter(isPassed);
}

/**
 * The request fields by which answers differ whatever the upstream's `Vary` says: `Origin` where pages of any may read
 * them, and the forwarded fields of the cache key, for a caller's own cache needs them as well.
 */
function variesBy(settings: ReplySettings): string[] {
  const { CORS_ORIGINS, FORWARD_REQUEST_HEADERS, FORWARD_REQUEST_HEADERS_UNKEYED } = settings;
  const keyed = FORWARD_REQUEST_HEADERS.filter((name) => !FORWARD_REQUEST_HEADERS_UNKEYED.includes(name));
  return [...(CORS_ORIGINS.length > 0 ? ['origin'] : []), ...keyed];
}

/** The names of the upstream's fields whose values reach callers. */
export function fieldsDown(settings: ReplySettings): ReadonlySet<string> {
  return new Set([...unchangedFields(settings), ...remadeDown]);
}

/** Prepares the fields of an answer and keeps them with it. */
export function prepareReplies(settings: ReplySettings): (answer: Answer) => PreparedReply {
  const { CALLER_CACHE_CONTROL: cacheControl } = settings;
  const terms: ReplyTerms = {
    names: unchangedFields(settings),
    variesBy: variesBy(settings),
    common: cacheControl === 'upstream' ? everyAnswers : [...everyAnswers, 'cache-control', cacheControl],
  };
  return (answer) => {
    answer.derived ??= new ReplyOfAnswer(answer, terms);
    return answer.derived as PreparedReply;
  };
}

/** The same for all answers. */
interface ReplyTerms {
  /** Fields that are passed down unchanged. */
  readonly names: readonly string[];
  readonly variesBy: readonly string[];
  /** Fields that are the same for every answer. */
  readonly common: Fields;
}

/** Makes the fields of each coding when they are first needed: most answers leave in one coding. */
class ReplyOfAnswer implements PreparedReply {
  readonly #answer: Answer;
  readonly #terms: ReplyTerms;
  /** The answer's fields without those of the upstream's connection. */
  readonly #headers: HeaderFields;
  readonly date: string;
  readonly #tag: string | undefined;
  #identity: Fields | undefined;
  #coded: { br?: Fields; gzip?: Fields } | undefined;

  constructor(answer: Answer, terms: ReplyTerms) {
    this.#answer = answer;
    this.#terms = terms;
    const { status, body } = answer;
    const headers = endToEndFields(answer.headers);
    this.#headers = headers;
    this.date = httpDate(dateOfAnswer(headers['date'], answer.receivedAt));
    this.#tag = status === 200 ? entityTagOf(headers['etag'], body) : joined(headers, 'etag');
  }

  get common(): Fields {
    return this.#terms.common;
  }

  get lastModified(): string | undefined {
    return joined(this.#headers, 'last-modified');
  }

  etag(coding: Coding): string | undefined {
    return this.#tag === undefined ? undefined : codedEntityTag(this.#tag, coding);
  }

  fields(coding: Coding): Fields {
    if (coding === 'identity') {
      this.#identity ??= this.#own(coding, true);
      return this.#identity;
    }
    this.#coded ??= {};
    this.#coded[coding] ??= this.#own(coding, true);
    return this.#coded[coding];
  }

  notModified(coding: Coding): Fields {
    return this.#own(coding, false);
  }

  /** All fields but those that are the same for every answer. */
  #own(coding: Coding, hasBody: boolean): string[] {
    const { status, body, encoded } = this.#answer;
    const fields: string[] = ['date', this.date];
    for (const name of this.#terms.names) {
      const value = joined(this.#headers, name);
      const isLeftOut = (!hasBody || status === 205) && bodyFields.has(name);
      if (value !== undefined && !isLeftOut) fields.push(name, value);
    }
    const tag = this.etag(coding);
    if (tag !== undefined) fields.push('etag', tag);
    const vary = varyOf(joined(this.#headers, 'vary'), encoded !== undefined, this.#terms);
    if (vary !== '') fields.push('vary', vary);
    // A 204 says nothing about its length (RFC 9110 section 8.6), a 205 says that it has none (section 15.3.6).
    if (!hasBody || status === 204) return fields;
    if (status === 205) return [...fields, 'content-length', '0'];
    if (coding !== 'identity') fields.push('content-encoding', coding);
    const sent = coding === 'identity' ? body : (encoded?.[coding] ?? body);
    fields.push('content-length', String(sent.length));
    return fields;
  }
}

/** A field's value on one line: all members of a repeated list field, nothing of a repeated singular field. */
function joined(headers: HeaderFields, name: string): string | undefined {
  const value = ownField(headers, name);
  return singleFields.has(name) ? singleField(value) : fieldValue(value);
}

function endToEndFields(headers: HeaderFields): HeaderFields {
  const hopByHop = connectionOptions(headers['connection']);
  if (hopByHop.size === 0) return headers;
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !hopByHop.has(name)));
}

/** Each member once, spelled as it came first. */
function varyOf(upstream: string | undefined, mayBeCoded: boolean, { variesBy }: ReplyTerms): string {
  if (upstream === undefined && !mayBeCoded) return variesBy.join(', ');
  const members = new Map<string, string>();
  const add = (name: string): void => {
    if (!members.has(name.toLowerCase())) members.set(name.toLowerCase(), name);
  };
  for (const name of (upstream ?? '').split(',')) add(name.trim());
  if (mayBeCoded) add('accept-encoding');
  for (const name of variesBy) add(name);
  members.delete('');
  // The gateway adds the key itself, so answers do not differ by it for callers.
  members.delete('x-api-key');
  return [...members.values()].join(', ');
}

interface HitFields {
  readonly ttlSeconds: number;
  readonly ageSeconds: number | undefined;
  readonly fields: Fields;
}

/** Hits differ by whole seconds alone, so that most of them find the list of an earlier one, and its lines with it. */
const slots = 64;
const hits: (HitFields | undefined)[] = Array.from({ length: slots }, () => undefined);

/** `Cache-Status` (RFC 9211) and `Age`, from what the cache wrote on the trace; the same list for many hits. */
export function listCacheFields({ cache, ageSeconds }: Trace): Fields {
  if (cache === undefined) return [];
  const { hit, ttlSeconds, detail } = cache;
  if (!hit || ttlSeconds === undefined || detail !== undefined) return listOf(cache, ageSeconds);
  const slot = ttlSeconds & (slots - 1);
  let last = hits[slot];
  if (last?.ttlSeconds !== ttlSeconds || last.ageSeconds !== ageSeconds) {
    last = { ttlSeconds, ageSeconds, fields: listOf(cache, ageSeconds) };
    hits[slot] = last;
  }
  return last.fields;
}

function listOf(cache: CacheOutcome, ageSeconds: number | undefined): Fields {
  const status = ['cache-status', cacheStatus(cache)];
  return ageSeconds === undefined ? status : [...status, 'age', `${ageSeconds}`];
}

function cacheStatus(cache: CacheOutcome): string {
  let status = 'analytics-gateway';
  if (cache.hit) status += '; hit';
  if (cache.forwarded !== undefined) status += `; fwd=${cache.forwarded}`;
  if (cache.forwardStatus !== undefined) status += `; fwd-status=${cache.forwardStatus}`;
  if (cache.ttlSeconds !== undefined) status += `; ttl=${cache.ttlSeconds}`;
  if (cache.stored === true) status += '; stored';
  if (cache.collapsed !== undefined) status += cache.collapsed ? '; collapsed' : '; collapsed=?0';
  if (cache.detail !== undefined) status += `; detail=${cache.detail}`;
  return status;
}

/** The cache's part in one word. */
export function cacheWord(cache: CacheOutcome | undefined): string | undefined {
  if (cache === undefined) return undefined;
  if (cache.detail !== undefined) return cache.detail;
  if (cache.hit) return 'hit';
  if (cache.collapsed === true) return 'joined';
  if (cache.forwardStatus === 304) return 'revalidated';
  return cache.forwarded === 'bypass' || cache.forwarded === 'request' ? cache.forwarded : 'miss';
}

/**
 * `Server-Timing` of a read that did not come from memory: the cache's part in a word, and how long the request itself waited
 * and was under way upstream. In whole ms, so that nothing of the gateway's own work is measured by it. A request that joined
 * another is told no durations: they are the other's.
 */
export function serverTiming({ cache, waitedMs, upstreamMs, attempts }: Trace): string {
  const word = cacheWord(cache);
  const parts = word === undefined ? [] : [`cache;desc=${word}`];
  if (waitedMs > 0) parts.push(`wait;dur=${Math.round(waitedMs)}`);
  if (attempts > 0) parts.push(`upstream;dur=${Math.round(upstreamMs)}`);
  return parts.join(', ');
}

/**
 * The response fields of a page: what a browser may load, run and apply of it.
 *
 * A page loads nothing from elsewhere. Its style, and scripts that are admitted by their digests (CSP level 3 section
 * 2.3.1), stand in the page itself; where it has scripts, they may send requests to its own origin.
 */
export function pageFields(style: string, scripts: readonly string[]): Readonly<Record<string, string>> {
  return {
    'content-type': 'text/html; charset=utf-8',
    'content-security-policy': [
      "default-src 'none'",
      ...(scripts.length === 0
        ? []
        : [`script-src ${scripts.map(sourceDigest).join(' ')}`, "connect-src 'self'"]),
      `style-src ${sourceDigest(style)}`,
      'img-src data:',
      "base-uri 'none'",
      "form-action 'none'",
      "frame-ancestors 'none'",
    ].join('; '),
    'cross-origin-opener-policy': 'same-origin',
    'referrer-policy': 'no-referrer',
  };
}

function sourceDigest(text: string): string {
  return `'sha256-${hash('sha256', text, 'base64')}'`;
}
