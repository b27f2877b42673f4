/**
 * Keeps the bodies in flight together under a bound. An answer that states its length waits, first come first served,
 * until that much is free; one that does not takes as it grows, and is refused where nothing is left.
 *
 * The first 64 KiB of each answer are always granted: a small one neither waits for large ones that have stalled nor
 * is refused because of them. So the bound may be exceeded by 64 KiB for each connection, and by no more.
 */
import type { BudgetShare } from './shared-budget.ts';

const alwaysGranted = 64 * 1_024;

export interface BodyShare {
  /** The bytes it asked for are its own. */
  readonly isReady: boolean;
  /** Takes more; `false` where nothing is left. */
  grow(bytes: number): boolean;
  /** Gives everything back, and lets waiting answers go on. */
  release(): void;
}

export interface BodyBudget {
  /**
   * @param bytes the length that the answer states; 0 where it states none
   * @param onReady called once the bytes are reserved, where they are not at once
   */
  reserve(bytes: number, onReady: () => void): BodyShare;
  readonly usedBytes: number;
}

/** @param freeBytes so many bytes of each answer are always granted */
export function limitBodies(share: BudgetShare, freeBytes = alwaysGranted): BodyBudget {
  return new Budget(share, freeBytes);
}

class Budget implements BodyBudget {
  readonly share: BudgetShare;
  readonly freeBytes: number;
  readonly waiting: Share[] = [];

  constructor(share: BudgetShare, freeBytes: number) {
    this.share = share;
    this.freeBytes = freeBytes;
    share.onFreed = () => this.admit();
  }

  get usedBytes(): number {
    return this.share.used;
  }

  reserve(bytes: number, onReady: () => void): Share {
    const share = new Share(this, bytes, onReady);
    const mayGo = bytes <= this.freeBytes || this.waiting.length === 0;
    if (mayGo && share.grow(bytes)) share.isReady = true;
    else this.waiting.push(share);
    return share;
  }

  admit(): void {
    for (let [first] = this.waiting; first?.grow(first.bytes) === true; [first] = this.waiting) {
      this.waiting.shift();
      first.isReady = true;
      first.onReady();
    }
  }
}

class Share implements BodyShare {
  readonly bytes: number;
  readonly onReady: () => void;
  isReady = false;
  readonly #budget: Budget;
  #held = 0;

  constructor(budget: Budget, bytes: number, onReady: () => void) {
    this.#budget = budget;
    this.bytes = bytes;
    this.onReady = onReady;
  }

  grow(bytes: number): boolean {
    const budget = this.#budget;
    if (this.#held + bytes <= budget.freeBytes) budget.share.takeAnyway(bytes);
    else if (!budget.share.take(bytes)) return false;
    this.#held += bytes;
    return true;
  }

  release(): void {
    const budget = this.#budget;
    if (!this.isReady) {
      const place = budget.waiting.indexOf(this);
      if (place !== -1) budget.waiting.splice(place, 1);
    }
    const held = this.#held;
    this.#held = 0;
    budget.share.give(held);
    budget.admit();
  }
}
