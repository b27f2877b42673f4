import { describe, expect, it } from 'vitest';
import { queuesByCaller } from '../../src/admin/gate-queue.ts';

const queued = (name: string, arrivedMs: number, background = false) => ({
  context: { flows: [{ name, weight: 1, background }], deadlineMs: 60_000 },
  arrivedMs,
});

describe('what waits at the gate', () => {
  it('what waits at the gate is told for each caller: its requests, the longest wait among them, and its refreshes', () => {
    expect(queuesByCaller([queued('a', 7), queued('b', 1, true), queued('a', 5)], 15)).toEqual([
      { name: 'a', length: 2, oldestWaitMs: 10, refreshes: 0 },
      { name: 'b', length: 0, oldestWaitMs: 0, refreshes: 1 },
    ]);
  });
});
