/**
 * What the upstream thinks of the key in use. One 401 makes it *suspect*; in this order, for the least harm:
 *
 * 0. a new key that is there and untried (`key-trial.ts`) replaces it at once;
 * 1. the store is read again: a new generation ends the suspicion, and in most rotations nothing else was sent;
 * 2. checks of the same key: the read that was accepted last, then the specification's. An answer says that the 401
 *    was about one operation, a second 401 that it is the key;
 * 3. requests wait for a rotation until two seconds after the refusal; where all checks have ended without proof, new
 *    requests go up;
 * 4. only after that second 401 the previous key, where there is one, is tried once;
 * 5. the key is *rejected* only after a 401 to another operation than the first, and after each read of the specification
 *    was asked. Then nothing but checks is sent, until one is accepted, the store has another key, or the previous
 *    key can be read after all.
 *
 * Nothing waits for a store or a check that hangs.
 */
import { settledBy, type WaitOptions, waitAtMost } from '../exchange/request-context.ts';
import type { Key } from './key.ts';
import type { EmitKeyEvent } from './key-event.ts';
import {
  checkDelayMs,
  checkLimitMs,
  checkWaitMs,
  exemptionMs,
  headStartMs,
  isAcceptance,
  isProven,
  isSpecified,
  judgeSuspicion,
  type KeyRead,
  mayClear,
  newSuspicion,
  readsToAsk,
  rotationWaitMs,
  type Suspicion,
  secondCheckMs,
  specifiedReads,
} from './suspicion.ts';

/** What the upstream says to a read with this key: a status, or `undefined` where it gave none. */
export type KeyCheck = (key: Key, read: KeyRead) => Promise<number | undefined>;

export interface KeyMonitorParts {
  readonly check: KeyCheck;
  /** The key in use. */
  current(): Key | undefined;
  /** Called when the key becomes suspect: a new one may replace it. */
  suspected(): void;
  /** Reads the store again; a new value ends the suspicion. */
  reload(): Promise<void>;
  /** Finds another value to try, and how to make a key of it. Never rejects. */
  other(key: Key): Promise<(() => Key) | undefined>;
  /** Puts a key that was tried and accepted into use, and reports it. */
  adopt(key: Key): void;
  /** A key that will not be tried again. */
  retire(key: Key): void;
  readonly emit: EmitKeyEvent;
}

/** Enough for the outcome to reach the caller before its own timer does. */
const answerBeforeMs = 50;

type State =
  | { readonly kind: 'healthy' }
  | { readonly kind: 'suspect'; readonly suspicion: Suspicion; readonly settled: Promise<void> }
  | { readonly kind: 'rejected'; readonly suspicion: Suspicion };

export class KeyMonitor {
  readonly #parts: KeyMonitorParts;
  #state: State = { kind: 'healthy' };
  /** With the key in use, and not refused since. */
  readonly #accepted = new AcceptedReads();
  /** Operations whose 401 was not about the key: until when that is believed. */
  readonly #exempt = new Map<string, number>();
  #nextLookMs = 0;
  #isClosed = false;
  /** Wall clock, in ms since 1970. */
  lastAcceptedAt: number | undefined;
  lastRejectedAt: number | undefined;

  constructor(parts: KeyMonitorParts) {
    this.#parts = parts;
  }

  /** What the upstream thinks of the key in use, as far as is known. */
  get standing(): State['kind'] {
    return this.#state.kind;
  }

  /** A key that is tried in place of the one in use. */
  get candidate(): Key | undefined {
    return this.#state.kind === 'healthy' ? undefined : this.#state.suspicion.candidate;
  }

  /** `healthy`: send with it. `suspect`: ask `replace` first. `rejected`: send nothing. */
  standingOf(key: Key): State['kind'] {
    const state = this.#state;
    if (state.kind === 'healthy' || state.suspicion.key !== key) return 'healthy';
    return this.#isOpen(state.suspicion) ? 'healthy' : state.kind;
  }

