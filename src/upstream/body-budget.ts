/**
 * Keeps the bodies in flight together under a bound. An answer that states its length waits, first come first served,
 * until that much is free; one that does not takes as it grows, and is refused where nothing is left.
 *
 * The first 64 KiB of each answer are always granted: a small one neither waits for large ones that have stalled nor
 * is refused because of them. So the bound may be exceeded by 64 KiB for each connection, and by no more.
 */
import type { BudgetShare } from './shared-limits.ts';

const alwaysGranted = 64 * 1_024;

export class BodyBudget {
  readonly share: BudgetShare;
  readonly freeBytes: number;
  readonly waiting: BodyShare[] = [];

  /** @param freeBytes so many bytes of each answer are always granted */
  constructor(share: BudgetShare, freeBytes = alwaysGranted) {
    this.share = share;
    this.freeBytes = freeBytes;
    share.onFreed = () => this.admit();
  }

  /**
   * @param bytes the length that the answer states; 0 where it states none
   * @param onReady called once the bytes are reserved, where they are not at once
   */
  reserve(bytes: number, onReady: () => void): BodyShare {
    const share = new BodyShare(this, bytes, onReady);
    const mayGo = bytes <= this.freeBytes || this.waiting.length === 0;
    if (mayGo && share.grow(bytes)) share.isReady = true;
    else this.waiting.push(share);
    return share;
  }

  /** Lets answers go on that wait for bytes, as far as these are free. */
  admit(): void {
    for (let [first] = this.waiting; first?.grow(first.bytes) === true; [first] = this.waiting) {
      this.waiting.shift();
      first.isReady = true;
      first.onReady();
    }
  }
}

/** What one answer holds of the budget. */
export class BodyShare {
  readonly bytes: number;
  readonly onReady: () => void;
  /** The bytes it asked for are its own. */
  isReady = false;
  readonly #budget: BodyBudget;
  #held = 0;

  /** For `BodyBudget.reserve`. */
  constructor(budget: BodyBudget, bytes: number, onReady: () => void) {
    this.#budget = budget;
    this.bytes = bytes;
    this.onReady = onReady;
  }

  /** Takes more; `false` where nothing is left. */
  grow(bytes: number): boolean {
    const budget = this.#budget;
    if (this.#held + bytes <= budget.freeBytes) budget.share.takeAnyway(bytes);
    else if (!budget.share.take(bytes)) return false;
    this.#held += bytes;
    return true;
  }

  /** Gives everything back, and lets waiting answers go on. */
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
