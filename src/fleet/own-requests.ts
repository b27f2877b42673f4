/** The requests that wait at this gateway, by flow. */
import type { Queued } from '../gate/types.ts';
import { type FlowKey, keyOf } from './gate-messages.ts';

export class OwnRequests<T extends Queued> {
  /** The flows that each request was added with: its context is live and may have changed since. */
  readonly #keys = new Map<T, readonly FlowKey[]>();
  readonly #byFlow = new Map<FlowKey, Set<T>>();

  get all(): Iterable<T> {
    return this.#keys.keys();
  }

  get size(): number {
    return this.#keys.size;
  }

  /** @returns its flows */
  add(request: T): readonly FlowKey[] {
    const keys = request.context.flows.map(keyOf);
    this.#keys.set(request, keys);
    for (const key of keys) {
      const same = this.#byFlow.get(key);
      if (same === undefined) this.#byFlow.set(key, new Set([request]));
      else same.add(request);
    }
    return keys;
  }

  /** @returns its flows; `undefined` where it did not wait */
  remove(request: T): readonly FlowKey[] | undefined {
    const keys = this.#keys.get(request);
    this.#keys.delete(request);
    for (const key of keys ?? []) {
      const same = this.#byFlow.get(key);
      same?.delete(request);
      if (same?.size === 0) this.#byFlow.delete(key);
    }
    return keys;
  }

  oldest(key: FlowKey): T | undefined {
    let oldest: T | undefined;
    for (const request of this.#byFlow.get(key) ?? []) {
      if (oldest === undefined || request.arrivedMs < oldest.arrivedMs) oldest = request;
    }
    return oldest;
  }

  countOf(key: FlowKey): number {
    return this.#byFlow.get(key)?.size ?? 0;
  }

  counts(): [FlowKey, number][] {
    return [...this.#byFlow].map(([key, { size }]) => [key, size]);
  }

  clear(): void {
    this.#keys.clear();
    this.#byFlow.clear();
  }
}
