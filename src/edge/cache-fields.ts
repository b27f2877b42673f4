/** `Cache-Status` (RFC 9211) and `Age` of a reply, from what the cache wrote on the trace. */
import type { CacheOutcome, Trace } from '../exchange/trace.ts';
import type { Fields } from './inbound.ts';

interface HitFields {
  readonly ttlSeconds: number;
  readonly ageSeconds: number | undefined;
  readonly fields: Fields;
}

/** Hits differ by whole seconds alone, so that most of them find the list of an earlier one, and its lines with it. */
const slots = 64;
const hits: (HitFields | undefined)[] = Array.from({ length: slots }, () => undefined);

/** The fields; the same list for many hits. */
export function cacheFieldsOf({ cache, ageSeconds }: Trace): Fields {
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
