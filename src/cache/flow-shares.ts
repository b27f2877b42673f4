/**
 * What is stored, by the flow that brought it in, under one bound in bytes. Once another flow has used an entry it belongs
 * to all flows. Where bytes are short, the flow that holds most gives way, its least recently used entry first: no caller
 * evicts what others need.
 */
import { LRUCache } from 'lru-cache';
import { type Evictable, FairBytes } from '../exchange/fair-share.ts';
import { personSeparator } from '../exchange/request-context.ts';

/** A flow that has used nothing of what it brought in for this long has no share any more. */
const idleMs = 5 * 60_000;

/** Of the digits that tell the people of a caller apart: 256 shares for each caller at most. */
const digitsOfShare = 2;

/** A caller's people may be ten thousand, and to make room costs a look at each share: those that begin alike have one. */
function shareNameOf(flow: string): string {
  const at = flow.indexOf(personSeparator);
  return at === -1 ? flow : flow.slice(0, at + 1 + digitsOfShare);
}

/** The entries of one flow, or those that several flows use. */
export interface FlowShare {
  /** `undefined` for those that several flows use. */
  readonly flow: string | undefined;
}

class Share<Value extends object> implements FlowShare, Evictable {
  readonly flow: string | undefined;
  readonly entries: LRUCache<string, Value>;
  /** Monotonic ms. */
  usedMs = 0;
  readonly #ownBytes: number;
  readonly #onEmpty: (share: Share<Value>) => void;

  /** @param onEvicted called with the key of what made room. @param onEmpty called when it was the last */
  constructor(
    flow: string | undefined,
    ownBytes: number,
    onEvicted: (key: string) => void,
    onEmpty: (share: Share<Value>) => void,
  ) {
    this.flow = flow;
    this.#ownBytes = ownBytes;
    this.#onEmpty = onEmpty;
    this.entries = new LRUCache<string, Value>({
      // It never evicts by itself: another flow may be the one that makes room.
      maxSize: Number.MAX_SAFE_INTEGER,
      dispose: (_value, key, reason) => {
        if (reason === 'evict') onEvicted(key);
      },
    });
  }

  get held(): number {
    return this.entries.calculatedSize;
  }

  get own(): number {
    return performance.now() - this.usedMs > idleMs ? Number.NEGATIVE_INFINITY : this.#ownBytes;
  }

  evict(): void {
    this.entries.pop();
    if (this.entries.size === 0) this.#onEmpty(this);
  }
}

export class FlowShares<Value extends object> {
  readonly #bytes: FairBytes<Share<Value>>;
  /** Where each entry is. */
  readonly #places = new Map<string, Share<Value>>();
  readonly #flows = new Map<string, Share<Value>>();
  readonly #common: Share<Value>;
  readonly #sizeOf: (key: string, value: Value) => number;
  #evictions = 0;

  /** @param sizeOf the bytes of an entry */
  constructor(maxBytes: number, sizeOf: (key: string, value: Value) => number) {
    this.#bytes = new FairBytes(maxBytes);
    this.#sizeOf = sizeOf;
    // What several flows use counts as that of one flow, beyond half of all bytes.
    this.#common = this.#newShare(undefined, maxBytes / 2);
  }

  get size(): number {
    return this.#places.size;
  }

  get bytes(): number {
    return this.#bytes.held;
  }

  /** Entries evicted to make room since the start. */
  get evictions(): number {
    return this.#evictions;
  }

  keys(): string[] {
    return [...this.#places.keys()];
  }

  /** On behalf of a flow, which uses it. @param nowMs monotonic */
  get(key: string, flow: string, nowMs: number): Value | undefined {
    const share = this.#places.get(key);
    if (share === undefined) return undefined;
    share.usedMs = nowMs;
    const value = share.entries.get(key);
    if (share !== this.#common && share.flow !== shareNameOf(flow) && value !== undefined) {
      this.set(key, value, this.#common);
    }
    return value;
  }

  peek(key: string): Value | undefined {
    return this.#places.get(key)?.entries.peek(key);
  }

  /** Where what flows bring is stored: with what the only one has brought before, or with what several flows use. */
  shareFor(key: string, flows: readonly string[]): FlowShare {
    const [flow = '', ...others] = flows.map(shareNameOf);
    if (others.some((other) => other !== flow)) return this.#common;
    const place = this.#places.get(key);
    if (place !== undefined) return place.flow === flow ? place : this.#common;
    return this.#flows.get(flow) ?? this.#newShare(flow, 0);
  }

  /** Where it is stored; `undefined` where it is not. */
  findPlace(key: string): FlowShare | undefined {
    return this.#places.get(key);
  }

  /** Whether that much would stay beside what other flows hold. */
  hasRoom(share: FlowShare, bytes: number): boolean {
    const own = share as Share<Value>;
    own.usedMs = performance.now();
    return this.#bytes.hasRoom(own, bytes);
  }

  /** Stores what there is room for; others make it. */
  set(key: string, value: Value, share: FlowShare): void {
    const own = share as Share<Value>;
    own.usedMs = performance.now();
    if (this.#places.get(key) !== own) this.delete(key);
    this.#places.set(key, own);
    own.entries.set(key, value, { size: this.#sizeOf(key, value) });
    if (own.flow !== undefined) this.#flows.set(own.flow, own);
    this.#bytes.join(own);
    this.#bytes.fit();
  }

  delete(key: string): void {
    const share = this.#places.get(key);
    if (share === undefined) return;
    this.#places.delete(key);
    share.entries.delete(key);
    if (share.entries.size === 0) this.#forget(share);
  }

  /** Evicts the least recently used entry of the flow that holds most. */
  evict(): void {
    this.#bytes.heaviest?.evict();
  }

  /** It joins the others with its first entry. */
  #newShare(flow: string | undefined, ownBytes: number): Share<Value> {
    const onEvicted = (key: string): void => {
      this.#evictions += 1;
      this.#places.delete(key);
    };
    return new Share(flow, ownBytes, onEvicted, (empty) => this.#forget(empty));
  }

  /** Callers come and go: one that has nothing any more costs no look. */
  #forget(share: Share<Value>): void {
    if (share.flow === undefined) return;
    this.#flows.delete(share.flow);
    this.#bytes.leave(share);
  }
}
