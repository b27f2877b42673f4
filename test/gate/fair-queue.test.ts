import { describe, expect, it } from 'vitest';
import { FairQueue } from '../../src/gate/fair-queue.ts';
import type { Queued } from '../../src/gate/types.ts';

interface Entry extends Queued {
  readonly id: string;
}

let arrivals = 0;
const entry = (name: string, weight = 1, background = false): Entry => {
  const arrivedMs = arrivals++;
  return {
    id: `${name}${arrivedMs}`,
    context: { flow: { name, weight, background }, deadlineMs: 1e6 },
    arrivedMs,
  };
};
const filled = (...entries: Entry[]): FairQueue<Entry> => {
  const queue = new FairQueue<Entry>();
  for (const one of entries) queue.add(one);
  return queue;
};
const many = (count: number, name: string, weight = 1): Entry[] =>
  Array.from({ length: count }, () => entry(name, weight));
const names = (queue: FairQueue<Entry>, count = queue.size): string =>
  Array.from({ length: count }, () => queue.take()?.context.flow.name).join('');

describe('the fair queue', () => {
  it('the fair queue gives callers turns in proportion to their weights', () => {
    const queue = filled(...many(30, 'a', 2), ...many(30, 'b'));
    expect(names(queue, 30).replaceAll('b', '')).toHaveLength(20);
  });

  it('the fair queue lets a caller that has just come go before the long queue of another', () => {
    const queue = filled(...many(100, 'a'));
    names(queue, 20);
    queue.add(entry('b'));
    expect(names(queue, 1)).toBe('b');
  });

  it('the fair queue lets background refreshes go last', () => {
    const queue = filled(entry('a', 1, true), entry('b'), entry('b'));
    expect(names(queue)).toBe('bba');
  });

  it('the fair queue returns a request to its old place, and its turn to its caller', () => {
    const [first, second, third] = many(3, 'a') as [Entry, Entry, Entry];
    const queue = filled(first, second, third, entry('b'));
    expect(queue.take()).toBe(first);
    queue.refund(first.context.flow);
    queue.add(first);
    expect(queue.take()).toBe(first);
  });

  it('the fair queue forgets nothing when the flow of a request changes while it waits', () => {
    const moving = { ...entry('a', 1, true) };
    const queue = filled(moving, entry('b'));
    moving.context = { ...moving.context, flow: { ...moving.context.flow, background: false } };
    expect(queue.remove(moving)).toBe(true);
    queue.add(moving);
    expect(queue.size).toBe(2);
    expect(queue.remove(entry('stranger'))).toBe(false);
  });

  it('the fair queue counts how many go before a request as it then serves them, but for equal tags', () => {
    const queue = filled(...many(7, 'a'), ...many(3, 'b', 0.5), ...many(5, 'c', 3));
    names(queue, 4);
    const late = entry('b', 0.5);
    const ahead = queue.ahead(late.context.flow, late.arrivedMs);
    queue.add(late);
    const order = queue.inOrder().indexOf(late);
    let served = 0;
    while (queue.take() !== late) served++;
    expect(Math.abs(ahead - served)).toBeLessThanOrEqual(2);
    expect(Math.abs(order - served)).toBeLessThanOrEqual(2);
  });

  it('the fair queue names the request whose turn is the last: of the longest flow, and of background refreshes before all', () => {
    const queue = filled(...many(3, 'a'), entry('b'), entry('b'));
    expect(queue.last()?.context.flow.name).toBe('a');
    const [third, fourth] = many(2, 'b') as [Entry, Entry];
    queue.add(third);
    queue.add(fourth);
    expect(queue.last()).toBe(fourth);
    const refresh = entry('c', 1, true);
    queue.add(refresh);
    queue.add(entry('d'));
    expect(queue.last()).toBe(refresh);
  });
});
