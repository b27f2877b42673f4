/**
 * What all workspaces share of the way to the upstream: attempts at once, bytes of answers in flight, connections. So one
 * that takes all it can leaves every other its part.
 */
import type { ContextWatcher, RequestContext } from '../exchange/request-context.ts';

/** An amount that several workspaces share: each has a part that is its own, and takes from the rest while that is free. */
export class SharedBudget {
  readonly #own: number;
  readonly #common: number;
  readonly #shares: BudgetShare[] = [];
  #commonUsed = 0;
  #beyond: object | undefined;

  /** @param own the part of each. @param common what is free for all besides */
  constructor(own: number, common: number) {
    this.#own = own;
    this.#common = common;
  }

  /** What one share may hold. */
  get mostEach(): number {
    return this.#own + this.#common;
  }

  join(): BudgetShare {
    const share = new BudgetShare(this);
    this.#shares.push(share);
    return share;
  }

  /** For a share: whether it may change to another amount, which is then counted. */
  change(fromAmount: number, toAmount: number, isForced: boolean): boolean {
    const common = this.#commonUsed + this.#beyondOwn(toAmount) - this.#beyondOwn(fromAmount);
    if (!isForced && common > this.#common && common > this.#commonUsed) return false;
    const isFreed = common < this.#commonUsed;
    this.#commonUsed = common;
    if (isFreed) this.#announce();
    return true;
  }

  /** For a share: whether this one may take what is not left; one of all may, until it comes back. */
  goBeyond(one: object): boolean {
    this.#beyond ??= one;
    return this.#beyond === one;
  }

  /** For a share. */
  comeBack(one: object): void {
    if (this.#beyond !== one) return;
    this.#beyond = undefined;
    this.#announce();
  }

  /** The share that took something last hears of it last. */
  #announce(): void {
    for (const share of [...this.#shares]) {
      const before = share.used;
      share.onFreed();
      if (share.used > before) this.#shares.push(...this.#shares.splice(this.#shares.indexOf(share), 1));
    }
  }

  #beyondOwn(amount: number): number {
    return Math.max(0, amount - this.#own);
  }
}

/** What one workspace holds of a budget. */
export class BudgetShare {
  /** Called when something that is not this share's own alone may be free again. */
  onFreed: () => void = () => {};
  readonly #budget: SharedBudget;
  #used = 0;

  /** For `SharedBudget.join`. */
  constructor(budget: SharedBudget) {
    this.#budget = budget;
  }

  get used(): number {
    return this.#used;
  }

  /** What it may hold at most. */
  get most(): number {
    return this.#budget.mostEach;
  }

  /** Takes so much more; `false` where that is not free. */
  take(amount: number): boolean {
    return this.#change(this.#used + amount, false);
  }

  /** Whether this one may take what is not left, by `takeAnyway`; one in all workspaces may, until it comes back. */
  goBeyond(one: object): boolean {
    return this.#budget.goBeyond(one);
  }

  /** For one that has given back what it took. */
  comeBack(one: object): void {
    this.#budget.comeBack(one);
  }

  /** Takes so much more, free or not. */
  takeAnyway(amount: number): void {
    this.#change(this.#used + amount, true);
  }

  give(amount: number): void {
    this.#change(this.#used - amount, true);
  }

  #change(toAmount: number, isForced: boolean): boolean {
    const before = this.#used;
    // First, because what is announced may take more at once.
    this.#used = toAmount;
    if (this.#budget.change(before, toAmount, isForced)) return true;
    this.#used = before;
    return false;
  }
}

/**
 * Attempts of a workspace that holds its share of all attempts wait here for a free slot, first come first served; the
 * gate above decides whose attempts come.
 */
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

/** Connections of one workspace, as far as others have to know them. */
export interface CappedPools {
  /** Connections that are open, of former pools too. */
  readonly connected: number;
  /** Those of the present pool that no exchange uses. */
  readonly idle: number;
  /** Opens another pool; the former closes its idle connections at once, and the others when their exchange ends. */
  renew(): void;
}

/**
 * Connections of all workspaces together, those included that wait for the next attempt. Where one more is made than
 * there may be, the workspace with most idle ones closes these; what is in use goes on.
 */
export class ConnectionCap {
  readonly #most: number;
  readonly #all: CappedPools[] = [];

  constructor(most: number) {
    this.#most = most;
  }

  join(pools: CappedPools): void {
    this.#all.push(pools);
  }

  /** For a workspace that has made a connection. */
  fit(own: CappedPools): void {
    let connected = 0;
    let idlest: CappedPools | undefined;
    for (const one of this.#all) {
      connected += one.connected;
      if (one !== own && one.idle > (idlest?.idle ?? 0)) idlest = one;
    }
    if (connected > this.#most) idlest?.renew();
  }
}
