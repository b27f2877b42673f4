import { describe, expect, it } from 'vitest';
import type { Queued } from '../../src/gate/fair-queue.ts';
import { FairQueue } from '../../src/gate/fair-queue.ts';

interface Entry extends Queued {
  readonly id: string;
  context: Queued['context'];
}

let arrivals = 0;
const entry = (name: string, weight = 1, background = false): Entry => {
  const arrivedMs = arrivals++;
  return {
    id: `${name}${arrivedMs}`,
    context: { flows: [{ name, weight, background }], deadlineMs: 1e6 },
    arrivedMs,
  };
};
const flowOf = (one: Entry) => one.context.flows[0] as Entry['context']['flows'][0];
const joinedBy = ({ context }: Entry, name: string): Entry['context'] => ({
  ...context,
  flows: [...context.flows, { name, weight: 1, background: false }],
});
const filled = (...entries: Entry[]): FairQueue<Entry> => {
  const queue = new FairQueue<Entry>();
  for (const one of entries) queue.add(one);
  return queue;
};
const many = (count: number, name: string, weight = 1): Entry[] =>
  Array.from({ length: count }, () => entry(name, weight));
const names = (queue: FairQueue<Entry>, count = queue.size): string =>
  Array.from({ length: count }, () => queue.take()?.flow.name).join('');

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

  it('the fair queue remembers no flow for ever, however many people come while it is never empty', () => {
    const queue = filled(...many(30_000, 'a'));
    for (let person = 0; person < 20_000; person++) {
      queue.add(entry(`staff/${person}`));
      const turns = names(queue, 2);
      // Each has its turn as if all were remembered.
      expect([`astaff/${person}`, `staff/${person}a`]).toContain(turns);
    }
    expect(queue.remembered).toBeLessThan(2_000);
  });

  it('the fair queue remembers a flow that has had more than its turns, however many people come', () => {
    const queue = filled(...many(30_000, 'a'), entry('slow', 0.001), entry('slow', 0.001));
    expect(names(queue, 8).match(/slow/g)).toHaveLength(2);
    for (let person = 0; person < 900; person++) {
      queue.add(entry(`staff/${person}`));
      names(queue, 2);
    }
    for (let other = 0; other < 200; other++) queue.add(entry(`c${other}`));
    queue.add(entry('slow', 0.001));
    expect(names(queue, 20)).not.toContain('slow');
  });

  it('the fair queue lets background refreshes go last', () => {
    const queue = filled(entry('a', 1, true), entry('b'), entry('b'));
    expect(names(queue)).toBe('bba');
  });

  it('the fair queue returns a request to its old place, and its turn to its caller', () => {
    const [first, second, third] = many(3, 'a') as [Entry, Entry, Entry];
    const queue = filled(first, second, third, entry('b'));
    expect(queue.take()?.request).toBe(first);
    queue.refund(flowOf(first));
    queue.add(first);
    expect(queue.take()?.request).toBe(first);
  });

  it('the fair queue forgets nothing when the flow of a request changes while it waits', () => {
    const moving = entry('a', 1, true);
    const queue = filled(moving, entry('b'));
    moving.context = { ...moving.context, flows: [{ ...flowOf(moving), background: false }] };
    queue.move(moving);
    expect(queue.size).toBe(2);
    expect(queue.remove(moving)).toBe(true);
    expect(names(queue)).toBe('b');
    expect(queue.remove(entry('stranger'))).toBe(false);
  });

  it('the fair queue counts how many go before a request as it then serves them, but for equal tags', () => {
    const queue = filled(...many(7, 'a'), ...many(3, 'b', 0.5), ...many(5, 'c', 3));
    names(queue, 4);
    const late = entry('b', 0.5);
    const ahead = queue.ahead(late.context.flows, late.arrivedMs);
    queue.add(late);
    const order = queue.inOrder().indexOf(late);
    let served = 0;
    while (queue.take()?.request !== late) served++;
    expect(Math.abs(ahead - served)).toBeLessThanOrEqual(2);
    expect(Math.abs(order - served)).toBeLessThanOrEqual(2);
  });

  it('the fair queue makes room by the request whose turn is the last: of the longest flow, and of background refreshes before all', () => {
    const queue = filled(...many(3, 'a'), entry('b'), entry('b'));
    expect(flowOf(queue.removeLast()).name).toBe('a');
    const [third, fourth] = many(2, 'b') as [Entry, Entry];
    queue.add(third);
    queue.add(fourth);
    expect(queue.removeLast()).toBe(fourth);
    const refresh = entry('c', 1, true);
    queue.add(refresh);
    queue.add(entry('d'));
    expect(queue.removeLast()).toBe(refresh);
  });
});

