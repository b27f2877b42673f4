import { expect, it, vi } from 'vitest';
import { waitAtMost } from '../src/deadline.ts';

it('a wait for a time that has passed ends at once, without a warning of Node', async () => {
  const timers = vi.spyOn(globalThis, 'setTimeout');
  await waitAtMost(-1_000, new AbortController().signal);
  expect(timers.mock.calls.map(([, ms]) => ms)).toEqual([0]);
  timers.mockRestore();
});
