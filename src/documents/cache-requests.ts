/** What a caller may ask of the cache, in words. The API document and docs/caching.md have the same table. */

export interface CacheRequest {
  /** The request fields as they are sent. */
  readonly fields: readonly string[];
  readonly meaning: string;
}

export const cacheDirectives: readonly CacheRequest[] = [
  {
    fields: ['Cache-Control: no-cache', 'max-age=0'],
    meaning: 'asks the upstream, unless an answer was fetched less than 500 ms ago',
  },
  { fields: ['Cache-Control: max-age=N'], meaning: 'an answer at most N seconds old' },
  { fields: ['Cache-Control: min-fresh=N'], meaning: 'an answer that stays fresh for N more seconds' },
  {
    fields: ['Cache-Control: max-stale', 'max-stale=N'],
    meaning: 'a stale answer is fine, by any time or by N seconds',
  },
  { fields: ['Cache-Control: only-if-cached'], meaning: 'from memory, or 504 `not-in-cache`' },
  {
    fields: ['Cache-Control: no-store'],
    meaning: 'what is fetched for this request alone is not kept',
  },
];

export const validators: CacheRequest = {
  fields: ['If-None-Match', 'If-Modified-Since'],
  meaning: '304 where your copy still holds',
};
