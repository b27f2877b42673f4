/**
 * The key's life in the process: which value is in use, and what comes next.
 *
 * | the store gives another value while the key in use is | then the new one |
 * |---|---|
 * | not there yet | is used at once: `loaded` |
 * | accepted | is tried first (`key-trial.ts`): `rotated`, then `accepted` or `new-key-refused` |
 * | suspect or rejected | is used at once: `rotated`, then `accepted` with the first answer |
 *
 * and where the key in use gets a 401 meanwhile, an untried one replaces it at once, and a refused one is tried again.
 * Without trials (`triesNewKeys`) every new value is used at once.
 *
 * Every different value is a generation; one that comes back after another is a new one. A request keeps the key
 * it took. What the upstream thinks of the key is in `key-monitor.ts`; how the store is asked, in `key-source.ts`.
 */

import type { Environment } from '../config/values.ts';
import { toSeconds, toTime } from '../exchange/figures.ts';
import type { WaitOptions } from '../exchange/request-context.ts';
import { Key, RetiredKeys } from './key.ts';
import type { EmitKeyEvent, KeyEvent, KeyHealth } from './key-event.ts';
import { type KeyCheck, KeyMonitor } from './key-monitor.ts';
import { firstOther, KeySource, loadKeyValue, loadPreviousValue, type StoredValue } from './key-source.ts';
import { KeyTrial } from './key-trial.ts';
import { openStore } from './open-store.ts';
import { Scrubber } from './scrub.ts';
import type { KeyStore } from './store.ts';
import { isAcceptance, type KeyRead } from './suspicion.ts';

export interface KeyringOptions {
  /** `env:NAME`, `file:/path`, … */
  readonly from: string;
  /** Where a key to fall back to is kept, if anywhere. */
  readonly previousFrom?: string | undefined;
  readonly environment: Environment;
  /** How a key is checked: a read of the gateway's own. */
  readonly check: KeyCheck;
  /** How often a store without a watch is asked again, in ms. */
  readonly refreshMs: number;
  /** Called once for each change. Must not throw. */
  onEvent(event: KeyEvent): void;
  /** How long an answer may take that was asked for with a key, in ms: a replaced key is searched for no shorter. */
  readonly longestAnswerMs?: number;
  /** How long a store that is not local may take to give the first key, in ms. */
  readonly startTimeoutMs?: number;
  /** Asks a store that is not local once, and gives up when it fails: for a look, not for a life. */
  readonly singleAttempt?: boolean;
  /** The settings that name the two stores, for messages. */
  readonly settings?: { readonly from: string; readonly previousFrom: string };
  /** Tries a new key with a read of the gateway's own before it replaces one that works. */
  readonly triesNewKeys?: boolean;
  /** Searches for the keys; shared where there are several keyrings. */
  readonly scrub?: Scrubber;
  /** Asks a store again that gave no key in time. */
  readonly retriesForever?: boolean;
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
  readonly #ready = Promise.withResolvers<boolean>();
  /** `true` with the first key, `false` when it did not come in time. Never rejects. */
  readonly ready = this.#ready.promise;
  readonly #firstRefusal = Promise.withResolvers<void>();
  /** Resolves with the first 401 of the upstream to any key, long before a rejection is proved. Never rejects. */
  readonly firstRefusal = this.#firstRefusal.promise;
  readonly #options: KeyringOptions;
  readonly #store: KeyStore;
  readonly #previousStore: KeyStore | undefined;
  readonly #source: KeySource;
  readonly #monitor: KeyMonitor;
  readonly #trial: KeyTrial;
  #generations = 0;
  /** The newest good value of the store. */
  #offered: Key | undefined;
  /** The key in use: the offered one, or the one fallen back to. */
  #current: Key | undefined;
  /** The key that was fallen back to, while it is in use. */
  #fallback: Key | undefined;
  /** A key that replaced another untried, until the upstream accepts it. */
  #unconfirmed: Key | undefined;
  #loadedAt: number | undefined;
  /** The same by the clock that cannot be set. */
  #loadedMs: number | undefined;
  #hasGivenUp = false;
  #reloadFailures = 0;
  #reloadFailure: string | undefined;
  /** Ends reads that are under way: a command that hangs would keep the process from ending. */
  readonly #closing = new AbortController();
  /** Where each key came from. */
  readonly #sources = new WeakMap<Key, string>();
  readonly #retired: RetiredKeys;

