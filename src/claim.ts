/**
 * The requests that wait for an exchange, seen live. The layers below read it while they wait; its end ends their wait.
 *
 * An `AbortSignal` would do, and costs several µs and a kilobyte for every read that goes up: it is made only for
 * libraries that want one.
 */

/** A caller as the outbound layers see it: an opaque name and its share. They know no callers. */
export interface Turn {
  readonly name: string;
  /** Share of the upstream's limit relative to the others'; at least 0.01. */
  readonly weight: number;
  /** A background refresh goes behind all requests of callers. */
  readonly background: boolean;
}

/** What code that waits on behalf of a claim is notified of. */
export interface ClaimWatcher {
  /** Waiting has no sense any more. Called once; no other call follows. */
  onEnd(reason: Error): void;
  /** Deadline or turn have changed. */
  onChange?(): void;
}

/**
 * Several requests may share one exchange: then the deadline is the latest and the turn the best of the requests
 * that wait when it is read, and the claim ends when no request waits any more.
 */
export interface Claim {
  /** What to reject with, once waiting has no sense any more. */
  readonly ended: Error | undefined;
  /** On the monotonic clock (`performance.now()`), in ms. */
  readonly deadlineMs: number;
  readonly turn: Turn;
  watch(watcher: ClaimWatcher): void;
  unwatch(watcher: ClaimWatcher): void;
  /** Aborts when the claim ends, with the same reason. */
  readonly signal: AbortSignal;
}

/** What all claims have in common: their watchers, and how these learn of the end. */
export class WatchedClaim {
  #watchers: ClaimWatcher[] = [];
  #ended: Error | undefined;
  #controller: AbortController | undefined;

  get ended(): Error | undefined {
    return this.#ended;
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#ended !== undefined) this.#controller.abort(this.#ended);
    }
    return this.#controller.signal;
  }

  watch(watcher: ClaimWatcher): void {
    this.#watchers.push(watcher);
  }

  unwatch(watcher: ClaimWatcher): void {
    const at = this.#watchers.indexOf(watcher);
    if (at !== -1) this.#watchers.splice(at, 1);
  }

  /** Ends the claim; a second time is nothing. */
  protected end(reason: Error): void {
    if (this.#ended !== undefined) return;
    this.#ended = reason;
    const watchers = this.#watchers;
    this.#watchers = [];
    for (const watcher of watchers) watcher.onEnd(reason);
    this.#controller?.abort(reason);
  }

  /** Notifies the watchers that deadline or turn have changed. */
  protected changed(): void {
    for (const watcher of [...this.#watchers]) watcher.onChange?.();
  }
}

/** A claim of our own, on no caller's behalf: its turn and deadline stay, and its maker may end it. */
export class FixedClaim extends WatchedClaim implements Claim {
  readonly deadlineMs: number;
  readonly turn: Turn;

  constructor(deadlineMs: number, turn: Turn) {
    super();
    this.deadlineMs = deadlineMs;
    this.turn = turn;
  }

  override end(reason: Error): void {
    super.end(reason);
  }
}

/** Waits for that long; rejects with the claim's reason as soon as it ends. */
export function pause(claim: Claim, ms: number): Promise<void> {
  if (ms <= 0) return Promise.resolve();
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const watcher: ClaimWatcher = {
    onEnd(reason) {
      clearTimeout(timer);
      reject(reason);
    },
  };
  const timer = setTimeout(() => {
    claim.unwatch(watcher);
    resolve();
  }, Math.ceil(ms));
  if (claim.ended === undefined) claim.watch(watcher);
  else watcher.onEnd(claim.ended);
  return promise;
}
