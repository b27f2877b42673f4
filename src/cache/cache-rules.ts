/**
 * What a shared cache may do with an answer (RFC 9111, RFC 5861), decided once when it arrives and then compared
 * with the clock; how a stored answer is asked about again, and what a 304 makes of it. Pure: no `this`, no I/O, no clock; times come in as arguments.
 *
 * Two clocks: an answer's first apparent age comes from dates and the wall clock, everything after it from the
 * monotonic clock, so that a jump of the wall clock neither freezes nor prolongs anything.
 */
import type { ProblemCode } from '../errors.ts';
import type { Answer } from '../exchange/exchange.ts';
import { dateOfAnswer, parseDateField } from '../http/date.ts';
import { connectionOptions, fieldValue, type HeaderFields, isEntityTag, opaqueTag } from '../http/fields.ts';
import { bodyFields, connectionFields } from '../http/header-table.ts';
import {
  type Directives,
  directiveFields,
  directiveSeconds,
  hasBareDirective,
  hasDirective,
  maxDeltaSeconds,
  parseCacheControl,
} from './cache-control.ts';

/** What holds where the upstream states nothing, in ms; 0 switches each off. */
export interface CacheDefaults {
  readonly ttlMs: number;
  readonly staleWhileRevalidateMs: number;
  readonly staleIfErrorMs: number;
}

/** What a shared cache may do with one answer. Times are on the monotonic clock, in ms; `-Infinity` is never. */
export interface AnswerPolicy {
  /** May be stored and served to later requests (RFC 9111 section 3). */
  readonly storable: boolean;
  /** May be given to all requests that shared its exchange; false for `private` and `no-store`. */
  readonly shareable: boolean;
  /** Fields that only the request which fetched the answer may see (`private="…"`, `no-cache="…"`). */
  readonly withheld: readonly string[];
  /**
   * It is an error: only a request with the same forwarded fields gets it, whatever Vary says (a step beyond RFC 9111
   * section 4.1). A field that one caller sends may have caused it, and upstreams do not name in Vary what they reject.
   */
  readonly exactRequestOnly: boolean;
  /** When the answer's age was zero: its age is the time since (RFC 9111 section 4.2.3). */
  readonly ageZeroMs: number;
  readonly receivedMs: number;
  /** Never after `ageZeroMs` plus the lifetime; `-Infinity` where it must be validated every time. */
  readonly freshUntilMs: number;
  /** Until when it may be served stale while it is refreshed (RFC 5861 section 3). */
  readonly staleWhileRevalidateUntilMs: number;
  /** Until when it may be served stale if the upstream fails (RFC 5861 section 4). */
  readonly staleIfErrorUntilMs: number;
  /** May be served stale to a caller that says `max-stale` (RFC 9111 section 4.2.4). */
  readonly mayBeStale: boolean;
}

// Statuses whose caching rules are implemented here, for `must-understand` (RFC 9111 section 5.2.2.3).
const understood = new Set([200, 203, 204, 400, 403, 404, 405, 410, 414, 451, 500, 501, 502, 503, 504]);