  /** The upstream answered something else than 401 to a read sent at this time (`performance.now()`). */
  accepted(key: Key, status: number, sentMs: number, read: KeyRead): void {
    if (!isAcceptance(status)) return;
    this.lastAcceptedAt = Date.now();
    if (this.#state.kind !== 'healthy') {
      const { suspicion } = this.#state;
      if (key === suspicion.candidate) {
        suspicion.candidate = undefined;
        this.#parts.adopt(key);
      } else if (key === suspicion.key && sentMs > suspicion.sinceMs) this.#markHealthy(suspicion);
    }
    // One that was sent before the refusal proves nothing against it.
    if (this.#state.kind === 'healthy' && key === this.#parts.current())
      this.#accepted.remember(read, sentMs);
  }

  /** The upstream answered 401 to this read: makes the key suspect, if it is in use. */
  refused(key: Key, read: KeyRead): void {
    this.lastRejectedAt = Date.now();
    if (this.#state.kind !== 'healthy') {
      const { suspicion } = this.#state;
      if (key === suspicion.candidate) this.#refuseCandidate(suspicion);
      else if (key === suspicion.key) this.#addRefusal(suspicion, read);
    } else if (key === this.#parts.current() && !this.#isClosed) {
      if (this.#isExempt(read.operation)) this.#lookAtStore();
      else this.#suspect(key, read);
    }
  }

  /**
   * Waits for what to send with instead of a suspect key. `undefined`: nothing. The same key: nothing is known
   * against it but the refusal itself.
   *
   * @throws the signal's reason when it aborts
   */
  async replace(key: Key, wait: WaitOptions): Promise<Key | undefined> {
    if (this.#state.kind === 'suspect') {
      await settledBy(this.#state.settled, {
        signal: wait.signal,
        // A little before the deadline, so that the caller gets the 401 and not the end of the wait.
        get deadlineMs() {
          return wait.deadlineMs - answerBeforeMs;
        },
      });
    }
    const state = this.#state;
    if (state.kind === 'healthy') return this.#parts.current();
    const { candidate } = state.suspicion;
    if (candidate !== undefined) return candidate === key ? undefined : candidate;
    return this.#isOpen(state.suspicion) ? state.suspicion.key : undefined;
  }

  /** Another key is in use: nothing is held against it, and nothing was accepted with it. */
  reset(): void {
    this.#exempt.clear();
    this.#accepted.clear();
    this.#leave();
  }

  close(): void {
    this.#isClosed = true;
    this.#leave();
  }

  #suspect(key: Key, read: KeyRead): void {
    const suspicion = newSuspicion(key, performance.now());
    this.#addRefusal(suspicion, read);
    this.#state = { kind: 'suspect', suspicion, settled: this.#settle(suspicion) };
    this.#parts.suspected();
  }

