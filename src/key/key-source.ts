/**
 * Polls a store for the key: at the start with backoff, then whenever it may have changed. Passes good
 * values on; a bad value never replaces anything, it is only reported.
 */
import { waitAtMost } from '../deadline.ts';
import { parseKey } from './parse-key.ts';
import { describeFailure, type KeyStore, KeyStoreError } from './store.ts';

/** No read may take for ever; the stores' own limits are below this. */
const loadTimeoutMs = 15_000;
const firstRetryMs = 250;
const maxRetryMs = 4_000;

export interface KeySourceOptions {
  readonly store: KeyStore;
  /** How often a store without a watch is asked again, in ms. */
  readonly refreshMs: number;
  /** A good value came; it may be the same as before. */
  onValue(value: string): void;
  /** A read failed; the reason is fit for a log line. Called on every failure. */
  onFailure(reason: string): void;
}

export interface KeySource {
  /** Reads the store now, or joins the read that is under way. Never rejects. */
  reload(): Promise<void>;
  /** Begins to watch, or to ask again every now and then. */
  start(): void;
  close(): void;
}

export function pollStore(options: KeySourceOptions): KeySource {
  const { store } = options;
  let reading: Promise<void> | undefined;
  let staleRead = false;
  let failuresInARow = 0;
  let timer: NodeJS.Timeout | undefined;
  let stopWatching: (() => void) | undefined;
  let closed = false;
  /** Ends the read under way: a command that hangs would keep the process from ending. */
  const closing = new AbortController();

  const read = async (): Promise<void> => {
    do {
      staleRead = false;
      try {
        const value = await loadKeyValue(store, closing.signal);
        if (closed) return;
        failuresInARow = 0;
        options.onValue(value);
      } catch (error) {
        if (closed) return;
        failuresInARow++;
        options.onFailure(describeFailure(error));
      }
    } while (staleRead && !closed);
    reading = undefined;
    schedule();
  };

  const reload = (): Promise<void> => {
    reading ??= read();
    return reading;
  };

  /** The store said that it changed: a read under way may have seen the state before. */
  const changed = () => {
    if (reading !== undefined) staleRead = true;
    void reload();
  };

  const schedule = () => {
    clearTimeout(timer);
    // Where the store is watched, its change brings the next read, whether it works or not.
    if (closed || (stopWatching !== undefined && failuresInARow === 0)) return;
    const retryMs = Math.min(firstRetryMs * 2 ** Math.max(0, failuresInARow - 1), maxRetryMs);
    const waitMs = failuresInARow > 0 ? Math.min(retryMs, options.refreshMs) : options.refreshMs;
    timer = setTimeout(() => void reload(), waitMs);
    timer.unref();
  };

  return {
    reload,
    start: () => {
      if (closed) return;
      stopWatching = store.watch?.(changed);
      if (reading === undefined) schedule();
    },
    close: () => {
      closed = true;
      closing.abort();
      clearTimeout(timer);
      stopWatching?.();
    },
  };
}

/**
 * One read of a store, checked and bounded.
 *
 * @param closing ends the read before its time
 * @throws KeyStoreError whatever was wrong, in a message that begins with the store's name
 */
export async function loadKeyValue(store: KeyStore, closing?: AbortSignal): Promise<string> {
  return checked(store, await bounded(store, (signal) => store.load(signal), closing));
}

/** The same for the value before; `undefined` where the store keeps none. */
export async function loadPreviousValue(store: KeyStore, closing?: AbortSignal): Promise<string | undefined> {
  const text = await bounded(
    store,
    (signal) => store.loadPrevious?.(signal) ?? Promise.resolve(undefined),
    closing,
  );
  return text === undefined ? undefined : checked(store, text);
}

function checked(store: KeyStore, text: string): string {
  const parsed = parseKey(text);
  if ('reason' in parsed) throw new KeyStoreError(`${store.describe}: the key ${parsed.reason}`);
  return parsed.value;
}

async function bounded<T>(
  store: KeyStore,
  load: (signal: AbortSignal) => Promise<T>,
  closing?: AbortSignal,
): Promise<T> {
  const limit = new AbortController();
  const signal = closing === undefined ? limit.signal : AbortSignal.any([closing, limit.signal]);
  try {
    const loaded = load(signal).then((value) => ({ value }));
    const outcome = await Promise.race([loaded, waitAtMost(loadTimeoutMs, signal)]);
    if (outcome === undefined) {
      throw new KeyStoreError(`${store.describe}: did not answer within ${loadTimeoutMs / 1000} s`);
    }
    return outcome.value;
  } catch (error) {
    if (error instanceof KeyStoreError) throw error;
    throw new KeyStoreError(`${store.describe}: ${describeFailure(error)}`);
  } finally {
    limit.abort();
  }
}