/** Decides everything about an answer that depends neither on the request nor on the time. */
export function judgeAnswer(
  answer: Omit<Answer, 'body' | 'generation'>,
  defaults: CacheDefaults,
): AnswerPolicy {
  const { status, headers } = answer;
  const directives = parseCacheControl(headers['cache-control']);
  const ageZero = ageZeroMs(answer);
  const stated = statedLifetimeMs(directives, headers, answer.receivedAt);
  const noCache = directiveFields(directives, 'no-cache');
  const privateFields = directiveFields(directives, 'private');

  const shareable = !isKeptFromOthers(status, directives, privateFields);
  const lifetimeMs = stated ?? (status === 200 || status === 400 ? defaults.ttlMs : 0);
  // `no-cache` keeps an answer for validation only (RFC 9111 section 5.2.2.4).
  const mayBeFresh = !directives.broken && noCache !== 'all';

  const staleRule = readStaleRule(directives, noCache === 'all');
  const mayServeStale = status < 300 && !directives.broken && staleRule !== 'never';
  // An upstream that states no lifetime above zero wants to be asked each time: the default does not apply.
  const swrDefaultMs = staleRule === 'defaults' && lifetimeMs > 0 ? defaults.staleWhileRevalidateMs : 0;
  const sieDefaultMs = staleRule === 'defaults' ? defaults.staleIfErrorMs : 0;
  const staleUntil = (name: string, defaultMs: number): number => {
    if (!mayServeStale) return -Infinity;
    const seconds = directiveSeconds(directives, name);
    const ms = seconds === undefined ? defaultMs : seconds === 'invalid' ? 0 : seconds * 1000;
    return ms > 0 ? ageZero + lifetimeMs + ms : -Infinity;
  };

  return {
    storable:
      shareable &&
      !directives.broken &&
      isStatusStorable(status) &&
      mayBeUsedAgain(status, lifetimeMs, stated !== undefined, noCache === 'all', hasValidator(headers)),
    shareable,
    withheld: [noCache, privateFields].flatMap((names) => (typeof names === 'object' ? names : [])),
    // A 429 is about the rate of all requests.
    exactRequestOnly: status >= 400 && status !== 429,
    ageZeroMs: ageZero,
    receivedMs: answer.receivedMs,
    freshUntilMs: mayBeFresh ? ageZero + lifetimeMs : -Infinity,
    staleWhileRevalidateUntilMs: staleUntil('stale-while-revalidate', swrDefaultMs),
    staleIfErrorUntilMs: staleUntil('stale-if-error', sieDefaultMs),
    mayBeStale: mayServeStale && staleRule === 'defaults',
  };
}

/** `no-store` and `private` (RFC 9111 section 3); `must-understand` takes `no-store` back (5.2.2.3). */
function isKeptFromOthers(
  status: number,
  directives: Directives,
  privateFields: readonly string[] | 'all' | undefined,
) {
  if (privateFields === 'all') return true;
  if (hasBareDirective(directives, 'must-understand') && understood.has(status)) return false;
  return hasDirective(directives, 'no-store');
}

/**
 * Whether the status may be kept at all. Partial answers and redirects never come this far; 401 and 429 are about
 * the one request (RFC 6585 section 4); a 304 is no answer by itself.
 */
function isStatusStorable(status: number): boolean {
  const partial = status === 206;
  return (status >= 200 && status < 300 && !partial) || (status >= 400 && status !== 401 && status !== 429);
}

/** Admission is of use where the answer has some lifetime, or can be validated (RFC 9111 section 3). */
function mayBeUsedAgain(
  status: number,
  lifetimeMs: number,
  isStated: boolean,
  noCache: boolean,
  validator: boolean,
): boolean {
  // Only a 200 is worth asking about again, and only it may be given stale.
  if (status === 200) return lifetimeMs > 0 || isStated || (noCache && validator);
  return lifetimeMs > 0 && !noCache;
}

/**
 * Freshness lifetime as the upstream states it: `s-maxage`, `max-age`, `Expires` less `Date`, in this order
 * (RFC 9111 section 4.2.1). A statement that cannot be read is a lifetime of 0. `undefined`: there is none.
 */
function statedLifetimeMs(
  directives: Directives,
  headers: HeaderFields,
  receivedAt: number,
): number | undefined {
  for (const name of ['s-maxage', 'max-age']) {
    const seconds = directiveSeconds(directives, name);
    if (seconds !== undefined) return seconds === 'invalid' ? 0 : seconds * 1000;
  }
  const expires = parseDateField(headers['expires'], receivedAt);
  if (expires === undefined) return undefined;
  if (expires === 'invalid') return 0;
  return Math.max(0, expires - dateOfAnswer(headers['date'], receivedAt));
}

/**
 * When the answer's age was zero, on the monotonic clock (RFC 9111 section 4.2.3): its corrected initial age is
 * the greater of what `Date` and what `Age` with the time of the exchange make it.
 */
function ageZeroMs({ headers, sentMs, receivedMs, receivedAt }: Omit<Answer, 'body' | 'generation'>): number {
  const apparentAgeMs = receivedAt - dateOfAnswer(headers['date'], receivedAt);
  const correctedAgeMs = ageSeconds(headers['age']) * 1000 + receivedMs - sentMs;
  return receivedMs - Math.max(apparentAgeMs, correctedAgeMs);
}

/**
 * The first member of `Age` counts where it came more than once; what is no number is ignored (RFC 9111
 * section 5.1).
 */
