/**
 * What the upstream thinks of the key. A refusal (401) begins a *doubt*: those concerned wait for its outcome,
 * and whoever comes later waits with them and sends nothing. The outcome is a new generation, or another value
 * to try once, or the verdict *rejected*, which only a probe or a new generation ends.
 */
import type { Key } from './key.ts';
import type { TellKeyEvent } from './key-event.ts';
import { exonerationMs, isAcceptance, probeDelayMs, swapWaitMs } from './keyring-policy.ts';
import { settledBy } from './wait.ts';

/** How long somebody may wait; read live, for it may be extended. A claim of the outbound layers is one. */
export interface Patience {
  readonly signal: AbortSignal;
  /** On the monotonic clock (`performance.now()`), in ms. */
  readonly deadlineMs: number;
}

/** What the upstream says to a probe of a key: a status, or `undefined` where it gave none. */
export type KeyProbe = (key: Key) => Promise<number | undefined>;

export interface KeyDoubts {
  standingOf(key: Key): 'good' | 'doubted' | 'rejected';
  refused(key: Key, operation: string): void;
  replace(key: Key, patience: Patience): Promise<Key | undefined>;
  accepted(key: Key, status: number, sentMs: number): void;
  probeWith(probe: KeyProbe): void;
  /** Another key is in use: nothing is held against it. */
  end(): void;
  readonly rejected: boolean;
  /** Wall clock, in ms since 1970. */
  readonly lastAcceptedAt: number | undefined;
  readonly lastRejectedAt: number | undefined;
  close(): void;
}

export interface KeyDoubtParts {
  /** The key in use. */
  current(): Key | undefined;
  /** Reads the store again; a new value ends the doubt. */
  reload(): Promise<void>;
  /** A value that may be tried instead of this key. */
  other(key: Key): Promise<Key | undefined>;
  /** Puts a key that was tried and taken into use. */
  adopt(key: Key): void;
  /** A key that will not be tried again. */
  dismiss(key: Key): void;
  readonly tell: TellKeyEvent;
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

/** Enough for the outcome to reach the caller before its own timer does. */
const answerBeforeMs = 50;

export function judgeKeys(parts: KeyDoubtParts): KeyDoubts {
  let doubt: Doubt | undefined;
  let probe: KeyProbe | undefined;
  let lastAcceptedAt: number | undefined;
  let lastRejectedAt: number | undefined;
  let closed = false;
  let wake: () => void = () => {};
  /** Operations that were refused with a key which a probe found good: until when that is believed. */
  const exonerated = new Map<string, number>();
  let nextLookMs = 0;

  const settle = async (it: Doubt): Promise<void> => {
    // The store gets its chance even where it is slow; those who wait leave at their own deadlines.
    await parts.reload();
    const endMs = performance.now() + swapWaitMs;
    // A watch wakes us; a store without one is asked again half-way and at the end.
    while (doubt === it && performance.now() < endMs) {
      await awake(Math.min(swapWaitMs / 2, Math.max(1, endMs - performance.now())));
      if (doubt === it && !closed) await parts.reload();
    }
    if (doubt !== it || closed) return;
    const other = await parts.other(it.key);
    if (doubt !== it || closed) {
      if (other !== undefined) parts.dismiss(other);
    } else if (other === undefined) {
      reject(it);
    } else {
      it.candidate = other;
    }
  };

  /** Resolves when the doubt ends, or after a time. */
  const awake = (ms: number) =>
    new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms);
      wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });

  const reject = (it: Doubt) => {
    it.rejected = true;
    if (it.candidate !== undefined) parts.dismiss(it.candidate);
    it.candidate = undefined;
    parts.tell(
      'rejected',
      'error',
      'The upstream refuses the key; nothing but probes is sent with it',
      it.key,
    );
    scheduleProbe(it, 0);
  };

  const scheduleProbe = (it: Doubt, delayMs: number) => {
    if (probe === undefined || closed) return;
    it.timer = setTimeout(() => void probeOnce(it), delayMs);
    it.timer.unref();
  };

  const probeOnce = async (it: Doubt): Promise<void> => {
    if (it.probes > 0) await parts.reload();
    if (doubt !== it || closed || probe === undefined) return;
    const sentMs = performance.now();
    const status = await probe(it.key).catch(() => undefined);
    if (doubt !== it || closed) return;
    it.probes++;
    if (status !== undefined && isAcceptance(status)) {
      // The key is good: the 401 was about that one operation, and must not hold up the others again.
      exonerated.set(it.operation, performance.now() + exonerationMs);
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
      doubt.candidate = undefined;
      parts.adopt(key);
      parts.tell(
        'fell-back',
        'warn',
        'The upstream refuses the newest key and takes another; using that',
        key,
      );
    } else if (key === doubt.key && sentMs > doubt.sinceMs) {
      const wasRejected = doubt.rejected;
      stop();
      if (wasRejected) parts.tell('accepted-again', 'info', 'The upstream takes the key again', key);
    }
  };

  const refused = (key: Key, operation: string) => {
    lastRejectedAt = Date.now();
    if (doubt?.candidate === key) {
      reject(doubt);
      return;
    }
    if (key !== parts.current() || doubt !== undefined) return;
    const nowMs = performance.now();
    if ((exonerated.get(operation) ?? 0) > nowMs) {
      // Still worth a look at the store, but not one for each of many.
      if (nowMs >= nextLookMs) void parts.reload();
      nextLookMs = Math.max(nextLookMs, nowMs + swapWaitMs);
      return;
    }
    const it: Doubt = {
      key,
      operation,
      sinceMs: nowMs,
      candidate: undefined,
      rejected: false,
      settled: Promise.resolve(),
      probes: 0,
      timer: undefined,
    };
    doubt = it;
    it.settled = settle(it);
  };

  const replace = async (key: Key, patience: Patience): Promise<Key | undefined> => {
    if (doubt !== undefined && !doubt.rejected) {
      // A little before the deadline, so that the 401 is what is told and not the end of the patience.
      await settledBy(doubt.settled, {
        signal: patience.signal,
        get deadlineMs() {
          return patience.deadlineMs - answerBeforeMs;
        },
      });
    } else if (doubt === undefined && parts.current() === key) return undefined;
    if (doubt !== undefined) return doubt.candidate === key ? undefined : doubt.candidate;
    return parts.current();
  };

  const stop = () => {
    clearTimeout(doubt?.timer);
    if (doubt?.candidate !== undefined) parts.dismiss(doubt.candidate);
    doubt = undefined;
    wake();
  };

  return {
    standingOf: (key) => {
      if (doubt?.key !== key) return 'good';
      return doubt.rejected ? 'rejected' : 'doubted';
    },
    refused,
    replace,
    accepted,
    probeWith: (how) => {
      probe = how;
      if (doubt?.rejected) scheduleProbe(doubt, 0);
    },
    end: () => {
      exonerated.clear();
      stop();
    },
    get rejected() {
      return doubt?.rejected ?? false;
    },
    get lastAcceptedAt() {
      return lastAcceptedAt;
    },
    get lastRejectedAt() {
      return lastRejectedAt;
    },
    close: () => {
      closed = true;
      clearTimeout(doubt?.timer);
      wake();
    },
  };
}