  /** For `openKeyring`, which starts it. */
  constructor(options: KeyringOptions, store: KeyStore, previousStore: KeyStore | undefined) {
    this.scrub = options.scrub ?? new Scrubber();
    this.#options = options;
    this.#store = store;
    this.#previousStore = previousStore;
    this.#retired = new RetiredKeys({
      longestAnswerMs: options.longestAnswerMs ?? 0,
      onForget: (key) => {
        // Fallen back from, it is still what the store offers.
        if (key !== this.#offered) this.scrub.forget(key);
      },
    });
    this.#source = new KeySource({
      store,
      refreshMs: options.refreshMs,
      onValue: (value) => this.#onValue(value),
      onFailure: (reason) => this.#onFailure(reason),
    });
    this.#monitor = new KeyMonitor({
      check: options.check,
      current: () => this.#current,
      suspected: () => this.#onSuspected(),
      reload: () => this.#source.reload(),
      other: (key) => this.#findOther(key),
      adopt: (key) => this.#adopt(key),
      retire: (key) => this.#retired.add(key),
      emit: this.#emit,
    });
    this.#trial = new KeyTrial({
      check: options.check,
      take: (key) => this.#take(key),
      emit: this.#emit,
    });
  }

  /** No key is loaded, and the time in which the first one is expected is not over. */
  get isAwaited(): boolean {
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
    this.#firstRefusal.resolve();
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
    if (key === this.#unconfirmed && isAcceptance(status))
      this.#confirm(key, 'The upstream accepts the new key');
  }

  /** Reads the store again at once, and tries a new key again that waits for that (SIGHUP). Never rejects. */
  async reload(): Promise<void> {
    await this.#source.reload();
    this.#trial.tryNow();
  }

  /** Reports that an answer held a key: this one's, or another keyring's that shares the search. */
  leaked(key: Key, operation: string): void {
    const whose = this.#sources.has(key) ? 'the key' : 'the key of another workspace';
    const message = `An answer of the upstream to ${operation} held ${whose}; it was not passed on`;
    this.#emit('leak', 'error', message, key);
  }

  readonly health = (): KeyHealth => ({
    loaded: this.#current !== undefined,
    source: (this.#current && this.#sources.get(this.#current)) ?? this.#store.describe,
    fingerprint: this.#current?.fingerprint ?? null,
    generation: this.#current?.generation ?? null,
    loadedAt: toTime(this.#loadedAt),
    ageSeconds: toSeconds(this.#loadedMs === undefined ? undefined : performance.now() - this.#loadedMs),
    lastAcceptedAt: toTime(this.#monitor.lastAcceptedAt),
    lastRejectedAt: toTime(this.#monitor.lastRejectedAt),
    rejected: this.#monitor.standing === 'rejected',
    fallenBack: this.#current !== undefined && this.#current === this.#fallback,
    newKey: this.#trial.health(),
    reloadFailures: this.#reloadFailures,
    reloadFailure: this.#reloadFailure ?? null,
    beside: {
      suspect: this.#monitor.standing === 'suspect',
      previousForgottenInSeconds: toSeconds(this.#retired.forgottenInMs),
    },
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
    void this.#source.reload().then(() => {
      if (!this.#options.singleAttempt) this.#source.start();
      else this.#giveUp();
    });
  }

  close(): void {
    this.#closing.abort();
    this.#source.close();
    this.#monitor.close();
    this.#trial.end();
    this.#retired.close();
    this.#ready.resolve(false);
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

  #use(key: Key, standing?: 'untried'): void {
    if (this.#current !== undefined && this.#current !== key) this.#retired.add(this.#current);
    if (this.#trial.key === key) this.#trial.end();
    this.#current = key;
    this.#fallback = undefined;
    this.#unconfirmed = standing === 'untried' ? key : undefined;
    this.#loadedAt = Date.now();
    this.#loadedMs = performance.now();
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
    const wasOnTrial = this.#trial.key !== undefined;
    this.#trial.end();
    if (this.#offered !== undefined && this.#offered !== before) this.#retired.add(this.#offered);
    if (before?.hasValue(value)) {
      // The store went back to the value that is in use: as the fallback, or because the new one was not taken.
      this.#offered = before;
      this.#fallback = undefined;
      this.#sources.set(before, this.#store.describe);
      if (wasOnTrial) this.#emit('went-back', 'info', 'The secret store has the key in use again', before);
      return;
    }
    this.#offered = this.#learn(value, this.#store.describe);
    if (before === undefined) {
      this.#use(this.#offered);
      this.#emit('loaded', 'info', 'The upstream key is loaded', this.#offered);
      this.#ready.resolve(true);
    } else if (this.#options.triesNewKeys && this.#monitor.standing === 'healthy') {
      const message = `The secret store has a new key; it is tried before it replaces ${before}`;
      this.#emit('rotated', 'info', message, this.#offered);
      this.#trial.begin(this.#offered);
    } else {
      this.#use(this.#offered, 'untried');
      this.#emit('rotated', 'info', `The upstream key was rotated; it replaces ${before}`, this.#offered);
    }
  }

  /** The key on trial was accepted. */
  #take(key: Key): void {
    const before = this.#current;
    this.#use(key);
    this.#confirm(key, `The upstream accepts the new key; it replaces ${before}`);
  }

  #confirm(key: Key, message: string): void {
    this.#unconfirmed = undefined;
    this.#emit('accepted', 'info', message, key);
  }

  /** Nothing was said against an untried key yet, which is more than can be said of the one in use. */
  #onSuspected(): void {
    const { key } = this.#trial;
    if (key === undefined) return;
    if (this.#trial.isRefused) this.#trial.tryNow();
    else this.#use(key, 'untried');
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
    if (!this.#options.retriesForever) this.#source.close();
    this.#emit('gave-up', 'error', 'The secret store gave no key in time', undefined, this.#reloadFailure);
    this.#ready.resolve(false);
  }

  /** A value that differs from the refused one: what the store offers, or what was in use before. */
  async #findOther(key: Key): Promise<(() => Key) | undefined> {
    const { signal } = this.#closing;
    const store = this.#store;
    const previousStore = this.#previousStore;
    const tries: StoredValue[] = [[`${store.describe} (previous)`, () => loadPreviousValue(store, signal)]];
    if (previousStore !== undefined) {
      tries.push([previousStore.describe, () => loadKeyValue(previousStore, signal)]);
    }
    // Fallen back before, and now the fallback is refused: what the store offers may be good by now. A key on trial is
    // left to its trial.
    if (this.#offered !== undefined && this.#offered !== key && this.#trial.key === undefined) {
      tries.unshift([store.describe, () => loadKeyValue(store, signal)]);
    }
    const found = await firstOther(key, tries, (reason) =>
      this.#emit('previous-failed', 'warn', 'The previous key cannot be read', key, reason),
    );
    return found && (() => this.#learn(found.value, found.from));
  }

  #adopt(key: Key): void {
    const isNewest = this.#sources.get(key) === this.#store.describe;
    if (isNewest) {
      if (this.#offered !== undefined) this.#retired.add(this.#offered);
      this.#offered = key;
    }
    this.#use(key);
    if (isNewest) {
      this.#emit('went-back', 'info', "The upstream takes the store's newest key again; using that", key);
    } else {
      this.#fallback = key;
      const message = 'The upstream refuses the newest key and takes another; using that';
      this.#emit('fell-back', 'warn', message, key);
    }
  }
}
