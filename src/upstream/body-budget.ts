/**
 * Keeps the bodies in flight together under a bound. An answer that says how long it is waits, first come first
 * served, until that much is free; one that does not say takes as it grows, and is refused where nothing is left.
 */

export interface BodyShare {
  /** The bytes it asked for are its own. */
  readonly isReady: boolean;
  /** Takes more; `false` where nothing is left. */
  grow(bytes: number): boolean;
  /** Gives everything back, and lets those who wait go on. */
  release(): void;
}

export interface BodyBudget {
  /**
   * @param bytes what the answer says it will need; 0 where it does not say
   * @param onReady called once the bytes are reserved, where they are not at once
   */
  reserve(bytes: number, onReady: () => void): BodyShare;
  readonly usedBytes: number;
}

export function limitBodies(maxBytes: number): BodyBudget {
  return new Budget(maxBytes);
}

class Budget implements BodyBudget {
  readonly maxBytes: number;
  usedBytes = 0;
  readonly waiting: Share[] = [];

  constructor(maxBytes: number) {
    this.maxBytes = maxBytes;
  }

  reserve(bytes: number, onReady: () => void): Share {
    const share = new Share(this, bytes, onReady);
    if (this.waiting.length === 0 && this.hasRoomFor(bytes)) share.take();
    else this.waiting.push(share);
    return share;
  }

  hasRoomFor(bytes: number): boolean {
    return this.usedBytes + bytes <= this.maxBytes;
  }

  admit(): void {
    for (
      let [first] = this.waiting;
      first !== undefined && this.hasRoomFor(first.bytes);
      [first] = this.waiting
    ) {
      this.waiting.shift();
      first.take();
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

  take(): void {
    this.isReady = true;
    this.#held = this.bytes;
    this.#budget.usedBytes += this.bytes;
  }

  grow(bytes: number): boolean {
    if (!this.#budget.hasRoomFor(bytes)) return false;
    this.#held += bytes;
    this.#budget.usedBytes += bytes;
    return true;
  }

  release(): void {
    const budget = this.#budget;
    if (!this.isReady) {
      const place = budget.waiting.indexOf(this);
      if (place !== -1) budget.waiting.splice(place, 1);
    }
    budget.usedBytes -= this.#held;
    this.#held = 0;
    budget.admit();
  }
}
