/**
 * Which representation of an answer a caller gets: the coding (RFC 9110 section 12.5.3), its entity tag (section 8.8.3), and
 * whether the caller has it already by its own conditions (section 13), which the edge answers from the full answer.
 * Pure: no `this`, no I/O, no clock.
 */
import { hash } from 'node:crypto';
import { parseHttpDate } from '../http/date.ts';
import { isBlank, isEntityTag, opaqueTag } from '../http/fields.ts';
import { bufferOf, type Payload } from '../http/payload.ts';

/** The caller's conditional fields, as received; repeated lines joined by a comma. */
export interface Conditions {
  readonly ifNoneMatch: string | undefined;
  readonly ifModifiedSince: string | undefined;
}

/** The validators of the answer as the caller would get it. */
export interface Validators {
  readonly etag: string | undefined;
  readonly lastModified: string | undefined;
  /** The `Date` of an answer that comes from the cache's store; `undefined` for one just fetched. */
  readonly storedDate?: string | undefined;
}

/**
 * Whether the caller already has this answer, so that 304 is what it should get.
 *
 * `If-None-Match` decides alone where it is present (section 13.1.3), even where it cannot be read: then nothing
 * matches. `If-Modified-Since` is compared with `Last-Modified`, or with the `Date` of a stored answer that has
 * none (RFC 9111 section 4.3.2); an answer just fetched without it has no date of modification, and the condition
 * is ignored (section 13.1.3). Only a 200 can turn into a 304 (section 13.2.1); other answers are given whole.
 *
 * @param nowMs wall clock, for the century of an old two-digit year
 */
export function isNotModified(
  status: number,
  conditions: Conditions,
  validators: Validators,
  nowMs: number,
): boolean {
  if (status !== 200) return false;
  if (conditions.ifNoneMatch !== undefined) return matchesAny(conditions.ifNoneMatch, validators.etag);
  const lastModified = validators.lastModified ?? validators.storedDate;
  if (conditions.ifModifiedSince === undefined || lastModified === undefined) return false;
  const since = parseHttpDate(conditions.ifModifiedSince, nowMs);
  const modified = parseHttpDate(lastModified, nowMs);
  return since !== undefined && modified !== undefined && modified <= since;
}

/** Weak comparison with each tag of the list (RFC 9110 section 8.8.3.2); `*` matches whatever exists. */
function matchesAny(list: string, etag: string | undefined): boolean {
  if (list.trim() === '*') return true;
  if (etag === undefined) return false;
  const opaque = opaqueTag(etag);
  let matched = false;
  let at = 0;
  while (at < list.length) {
    const member = readMember(list, at);
    // A list that cannot be read to its end says nothing: the answer is given whole.
    if (member === undefined) return false;
    if (member.opaque === opaque) matched = true;
    at = member.next;
  }
  return matched;
}

/**
 * Reads a member of a list of entity tags, which may be empty, and where the next one begins; `undefined` where it is
 * no tag. By index: a caller may send any number of blanks.
 */
function readMember(list: string, from: number): { opaque: string; next: number } | undefined {
  const start = afterBlanks(list, from);
  const quote = list.startsWith('W/', start) ? start + 2 : start;
  let end = start;
  if (list[quote] === '"') {
    end = list.indexOf('"', quote + 1) + 1;
    if (!isEntityTag(list.slice(quote, end))) return undefined;
  }
  const comma = afterBlanks(list, end);
  if (comma < list.length && list[comma] !== ',') return undefined;
  return { opaque: list.slice(quote, end), next: comma + 1 };
}

function afterBlanks(text: string, from: number): number {
  let at = from;
  while (isBlank(text, at)) at++;
  return at;
}

export type ContentCoding = 'br' | 'gzip' | 'identity';

const weighted = /^([!#$%&'*+.^_`|~0-9a-z-]+)(?:[\t ]*;[\t ]*q=(0(?:\.\d{0,3})?|1(?:\.0{0,3})?))?$/;

/**
 * Chooses among the bodies that exist. Of equal weights br is preferred, then gzip.
 *
 * Identity is acceptable unless it is refused, and where nothing else is left it is given all the same: a
 * readable answer serves a caller better than 406 (section 12.5.3 leaves the choice).
 *
 * @param acceptEncoding the field's value, repeated lines joined by a comma; `undefined` where it is absent
 * @param available which compressed bodies exist
 */
export function chooseCoding(
  acceptEncoding: string | undefined,
  available: { readonly br: boolean; readonly gzip: boolean },
): ContentCoding {
  // RFC 9110 allows any coding where the field is absent, but such a caller may not be able to decode one.
  if (acceptEncoding === undefined || (!available.br && !available.gzip)) return 'identity';
  const weights = new Map<string, number>();
  for (const part of acceptEncoding.toLowerCase().split(',')) {
    const found = weighted.exec(part.trim());
    if (found === null) continue;
    const name = found[1] === 'x-gzip' ? 'gzip' : (found[1] ?? '');
    // The same name twice: the lower weight satisfies both.
    weights.set(name, Math.min(weights.get(name) ?? 1, found[2] === undefined ? 1 : Number(found[2])));
  }
  const others = weights.get('*');
  const br = available.br ? (weights.get('br') ?? others ?? 0) : 0;
  const gzip = available.gzip ? (weights.get('gzip') ?? others ?? 0) : 0;
  const identity = weights.get('identity');
  const best = br >= gzip ? 'br' : 'gzip';
  const weight = Math.max(br, gzip);
  if (weight === 0) return 'identity';
  // Named and preferred, identity wins; unnamed, it is merely acceptable.
  return identity !== undefined && identity > weight ? 'identity' : best;
}

/**
 * The upstream's own tag where it gives one; else a strong one made from the body, so that browsers can
 * revalidate. A malformed tag, or one that came more than once, is ignored.
 */
export function entityTagOf(upstreamTag: string | readonly string[] | undefined, body: Payload): string {
  if (typeof upstreamTag === 'string' && isEntityTag(upstreamTag)) return upstreamTag;
  return `"${hash('sha256', bufferOf(body), 'base64url').slice(0, 27)}"`;
}

/** The tag of a coded body: another representation, so another tag (RFC 9110 section 8.8.3.3). */
export function codedEntityTag(tag: string, coding: ContentCoding): string {
  return coding === 'identity' ? tag : `${tag.slice(0, -1)}-${coding}"`;
}
