/**
 * Attempts at once, of all workspaces together. Attempts of a workspace that holds its share wait here for a free slot,
 * first come first served; the gate above decides whose attempts come.
 */
import type { ContextWatcher, RequestContext } from '../request-context.ts';
import type { BudgetShare } from './shared-budget.ts';

export class AttemptSlots {
  readonly #share: BudgetShare;
  readonly #waiting = new Set<() => void>();

  constructor(share: BudgetShare) {
    this.#share = share;
    share.onFreed = () => this.#admit();
  }

  /** Takes a slot, at once where one is free. Rejects with the context's reason when it ends before. */
  async take(context: RequestContext): Promise<void> {
    if (this.#waiting.size === 0 && this.#share.take(1)) return;
    if (context.ended !== undefined) throw context.ended;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const watcher: ContextWatcher = {
      onEnd: (reason) => {
        this.#waiting.delete(go);
        reject(reason);
      },
    };
    const go = (): void => {
      context.unwatch(watcher);
      resolve();
    };
    this.#waiting.add(go);
    context.watch(watcher);
    await promise;
  }

  release(): void {
    this.#share.give(1);
    this.#admit();
  }

  #admit(): void {
    for (const go of this.#waiting) {
      if (!this.#share.take(1)) return;
      this.#waiting.delete(go);
      go();
    }
  }
}
