/**
 * What is bounded on the way to the upstream: attempts at once, bytes of answers in flight, connections. Workspaces share
 * each, so that one that takes all it can leaves every other its part; callers of a workspace share its bytes.
 */
import type { ContextWatcher, RequestContext } from '../exchange/request-context.ts';

/** An amount that several workspaces share: each has a part that is its own, and takes from the rest while that is free. */
export class SharedBudget {
  readonly #own: number;
  readonly #common: number;
  readonly #mostCommon: number;
  readonly #shares: BudgetShare[] = [];
  #commonUsed = 0;
  #beyond: object | undefined;

  /** @param own the part of each. @param common what is free for all besides. @param mostCommon what each may take of it */
  constructor(own: number, common: number, mostCommon = common) {
    this.#own = own;
    this.#common = common;
    this.#mostCommon = mostCommon;
  }

  /** What one share may hold. */
  get mostEach(): number {
    return this.#own + this.#mostCommon;
  }

  join(): BudgetShare {
    const share = new BudgetShare(this);
    this.#shares.push(share);
    return share;
  }

  /** For a share: whether it may change to another amount, which is then counted. */
  change(fromAmount: number, toAmount: number, isForced: boolean): boolean {
    const common = this.#commonUsed + this.#beyondOwn(toAmount) - this.#beyondOwn(fromAmount);
    const isMore = common > this.#commonUsed;
    if (!isForced && isMore && (common > this.#common || toAmount > this.mostEach)) return false;
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

const alwaysGranted = 64 * 1_024;

/**
 * Keeps the bodies in flight together under a bound. An answer that states its length waits until that much is free; one
 * that does not takes as it grows, and waits where nothing is left. So that these do not all wait for each other, one of
 * them, in all workspaces, goes on all the same: the bound may be exceeded by one answer.
 *
 * What is freed goes to the caller that holds the least, the oldest of its answers first: large answers of one caller never
 * wait in front of all those of another. And as with attempts at the gate, a caller with several answers may hold three
 * bytes for each one it leaves free: answers that stall never take all from the others. An answer that several callers wait
 * for is in the name of the one that holds the least.
 *
 * The first 64 KiB of each answer are always granted: a small one does not wait for large ones that have stalled. So the
 * bound may also be exceeded by 64 KiB for each connection, and by no more.
 */
export class BodyBudget {
  readonly share: BudgetShare;
  readonly freeBytes: number;
  readonly waiting: BodyShare[] = [];
  /** Bytes by caller. */
  readonly held = new Map<string, number>();

  /** @param freeBytes so many bytes of each answer are always granted */
  constructor(share: BudgetShare, freeBytes = alwaysGranted) {
    this.share = share;
    this.freeBytes = freeBytes;
    share.onFreed = () => this.admit();
  }

  /**
   * @param callers those that wait for the answer now, by name; read until it is granted something
   * @param bytes the length that the answer states; 0 where it states none
   * @param onReady called once the bytes are reserved, where they are not at once
   */
  reserve(callers: () => readonly string[], bytes: number, onReady: () => void): BodyShare {
    const share = new BodyShare(this, callers, bytes, onReady);
    if (bytes <= this.freeBytes) {
      // A small one waits behind nothing.
      share.isReady = share.grow(bytes);
      return share;
    }
    this.waiting.push(share);
    if (this.#next() === share && share.grow(bytes)) share.leave();
    return share;
  }

  /** Lets answers go on that wait for bytes, as far as these are free. */
  admit(): void {
    if (this.waiting.length === 0) return;
    for (let next = this.#next(); next?.grow(next.bytes) === true; next = this.#next()) {
      next.ready();
    }
    const oldest = this.waiting.find(({ held }) => held > 0);
    if (oldest?.goBeyond(oldest.bytes) === true) oldest.ready();
  }

  heldBy(caller: string): number {
    return this.held.get(caller) ?? 0;
  }

  #next(): BodyShare | undefined {
    const fitting = this.waiting.filter((share) => this.leavesRoom(share, share.bytes));
    const shares = fitting.map((share) => ({ share, held: this.heldBy(share.caller) }));
    return least(shares, ({ held }) => held)?.share;
  }

  /** Whether the caller would leave others their part with so many bytes more. Its only answer may have all that is free. */
  leavesRoom({ caller, held }: BodyShare, bytes: number): boolean {
    const ofCaller = this.heldBy(caller);
    const freeAfter = this.share.most - this.share.used - bytes;
    return ofCaller === held || ofCaller + bytes <= 3 * freeAfter;
  }
}

/** What one answer holds of the budget. */
export class BodyShare {
  readonly #callers: () => readonly string[];
  /** In whose name it holds what it has, once it has something. */
  #holder: string | undefined;
  /** What it asked for last. */
  bytes: number;
  #onReady: () => void;
  /** The bytes it asked for are its own. */
  isReady = false;
  readonly #budget: BodyBudget;
  #held = 0;

  /** For `BodyBudget.reserve`. */
  constructor(budget: BodyBudget, callers: () => readonly string[], bytes: number, onReady: () => void) {
    this.#budget = budget;
    this.#callers = callers;
    this.bytes = bytes;
    this.#onReady = onReady;
  }

  get caller(): string {
    return this.#holder ?? least(this.#callers(), (name) => this.#budget.heldBy(name)) ?? '';
  }

  /** What it holds now. */
  get held(): number {
    return this.#held;
  }

  /**
   * Takes more, or waits for it: `false`. What comes while it waits, it waits for as well.
   *
   * @param onReady called once it has what it waited for
   */
  extend(bytes: number, onReady: () => void): boolean {
    if (!this.isReady) {
      this.bytes += bytes;
    } else {
      if (this.grow(bytes) || this.goBeyond(bytes)) return true;
      this.bytes = bytes;
      this.isReady = false;
      this.#budget.waiting.push(this);
    }
    this.#onReady = onReady;
    return false;
  }

  /** For `BodyBudget`: takes more; `false` where nothing is left for it. */
  grow(bytes: number): boolean {
    const budget = this.#budget;
    if (this.#held + bytes <= budget.freeBytes) budget.share.takeAnyway(bytes);
    else if (!budget.leavesRoom(this, bytes) || !budget.share.take(bytes)) return false;
    this.#hold(this.#held + bytes);
    return true;
  }

  /** For `BodyBudget`: takes more, left or not, from now on; `false` where another answer does. */
  goBeyond(bytes: number): boolean {
    const budget = this.#budget;
    if (!budget.share.goBeyond(this)) return false;
    budget.share.takeAnyway(bytes);
    this.#hold(this.#held + bytes);
    return true;
  }

  /** For `BodyBudget`: it has what it waited for. */
  ready(): void {
    this.leave();
    this.#onReady();
  }

  /** Gives everything back, and lets waiting answers go on. */
  release(): void {
    const budget = this.#budget;
    this.leave();
    const held = this.#held;
    this.#hold(0);
    budget.share.give(held);
    budget.share.comeBack(this);
    budget.admit();
  }

  /** For `BodyBudget`: it waits no longer. */
  leave(): void {
    this.isReady = true;
    const { waiting } = this.#budget;
    const place = waiting.indexOf(this);
    if (place !== -1) waiting.splice(place, 1);
  }

  #hold(bytes: number): void {
    const { held } = this.#budget;
    const { caller } = this;
    const ofCaller = this.#budget.heldBy(caller) + bytes - this.#held;
    if (ofCaller === 0) held.delete(caller);
    else held.set(caller, ofCaller);
    this.#held = bytes;
    this.#holder = bytes === 0 ? undefined : caller;
  }
}

/** The first of those with the least of a figure. */
function least<T>(all: readonly T[], figure: (one: T) => number): T | undefined {
  let first: T | undefined;
  for (const one of all) if (first === undefined || figure(one) < figure(first)) first = one;
  return first;
}
