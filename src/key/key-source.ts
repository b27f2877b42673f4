/**
 * Polls a store for the key: at the start with backoff, then whenever it may have changed. Passes good
 * values on; a bad value never replaces anything, it is only reported.
 */
import type { Environment } from '../config/values.ts';
import { waitAtMost } from '../exchange/request-context.ts';
import type { Key } from './key.ts';
import { openStore } from './open-store.ts';
import { describeFailure, type KeyStore, KeyStoreError, parseKey } from './store.ts';

/** No read may take for ever; the stores' own limits are below this. */
const loadTimeoutMs = 15_000;
const firstRetryMs = 250;
const maxRetryMs = 4_000;

export interface KeySourceOptions {
  readonly store: KeyStore;
  /** How often a store without a watch is asked again, in ms. */
  readonly refreshMs: number;
  /** A good value came; it may be the same as before. */
  readonly onValue: (value: string) => void;
  /** A read failed; the reason is fit for a log line. Called on every failure. */
  readonly onFailure: (reason: string) => void;
}

/** Reads a store now and then, one read at a time. */
export class KeySource {
  readonly #options: KeySourceOptions;
  #reading: Promise<void> | undefined;
  /** The store may have changed during the read under way. */
  #isStale = false;
  #failuresInARow = 0;
  #timer: NodeJS.Timeout | undefined;
  #stopWatching: (() => void) | undefined;
  /** Ends the read under way: a command that hangs would keep the process from ending. */
  readonly #closing = new AbortController();

  constructor(options: KeySourceOptions) {
    this.#options = options;
  }

  /** Reads the store now, or once more after the read under way, which may have seen the old value. Never rejects. */
  reload(): Promise<void> {
    if (this.#reading !== undefined) this.#isStale = true;
    else this.#reading = this.#read();
    return this.#reading;
  }

  /** Begins to watch, or to ask again every now and then. */
  start(): void {
    if (this.#closing.signal.aborted) return;
    this.#stopWatching = this.#options.store.watch?.(() => void this.reload());
    if (this.#reading === undefined) this.#schedule();
  }

  close(): void {
    this.#closing.abort();
    clearTimeout(this.#timer);
    this.#stopWatching?.();
  }

  async #read(): Promise<void> {
    const { store, onValue, onFailure } = this.#options;
    const { signal } = this.#closing;
    clearTimeout(this.#timer);
    do {
      this.#isStale = false;
      try {
        const value = await loadKeyValue(store, signal);
        if (signal.aborted) return;
        this.#failuresInARow = 0;
        onValue(value);
      } catch (error) {
        if (signal.aborted) return;
        this.#failuresInARow++;
        onFailure(describeFailure(error));
      }
    } while (this.#isStale && !signal.aborted);
    this.#reading = undefined;
    this.#schedule();
  }

  #schedule(): void {
    clearTimeout(this.#timer);
    const failures = this.#failuresInARow;
    // Where the store is watched, its change brings the next read, whether it works or not.
    if (this.#closing.signal.aborted || (this.#stopWatching !== undefined && failures === 0)) return;
    const { refreshMs } = this.#options;
    const retryMs = Math.min(firstRetryMs * 2 ** Math.max(0, failures - 1), maxRetryMs);
    const waitMs = failures > 0 ? Math.min(retryMs, refreshMs) : refreshMs;
    this.#timer = setTimeout(() => void this.reload(), waitMs);
    this.#timer.unref();
  }
}

/**
 * One read of a store, checked and bounded.
 *
 * @param closing ends the read before its time
 * @param what what is kept there, for messages
 * @throws KeyStoreError whatever was wrong, in a message that begins with the store's name
 */
export async function loadKeyValue(
  store: KeyStore,
  closing?: AbortSignal,
  what = 'the key',
): Promise<string> {
  return checked(store, await bounded(store, (signal) => store.load(signal), closing), what);
}

/** The same for the value before; `undefined` where the store keeps none. */
export async function loadPreviousValue(store: KeyStore, closing?: AbortSignal): Promise<string | undefined> {
  const text = await bounded(
    store,
    (signal) => store.loadPrevious?.(signal) ?? Promise.resolve(undefined),
    closing,
  );
  return text === undefined ? undefined : checked(store, text, 'the key');
}

/** A place where a key may be, and how to read it; `undefined` where there is none. */
export type StoredValue = readonly [from: string, load: () => Promise<string | undefined>];

/** The first value that differs from the key, and where it is from. Never rejects: reports a failure, and goes on. */
export async function firstOther(
  key: Key,
  places: readonly StoredValue[],
  onFailure: (reason: string) => void,
): Promise<{ from: string; value: string } | undefined> {
  for (const [from, load] of places) {
    try {
      const value = await load();
      if (value !== undefined && !key.hasValue(value)) return { from, value };
    } catch (error) {
      onFailure(describeFailure(error));
    }
  }
  return undefined;
}

function checked(store: KeyStore, text: string, what: string): string {
  const parsed = parseKey(text);
  if ('reason' in parsed) throw new KeyStoreError(`${store.describe}: ${what} ${parsed.reason}`);
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

/**
 * How to read the token of the admin listener, which has a store and the form of a key. It is read each time anew, so that a
 * new value needs no restart.
 *
 * @returns a function that rejects with a `KeyStoreError` that names the setting; `undefined` where no token is asked for
 * @throws KeyStoreError where the setting is malformed
 */
export function openAdminToken(
  settings: { readonly ADMIN_TOKEN_FROM?: string | undefined; readonly ADMIN_PORT?: number | 'off' },
  environment: Environment,
): (() => Promise<string>) | undefined {
  const { ADMIN_TOKEN_FROM: from, ADMIN_PORT: port } = settings;
  if (from === undefined || port === 'off') return undefined;
  const store = openStore(from, environment, 'ADMIN_TOKEN_FROM');
  return async () => {
    try {
      return await loadKeyValue(store, undefined, 'the token');
    } catch (error) {
      if (!(error instanceof KeyStoreError)) throw error;
      throw new KeyStoreError(`ADMIN_TOKEN_FROM: ${error.message}`);
    }
  };
}