  async #settle(suspicion: Suspicion): Promise<void> {
    const until = (ms: number) =>
      waitAtMost(suspicion.sinceMs + ms - performance.now(), suspicion.over.signal);
    await waitAtMost(headStartMs, suspicion.over.signal, this.#parts.reload());
    if (suspicion.over.signal.aborted) return;
    void this.#investigate(suspicion);
    await until(rotationWaitMs / 2);
    if (suspicion.over.signal.aborted) return;
    // A watch ends the suspicion; a store without one is asked again half-way and near the end.
    void this.#parts.reload();
    void this.#parts.other(suspicion.key).then((other) => {
      suspicion.other = other;
      this.#decide(suspicion);
    });
    await until(rotationWaitMs - headStartMs);
    if (suspicion.over.signal.aborted) return;
    void this.#parts.reload();
    await until(rotationWaitMs);
    suspicion.isDue = true;
    this.#decide(suspicion);
  }

  /** Checks the key with one read after the other. Once one speaks against it, those of the specification are left. */
  async #investigate(suspicion: Suspicion): Promise<void> {
    const answers: Promise<void>[] = [];
    for (const read of readsToAsk(suspicion, this.#accepted)) {
      if (suspicion.proof !== undefined && !mayClear(suspicion, read)) continue;
      const answer = this.#ask(suspicion, read);
      answers.push(answer);
      await waitAtMost(checkWaitMs, suspicion.over.signal, answer);
      // There was a second refusal: most likely it is the key, and a rotation gets time before more is asked.
      if (suspicion.isRepeated || suspicion.proof !== undefined)
        await waitAtMost(suspicion.sinceMs + secondCheckMs - performance.now(), suspicion.over.signal);
      if (suspicion.over.signal.aborted) return;
    }
    await Promise.all(answers);
    if (suspicion.over.signal.aborted) return;
    suspicion.isAsked = true;
    this.#decide(suspicion);
  }

  async #ask(suspicion: Suspicion, read: KeyRead): Promise<void> {
    const asked = this.#parts.check(suspicion.key, read).catch(() => undefined);
    const status = await Promise.race([asked, waitAtMost(checkLimitMs, suspicion.over.signal)]);
    if (suspicion.over.signal.aborted) return;
    if (status === 401) {
      this.lastRejectedAt = Date.now();
      this.#accepted.take(read.operation);
      if (suspicion.refused.has(read.operation)) suspicion.isRepeated = true;
      else suspicion.proof ??= read;
      this.#decide(suspicion);
    } else if (typeof status === 'number' && isAcceptance(status)) {
      this.lastAcceptedAt = Date.now();
      this.#markHealthy(suspicion);
    }
  }

  #addRefusal(suspicion: Suspicion, read: KeyRead): void {
    const { operation, path, query } = read;
    if (suspicion.refused.has(operation)) {
      suspicion.isRepeated ||= this.#isOpen(suspicion);
      return;
    }
    const accepted = this.#accepted.take(operation);
    suspicion.earlier ??= accepted;
    suspicion.refused.set(operation, accepted ?? { operation, path, query });
    this.#decide(suspicion);
  }

  /** Whether requests may go up with the key: nothing was proved, and no more is waited for. */
  #isOpen(suspicion: Suspicion): boolean {
    return (
      (suspicion.isAsked || suspicion.isDue) &&
      suspicion.candidate === undefined &&
      !isProven(suspicion, this.#accepted)
    );
  }

  /** Acts on what is known. */
  #decide(suspicion: Suspicion): void {
    if (suspicion.over.signal.aborted || suspicion.candidate !== undefined) return;
    const finding = judgeSuspicion(suspicion, this.#accepted, suspicion.other !== undefined);
    if (finding === 'try-other' && suspicion.other !== undefined) this.#tryOther(suspicion, suspicion.other);
    else if (finding === 'reject') this.#reject(suspicion);
    else if (finding === 'leave') this.#leaveUnproven(suspicion);
  }

  #tryOther(suspicion: Suspicion, other: () => Key): void {
    clearTimeout(suspicion.timer);
    suspicion.other = undefined;
    suspicion.candidate = other();
    this.#state = { kind: 'suspect', suspicion, settled: Promise.resolve() };
  }

  #refuseCandidate(suspicion: Suspicion): void {
    if (suspicion.candidate !== undefined) this.#parts.retire(suspicion.candidate);
    suspicion.candidate = undefined;
    this.#decide(suspicion);
  }

  #reject(suspicion: Suspicion): void {
    if (this.#state.kind === 'rejected') return;
    this.#state = { kind: 'rejected', suspicion };
    const message = 'The upstream refuses the key; nothing but checks is sent with it';
    this.#parts.emit('rejected', 'error', message, suspicion.key);
    suspicion.checks = 1;
    this.#checkIn(suspicion, checkDelayMs(suspicion.checks));
  }

  #checkIn(suspicion: Suspicion, delayMs: number): void {
    clearTimeout(suspicion.timer);
    suspicion.timer = setTimeout(() => void this.#checkAgain(suspicion), delayMs);
    suspicion.timer.unref();
  }

  /**
   * One check of a rejected key. Each asks another read than the one before: one that never works must not keep it so.
   * Every second one is the specification's, however many others were refused.
   */
  async #checkAgain(suspicion: Suspicion): Promise<void> {
    await waitAtMost(headStartMs, suspicion.over.signal, this.#parts.reload());
    const others = readsToAsk(suspicion, this.#accepted).filter((read) => !isSpecified(read));
    const reads = suspicion.checks % 2 === 1 || others.length === 0 ? specifiedReads : others;
    const read = reads[Math.floor(suspicion.checks / 2) % reads.length];
    if (suspicion.over.signal.aborted || this.#state.kind !== 'rejected' || read === undefined) return;
    await this.#ask(suspicion, read);
    suspicion.checks++;
    if (!suspicion.over.signal.aborted && this.#state.kind === 'rejected')
      this.#checkIn(suspicion, checkDelayMs(suspicion.checks));
  }

  /** The key is good. Where it was all along, the 401 was about the operation, which must not hold up others again. */
  #markHealthy(suspicion: Suspicion): void {
    const wasRejected = this.#state.kind === 'rejected';
    this.#leave();
    if (wasRejected)
      this.#parts.emit('accepted-again', 'info', 'The upstream takes the key again', suspicion.key);
    else if (suspicion.proof === undefined)
      this.#exemptRefused(suspicion, 'with a key that it takes elsewhere');
  }

  /** There was no second 401 that says more than the first: the key stays, and so do the others' reads. */
  #leaveUnproven(suspicion: Suspicion): void {
    this.#leave();
    this.#exemptRefused(suspicion, 'and nothing confirms that it refuses the key');
  }

  #exemptRefused({ key, refused }: Suspicion, finding: string): void {
    const untilMs = performance.now() + exemptionMs;
    for (const operation of refused.keys()) this.#exempt.set(operation, untilMs);
    const operations = [...refused.keys()].join(', ');
    const message = `The upstream refuses ${operations} ${finding}; the key stays in use`;
    this.#parts.emit('operation-refused', 'warn', message, key);
  }

  #leave(): void {
    if (this.#state.kind === 'healthy') return;
    const { suspicion } = this.#state;
    this.#state = { kind: 'healthy' };
    clearTimeout(suspicion.timer);
    if (suspicion.candidate !== undefined) this.#parts.retire(suspicion.candidate);
    suspicion.over.abort();
  }

  #isExempt(operation: string): boolean {
    return (this.#exempt.get(operation) ?? 0) > performance.now();
  }

  /** An exempt operation's 401 is still worth a look at the store, but not one for each of many. */
  #lookAtStore(): void {
    const nowMs = performance.now();
    if (nowMs >= this.#nextLookMs) void this.#parts.reload();
    this.#nextLookMs = Math.max(this.#nextLookMs, nowMs + rotationWaitMs);
  }
}

