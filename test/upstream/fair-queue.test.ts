import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { queueFairly, type Waiting } from '../../src/upstream/fair-queue.ts';

let clock = 0;

function entry(name: string, weight = 1, arrivedMs = clock++): Waiting {
  return { turn: { name, weight, background: false }, arrivedMs };
}

function names(queue: ReturnType<typeof queueFairly<Waiting>>, count: number): string {
  let taken = '';
  for (let i = 0; i < count; i++) taken += queue.take()?.turn.name ?? '-';
  return taken;
}

describe('turns', () => {
  it('go round the callers, whoever has more waiting', () => {
    const queue = queueFairly<Waiting>();
    for (let i = 0; i < 10; i++) queue.add(entry('a'));
    for (let i = 0; i < 3; i++) queue.add(entry('b'));
    expect(names(queue, 8)).toBe('abababaa');
  });

  it('follow the weights', () => {
    const queue = queueFairly<Waiting>();
    for (let i = 0; i < 40; i++) queue.add(entry('a', 3));
    for (let i = 0; i < 40; i++) queue.add(entry('b', 1));
    const taken = names(queue, 40);
    expect(taken.split('a').length - 1).toBe(30);
  });

  it('never make a caller that asks for less than its share wait behind a longer line', () => {
    const queue = queueFairly<Waiting>();
    for (let i = 0; i < 1000; i++) queue.add(entry('greedy'));
    for (let round = 0; round < 50; round++) {
      names(queue, 3);
      queue.add(entry('polite'));
      expect(queue.nextIsLight() || round === 0).toBe(true);
      expect(names(queue, 2)).toContain('polite');
    }
  });

  it('go to who asks for less than its share before those whose turn is next and who want more', () => {
    const queue = queueFairly<Waiting>();
    for (let i = 0; i < 100; i++) {
      queue.add(entry('a'));
      queue.add(entry('b'));
    }
    for (let round = 0; round < 20; round++) {
      names(queue, round % 2 === 0 ? 5 : 6);
      queue.add(entry('polite'));
      expect(queue.take()?.turn.name).toBe('polite');
    }
  });

  it('do not let a caller save up turns while it is away', () => {
    const queue = queueFairly<Waiting>();
    for (let i = 0; i < 100; i++) queue.add(entry('a'));
    names(queue, 50);
    for (let i = 0; i < 50; i++) queue.add(entry('b'));
    const taken = names(queue, 20);
    expect(taken.split('b').length - 1).toBeLessThanOrEqual(11);
  });

  it('do not let a caller gain by coming back with each request anew', () => {
    const queue = queueFairly<Waiting>();
    for (let i = 0; i < 100; i++) queue.add(entry('a'));
    let taken = '';
    queue.add(entry('b'));
    for (let i = 0; i < 40; i++) {
      const name = names(queue, 1);
      taken += name;
      if (name === 'b') queue.add(entry('b'));
    }
    expect(taken.split('b').length - 1).toBeLessThanOrEqual(21);
  });

  it('within a caller go to the oldest first: what was refused returns to its place', () => {
    const queue = queueFairly<Waiting>();
    const old = entry('a');
    queue.add(entry('a'));
    queue.add(entry('a'));
    queue.add(old);
    expect(queue.take()).toBe(old);
  });

  it('taken while nobody had to wait count once somebody has to', () => {
    const queue = queueFairly<Waiting>();
    for (let i = 0; i < 4; i++) queue.charge(entry('early').turn);
    queue.refund(entry('early').turn);
    queue.charge(entry('a').turn);
    for (let i = 0; i < 5; i++) queue.add(entry('early'));
    for (let i = 0; i < 5; i++) queue.add(entry('a'));
    queue.charge(entry('a').turn);
    // Three of the one against two of the other.
    expect(names(queue, 5)).toBe('aeaea'.replaceAll('e', 'early'));
    // Nobody waits any more: there is nothing left to be fair about.
    names(queue, 5);
    queue.add(entry('early'));
    queue.add(entry('a'));
    expect(queue.take()?.turn.name).toBe('early');
  });

  it('taken in the first crowd make a caller one of those who ask for their share or more', () => {
    const queue = queueFairly<Waiting>();
    queue.add(entry('a'));
    expect(queue.nextIsLight()).toBe(true);
    for (let i = 0; i < 4; i++) queue.charge(entry('a').turn);
    expect(queue.nextIsLight()).toBe(false);
  });

  it('are given back when they came to nothing', () => {
    const queue = queueFairly<Waiting>();
    for (let i = 0; i < 4; i++) queue.add(entry('a', 1, 0));
    for (let i = 0; i < 4; i++) queue.add(entry('b', 1, 1));
    expect(names(queue, 1)).toBe('a');
    queue.refund(entry('a').turn);
    expect(names(queue, 2)).toBe('ab');
  });

  it('are a light one’s for a caller that has just come, but not where many callers wait', () => {
    const queue = queueFairly<Waiting>();
    queue.add(entry('a'));
    expect(queue.nextIsLight()).toBe(true);
    for (let i = 0; i < 100; i++) queue.add(entry(`caller ${i}`));
    expect(queue.nextIsLight()).toBe(false);
  });

  it('are none for one that has had more than the others and comes straight back, but after a while', () => {
    const queue = queueFairly<Waiting>();
    for (let i = 0; i < 20; i++) queue.add(entry('a'));
    for (let i = 0; i < 3; i++) queue.add(entry('b'));
    expect(names(queue, 6)).toBe('ababab');
    queue.add(entry('b'));
    expect(names(queue, 1)).toBe('a');
    // Its own turn, to which it came early.
    expect(queue.nextIsLight()).toBe(false);
    expect(names(queue, 3)).toBe('baa');
    queue.add(entry('b'));
    expect(queue.nextIsLight()).toBe(true);
    expect(names(queue, 1)).toBe('b');
  });

  it('with a risk go to the caller with most waiting for its weight', () => {
    const queue = queueFairly<Waiting>();
    queue.add(entry('a'));
    for (let i = 0; i < 5; i++) queue.add(entry('b'));
    for (let i = 0; i < 9; i++) queue.add(entry('c', 3));
    expect(queue.takeFromHeaviest()?.turn.name).toBe('b');
  });
});

