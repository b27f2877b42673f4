/**
 * A limit that the operator tells: at most so many attempts in any window of a length. No clock: times come in.
 *
 * An attempt arrives between its sending and its end, so it keeps its place from the one until a window after the other.
 */
import { toSeconds } from '../exchange/figures.ts';
import type { Flow } from '../exchange/request-context.ts';
import type { AttemptLimit } from '../http/limit-fields.ts';
import { tuning } from './tuning.ts';

/** A limit that was told, less the reserve, and what is left of it. */
export interface ToldLimit {
  /** The window's length as it was told. */
  readonly window: string;
  readonly limit: number;
  readonly used: number;
  readonly remaining: number;
  /** Until the first of the used places come back; 0 where none is used. */
  readonly resetsInSeconds: number;
  readonly beside: { readonly windowSeconds: number };
}

/** Attempts that have ended at about the same time: their places come back with the last of them. */
export type Cell = Readonly<Record<'firstMs' | 'lastMs' | 'count', number>>;

export class ToldWindow {
  readonly limit: AttemptLimit;
  /** The oldest first. */
  cells: readonly Cell[] = [];
  /** Places that this gateway may use: of several that share the limit, each may have a part. */
  most: number;
  #ended = 0;
  /** Attempts by callers. Those that leave the window are taken off all in proportion. */
  readonly #byCaller = new Map<string, number>();
  #byAll = 0;

  constructor(limit: AttemptLimit) {
    this.limit = limit;
    this.most = limit.most;
  }

  /** Goes on from attempts of several gateways that share the limit, in the order of their ends. */
  restore(cells: readonly Cell[], most: number): void {
    this.cells = cells;
    this.#ended = cells.reduce((sum, { count }) => sum + count, 0);
    this.most = Math.max(most, 1);
  }

  /** How many places what had ended then leaves now. */
  leftBy(atMs: number, nowMs: number): number {
    this.#advance(nowMs);
    const ended = this.cells.reduce((sum, { lastMs, count }) => sum + (lastMs <= atMs ? count : 0), 0);
    return Math.max(this.limit.most - ended, 0);
  }

  /** An attempt has ended, however. */
  ended({ name }: Flow, nowMs: number): void {
    const last = this.cells.at(-1) ?? { firstMs: Number.NEGATIVE_INFINITY, count: 0 };
    const joins = nowMs - last.firstMs < this.limit.windowMs / tuning.windowCells;
    const cell = { firstMs: joins ? last.firstMs : nowMs, lastMs: nowMs, count: joins ? last.count + 1 : 1 };
    this.cells = joins ? this.cells.with(-1, cell) : [...this.cells, cell];
    this.#ended += 1;
    this.#byAll += 1;
    this.#byCaller.set(name, (this.#byCaller.get(name) ?? 0) + 1);
  }

  #advance(nowMs: number): void {
    for (let [oldest] = this.cells; oldest && nowMs >= this.#backMs(oldest); [oldest] = this.cells) {
      const staying = 1 - oldest.count / this.#ended;
      for (const [name, own] of this.#byCaller) {
        const stays = own * staying < 0.5 ? 0 : own * staying;
        if (stays === 0) this.#byCaller.delete(name);
        else this.#byCaller.set(name, stays);
        this.#byAll += stays - own;
      }
      this.#ended -= oldest.count;
      this.cells = this.cells.slice(1);
    }
  }

  #backMs(cell: Cell): number {
    return cell.lastMs + this.limit.windowMs;
  }

  /** When an attempt of the flow may go beside and behind so many others; not later than `nowMs` where it may go now. */
  turnMs({ name, background }: Flow, others: number, nowMs: number): number {
    this.#advance(nowMs);
    const { windowMs } = this.limit;
    const places = background ? Math.max(this.most * (1 - tuning.keptFromRefreshes), 1) : this.most;
    const missing = others + this.#ended + 1 - places;
    if (missing > 0) {
      // The places come back in the order of their cells, then those that are taken now; and again with each window.
      let left = missing % places || places;
      const cell = this.cells.find(({ count }) => {
        left -= count;
        return left <= 0;
      });
      return (cell ? this.#backMs(cell) : nowMs + windowMs) + (Math.ceil(missing / places) - 1) * windowMs;
    }
    // The last part is for callers that use less than the average; for others it is spread until places come back.
    const [oldest] = this.cells;
    const own = this.#byCaller.get(name) ?? 0;
    const isLight = own === 0 || own * this.#byCaller.size < this.#byAll;
    const kept = Math.floor(this.most * tuning.keptForLight);
    if (isLight || kept === 0 || oldest === undefined) return nowMs;
    return Math.max(this.#backMs(oldest) + (missing / kept) * windowMs, nowMs);
  }

  snapshot(inFlight: number, nowMs: number): ToldLimit {
    this.#advance(nowMs);
    const { window, windowMs, most: limit } = this.limit;
    const used = this.#ended + inFlight;
    const remaining = Math.max(this.most - used, 0);
    const [oldest] = this.cells;
    const resetsInMs = oldest ? this.#backMs(oldest) - nowMs : used && windowMs;
    const beside = { windowSeconds: toSeconds(windowMs) };
    return { window, limit, used, remaining, resetsInSeconds: toSeconds(resetsInMs), beside };
  }
}
