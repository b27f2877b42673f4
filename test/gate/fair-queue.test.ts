import { describe, expect, it } from 'vitest';
import { FairQueue } from '../../src/gate/fair-queue.ts';
import type { Queued } from '../../src/gate/types.ts';

const queued = (name: string, arrivedMs: number, background = false): Queued => ({
  turn: { name, weight: 1, background },
  deadlineMs: 60_000,
  arrivedMs,
});

describe('the fair queue', () => {
  it('shows the requests of each caller and their longest wait, and background refreshes apart', () => {
    const queue = new FairQueue<Queued>();
    for (const one of [queued('page', 300), queued('page', 400), queued('page', 0, true)]) queue.add(one);
    queue.add(queued('script', 100, true));
    expect(queue.callers(1_000)).toEqual([
      { name: 'page', length: 2, oldestWaitMs: 700, refreshes: 1 },
      { name: 'script', length: 0, oldestWaitMs: 0, refreshes: 1 },
    ]);
  });
});
