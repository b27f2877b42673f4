import { describe, expect, it } from 'vitest';
import { type Bound, type BudgetedConnection, ConnectionBudget } from '../../src/edge/connection-budget.ts';

interface Fake extends BudgetedConnection {
  bytes: number;
  busy: boolean;
  endedFor: Bound | undefined;
}

function fake(address: string, bytes = 10, busy = false): Fake {
  return {
    address,
    bytes,
    busy,
    endedFor: undefined,
    heldBytes() {
      return this.bytes;
    },
    isBusy() {
      return this.busy;
    },
    end(bound) {
      this.endedFor = bound;
    },
  };
}

/** A budget with these connections, which came in this order. */
function budgetOf(limits: { maxConnections?: number; maxBytes?: number }, ...all: readonly Fake[]) {
  const budget = new ConnectionBudget({ maxConnections: 100, maxBytes: 1_000, ...limits });
  for (const one of all) budget.add(one);
  return budget;
}

const ended = (all: readonly Fake[]): (Bound | undefined)[] => all.map(({ endedFor }) => endedFor);

describe('bytes of connections that ask for nothing', () => {
  it('the heaviest address loses its oldest connections, and only as many as make room', () => {
    const heavy = [fake('a', 400), fake('a', 300), fake('a', 200)];
    // Another has more of them, which hold less.
    const light = [...Array.from({ length: 5 }, () => fake('b', 10)), fake('c', 50)];
    const budget = budgetOf({}, ...light, ...heavy);
    expect(ended(heavy)).toEqual([undefined, undefined, undefined]);
    budget.add(fake('d', 50));
    expect(ended(heavy)).toEqual(['bytes', undefined, undefined]);
    expect(ended(light)).toEqual(light.map(() => undefined));
    expect([budget.bytes, budget.connections]).toEqual([650, 9]);
  });

  it('an address alone may take all of them', () => {
    const all = Array.from({ length: 10 }, () => fake('a', 100));
    expect(budgetOf({}, ...all).bytes).toBe(1_000);
    expect(ended(all)).toEqual(all.map(() => undefined));
  });

  it('a connection that comes to hold more is noticed when it is measured', () => {
    const one = fake('a', 10);
    const budget = budgetOf({}, one, fake('b', 500));
    one.bytes = 2_000;
    budget.enforce();
    expect(one.endedFor).toBeUndefined();
    budget.measure(one);
    budget.enforce();
    expect(one.endedFor).toBe('bytes');
    expect(budget.bytes).toBe(500);
  });

  it('requests under way have as many bytes of their own, of which the heaviest address loses its youngest', () => {
    const idle = fake('a', 900);
    const heavy = [fake('a', 300, true), fake('a', 300, true), fake('a', 300, true)];
    const late = fake('b', 200, true);
    budgetOf({}, idle, ...heavy, late);
    expect(ended([idle, ...heavy, late])).toEqual([undefined, undefined, undefined, 'busyBytes', undefined]);
  });

  it('a connection with a request under way does not count among them and is not ended for their sake', () => {
    const busy = fake('a', 950, true);
    const budget = budgetOf({}, busy, fake('a', 900));
    const late = fake('a', 200);
    budget.add(late);
    expect(busy.endedFor).toBeUndefined();
    expect(budget.bytes).toBe(200);
    busy.busy = false;
    budget.measure(busy);
    budget.enforce();
    expect([busy.endedFor, late.endedFor]).toEqual(['bytes', undefined]);
  });

  it('a connection that has ended by itself counts no more, however often that is said', () => {
    const one = fake('a', 300);
    const budget = budgetOf({}, one, fake('b', 300));
    for (let times = 0; times < 2; times++) budget.remove(one);
    budget.measure(one);
    expect([budget.bytes, budget.connections]).toEqual([300, 1]);
  });
});

describe('the number of connections', () => {
  it('the address with the most makes room for another address', () => {
    const many = Array.from({ length: 5 }, () => fake('a', 0));
    const heavy = fake('b', 900);
    budgetOf({ maxConnections: 6 }, ...many, heavy, fake('c', 0));
    expect(ended(many)).toEqual(['connections', undefined, undefined, undefined, undefined]);
    expect(heavy.endedFor).toBeUndefined();
  });

  it('where one address has them all, its oldest makes room for its next', () => {
    const many = Array.from({ length: 4 }, () => fake('a'));
    budgetOf({ maxConnections: 3 }, ...many);
    expect(ended(many)).toEqual(['connections', undefined, undefined, undefined]);
  });

  it('where all of the address with the most are busy, the next address makes room', () => {
    const busy = [fake('a', 1, true), fake('a', 1, true)];
    const [idle, late] = [fake('b'), fake('c')];
    budgetOf({ maxConnections: 3 }, ...busy, idle, late);
    expect(ended([...busy, idle, late])).toEqual([undefined, undefined, 'connections', undefined]);
  });

  it('a connection that comes where all others are busy is ended itself', () => {
    const busy = [fake('a', 1, true), fake('b', 1, true)];
    const late = fake('c');
    const budget = budgetOf({ maxConnections: 2 }, ...busy, late);
    expect(ended([...busy, late])).toEqual([undefined, undefined, 'connections']);
    expect(budget.connections).toBe(2);
  });
});
