import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { listCacheFields } from '../../src/edge/reply-fields.ts';
import type { CacheOutcome } from '../../src/exchange/trace.ts';
import { newTrace } from '../support/requests.ts';

function fieldsOf(cache: CacheOutcome, ageSeconds?: number) {
  return listCacheFields(Object.assign(newTrace(), { cache, ageSeconds }));
}

describe('Cache-Status and Age of a reply', () => {
  it('hits of the same second share one list of fields', () => {
    expect(fieldsOf({ hit: true, ttlSeconds: 59 }, 1)).toBe(fieldsOf({ hit: true, ttlSeconds: 59 }, 1));
  });

  it('every hit says its own lifetime and age, whatever hits came before it', () => {
    const seconds = fc.integer({ min: -200, max: 200 });
    fc.assert(
      fc.property(fc.array(fc.tuple(seconds, fc.option(seconds, { nil: undefined }))), (hits) => {
        for (const [ttlSeconds, ageSeconds] of hits) {
          const age = ageSeconds === undefined ? [] : ['age', `${ageSeconds}`];
          const expected = ['cache-status', `analytics-gateway; hit; ttl=${ttlSeconds}`, ...age];
          expect(fieldsOf({ hit: true, ttlSeconds }, ageSeconds)).toEqual(expected);
        }
      }),
    );
  });

  it('a hit that is not simply fresh says why it was given, beside simple hits of the same lifetime', () => {
    fieldsOf({ hit: true, ttlSeconds: 5 }, 3);
    const fields = fieldsOf({ hit: true, ttlSeconds: 5, detail: 'negative' }, 3);
    expect(fields).toEqual(['cache-status', 'analytics-gateway; hit; ttl=5; detail=negative', 'age', '3']);
  });

  it('a reply for which nothing was stored and nothing sent is neither a hit nor forwarded (RFC 9211 section 2)', () => {
    expect(fieldsOf({ hit: false })).toEqual(['cache-status', 'analytics-gateway']);
  });

  it('a reply that the cache took no part in says nothing of it', () => {
    expect(listCacheFields(newTrace())).toEqual([]);
  });
});