function ageSeconds(field: string | readonly string[] | undefined): number {
  const first = fieldValue(field)?.split(',')[0]?.trim() ?? '';
  return /^\d+$/.test(first) ? Math.min(Number(first), maxDeltaSeconds) : 0;
}

/**
 * What may allow an answer to be served stale (RFC 9111 section 4.2.4): `never` nothing, `stated` the upstream's own
 * `stale-*` directives, `defaults` the settings as well. `s-maxage` implies `proxy-revalidate` (5.2.2.10), but an
 * upstream that puts `stale-*` beside it means those.
 */
function readStaleRule(directives: Directives, noCache: boolean): 'never' | 'stated' | 'defaults' {
  const mustRevalidate = ['must-revalidate', 'proxy-revalidate'].some((name) =>
    hasDirective(directives, name),
  );
  if (mustRevalidate || noCache) return 'never';
  return hasDirective(directives, 's-maxage') ? 'stated' : 'defaults';
}

function hasValidator(headers: HeaderFields): boolean {
  return headers['etag'] !== undefined || headers['last-modified'] !== undefined;
}

/** A caller's cache directives (RFC 9111 section 5.2.1), in ms. What cannot be read is ignored. */
export interface RequestDirectives {
  readonly noCache: boolean;
  readonly noStore: boolean;
  readonly onlyIfCached: boolean;
  readonly maxAgeMs: number | undefined;
  readonly minFreshMs: number;
  /** How stale an answer may be; `Infinity` for `max-stale` alone, `undefined` without it. */
  readonly maxStaleMs: number | undefined;
}

/** Reads a caller's Cache-Control, or its Pragma where it sends no Cache-Control (RFC 9111 section 5.4). */
export function parseRequestDirectives(
  cacheControl: string | undefined,
  pragma: string | undefined,
): RequestDirectives {
  const directives = parseCacheControl(cacheControl ?? pragma);
  const asked = (name: string) => cacheControl !== undefined && hasDirective(directives, name);
  const ms = (name: string): number | undefined => {
    const seconds = cacheControl === undefined ? undefined : directiveSeconds(directives, name);
    return typeof seconds === 'number' ? seconds * 1000 : undefined;
  };
  return {
    noCache: hasDirective(directives, 'no-cache'),
    noStore: asked('no-store'),
    onlyIfCached: asked('only-if-cached'),
    maxAgeMs: ms('max-age'),
    minFreshMs: ms('min-fresh') ?? 0,
    maxStaleMs: hasBareDirective(directives, 'max-stale') && asked('max-stale') ? Infinity : ms('max-stale'),
  };
}

/** An answer fetched this recently satisfies `no-cache`: a page that reloads in a loop costs two calls a second. */
const justFetchedMs = 500;

/**
 * Whether a stored answer may be served now. `refresh`: serve it and refresh it in the background. `stale`,
 * `request`: it must be revalidated first, because of its age or of the caller's directives.
 */
export function judgeUse(
  policy: AnswerPolicy,
  directives: RequestDirectives | undefined,
  nowMs: number,
): 'fresh' | 'refresh' | 'max-stale' | 'stale' | 'request' {
  const fresh = nowMs < policy.freshUntilMs;
  if (directives === undefined) {
    if (fresh) return 'fresh';
    return nowMs < policy.staleWhileRevalidateUntilMs ? 'refresh' : 'stale';
  }
  const justFetched = fresh && nowMs - policy.receivedMs < justFetchedMs;
  if (directives.noCache && !justFetched) return 'request';
  if (directives.maxAgeMs !== undefined && nowMs - policy.ageZeroMs > directives.maxAgeMs && !justFetched)
    return 'request';
  if (policy.freshUntilMs - nowMs < directives.minFreshMs && directives.minFreshMs > 0)
    return fresh ? 'request' : 'stale';
  if (fresh) return 'fresh';
  if (directives.maxStaleMs !== undefined) {
    const staleForMs = nowMs - policy.freshUntilMs;
    return policy.mayBeStale && staleForMs <= directives.maxStaleMs ? 'max-stale' : 'stale';
  }
  // `max-age` without `max-stale` excludes stale answers (RFC 9111 section 5.2.1.1).
  if (directives.maxAgeMs !== undefined) return 'stale';
  return nowMs < policy.staleWhileRevalidateUntilMs ? 'refresh' : 'stale';
}

