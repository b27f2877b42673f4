/**
 * The key's life in the process: which value is in use, and what comes next.
 *
 * Every different value is a generation; one that comes back after another is a new one. A request keeps the key
 * it took. What the upstream thinks of the key is in `key-doubt.ts`; how the store is asked, in `key-source.ts`.
 */
import { Key } from './key.ts';
import { judgeKeys, type KeyProbe, type Patience } from './key-doubt.ts';
import type { KeyEvent, KeyHealth, TellKeyEvent } from './key-event.ts';
import { keepAsking, loadKeyValue, loadPreviousValue } from './key-source.ts';
import { retiredKeyMs } from './keyring-policy.ts';
import { type Environment, openStore } from './open-store.ts';
import { Scrubber } from './scrub.ts';
import { describeFailure, type KeyStore } from './store.ts';

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
  /** How long a store that is not local may take to give the first key, in ms. */
  readonly startTimeoutMs?: number;
  /** Asks a store that is not local once, and gives up when it fails: for a look, not for a life. */
  readonly once?: boolean;
  /** Opens the stores; for tests. */
  readonly open?: (from: string, environment: Environment, setting: string) => KeyStore;
}

export interface Keyring {
  /** The key to send with; `undefined` until the first one is there. */
  readonly current: Key | undefined;
  /** `true` with the first key, `false` when it did not come in time. Never rejects. */
  readonly ready: Promise<boolean>;
  /** The generation in use: part of every cache key. */
  generation(): number | undefined;
  /** `good`: send. `doubted`: ask `replace` first. `rejected`: send nothing. */
  standingOf(key: Key): 'good' | 'doubted' | 'rejected';
  /** The upstream answered 401 to this key: begins to doubt it, if it is in use. */
  refused(key: Key, operation: string): void;
  /**
   * Waits for what to send with instead of a doubted key. `undefined`: nothing. The same key: it is good, and what
   * was refused was the operation. Rejects when the signal aborts.
   */
  replace(key: Key, patience: Patience): Promise<Key | undefined>;
  /** The upstream answered something else than 401 to a request sent at this time (`performance.now()`). */
  accepted(key: Key, status: number, sentMs: number): void;
  /** Says how to probe; until then a rejected key waits for a new one. */
  probeWith(probe: KeyProbe): void;
  /** Reads the store again at once (SIGHUP). Never rejects. */
  reload(): Promise<void>;
  /** Tells that an answer held the key. */
  leaked(key: Key, operation: string): void;
  health(): KeyHealth;
  readonly scrub: Scrubber;
  close(): void;
}

/**
 * Opens the stores and loads the first key.
 *
 * @throws KeyStoreError when a setting is malformed, a library that a store needs is not installed, or a local
 * store (`env:`, `file:`) has no good key. Other stores are asked again in the background; `ready` says how that went.
 */