describe('a request with several flows in the fair queue', () => {
  it('a request with several flows in the fair queue goes with the first turn that comes, once, and that flow alone is charged', () => {
    const queue = filled(...many(400, 'greedy'));
    const joined = entry('greedy');
    queue.add(joined);
    names(queue, 20);
    joined.context = joinedBy(joined, 'dashboard');
    queue.move(joined);
    expect(queue.size).toBe(381);
    expect(queue.take()).toMatchObject({ request: joined, flow: { name: 'dashboard' } });
    // The dashboard has had its turn; the greedy caller has not lost one.
    for (const one of many(2, 'dashboard')) queue.add(one);
    expect(names(queue, 3)).toBe('dashboardgreedydashboard');
    expect(names(queue)).toBe('greedy'.repeat(379));
  });

  it('a request with several flows in the fair queue is a request of callers as soon as one of them is', () => {
    const refresh = entry('a', 1, true);
    const queue = filled(refresh, entry('b'), entry('b'));
    refresh.context = joinedBy(refresh, 'a');
    queue.move(refresh);
    expect(names(queue)).toBe('bab');
  });

  it('a request with several flows in the fair queue has the place of the flows that are left when one leaves', () => {
    const queue = filled(...many(5, 'greedy'));
    const joined = entry('greedy');
    joined.context = joinedBy(joined, 'dashboard');
    queue.add(joined);
    joined.context = { ...joined.context, flows: joined.context.flows.slice(0, 1) };
    queue.move(joined);
    expect(names(queue)).toBe('greedy'.repeat(6));
  });

  it('a request with several flows in the fair queue counts once for those behind it', () => {
    const shared = many(100, 'a');
    for (const one of shared) for (let i = 0; i < 50; i++) one.context = joinedBy(one, `dashboard ${i}`);
    const queue = filled(...shared, ...many(5, 'b'));
    const late = entry('b');
    expect(queue.ahead(late.context.flows, late.arrivedMs)).toBe(105);
    queue.add(late);
    expect(queue.inOrder()).toHaveLength(106);
  });

  it('a request with several flows in the fair queue makes room only when its best turn is the last', () => {
    const queue = filled(...many(5, 'greedy'));
    const joined = entry('greedy');
    joined.context = joinedBy(joined, 'dashboard');
    queue.add(joined);
    const gone = queue.removeLast();
    expect([gone === joined, flowOf(gone).name]).toEqual([false, 'greedy']);
    expect(queue.size).toBe(5);
    expect(names(queue)).toContain('dashboard');
  });

  it('a request with several flows in the fair queue keeps all its places but those of the flows that come or go, however many', () => {
    const people = Array.from({ length: 3_000 }, (_, person) => `staff/${person}`);
    const inDemand = entry('staff/first');
    let looks = 0;
    const watched = (name: string) => ({
      ...{ name, background: false },
      get weight() {
        looks++;
        return 1;
      },
    });
    inDemand.context = { ...inDemand.context, flows: people.map(watched) };
    const queue = filled(inDemand);
    expect([...queue.flows()]).toHaveLength(3_000);
    const { flows } = inDemand.context;
    looks = 0;
    inDemand.context = { ...inDemand.context, flows: [...flows, watched('dashboard')] };
    expect(queue.move(inDemand).map(({ name }) => name)).toEqual(['dashboard']);
    inDemand.context = { ...inDemand.context, flows: inDemand.context.flows.toSpliced(1_500, 1) };
    expect(queue.move(inDemand).map(({ name }) => name)).toEqual(['staff/1500']);
    expect(looks).toBeLessThan(5);
    expect(queue.flowsOf(inDemand)).toEqual(inDemand.context.flows);
    expect([...queue.flows()].map(({ name }) => name)).not.toContain('staff/1500');
    expect(queue.take()?.request).toBe(inDemand);
    expect([queue.size, queue.remembered]).toEqual([0, 0]);
  });
});
