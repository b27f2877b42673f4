/**
 * A bound that several share without fixed parts (max-min fairness). One takes what no other uses. Where that is short,
 * the one that holds most gives way: it gets no more, and is evicted first where what it holds can be evicted.
 */

/** One of those that share a bound. */
export interface Holder {
  readonly held: number;
  /** What it may hold before any counts against it; `-Infinity` for one without a share, which gives way first. */
  readonly own: number;
}

/** Those that hold something of a bound. One that holds nothing may be left out: it makes no difference. */
export class FairShare<One extends Holder> {
  readonly #all = new Set<One>();

  join(one: One): void {
    this.#all.add(one);
  }

  leave(one: One): void {
    this.#all.delete(one);
  }

  /** What all hold together. */
  get held(): number {
    let held = 0;
    for (const one of this.#all) held += one.held;
    return held;
  }

  /** Whether one may hold this amount: it must fit beside the others, each of which counts for no more than that. */
  mayHold(one: Holder, amount: number, most: number): boolean {
    let held = amount;
    for (const other of this.#all) {
      if (other !== one) held += Math.max(0, Math.min(other.held, other.own + amount - one.own));
    }
    return held <= most;
  }

  /** The one that holds most beyond its own; `undefined` where none holds anything. */
  get heaviest(): One | undefined {
    let heaviest: One | undefined;
    for (const one of this.#all) {
      if (one.held > 0 && (heaviest === undefined || one.held - one.own > heaviest.held - heaviest.own)) {
        heaviest = one;
      }
    }
    return heaviest;
  }
}

/** A holder that can give something back. */
export interface Evictable extends Holder {
  /** Evicts the least recently used. */
  evict(): void;
}

/** Bytes that are shared so: the ones that hold most make room. */
export class FairBytes<One extends Evictable> extends FairShare<One> {
  readonly #maxBytes: number;

  constructor(maxBytes: number) {
    super();
    this.#maxBytes = maxBytes;
  }

  /** Whether one could hold that much after `fit`. */
  hasRoom(one: Holder, bytes: number): boolean {
    return this.mayHold(one, bytes, this.#maxBytes);
  }

  /** Evicts until all fit. */
  fit(): void {
    while (this.held > this.#maxBytes) {
      const { heaviest } = this;
      if (heaviest === undefined) return;
      heaviest.evict();
    }
  }
}
