/**
 * The key's life in the process: which value is in use, what the upstream thinks of it, and what comes next.
 *
 * Every different value is a generation. A request keeps the key it took. When the upstream refuses the key,
 * the keyring *doubts* it: those concerned wait here for the outcome, and whoever comes later waits with them
 * and sends nothing. The outcome is a new generation, or another value to try once, or the verdict *rejected*,
 * which only a probe or a new generation ends.
 */
import { Key } from './key.ts';
import type { KeyEvent, KeyEventKind, KeyHealth } from './key-event.ts';
import { keepAsking, loadKeyValue, loadPreviousValue } from './key-source.ts';
import { isAcceptance, probeDelayMs, retiredKeyMs, swapWaitMs } from './keyring-policy.ts';
import { type Environment, openStore } from './open-store.ts';
import { createScrubber, type Scrubber } from './scrub.ts';
import { describeFailure, type KeyStore } from './store.ts';
import { settledBy } from './wait.ts';

/** How long somebody may wait; read live, for it may be extended. A claim of the outbound layers is one. */
export interface Patience {
  readonly signal: AbortSignal;
  /** On the monotonic clock (`performance.now()`), in ms. */
  readonly deadlineMs: number;
}

/** What the upstream says to a probe of a key: a status, or `undefined` where it gave none. */
export type KeyProbe = (key: Key) => Promise<number | undefined>;

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
  /** Waits for what to send with instead of a doubted key; `undefined`: nothing. Rejects when the signal aborts. */
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

/** The state between a refusal and its outcome. */
interface Doubt {
  readonly key: Key;
  readonly sinceMs: number;
  readonly operation: string;
  /** A different value that may be tried; it is adopted when the upstream takes it. */
  candidate: Key | undefined;
  rejected: boolean;
  settled: Promise<void>;
  probes: number;
  timer: NodeJS.Timeout | undefined;
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
  const scrub = createScrubber();

  let generations = 0;
  /** The newest good value of the store. */
  let offered: Key | undefined;
  /** The key in use: the offered one, or the one fallen back to. */
  let current: Key | undefined;
  let doubt: Doubt | undefined;
  let probe: KeyProbe | undefined;
  let loadedAt: number | undefined;
  let lastAcceptedAt: number | undefined;
  let lastRejectedAt: number | undefined;
  let reloadFailures = 0;
  let reloadFailure: string | undefined;
  let closed = false;
  /** Operations that were refused with a key which a probe found good: until when that is believed. */
  const exonerated = new Map<string, number>();
  const wakers = new Set<() => void>();
  const retiring = new Set<NodeJS.Timeout>();
  let announceReady: (loaded: boolean) => void = () => {};
  const ready = new Promise<boolean>((resolve) => {
    announceReady = resolve;
  });

  const tell = (kind: KeyEventKind, level: KeyEvent['level'], message: string, key?: Key, reason?: string) =>
    options.onEvent({
      kind,
      level,
      message,
      source: store.describe,
      ...(key === undefined ? {} : { fingerprint: key.fingerprint, generation: key.generation }),
      ...(reason === undefined ? {} : { reason }),
    });

  const learn = (value: string): Key => {
    const key = new Key(value, ++generations);
    scrub.know(key);
    return key;
  };

  /** A key that was in use is still searched for a while: answers fetched with it are under way. */
  const retire = (key: Key) => {
    const timer = setTimeout(() => {
      retiring.delete(timer);
      scrub.forget(key);
    }, retiredKeyMs);
    timer.unref();
    retiring.add(timer);
  };

  const endDoubt = () => {
    clearTimeout(doubt?.timer);
    // A candidate that was not adopted is done with.
    if (doubt?.candidate !== undefined && doubt.candidate !== current) retire(doubt.candidate);
    doubt = undefined;
    for (const wake of [...wakers]) wake();
  };

  const use = (key: Key) => {
    if (current !== undefined && current !== key) retire(current);
    current = key;
    loadedAt = Date.now();
    exonerated.clear();
    endDoubt();
  };

