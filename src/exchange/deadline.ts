/** Waiting with an end: a time, a deadline that may move, an abort. */

import { maxTimerMs } from '../http/date.ts';

/** How long a request may wait; read live, for it may be extended. A context of the outbound layers is one. */
export interface WaitOptions {
  readonly signal: AbortSignal;
  /** On the monotonic clock (`performance.now()`), in ms. */
  readonly deadlineMs: number;
}

/** Resolves after so many ms, when the signal aborts, or with the promise: whichever is first. */
export function waitAtMost(ms: number, signal: AbortSignal, until?: Promise<unknown>): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', end);
      resolve();
    };
    // Node warns of a negative delay.
    const timer = setTimeout(end, Math.max(0, ms));
    signal.addEventListener('abort', end);
    if (signal.aborted) end();
    void until?.then(end, end);
  });
}

/**
 * Resolves when the promise does or the deadline has passed, whichever is first. The deadline is read again
 * when it is reached: it may have been extended.
 *
 * @throws the signal's reason when it aborts
 */
export function settledBy(promise: Promise<unknown>, wait: WaitOptions): Promise<void> {
  const { signal } = wait;
  return new Promise((resolve, reject) => {
    let timer: NodeJS.Timeout | undefined;
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', onAbort);
    };
    const done = () => {
      end();
      resolve();
    };
    const onAbort = () => {
      end();
      reject(signal.reason);
    };
    const onTimer = () => {
      const leftMs = wait.deadlineMs - performance.now();
      if (leftMs <= 0) done();
      else timer = setTimeout(onTimer, Math.min(leftMs, maxTimerMs));
    };
    if (signal.aborted) {
      onAbort();
      return;
    }
    signal.addEventListener('abort', onAbort);
    promise.then(done, done);
    onTimer();
  });
}