describe('how many go before one', () => {
  it('counts those who think between their requests and have nothing waiting just now', () => {
    const queue = queueFairly<Waiting>();
    for (let i = 0; i < 60; i++) queue.add(entry('greedy'));
    for (let round = 0; round < 20; round++) {
      // One is slower than its share, by half: it comes back every second time.
      if (round % 2 === 0) queue.add(entry('slow'));
      queue.add(entry('quick'));
      names(queue, round % 2 === 0 ? 3 : 2);
    }
    const { turn } = entry('greedy');
    expect(queue.turnsEach(turn)).toBeCloseTo(2.5, 0);
    expect(queue.likelyAhead(turn, 20)).toBeGreaterThan(45);
    expect(queue.likelyAhead(turn, 20)).toBeLessThan(55);
    expect(queue.ahead(entry('greedy'))).toBe(queue.ownAhead(entry('greedy')));
  });

  it('is no guess: where a caller has only come, it counts who waits now', () => {
    const queue = queueFairly<Waiting>();
    for (let i = 0; i < 50; i++) queue.add(entry('heavy', 3));
    const { turn } = entry('light');
    expect(queue.turnsEach(turn)).toBe(4);
    expect(queue.likelyAhead(turn, 0)).toBe(0);
    expect(queue.likelyAhead(turn, 2)).toBe(2);
    // Weights are as told last, and of those who wait.
    queue.add(entry('heavy', 5));
    expect(queue.turnsEach(turn)).toBe(6);
    queue.add(entry('other', 2));
    names(queue, 51);
    expect(queue.turnsEach(turn)).toBe(6);
    names(queue, 1);
    expect(queue.size).toBe(0);
    queue.add(entry('other', 2));
    expect(queue.turnsEach(turn)).toBe(3);
  });

  it('looks back at no less than it looks ahead: a few who came together are not there all the time', () => {
    const queue = queueFairly<Waiting>();
    for (let i = 0; i < 400; i++) queue.add(entry('long'));
    for (let i = 0; i < 20; i++) queue.add(entry('few'));
    names(queue, 40);
    const { turn } = entry('long');
    expect(queue.likelyAhead(turn, 380)).toBe(380);
    names(queue, 80);
    // Twenty turns of theirs against a hundred.
    expect(queue.likelyAhead(turn, 300)).toBeCloseTo(360, -1);
  });

  it('counts what a caller has had before the others, who catch up on it first', () => {
    const queue = queueFairly<Waiting>();
    for (let i = 0; i < 60; i++) {
      queue.add(entry('a'));
      queue.add(entry('b'));
    }
    names(queue, 60);
    const { turn } = entry('a');
    expect(queue.likelyAhead(turn, 10)).toBeCloseTo(20, 0);
    for (let i = 0; i < 5; i++) queue.charge(turn);
    expect(queue.likelyAhead(turn, 10)).toBeCloseTo(25.5, 0);
  });
});

