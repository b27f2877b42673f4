/**
 * The requests that wait for an exchange, seen live, and waiting with an end. The layers below read it while they wait; its
 * end ends their wait.
 *
 * Watchers and no `AbortSignal`, whose listeners cost several µs each: one is made for libraries alone that want it
 * (p-retry), and nothing of ours listens to it.
 */
import { GatewayError } from '../errors.ts';
import { maxTimerMs } from '../http/date.ts';

/** A caller as the outbound layers see it: an opaque name and its share. They know no callers. */
export interface Flow {
  readonly name: string;
  /** Share of the upstream's limit relative to the others'; at least 0.01. */
  readonly weight: number;
  /** A background refresh goes behind all requests of callers. */
  readonly background: boolean;
}

/** In the name of a flow it stands between a caller's name, which has none, and what tells its people apart. */
export const personSeparator = '/';

/** The caller's name in that of a flow. */
export function callerOfFlow(name: string): string {
  return name.split(personSeparator, 1)[0] ?? name;
}

/** What tells flows apart: a caller's background refreshes are a flow of their own. */
export function flowNameOf({ name, background }: Pick<Flow, 'name' | 'background'>): string {
  return `${background ? '-' : '+'}${name}`;
}

/** What code that waits on behalf of a context is notified of. */
export interface ContextWatcher {
  /** Waiting has no sense any more. Called once; no other call follows. */
  onEnd(reason: Error): void;
  /** Deadline or flows have changed. */
  onChange?(): void;
}

/**
 * Several requests may share one exchange: then the deadline is the latest of the requests that wait when it is read,
 * the flows are those of all of them, and the context ends when no request waits any more.
 */
export interface RequestContext {
  /** What to reject with, once waiting has no sense any more. */
  readonly ended: Error | undefined;
  /** On the monotonic clock (`performance.now()`), in ms. */
  readonly deadlineMs: number;
  /** Each once; at least one. Another list when they have changed. */
  readonly flows: readonly Flow[];
  /** The best of them: a caller's before a background refresh, then the one with the greatest weight. */
  readonly flow: Flow;
  watch(watcher: ContextWatcher): void;
  unwatch(watcher: ContextWatcher): void;
  /** Aborts when the context ends, with the same reason. */
  readonly signal: AbortSignal;
}

/** What all contexts have in common: their watchers, and how these learn of the end. */
export class WatchedContext {
  #watchers: ContextWatcher[] = [];
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

  watch(watcher: ContextWatcher): void {
    this.#watchers.push(watcher);
  }

  unwatch(watcher: ContextWatcher): void {
    const at = this.#watchers.indexOf(watcher);
    if (at !== -1) this.#watchers.splice(at, 1);
  }

  /** Ends the context; a second time is nothing. */
  end(reason: Error): void {
    if (this.#ended !== undefined) return;
    this.#ended = reason;
    const watchers = this.#watchers;
    this.#watchers = [];
    for (const watcher of watchers) watcher.onEnd(reason);
    this.#controller?.abort(reason);
  }

  /** Notifies the watchers that deadline or flows have changed. */
  protected changed(): void {
    for (const watcher of [...this.#watchers]) watcher.onChange?.();
  }
}

/** A context of our own, on no caller's behalf: its flow and deadline stay, and its maker may end it. */
export class FixedContext extends WatchedContext implements RequestContext {
  readonly deadlineMs: number;
  readonly flows: readonly Flow[];
  readonly flow: Flow;

  constructor(deadlineMs: number, flow: Flow) {
    super();
    this.deadlineMs = deadlineMs;
    this.flows = [flow];
    this.flow = flow;
  }
}

/** A part of what another context waits for: it changes and ends with that one, and may end before. */
export class PartContext extends WatchedContext implements RequestContext, ContextWatcher {
  readonly #whole: RequestContext;

  constructor(whole: RequestContext) {
    super();
    this.#whole = whole;
    if (whole.ended === undefined) whole.watch(this);
    else super.end(whole.ended);
  }

  get deadlineMs(): number {
    return this.#whole.deadlineMs;
  }

  get flows(): readonly Flow[] {
    return this.#whole.flows;
  }

  get flow(): Flow {
    return this.#whole.flow;
  }

  override end(reason: Error): void {
    this.#whole.unwatch(this);
    super.end(reason);
  }

  onEnd(reason: Error): void {
    super.end(reason);
  }

  onChange(): void {
    this.changed();
  }
}

/**
 * A context that ends with an `upstream-timeout` after that long, in ms.
 *
 * @returns the context, and what must be called once nothing waits on its behalf any more
 */
export function timedContext(timeoutMs: number, flow: Flow): { context: FixedContext; release(): void } {
  const context = new FixedContext(performance.now() + timeoutMs, flow);
  const timer = setTimeout(() => context.end(new GatewayError('upstream-timeout')), timeoutMs);
  timer.unref();
  return { context, release: () => clearTimeout(timer) };
}

/** Waits for that long; rejects with the context's reason as soon as it ends. */
export function pause(context: RequestContext, ms: number): Promise<void> {
  if (ms <= 0) return Promise.resolve();
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const watcher: ContextWatcher = {
    onEnd(reason) {
      clearTimeout(timer);
      reject(reason);
    },
  };
  const timer = setTimeout(() => {
    context.unwatch(watcher);
    resolve();
  }, Math.ceil(ms));
  if (context.ended === undefined) context.watch(watcher);
  else watcher.onEnd(context.ended);
  return promise;
}

/** How long a request may wait; read live, for it may be extended. A context of the outbound layers is one. */
export interface WaitOptions {
  readonly signal: AbortSignal;
  /** On the monotonic clock (`performance.now()`), in ms. */
  readonly deadlineMs: number;
}

/** Resolves after so many ms, when the signal aborts, or with the promise: whichever is first. */
export function waitAtMost(ms: number, signal: AbortSignal, until?: Promise<unknown>): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', end);
      resolve();
    };
    // Node warns of a negative delay.
    const timer = setTimeout(end, Math.max(0, ms));
    signal.addEventListener('abort', end);
    if (signal.aborted) end();
    void until?.then(end, end);
  });
}

/**
 * Resolves when the promise does or the deadline has passed, whichever is first. The deadline is read again
 * when it is reached: it may have been extended.
 *
 * @throws the signal's reason when it aborts
 */
export function settledBy(promise: Promise<unknown>, wait: WaitOptions): Promise<void> {
  const { signal } = wait;
  return new Promise((resolve, reject) => {
    let timer: NodeJS.Timeout | undefined;
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', onAbort);
    };
    const done = () => {
      end();
      resolve();
    };
    const onAbort = () => {
      end();
      reject(signal.reason);
    };
    const onTimer = () => {
      const leftMs = wait.deadlineMs - performance.now();
      if (leftMs <= 0) done();
      else timer = setTimeout(onTimer, Math.min(leftMs, maxTimerMs));
    };
    if (signal.aborted) {
      onAbort();
      return;
    }
    signal.addEventListener('abort', onAbort);
    promise.then(done, done);
    onTimer();
  });
}
