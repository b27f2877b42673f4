/**
 * The key's life in the process: which value is in use, and what comes next.
 *
 * Every different value is a generation; one that comes back after another is a new one. A request keeps the key
 * it took. What the upstream thinks of the key is in `key-health.ts`; how the store is asked, in `key-source.ts`.
 */
import type { WaitOptions } from '../deadline.ts';
import type { KeyRead } from './accepted-reads.ts';
import { Key } from './key.ts';
import type { EmitKeyEvent, KeyEvent, KeyHealth } from './key-event.ts';
import { KeyMonitor, type KeyProbe } from './key-health.ts';
import { KeySource, loadKeyValue, loadPreviousValue } from './key-source.ts';
import { retiredKeyMs } from './keyring-policy.ts';
import { openStore } from './open-store.ts';
import { Scrubber } from './scrub.ts';
import { describeFailure, type Environment, type KeyStore } from './store.ts';

export interface KeyringOptions {
  /** `env:NAME`, `file:/path`, … */
  readonly from: string;
  /** Where a key to fall back to is kept, if anywhere. */
  readonly previousFrom?: string | undefined;
  readonly environment: Environment;
  /** How often a store without a watch is asked again, in ms. */
  readonly refreshMs: number;
  /** Called once for each change. Must not throw. */
  onEvent(event: KeyEvent): void;
  /** How long an answer may take that was asked for with a key, in ms: a replaced key is searched for no shorter. */
  readonly longestAnswerMs?: number;
  /** How long a store that is not local may take to give the first key, in ms. */
  readonly startTimeoutMs?: number;
  /** Asks a store that is not local once, and gives up when it fails: for a look, not for a life. */
  readonly once?: boolean;
  /** The settings that name the two stores, for messages. */
  readonly settings?: { readonly from: string; readonly previousFrom: string };
  /** Searches for the keys; shared where there are several keyrings. */
  readonly scrub?: Scrubber;
  /** Goes on asking a store that gave no key in time. */
  readonly goesOn?: boolean;
  /** Opens the stores; for tests. */
  readonly open?: (from: string, environment: Environment, setting: string) => KeyStore;
}

const usualSettings = {
  from: 'UPSTREAM_API_KEY_FROM',
  previousFrom: 'UPSTREAM_API_KEY_PREVIOUS_FROM',
};

/**
 * Opens the stores and loads the first key.
 *
 * @throws KeyStoreError when a setting is malformed, a library that a store needs is not installed, or a local
 * store (`env:`, `file:`) has no good key. Other stores are asked again in the background; `ready` says how that went.
 */
export async function openKeyring(options: KeyringOptions): Promise<Keyring> {
  const { from, previousFrom, environment, settings = usualSettings, open = openStore } = options;
  const store = open(from, environment, settings.from);
  const previousStore =
    previousFrom === undefined ? undefined : open(previousFrom, environment, settings.previousFrom);
  // A library that is not installed will not appear by waiting.
  await Promise.all([store.prepare?.(), previousStore?.prepare?.()]);
  const keyring = new Keyring(options, store, previousStore);
  await keyring.start();
  return keyring;
}

export class Keyring {
  readonly scrub: Scrubber;
  /** `true` with the first key, `false` when it did not come in time. Never rejects. */
  readonly ready: Promise<boolean>;
  /** Resolves with the first 401 of the upstream to any key, long before a rejection is proved. Never rejects. */
  readonly firstRefusal: Promise<void>;
  readonly #announceReady: (loaded: boolean) => void;
  readonly #announceRefusal: () => void;
  readonly #options: KeyringOptions;
  readonly #store: KeyStore;
  readonly #previousStore: KeyStore | undefined;
  readonly #source: KeySource;
  readonly #monitor: KeyMonitor;
  #generations = 0;
  /** The newest good value of the store. */
  #offered: Key | undefined;
  /** The key in use: the offered one, or the one fallen back to. */
  #current: Key | undefined;
  #loadedAt: number | undefined;
  #hasGivenUp = false;
  #reloadFailures = 0;
  #reloadFailure: string | undefined;
  /** Ends reads that are under way: a command that hangs would keep the process from ending. */
  readonly #closing = new AbortController();
  /** Where each key came from. */
  readonly #sources = new WeakMap<Key, string>();
  readonly #retiring = new Set<NodeJS.Timeout>();
  /** When the last of them is due, on the monotonic clock. */
  #forgottenAtMs = 0;

