import { expect, it } from 'vitest';
import { AnswerStore } from '../../src/cache/answer-store.ts';
import { CacheBytes } from '../../src/cache/cache-bytes.ts';
import { policyOf } from '../../src/cache/cache-policy.ts';
import { answerOf, contextFor, requestWith } from '../support/requests.ts';

const defaults = { ttlMs: 15_000, staleWhileRevalidateMs: 0, staleIfErrorMs: 0 };

function put(store: AnswerStore, key: string, bytes: number): boolean {
  const answer = { ...answerOf(200), body: 'x'.repeat(bytes) };
  return store.put(key, requestWith(contextFor()), answer, policyOf(answer, defaults), []);
}

it('an answer that another store leaves no room for is not stored, not said to be, and evicts nothing', () => {
  const sharedBytes = new CacheBytes(100_000);
  const options = { maxBytes: 100_000, maxEntryBytes: 90_000, sharedBytes };
  const [own, other] = [new AnswerStore(options), new AnswerStore(options)];
  for (let number = 0; number < 4; number++) put(other, `${number}`, 10_000);
  expect(put(own, 'small', 10)).toBe(true);
  expect(put(own, 'large', 70_000)).toBe(false);
  expect([own.get('small') !== undefined, own.get('large')]).toEqual([true, undefined]);
  expect(other.snapshot()).toMatchObject({ entries: 4, evictions: 0 });
  other.purge();
  expect(put(own, 'large', 70_000)).toBe(true);
  expect(own.get('large')).toBeDefined();
});
