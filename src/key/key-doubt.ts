/**
 * What the upstream thinks of the key. A refusal (401) begins a *doubt*: those concerned wait for its outcome,
 * and whoever comes later waits with them and sends nothing. In this order, for the least harm:
 *
 * 1. the store is read again: a new generation ends the doubt, and in most rotations nothing else was sent;
 * 2. one probe with the same key: taken, it says that the 401 was about one operation, and all others go on;
 * 3. those concerned wait for a swap until two seconds after the refusal;
 * 4. the previous key, where there is one, is tried once;
 * 5. the verdict *rejected*, which only a probe, a new generation or a previous key that came late ends.
 *
 * None of them waits for a store or a probe that hangs.
 */
import type { Key } from './key.ts';
import type { TellKeyEvent } from './key-event.ts';
import { exonerationMs, headStartMs, isAcceptance, probeDelayMs, swapWaitMs } from './keyring-policy.ts';
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
  /** Finds a value that may be tried instead of this key, and how to make a key of it. Never rejects. */
  other(key: Key): Promise<(() => Key) | undefined>;
  /** Puts a key that was tried and taken into use, and tells so. */
  adopt(key: Key): void;
  /** A key that will not be tried again. */
  dismiss(key: Key): void;
  readonly tell: TellKeyEvent;
}

/** The state between a refusal and its outcome. */
interface Doubt {
  readonly key: Key;
  readonly sinceMs: number;
  /** What was refused. */
  readonly operations: Set<string>;
  /** A different value that may be tried; it is adopted when the upstream takes it. */
  candidate: Key | undefined;
  rejected: boolean;
  settled: Promise<void>;
  probing: boolean;
  probes: number;
  /** A probe was refused as well: it is the key. */
  confirmed: boolean;
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

  const isOver = (it: Doubt) => doubt !== it || closed;

  const settle = async (it: Doubt): Promise<void> => {
    await pause(headStartMs, parts.reload());
    if (isOver(it)) return;
    void probeOnce(it);
    await pause(it.sinceMs + swapWaitMs / 2 - performance.now());
    if (isOver(it)) return;
    // A watch wakes us; a store without one is asked again half-way and near the end.
    void parts.reload();
    let found: (() => Key) | undefined;
    void parts.other(it.key).then((make) => {
      found = make;
      if (it.rejected && !isOver(it)) offer(it, found);
    });
    await pause(it.sinceMs + swapWaitMs - headStartMs - performance.now());
    if (isOver(it)) return;
    void parts.reload();
    await pause(it.sinceMs + swapWaitMs - performance.now());
    if (isOver(it)) return;
    if (found === undefined) reject(it);
    else offer(it, found);
  };

  const offer = (it: Doubt, found: (() => Key) | undefined) => {
    if (found === undefined) return;
    clearTimeout(it.timer);
    it.rejected = false;
    it.candidate = found();
  };

  /** Resolves when the doubt ends, or after a time, or with the promise. */
  const pause = (ms: number, until?: Promise<unknown>) =>
    new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms);
      const end = () => {
        clearTimeout(timer);
        resolve();
      };
      wake = end;
      void until?.then(end);
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
    if (!it.probing) scheduleProbe(it, probeDelayMs(it.probes));
  };

  const scheduleProbe = (it: Doubt, delayMs: number) => {
    if (probe === undefined || closed) return;
    clearTimeout(it.timer);
    it.timer = setTimeout(() => void probeAgain(it), delayMs);
    it.timer.unref();
  };

  const probeAgain = async (it: Doubt): Promise<void> => {
    await pause(headStartMs, parts.reload());
    if (!isOver(it) && it.rejected && !it.probing) await probeOnce(it);
  };

  const probeOnce = async (it: Doubt): Promise<void> => {
    if (probe === undefined) return;
    it.probing = true;
    const status = await probe(it.key).catch(() => undefined);
    it.probing = false;
    if (isOver(it)) return;
    it.probes++;
    if (status !== undefined && isAcceptance(status)) {
      lastAcceptedAt = Date.now();
      acquit(it);
      return;
    }
    if (status === 401) {
      lastRejectedAt = Date.now();
      it.confirmed = true;
    }
    if (it.rejected) scheduleProbe(it, probeDelayMs(it.probes));
  };

  /** The key is good. Where it was all along, the 401 was about the operation, which must not hold up others again. */
  const acquit = (it: Doubt) => {
    stop();
    if (!it.confirmed) {
      const untilMs = performance.now() + exonerationMs;
      for (const operation of it.operations) exonerated.set(operation, untilMs);
    }
    if (it.rejected) parts.tell('accepted-again', 'info', 'The upstream takes the key again', it.key);
    else if (!it.confirmed) {
      const operations = [...it.operations].join(', ');
      parts.tell(
        'operation-refused',
        'warn',
        `The upstream refuses ${operations} with a key that it takes elsewhere; the key stays in use`,
        it.key,
      );
    }
  };

  const accepted = (key: Key, status: number, sentMs: number) => {
    if (!isAcceptance(status)) return;
    lastAcceptedAt = Date.now();
    if (doubt === undefined) return;
    if (key === doubt.candidate) {
      doubt.candidate = undefined;
      parts.adopt(key);
    } else if (key === doubt.key && sentMs > doubt.sinceMs) {
      acquit(doubt);
    }
  };

  const refused = (key: Key, operation: string) => {
    lastRejectedAt = Date.now();
    if (doubt?.candidate === key) {
      reject(doubt);
      return;
    }
    if (doubt?.key === key) doubt.operations.add(operation);
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
      operations: new Set([operation]),
      sinceMs: nowMs,
      candidate: undefined,
      rejected: false,
      settled: Promise.resolve(),
      probing: false,
      probes: 0,
      confirmed: false,
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
    }
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
      if (doubt?.rejected && !doubt.probing) scheduleProbe(doubt, 0);
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