describe('the queue under any history', () => {
  const step = fc.oneof(
    {
      weight: 5,
      arbitrary: fc.record({ kind: fc.constant('add' as const), caller: fc.nat(5), late: fc.nat(3) }),
    },
    { weight: 4, arbitrary: fc.record({ kind: fc.constant('take' as const) }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('risk' as const) }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('remove' as const), which: fc.nat(50) }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('refund' as const), caller: fc.nat(5) }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('charge' as const), caller: fc.nat(5) }) },
  );

  it('loses and doubles nobody, and says truly how many go before one', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
        const queue = queueFairly<Waiting>();
        const inside = new Set<Waiting>();
        let time = 0;
        for (const one of steps) {
          if (one.kind === 'add') {
            const added = entry(`c${one.caller}`, 1 + one.caller, time++ - 0.9 * one.late);
            const ahead = queue.ahead(added);
            queue.add(added);
            inside.add(added);
            expect(queue.inOrder().indexOf(added)).toBe(ahead);
          } else if (one.kind === 'take' || one.kind === 'risk') {
            const first = queue.inOrder()[0];
            const taken = one.kind === 'take' ? queue.take() : queue.takeFromHeaviest();
            if (one.kind === 'take') expect(taken).toBe(first);
            expect(inside.size === 0).toBe(taken === undefined);
            if (taken !== undefined) expect(inside.delete(taken)).toBe(true);
          } else if (one.kind === 'remove') {
            const removed = [...inside][one.which % Math.max(inside.size, 1)];
            if (removed !== undefined) {
              expect(queue.remove(removed, removed.turn.name)).toBe(true);
              expect(queue.remove(removed, removed.turn.name)).toBe(false);
              inside.delete(removed);
            }
          } else if (one.kind === 'charge') queue.charge(entry(`c${one.caller}`).turn);
          else queue.refund(entry(`c${one.caller}`).turn);
          expect(queue.size).toBe(inside.size);
          expect(new Set(queue.inOrder())).toEqual(inside);
        }
      }),
      { numRuns: 500, seed: 4 },
    );
  });

  it('gives backlogged callers turns by weight, to within a turn', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 2, maxLength: 6 }), (weights) => {
        const queue = queueFairly<Waiting>();
        weights.forEach((weight, caller) => {
          for (let i = 0; i < 200; i++) queue.add(entry(`c${caller}`, weight));
        });
        const served = weights.map(() => 0);
        for (let i = 0; i < 150; i++) {
          const caller = Number(queue.take()?.turn.name.slice(1));
          served[caller] = (served[caller] as number) + 1;
        }
        const levels = served.map((count, caller) => count / (weights[caller] as number));
        expect(Math.max(...levels) - Math.min(...levels)).toBeLessThanOrEqual(1 + 1e-9);
      }),
      { numRuns: 200, seed: 4 },
    );
  });
});
