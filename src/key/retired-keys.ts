/**
 * Keys that were in use: still searched for, because answers that were fetched with them are under way. Then they are
 * nowhere in memory.
 */
import type { Key } from './key.ts';
import { retiredKeyMs } from './keyring-policy.ts';

export interface RetiredKeysOptions {
  /** How long an answer may take that was asked for with a key, in ms: a replaced key is searched for no shorter. */
  readonly longestAnswerMs: number;
  /** The time of a key is over. */
  onForget(key: Key): void;
}

export class RetiredKeys {
  readonly #options: RetiredKeysOptions;
  readonly #timers = new Set<NodeJS.Timeout>();
  /** When the last of them is due, on the monotonic clock. */
  #lastMs = 0;

  constructor(options: RetiredKeysOptions) {
    this.#options = options;
  }

  add(key: Key): void {
    const keptMs = Math.max(retiredKeyMs, this.#options.longestAnswerMs);
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      this.#options.onForget(key);
    }, keptMs);
    timer.unref();
    this.#lastMs = performance.now() + keptMs;
    this.#timers.add(timer);
  }

  /** Until the last of them is forgotten, in ms; `undefined` where there is none. */
  get forgottenInMs(): number | undefined {
    return this.#timers.size === 0 ? undefined : this.#lastMs - performance.now();
  }

  close(): void {
    for (const timer of this.#timers) clearTimeout(timer);
  }
}