/** Whether an answer is about the state of the upstream and not about the read: a stale answer is better than it. */
export function isServerFailure(status: number): boolean {
  return status === 429 || status >= 500;
}

// Failures of the upstream, instead of which a stale answer may be served (RFC 5861 section 4). The gateway's own
// faults and its shutdown are not among them.
const serverFailures: ReadonlySet<ProblemCode> = new Set<ProblemCode>([
  'upstream-rate-limited',
  'upstream-unreachable',
  'upstream-timeout',
  'upstream-invalid-response',
  'upstream-key-rejected',
  'upstream-key-missing',
  'overloaded',
]);

// Failures that do not depend on what the request said.
const common: ReadonlySet<ProblemCode> = new Set<ProblemCode>([
  'upstream-rate-limited',
  'upstream-unreachable',
  'upstream-timeout',
  'upstream-key-rejected',
  'upstream-key-missing',
  'overloaded',
  'shutting-down',
]);

/** Whether all requests that shared an exchange share its failure; any other may be due to the one request. */
export function isCommonCode(code: ProblemCode): boolean {
  return common.has(code);
}

/** Whether a problem of the gateway is due to a failure of the upstream. */
export function isServerFailureCode(code: ProblemCode): boolean {
  return serverFailures.has(code);
}

/** The fields to send: both where both are known (RFC 9111 section 4.3.1); `undefined` where there are none. */
export function readValidators(headers: HeaderFields): Readonly<Record<string, string>> | undefined {
  const etag = headers['etag'];
  const modified = headers['last-modified'];
  const validators: Record<string, string> = {};
  // Sent as received, but only what reads as one tag: anything else would be a list, or nonsense.
  if (typeof etag === 'string' && isEntityTag(etag)) validators['if-none-match'] = etag;
  if (typeof modified === 'string') validators['if-modified-since'] = modified;
  return Object.keys(validators).length === 0 ? undefined : validators;
}

/**
 * Whether a 304 speaks of this stored answer. It must come from the same key, for another key may see another
 * body behind the same date, and must not name another tag, or another date of an answer that has no tag
 * (RFC 9111 section 4.3.4): the stored body would keep the new date, and each later 304 would confirm it again.
 */
export function confirms(notModified: Answer, stored: Answer): boolean {
  if (notModified.generation !== stored.generation) return false;
  const named = notModified.headers['etag'];
  const known = stored.headers['etag'];
  if (known === undefined) {
    const date = notModified.headers['last-modified'];
    return date === undefined || date === stored.headers['last-modified'];
  }
  // The upstream was asked about the tag, and the date did not count (RFC 9110 section 13.1.3).
  if (named === undefined) return true;
  return typeof named === 'string' && typeof known === 'string' && opaqueTag(named) === opaqueTag(known);
}

/**
 * Whether an error may be about the validators and not about the read. A 429 is not, nor are the errors of a gateway
 * whose upstream is down.
 */
export function mayBeDueToValidators(status: number): boolean {
  return status >= 400 && status !== 429 && (status < 502 || status > 504);
}

/**
 * What says how the stored bytes are to be read stays as it came with them (RFC 9111 section 3.2), and what speaks of one
 * connection is not kept (RFC 9110 section 7.6.1). A language says nothing of how they are read.
 */
function isRenewed(name: string): boolean {
  return name === 'content-language' || !(bodyFields.has(name) || connectionFields.has(name));
}

/** The stored answer with the fields and the times of the 304 that confirmed it. */
export function renew(stored: Answer, notModified: Answer): Answer {
  const headers: Record<string, string | readonly string[]> = { ...stored.headers };
  // These described the former exchange. Left in, an answer confirmed just now would be as old as before.
  delete headers['age'];
  delete headers['date'];
  for (const [name, value] of Object.entries(notModified.headers)) {
    if (isRenewed(name)) headers[name] = value;
  }
  const connection = [stored, notModified].flatMap(({ headers: { connection: field } }) => [
    ...connectionOptions(field),
  ]);
  // What either of them names must not be passed on with the renewed answer.
  if (connection.length > 0) headers['connection'] = [...new Set(connection)];
  return {
    ...stored,
    headers,
    sentMs: notModified.sentMs,
    receivedMs: notModified.receivedMs,
    receivedAt: notModified.receivedAt,
    derived: undefined,
  };
}
