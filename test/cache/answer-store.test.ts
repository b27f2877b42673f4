import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { AnswerStore } from '../../src/cache/answer-store.ts';
import { judgeAnswer } from '../../src/cache/cache-rules.ts';
import { FlowShares } from '../../src/cache/flow-shares.ts';
import { FairBytes } from '../../src/exchange/fair-share.ts';
import { answerOf, contextFor, requestWith } from '../support/requests.ts';

const defaults = { ttlMs: 15_000, staleWhileRevalidateMs: 0, staleIfErrorMs: 0 };

function put(store: AnswerStore, key: string, bytes: number, flow = 'a'): boolean {
  const answer = { ...answerOf(200), body: 'x'.repeat(bytes) };
  return store.put(key, requestWith(contextFor({ name: flow })), answer, judgeAnswer(answer, defaults), []);
}

const get = (store: AnswerStore, key: string, flow = 'a') => store.get(key, flow, performance.now());

it('an answer that another store leaves no room for is not stored, not said to be, and evicts nothing', () => {
  const sharedBytes = new FairBytes(100_000);
  const options = { maxBytes: 100_000, maxEntryBytes: 90_000, sharedBytes };
  const [own, other] = [new AnswerStore(options), new AnswerStore(options)];
  for (let number = 0; number < 4; number++) put(other, `${number}`, 10_000);
  expect(put(own, 'small', 10)).toBe(true);
  expect(put(own, 'large', 70_000)).toBe(false);
  expect([get(own, 'small') !== undefined, get(own, 'large')]).toEqual([true, undefined]);
  expect(other.snapshot()).toMatchObject({ entries: 4, evictions: 0 });
  other.purge();
  expect(put(own, 'large', 70_000)).toBe(true);
  expect(get(own, 'large')).toBeDefined();
});

