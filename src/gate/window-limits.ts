/**
 * Limits that the operator tells: at most so many attempts in any window of a length, wherever the upstream's own window
 * begins. No clock: times come in.
 *
 * An attempt arrives between its sending and its end, so it keeps its place from the one until a window after the other.
 * Places of attempts that end at about the same time come back with the last of them, as one cell.
 */
import type { Flow } from '../exchange/request-context.ts';
import { tuning } from './tuning.ts';
import type { AttemptLimit, LimitSnapshot } from './types.ts';

export class ToldWindow {
  readonly limit: AttemptLimit;
  /** Attempts that have ended, the eldest first. */
  readonly #cells: { readonly firstMs: number; lastMs: number; count: number }[] = [];
  #ended = 0;
  /** Of these each caller's. What leaves the window is taken off all in proportion. */
  readonly #byCaller = new Map<string, number>();

  constructor(limit: AttemptLimit) {
    this.limit = limit;
  }

  /** An attempt has ended, however: its place comes back a window later. */
  ended({ name }: Flow, nowMs: number): void {
    const last = this.#cells.at(-1);
    if (last === undefined || nowMs - last.firstMs >= this.limit.windowMs / tuning.windowCells)
      this.#cells.push({ firstMs: nowMs, lastMs: nowMs, count: 1 });
    else Object.assign(last, { lastMs: nowMs, count: last.count + 1 });
    this.#ended += 1;
    this.#byCaller.set(name, (this.#byCaller.get(name) ?? 0) + 1);
  }

  #advance(nowMs: number): void {
    for (let backMs = this.#backMs(0); backMs !== undefined && backMs <= nowMs; backMs = this.#backMs(0)) {
      const count = this.#cells.shift()?.count ?? 0;
      for (const [name, own] of this.#byCaller) {
        const stays = own * (1 - count / this.#ended);
        if (stays < 0.5) this.#byCaller.delete(name);
        else this.#byCaller.set(name, stays);
      }
      this.#ended -= count;
    }
  }

  /** When an attempt of the flow may go beside and behind so many others; not later than `nowMs` where it may go now. */
  turnMs({ name, background }: Flow, others: number, nowMs: number): number {
    this.#advance(nowMs);
    const { most, windowMs } = this.limit;
    const places = background ? Math.max(Math.floor(most * (1 - tuning.keptFromRefreshes)), 1) : most;
    const missing = others + this.#ended - places;
    // The places come back in the order of their cells, then those that are taken now; and again with each window.
    if (missing >= 0)
      return (this.#backMs(missing % places) ?? nowMs + windowMs) + Math.floor(missing / places) * windowMs;
    // The last part is for callers that use less than the average. The others get it spread over the time until places come back.
    const backMs = this.#backMs(0);
    const isLight = (this.#byCaller.get(name) ?? 0) * this.#byCaller.size < this.#ended;
    const kept = Math.floor(most * tuning.keptForLight);
    if (isLight || kept === 0 || backMs === undefined) return nowMs;
    return Math.max(backMs + ((missing + 1) / kept) * windowMs, nowMs);
  }

  /** When the place of an ended attempt comes back, by its order. */
  #backMs(order: number): number | undefined {
    let left = order;
    for (const { count, lastMs } of this.#cells) {
      if (left < count) return lastMs + this.limit.windowMs;
      left -= count;
    }
    return undefined;
  }

  snapshot(inFlight: number, nowMs: number): LimitSnapshot {
    this.#advance(nowMs);
    const used = this.#ended + inFlight;
    const remaining = Math.max(this.limit.most - used, 0);
    const backMs = this.#backMs(0) ?? nowMs + (used === 0 ? 0 : this.limit.windowMs);
    return { ...this.limit, used, remaining, resetsInMs: backMs - nowMs };
  }
}