  /** For `openKeyring`, which starts it. */
  constructor(options: KeyringOptions, store: KeyStore, previousStore: KeyStore | undefined) {
    this.scrub = options.scrub ?? new Scrubber();
    this.#options = options;
    this.#store = store;
    this.#previousStore = previousStore;
    const { promise, resolve } = Promise.withResolvers<boolean>();
    this.ready = promise;
    this.#announceReady = resolve;
    const refusal = Promise.withResolvers<void>();
    this.firstRefusal = refusal.promise;
    this.#announceRefusal = refusal.resolve;
    this.#source = new KeySource({
      store,
      refreshMs: options.refreshMs,
      onValue: (value) => this.#onValue(value),
      onFailure: (reason) => this.#onFailure(reason),
    });
    this.#monitor = new KeyMonitor({
      current: () => this.#current,
      reload: () => this.reload(),
      other: (key) => this.#findOther(key),
      adopt: (key) => this.#adopt(key),
      retire: (key) => this.#retire(key),
      emit: this.#emit,
    });
  }

  /** No key is loaded, and the time in which the first one is expected is not over. */
  get mayCome(): boolean {
    return this.#current === undefined && !this.#hasGivenUp;
  }

  /** The key to send with; `undefined` until the first one is there. */
  get current(): Key | undefined {
    return this.#current;
  }

  /** The key to send with now; `undefined` while a refusal is looked into, and once the key is rejected. */
  get usable(): Key | undefined {
    const key = this.#current;
    if (key === undefined || this.standingOf(key) === 'healthy') return key;
    return this.#monitor.candidate;
  }

  /** The generation in use: part of every cache key. */
  readonly generation = (): number | undefined => this.#current?.generation;

  /** What the upstream thinks of a key. */
  standingOf(key: Key): 'healthy' | 'suspect' | 'rejected' {
    return this.#monitor.standingOf(key);
  }

  /** The upstream answered 401 to this read with this key: makes it suspect, if it is in use. */
  refused(key: Key, read: KeyRead): void {
    this.#monitor.refused(key, read);
    this.#announceRefusal();
  }

  /**
   * Waits for what to send with instead of a suspect key. `undefined`: nothing. The same key: what was refused was the
   * operation, as far as is known. Rejects when the signal aborts.
   */
  replace(key: Key, wait: WaitOptions): Promise<Key | undefined> {
    return this.#monitor.replace(key, wait);
  }

  /** The upstream answered something else than 401 to a read sent at this time (`performance.now()`). */
  accepted(key: Key, status: number, sentMs: number, read: KeyRead): void {
    this.#monitor.accepted(key, status, sentMs, read);
  }

  /** Says how to probe; until then nothing but a new key ends a rejection. */
  probeWith(probe: KeyProbe): void {
    this.#monitor.probeWith(probe);
  }

  /** Reads the store again at once (SIGHUP). Never rejects. */
  reload(): Promise<void> {
    return this.#source.reload();
  }

  /** Reports that an answer held a key: this one's, or another keyring's that shares the search. */
  leaked(key: Key, operation: string): void {
    const whose = this.#sources.has(key) ? 'the key' : 'the key of another workspace';
    const message = `An answer of the upstream to ${operation} held ${whose}; it was not passed on`;
    this.#emit('leak', 'error', message, key);
  }

  readonly health = (): KeyHealth => ({
    source: (this.#current && this.#sources.get(this.#current)) ?? this.#store.describe,
    fingerprint: this.#current?.fingerprint,
    generation: this.#current?.generation,
    loadedAt: this.#loadedAt,
    ageMs: this.#loadedAt === undefined ? undefined : Date.now() - this.#loadedAt,
    lastAcceptedAt: this.#monitor.lastAcceptedAt,
    lastRejectedAt: this.#monitor.lastRejectedAt,
    suspect: this.#monitor.isSuspect,
    rejected: this.#monitor.isRejected,
    fallenBack: this.#current !== this.#offered,
    previousForgottenInMs: this.#retiring.size === 0 ? undefined : this.#forgottenAtMs - performance.now(),
    reloadFailures: this.#reloadFailures,
    reloadFailure: this.#reloadFailure,
  });

  /** Loads the first key, and begins to follow the store. For `openKeyring`. @throws KeyStoreError of a local store */
  async start(): Promise<void> {
    if (this.#store.local) {
      // Read here and not through the source, so that the failure is ours to throw.
      this.#onValue(await loadKeyValue(this.#store));
      this.#source.start();
      return;
    }
    const timer = setTimeout(() => this.#giveUp(), this.#options.startTimeoutMs ?? 30_000);
    timer.unref();
    void this.ready.then(() => clearTimeout(timer));
    void this.reload().then(() => {
      if (!this.#options.once) this.#source.start();
      else this.#giveUp();
    });
  }

  close(): void {
    this.#closing.abort();
    this.#source.close();
    this.#monitor.close();
    for (const timer of this.#retiring) clearTimeout(timer);
    this.#announceReady(false);
  }

  readonly #emit: EmitKeyEvent = (kind, level, message, key, reason) =>
    this.#options.onEvent({
      kind,
      level,
      message,
      source: (reason === undefined && key && this.#sources.get(key)) || this.#store.describe,
      ...(key === undefined ? {} : { fingerprint: key.fingerprint, generation: key.generation }),
      ...(reason === undefined ? {} : { reason }),
    });

  #learn(value: string, from: string): Key {
    const key = new Key(value, ++this.#generations);
    this.#sources.set(key, from);
    this.scrub.know(key);
    return key;
  }

  /** A key that was in use is still searched for a while: answers fetched with it are under way. */
  #retire(key: Key): void {
    const keptMs = Math.max(retiredKeyMs, this.#options.longestAnswerMs ?? 0);
    const timer = setTimeout(() => {
      this.#retiring.delete(timer);
      // Fallen back from, it is still what the store offers.
      if (key !== this.#offered) this.scrub.forget(key);
    }, keptMs);
    timer.unref();
    this.#forgottenAtMs = performance.now() + keptMs;
    this.#retiring.add(timer);
  }

  #use(key: Key): void {
    if (this.#current !== undefined && this.#current !== key) this.#retire(this.#current);
    this.#current = key;
    this.#loadedAt = Date.now();
    this.#monitor.reset();
  }

  #onValue(value: string): void {
    const before = this.#current;
    if (this.#reloadFailure !== undefined) {
      this.#reloadFailure = undefined;
      if (before !== undefined) {
        this.#emit('reload-recovered', 'info', 'The secret store can be read again', before);
      }
    }
    if (this.#offered?.hasValue(value)) return;
    if (this.#offered !== undefined && this.#offered !== before) this.#retire(this.#offered);
    if (before?.hasValue(value)) {
      // The store went back to the value that is in use as the fallback.
      this.#offered = before;
      this.#sources.set(before, this.#store.describe);
      return;
    }
    this.#offered = this.#learn(value, this.#store.describe);
    this.#use(this.#offered);
    if (before === undefined) {
      this.#emit('loaded', 'info', 'The upstream key is loaded', this.#offered);
      this.#announceReady(true);
    } else {
      this.#emit('rotated', 'info', `The upstream key was rotated; it replaces ${before}`, this.#offered);
    }
  }

  #onFailure(reason: string): void {
    this.#reloadFailures++;
    if (reason === this.#reloadFailure) return;
    this.#reloadFailure = reason;
    if (this.#current !== undefined) {
      const message = 'The secret store gave no good key; the last good one stays';
      this.#emit('reload-failed', 'error', message, this.#current, reason);
    } else if (!this.#store.local) {
      this.#emit('waiting', 'warn', 'The secret store gives no key yet; trying again', undefined, reason);
    }
  }

  #giveUp(): void {
    if (this.#current !== undefined || this.#closing.signal.aborted) return;
    this.#hasGivenUp = true;
    if (!this.#options.goesOn) this.#source.close();
    this.#emit('gave-up', 'error', 'The secret store gave no key in time', undefined, this.#reloadFailure);
    this.#announceReady(false);
  }

  /** A value that differs from the refused one: what the store offers, or what was in use before. */
  async #findOther(key: Key): Promise<(() => Key) | undefined> {
    const { signal } = this.#closing;
    const store = this.#store;
    const previousStore = this.#previousStore;
    const tries: Array<readonly [from: string, load: () => Promise<string | undefined>]> = [
      [`${store.describe} (previous)`, () => loadPreviousValue(store, signal)],
    ];
    if (previousStore !== undefined) {
      tries.push([previousStore.describe, () => loadKeyValue(previousStore, signal)]);
    }
    // Fallen back before, and now the fallback is refused: what the store offers may be good by now.
    if (this.#offered !== undefined && this.#offered !== key) {
      tries.unshift([store.describe, () => loadKeyValue(store, signal)]);
    }
    for (const [from, load] of tries) {
      try {
        const value = await load();
        if (value !== undefined && !key.hasValue(value)) return () => this.#learn(value, from);
      } catch (error) {
        const reason = describeFailure(error);
        this.#emit('previous-failed', 'warn', 'The previous key cannot be read', key, reason);
      }
    }
    return undefined;
  }

  #adopt(key: Key): void {
    const isNewest = this.#sources.get(key) === this.#store.describe;
    if (isNewest) {
      if (this.#offered !== undefined) this.#retire(this.#offered);
      this.#offered = key;
    }
    this.#use(key);
    if (isNewest) {
      this.#emit('went-back', 'info', "The upstream takes the store's newest key again; using that", key);
    } else {
      const message = 'The upstream refuses the newest key and takes another; using that';
      this.#emit('fell-back', 'warn', message, key);
    }
  }
}