  const onValue = (value: string) => {
    if (reloadFailure !== undefined) {
      reloadFailure = undefined;
      if (current !== undefined)
        tell('reload-recovered', 'info', 'The secret store can be read again', current);
    }
    if (offered?.hasValue(value)) return;
    const before = current;
    if (before?.hasValue(value)) {
      // The store went back to the value that is in use as the fallback.
      offered = before;
      return;
    }
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

  /** Resolves with the next change of the key in use, or after a time. */
  const changeWithin = (ms: number) =>
    new Promise<void>((resolve) => {
      const done = () => {
        clearTimeout(timer);
        wakers.delete(done);
        resolve();
      };
      const timer = setTimeout(done, ms);
      wakers.add(done);
    });

  const settle = async (it: Doubt): Promise<void> => {
    // The store gets its chance even where it is slow; those who wait leave at their own deadlines.
    await source.reload();
    const endMs = performance.now() + swapWaitMs;
    // A watch wakes us; a store without one is asked again half-way and at the end.
    while (doubt === it && performance.now() < endMs) {
      await changeWithin(Math.min(swapWaitMs / 2, Math.max(1, endMs - performance.now())));
      if (doubt === it && !closed) await source.reload();
    }
    if (doubt !== it || closed) return;
    const value = await otherValue(it.key);
    if (doubt !== it || closed) return;
    if (value === undefined) reject(it);
    else it.candidate = learn(value);
  };

  /** A value that differs from the refused one: what the store offers, or what was in use before. */
  const otherValue = async (key: Key): Promise<string | undefined> => {
    const tries: Array<() => Promise<string | undefined>> = [];
    tries.push(() => loadPreviousValue(store));
    if (previousStore !== undefined) tries.push(() => loadKeyValue(previousStore));
    // Fallen back before, and now the fallback is refused: what the store offers may be good by now.
    if (offered !== undefined && offered !== key) tries.unshift(() => loadKeyValue(store));
    for (const load of tries) {
      try {
        const value = await load();
        if (value !== undefined && !key.hasValue(value)) return value;
      } catch (error) {
        tell('previous-failed', 'warn', 'The previous key cannot be read', key, describeFailure(error));
      }
    }
    return undefined;
  };

  const reject = (it: Doubt) => {
    it.rejected = true;
    if (it.candidate !== undefined) retire(it.candidate);
    it.candidate = undefined;
    tell('rejected', 'error', 'The upstream refuses the key; nothing but probes is sent with it', it.key);
    scheduleProbe(it, 0);
  };

  const scheduleProbe = (it: Doubt, delayMs: number) => {
    if (probe === undefined || closed) return;
    it.timer = setTimeout(() => void probeOnce(it), delayMs);
    it.timer.unref();
  };

  const probeOnce = async (it: Doubt): Promise<void> => {
    if (it.probes > 0) await source.reload();
    if (doubt !== it || closed || probe === undefined) return;
    const sentMs = performance.now();
    const status = await probe(it.key).catch(() => undefined);
    if (doubt !== it || closed) return;
    it.probes++;
    if (status !== undefined && isAcceptance(status)) {
      // The key is good: the 401 was about that one operation, and must not hold up the others again.
      exonerated.set(it.operation, performance.now() + 60_000);
      accepted(it.key, status, sentMs);
      return;
    }
    if (status === 401) lastRejectedAt = Date.now();
    scheduleProbe(it, probeDelayMs(it.probes));
  };

  const accepted = (key: Key, status: number, sentMs: number) => {
    if (!isAcceptance(status)) return;
    lastAcceptedAt = Date.now();
    if (doubt === undefined) return;
    if (key === doubt.candidate) {
      use(key);
      tell('fell-back', 'warn', 'The upstream refuses the newest key and takes another; using that', key);
    } else if (key === doubt.key && sentMs > doubt.sinceMs) {
      const wasRejected = doubt.rejected;
      endDoubt();
      if (wasRejected) tell('accepted-again', 'info', 'The upstream takes the key again', key);
    }
  };

  const refused = (key: Key, operation: string) => {
    lastRejectedAt = Date.now();
    if (doubt?.candidate === key) {
      reject(doubt);
      return;
    }
    if (key !== current || doubt !== undefined) return;
    if ((exonerated.get(operation) ?? 0) > performance.now()) {
      void source.reload();
      return;
    }
    const it: Doubt = {
      key,
      operation,
      sinceMs: performance.now(),
      candidate: undefined,
      rejected: false,
      settled: Promise.resolve(),
      probes: 0,
      timer: undefined,
    };
    doubt = it;
    it.settled = settle(it);
  };

  const standingOf = (key: Key) => {
    if (doubt?.key !== key) return 'good';
    return doubt.rejected ? 'rejected' : 'doubted';
  };

  const replace = async (key: Key, patience: Patience): Promise<Key | undefined> => {
    if (doubt === undefined) return current === key ? undefined : current;
    if (!doubt.rejected) await settledBy(doubt.settled, patience);
    if (doubt !== undefined) return doubt.candidate === key ? undefined : doubt.candidate;
    return current;
  };

  const loadFirst = async (): Promise<void> => {
    await source.reload();
    source.start();
  };

  if (store.local) {
    // Read here and not through the source, so that the failure is ours to throw.
    onValue(await loadKeyValue(store));
    source.start();
  } else {
    void loadFirst();
    const giveUp = setTimeout(() => {
      if (current !== undefined || closed) return;
      source.close();
      tell('gave-up', 'error', 'The secret store gave no key in time', undefined, reloadFailure);
      announceReady(false);
    }, startTimeoutMs);
    giveUp.unref();
    void ready.then(() => clearTimeout(giveUp));
  }

  return {
    get current() {
      return current;
    },
    ready,
    generation: () => current?.generation,
    standingOf,
    refused,
    replace,
    accepted,
    probeWith: (how) => {
      probe = how;
      if (doubt?.rejected) scheduleProbe(doubt, 0);
    },
    reload: source.reload,
    leaked: (key, operation) =>
      tell(
        'leak',
        'error',
        `An answer of the upstream to ${operation} held the key; it was not passed on`,
        key,
      ),
    health: () => ({
      source: store.describe,
      fingerprint: current?.fingerprint,
      generation: current?.generation,
      loadedAt,
      ageMs: loadedAt === undefined ? undefined : Date.now() - loadedAt,
      lastAcceptedAt,
      lastRejectedAt,
      rejected: doubt?.rejected ?? false,
      reloadFailures,
      reloadFailure,
    }),
    scrub,
    close: () => {
      closed = true;
      source.close();
      clearTimeout(doubt?.timer);
      for (const timer of retiring) clearTimeout(timer);
      for (const wake of [...wakers]) wake();
      announceReady(false);
    },
  };
}