interface AcceptedRead {
  readonly operation: string;
  path: string;
  query: string;
  /** On the monotonic clock (`performance.now()`). */
  sentMs: number;
}

/**
 * What the upstream accepted a key for, the best reads to check it with: the last of each operation. Changed in place,
 * because every answer is remembered.
 */
export class AcceptedReads {
  #reads: AcceptedRead[] = [];

  get isEmpty(): boolean {
    return this.#reads.length === 0;
  }

  /** Of all operations the last. */
  get latest(): KeyRead | undefined {
    return this.#reads.toSorted((one, other) => other.sentMs - one.sentMs)[0];
  }

  has(operation: string): boolean {
    return this.#reads.some((one) => one.operation === operation);
  }

  remember({ operation, path, query }: KeyRead, sentMs: number): void {
    const known = this.#reads.find((one) => one.operation === operation);
    if (known === undefined) this.#reads.push({ operation, path, query, sentMs });
    else {
      known.path = path;
      known.query = query;
      known.sentMs = sentMs;
    }
  }

  /** Forgets the operation, for it was refused. @returns what was accepted of it */
  take(operation: string): KeyRead | undefined {
    const known = this.#reads.find((one) => one.operation === operation);
    this.#reads = this.#reads.filter((one) => one !== known);
    return known;
  }

  clear(): void {
    this.#reads = [];
  }
}
