/** Waiting for something no longer than somebody is willing to. */

/**
 * Resolves when the promise does or the deadline has passed, whichever is first. The deadline is read again
 * when it is reached: it may have been extended.
 *
 * @throws the signal's reason when it aborts
 */
export function settledBy(
  promise: Promise<unknown>,
  patience: { readonly signal: AbortSignal; readonly deadlineMs: number },
): Promise<void> {
  const { signal } = patience;
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
      const leftMs = patience.deadlineMs - performance.now();
      if (leftMs <= 0) done();
      else timer = setTimeout(onTimer, Math.min(leftMs, 2 ** 31 - 1));
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
