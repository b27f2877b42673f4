import { afterEach, describe, expect, it, vi } from 'vitest';
import { settledBy, waitAtMost } from '../../src/exchange/request-context.ts';

afterEach(() => vi.useRealTimers());

/** Whether a promise has settled by now, and how. */
function follow(promise: Promise<unknown>) {
  const seen: { outcome?: string } = {};
  promise.then(
    () => {
      seen.outcome = 'resolved';
    },
    (error: Error) => {
      seen.outcome = error.message;
    },
  );
  return seen;
}

describe('waitAtMost', () => {
  it('waitAtMost ends with its time, with the promise or with the signal, whichever is first', async () => {
    vi.useFakeTimers();
    const leaving = new AbortController();
    const timed = follow(waitAtMost(100, new AbortController().signal));
    const aborted = follow(waitAtMost(100, leaving.signal));
    const settled = follow(waitAtMost(100, leaving.signal, Promise.reject(new Error('no matter'))));
    await vi.advanceTimersByTimeAsync(50);
    expect([timed.outcome, aborted.outcome, settled.outcome]).toEqual([undefined, undefined, 'resolved']);
    leaving.abort();
    await vi.advanceTimersByTimeAsync(0);
    expect([timed.outcome, aborted.outcome]).toEqual([undefined, 'resolved']);
    await vi.advanceTimersByTimeAsync(50);
    expect(timed.outcome).toBe('resolved');
    expect(vi.getTimerCount()).toBe(0);
  });

  it('waitAtMost ends at once where the time is over, and Node warns of no negative timeout', async () => {
    const timers = vi.spyOn(globalThis, 'setTimeout');
    await waitAtMost(-5, new AbortController().signal);
    expect(timers.mock.calls.map(([, ms]) => ms)).toEqual([0]);
  });
});

describe('settledBy', () => {
  it('settledBy follows a deadline that is extended while it waits', async () => {
    vi.useFakeTimers();
    const wait = { signal: new AbortController().signal, deadlineMs: performance.now() + 100 };
    const waiting = follow(settledBy(new Promise(() => {}), wait));
    wait.deadlineMs += 100;
    await vi.advanceTimersByTimeAsync(150);
    expect(waiting.outcome).toBeUndefined();
    await vi.advanceTimersByTimeAsync(50);
    expect(waiting.outcome).toBe('resolved');
  });

  it('settledBy rejects with the reason of its signal, also where that has aborted before', async () => {
    const leaving = new AbortController();
    const wait = { signal: leaving.signal, deadlineMs: performance.now() + 60_000 };
    const waiting = settledBy(new Promise(() => {}), wait);
    leaving.abort(new Error('the caller has left'));
    await expect(waiting).rejects.toThrow('the caller has left');
    await expect(settledBy(Promise.resolve(), wait)).rejects.toThrow('the caller has left');
  });
});
