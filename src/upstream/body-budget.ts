/**
 * Keeps the bodies in flight together under a bound. An answer that states its length waits until that much is free; one
 * that does not takes as it grows, and waits where nothing is left. So that these do not all wait for each other, one of
 * them, in all workspaces, goes on all the same: the bound may be exceeded by one answer. What is freed goes to the caller that holds the
 * least, the eldest of its answers first: large answers of one caller never wait in front of all those of another. And as
 * with attempts at the gate, a caller with several answers may hold three bytes for each one it leaves free: answers that
 * stall never take all from the others. An answer that several callers wait for is in the name of the one that holds the
 * least.
 *
 * The first 64 KiB of each answer are always granted: a small one does not wait for large ones that have stalled. So the
 * bound may also be exceeded by 64 KiB for each connection, and by no more.
 */
import type { BudgetShare } from './workspace-budgets.ts';

const alwaysGranted = 64 * 1_024;

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
    for (let next = this.#next(); next?.grow(next.bytes) === true; next = this.#next()) {
      next.ready();
    }
    const eldest = this.waiting.find(({ held }) => held > 0);
    if (eldest?.goBeyond(eldest.bytes) === true) eldest.ready();
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