describe('the bytes of several flows', () => {
  const storeOf = (maxBytes: number) => new AnswerStore({ maxBytes, maxEntryBytes: maxBytes });
  /** How many of these reads are stored. */
  const heldOf = (store: AnswerStore, prefix: string, count: number, flow: string): number =>
    Array.from({ length: count }, (_, at) => get(store, `${prefix}${at}`, flow)).filter(Boolean).length;

  it('one flow’s reads evict nothing of another that holds less', () => {
    const store = storeOf(1_000_000);
    for (let at = 0; at < 30; at++) put(store, `modest${at}`, 5_000, 'modest');
    for (let at = 0; at < 100; at++) put(store, `greedy${at}`, 90_000, 'greedy');
    expect(heldOf(store, 'modest', 30, 'modest')).toBe(30);
    expect(heldOf(store, 'greedy', 100, 'greedy')).toBeGreaterThan(6);
    expect(store.held).toBeLessThanOrEqual(1_000_000);
    // Its least recently used go first, as ever.
    expect(get(store, 'greedy0', 'greedy')).toBeUndefined();
  });

  it('a put looks at few shares, however many people of a caller have stored something', () => {
    const store = storeOf(4_000_000);
    const person = (at: number) =>
      `staff/${(at * 7_919).toString(16).padStart(12, '0').split('').reverse().join('')}`;
    for (let at = 0; at < 3_000; at++) put(store, `own${at}`, 1_000, person(at));
    const looks = vi.spyOn(performance, 'now');
    onTestFinished(() => looks.mockRestore());
    const context = contextFor({ name: person(0) });
    context.join({ name: person(1) });
    const answer = { ...answerOf(200), body: 'x'.repeat(100_000) };
    store.put('one more', requestWith(context), answer, judgeAnswer(answer, defaults), []);
    const { evictions } = store.snapshot();
    expect(evictions).toBeGreaterThan(0);
    expect(looks.mock.calls.length / evictions).toBeLessThan(2_000);
  });

  it('a flow that is alone may use all bytes, and gives back what is beyond its share', () => {
    const store = storeOf(1_000_000);
    // Twice: a read that its own flow renews stays its own.
    for (let at = 0; at < 200; at++) put(store, `greedy${at >> 1}`, 90_000, 'greedy');
    expect(store.held).toBeGreaterThan(900_000);
    for (let at = 0; at < 100; at++) put(store, `other${at}`, 90_000, 'other');
    expect([heldOf(store, 'greedy', 100, 'greedy'), heldOf(store, 'other', 100, 'other')]).toEqual([5, 5]);
  });

  it('a read that several flows waited for together belongs to them all, whichever of them asked first', () => {
    const store = storeOf(1_000_000);
    for (let at = 0; at < 30; at++) {
      const context = contextFor({ name: 'greedy' });
      context.join({ name: 'modest' });
      const answer = { ...answerOf(200), body: 'x'.repeat(10_000) };
      store.put(`common${at}`, requestWith(context), answer, judgeAnswer(answer, defaults), []);
    }
    for (let at = 0; at < 100; at++) put(store, `greedy${at}`, 90_000, 'greedy');
    expect(heldOf(store, 'common', 30, 'modest')).toBe(30);
  });

  it('a read that another flow has used belongs to both: half of all bytes is for what several use', () => {
    const store = storeOf(1_000_000);
    for (let at = 0; at < 30; at++) put(store, `common${at}`, 10_000, 'greedy');
    expect(heldOf(store, 'common', 30, 'modest')).toBe(30);
    for (let at = 0; at < 100; at++) put(store, `greedy${at}`, 90_000, 'greedy');
    for (const flow of ['a', 'b', 'c', 'd']) put(store, flow, 100_000, flow);
    expect(store.held).toBeLessThanOrEqual(1_000_000);
    expect(heldOf(store, 'common', 30, 'modest')).toBe(30);
    expect(store.snapshot().entries).toBe(30 + 4 + heldOf(store, 'greedy', 100, 'greedy'));
  });

  it('what several flows use gives way as one flow does where it has more than half of all bytes', () => {
    const store = storeOf(1_000_000);
    for (let at = 0; at < 70; at++) put(store, `common${at}`, 10_000, 'a');
    expect(heldOf(store, 'common', 70, 'b')).toBe(70);
    for (const flow of ['c', 'd', 'e', 'f']) {
      for (let at = 0; at < 15; at++) put(store, `${flow}${at}`, 10_000, flow);
    }
    for (const flow of ['c', 'd', 'e', 'f']) expect(heldOf(store, flow, 15, flow)).toBeGreaterThanOrEqual(8);
    expect(heldOf(store, 'common', 70, 'a')).toBeGreaterThan(50);
  });

  it('where another store needs room, the flow that holds most of this one gives way', () => {
    const sharedBytes = new FairBytes<AnswerStore>(1_000_000);
    const options = { maxBytes: 1_000_000, maxEntryBytes: 1_000_000, sharedBytes };
    const [store, other] = [new AnswerStore(options), new AnswerStore(options)];
    for (let at = 0; at < 10; at++) put(store, `modest${at}`, 10_000, 'modest');
    for (let at = 0; at < 9; at++) put(store, `greedy${at}`, 90_000, 'greedy');
    for (let at = 0; at < 4; at++) expect(put(other, `${at}`, 100_000)).toBe(true);
    expect(heldOf(store, 'modest', 10, 'modest')).toBe(10);
    expect(store.held + other.held).toBeLessThanOrEqual(1_000_000);
  });

  it('a read that another flow brings in again belongs to both', () => {
    const store = storeOf(1_000_000);
    for (let at = 0; at < 30; at++) put(store, `common${at}`, 10_000, 'greedy');
    for (let at = 0; at < 30; at++) put(store, `common${at}`, 10_000, 'modest');
    for (let at = 0; at < 100; at++) put(store, `greedy${at}`, 90_000, 'greedy');
    expect(heldOf(store, 'common', 30, 'modest')).toBe(30);
  });

  it('a flow that has used nothing for five minutes has no share', () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    onTestFinished(() => void vi.useRealTimers());
    const store = storeOf(1_000_000);
    for (const flow of ['a', 'b', 'c']) put(store, flow, 200_000, flow);
    vi.advanceTimersByTime(3 * 60_000);
    expect(get(store, 'a')).toBeDefined();
    vi.advanceTimersByTime(2 * 60_000);
    // After five minutes it has one still.
    for (let at = 0; at < 6; at++) put(store, `early${at}`, 100_000, 'busy');
    expect(store.snapshot().entries).toBe(6);
    vi.advanceTimersByTime(60_000);
    for (let at = 0; at < 7; at++) put(store, `busy${at}`, 100_000, 'busy');
    expect([get(store, 'a'), get(store, 'b', 'b'), get(store, 'c', 'c')].map(Boolean)).toEqual([
      true,
      false,
      false,
    ]);
    expect(heldOf(store, 'busy', 7, 'busy')).toBe(7);
  });

  it('a read that would need more than the share of its flow is not stored, and evicts nothing', () => {
    const store = storeOf(1_000_000);
    for (const flow of ['a', 'b', 'c']) put(store, flow, 300_000, flow);
    expect(put(store, 'large', 400_000, 'd')).toBe(false);
    expect(put(store, 'large', 240_000, 'd')).toBe(true);
    expect(get(store, 'large', 'd')).toBeDefined();
  });

  it('flows come and go without a trace', () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    onTestFinished(() => void vi.useRealTimers());
    const left = vi.spyOn(FairBytes.prototype, 'leave');
    onTestFinished(() => left.mockRestore());
    const store = storeOf(1_000_000);
    for (let at = 0; at < 1_000; at++) {
      if (at % 10 === 0) vi.advanceTimersByTime(6 * 60_000);
      expect(put(store, `${at}`, 90_000, `${at}`)).toBe(true);
    }
    expect(store.snapshot()).toMatchObject({ entries: 10, evictions: 990 });
    expect(store.purge()).toBe(10);
    expect(left).toHaveBeenCalledTimes(1_000);
    expect(store.snapshot()).toMatchObject({ entries: 0, bytes: 0 });
    expect(put(store, 'again', 900_000)).toBe(true);
  });
});

it('an entry has the share of the flow that brought it, of the people of one caller together, or of all', () => {
  const shares = new FlowShares<object>(1_000, () => 100);
  shares.evict();
  const own = shares.shareFor('x', ['a', 'a']);
  for (const key of ['x', 'y']) shares.set(key, {}, own);
  expect([own.flow, shares.findPlace('x') === own, shares.peek('x'), shares.peek('z')]).toEqual([
    ...['a', true, {}, undefined],
  ]);
  expect([shares.shareFor('x', ['b']).flow, shares.shareFor('z', []).flow]).toEqual([undefined, '']);
  expect(shares.get('x', 'b', 0)).toEqual({});
  expect(shares.findPlace('x')?.flow).toBeUndefined();
  shares.set('w', {}, own);
  shares.delete('w');
  expect([shares.bytes, shares.size]).toEqual([200, 2]);
  const people = ['staff/abc', 'staff/abd', 'staff/acd'].map(
    (person) => shares.shareFor(person, [person]).flow,
  );
  expect(people).toEqual(['staff/ab', 'staff/ab', 'staff/ac']);
});