export async function openKeyring(options: KeyringOptions): Promise<Keyring> {
  const open = options.open ?? openStore;
  const store = open(options.from, options.environment, 'UPSTREAM_API_KEY_FROM');
  const previousStore =
    options.previousFrom === undefined
      ? undefined
      : open(options.previousFrom, options.environment, 'UPSTREAM_API_KEY_PREVIOUS_FROM');
  // A library that is not installed will not appear by waiting.
  await Promise.all([store.prepare?.(), previousStore?.prepare?.()]);
  const startTimeoutMs = options.startTimeoutMs ?? 30_000;
  const scrub = new Scrubber();

  let generations = 0;
  /** The newest good value of the store. */
  let offered: Key | undefined;
  /** The key in use: the offered one, or the one fallen back to. */
  let current: Key | undefined;
  let loadedAt: number | undefined;
  let reloadFailures = 0;
  let reloadFailure: string | undefined;
  let closed = false;
  /** Ends reads that are under way: a command that hangs would keep the process from ending. */
  const closing = new AbortController();
  /** Where each key came from. */
  const sources = new WeakMap<Key, string>();
  const retiring = new Set<NodeJS.Timeout>();
  let announceReady: (loaded: boolean) => void = () => {};
  const ready = new Promise<boolean>((resolve) => {
    announceReady = resolve;
  });

  const tell: TellKeyEvent = (kind, level, message, key, reason) =>
    options.onEvent({
      kind,
      level,
      message,
      source: (reason === undefined && key && sources.get(key)) || store.describe,
      ...(key === undefined ? {} : { fingerprint: key.fingerprint, generation: key.generation }),
      ...(reason === undefined ? {} : { reason }),
    });

  const learn = (value: string, from = store.describe): Key => {
    const key = new Key(value, ++generations);
    sources.set(key, from);
    scrub.know(key);
    return key;
  };

  /** A key that was in use is still searched for a while: answers fetched with it are under way. */
  const retire = (key: Key) => {
    const timer = setTimeout(() => {
      retiring.delete(timer);
      // Fallen back from, it is still what the store offers.
      if (key !== offered) scrub.forget(key);
    }, retiredKeyMs);
    timer.unref();
    retiring.add(timer);
  };

  const use = (key: Key) => {
    if (current !== undefined && current !== key) retire(current);
    current = key;
    loadedAt = Date.now();
    doubts.end();
  };

  const onValue = (value: string) => {
    if (reloadFailure !== undefined) {
      reloadFailure = undefined;
      if (current !== undefined) {
        tell('reload-recovered', 'info', 'The secret store can be read again', current);
      }
    }
    if (offered?.hasValue(value)) return;
    const before = current;
    if (before?.hasValue(value)) {
      // The store went back to the value that is in use as the fallback.
      if (offered !== undefined) retire(offered);
      offered = before;
      sources.set(before, store.describe);
      return;
    }
    if (offered !== undefined && offered !== before) retire(offered);
    offered = learn(value);
    use(offered);
    if (before === undefined) {
      tell('loaded', 'info', 'The upstream key is loaded', offered);
      announceReady(true);
    } else {
      tell('rotated', 'info', `The upstream key was rotated; it replaces ${before}`, offered);
    }
  };

  const onFailure = (reason: string) => {
    reloadFailures++;
    if (reason === reloadFailure) return;
    reloadFailure = reason;
    if (current !== undefined) {
      tell(
        'reload-failed',
        'error',
        'The secret store gave no good key; the last good one stays',
        current,
        reason,
      );
    } else if (!store.local) {
      tell('waiting', 'warn', 'The secret store gives no key yet; trying again', undefined, reason);
    }
  };

  const source = keepAsking({ store, refreshMs: options.refreshMs, onValue, onFailure });

  /** A value that differs from the refused one: what the store offers, or what was in use before. */
  const other = async (key: Key): Promise<(() => Key) | undefined> => {
    const tries: Array<readonly [string, () => Promise<string | undefined>]> = [];
    tries.push([`${store.describe} (previous)`, () => loadPreviousValue(store, closing.signal)]);
    if (previousStore !== undefined) {
      tries.push([previousStore.describe, () => loadKeyValue(previousStore, closing.signal)]);
    }
    // Fallen back before, and now the fallback is refused: what the store offers may be good by now.
    if (offered !== undefined && offered !== key) {
      tries.unshift([store.describe, () => loadKeyValue(store, closing.signal)]);
    }
    for (const [from, load] of tries) {
      try {
        const value = await load();
        if (value !== undefined && !key.hasValue(value)) return () => learn(value, from);
      } catch (error) {
        tell('previous-failed', 'warn', 'The previous key cannot be read', key, describeFailure(error));
      }
    }
    return undefined;
  };

  const adopt = (key: Key) => {
    const isNewest = sources.get(key) === store.describe;
    if (isNewest) {
      if (offered !== undefined) retire(offered);
      offered = key;
    }
    use(key);
    if (isNewest) {
      tell('went-back', 'info', "The upstream takes the store's newest key again; using that", key);
    } else {
      tell('fell-back', 'warn', 'The upstream refuses the newest key and takes another; using that', key);
    }
  };

  const doubts = judgeKeys({
    current: () => current,
    reload: source.reload,
    other,
    adopt,
    dismiss: retire,
    tell,
  });

  const loadFirst = async (): Promise<void> => {
    await source.reload();
    if (!options.once) source.start();
    else if (current === undefined) giveUp();
  };
  const giveUp = () => {
    if (current !== undefined || closed) return;
    source.close();
    tell('gave-up', 'error', 'The secret store gave no key in time', undefined, reloadFailure);
    announceReady(false);
  };

  if (store.local) {
    // Read here and not through the source, so that the failure is ours to throw.
    onValue(await loadKeyValue(store));
    source.start();
  } else {
    void loadFirst();
    const patience = setTimeout(giveUp, startTimeoutMs);
    patience.unref();
    void ready.then(() => clearTimeout(patience));
  }

  return {
    get current() {
      return current;
    },
    ready,
    generation: () => current?.generation,
    standingOf: doubts.standingOf,
    refused: doubts.refused,
    replace: doubts.replace,
    accepted: doubts.accepted,
    probeWith: doubts.probeWith,
    reload: source.reload,
    leaked: (key, operation) =>
      tell(
        'leak',
        'error',
        `An answer of the upstream to ${operation} held the key; it was not passed on`,
        key,
      ),
    health: () => ({
      source: (current && sources.get(current)) ?? store.describe,
      fingerprint: current?.fingerprint,
      generation: current?.generation,
      loadedAt,
      ageMs: loadedAt === undefined ? undefined : Date.now() - loadedAt,
      lastAcceptedAt: doubts.lastAcceptedAt,
      lastRejectedAt: doubts.lastRejectedAt,
      rejected: doubts.rejected,
      reloadFailures,
      reloadFailure,
    }),
    scrub,
    close: () => {
      closed = true;
      closing.abort();
      source.close();
      doubts.close();
      for (const timer of retiring) clearTimeout(timer);
      announceReady(false);
    },
  };
}
