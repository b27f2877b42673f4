/**
 * The last 15 minutes, for the console's charts: a point every five seconds, kept by the gateway itself, so that a
 * fresh tab is not empty. The same look keeps the verdict's `since` true between requests.
 */
import { type HistoryPoint, pointBetween } from './history-policy.ts';
import type { AdminSnapshot } from './sources.ts';

const intervalMs = 5_000;
const maxPoints = (15 * 60_000) / intervalMs;

export interface HistoryOptions {
  look(): Promise<AdminSnapshot>;
  /** Called with each new point. */
  onPoint(point: HistoryPoint): void;
  /** A look failed. */
  onFault(error: unknown): void;
}

export class History {
  readonly #options: HistoryOptions;
  readonly #timer: NodeJS.Timeout;
  #before: AdminSnapshot | undefined;
  #points: readonly HistoryPoint[] = [];

  constructor(options: HistoryOptions) {
    this.#options = options;
    this.#timer = setInterval(() => void this.take(), intervalMs);
    this.#timer.unref();
    void this.take();
  }

  /** Oldest first. */
  get points(): readonly HistoryPoint[] {
    return this.#points;
  }

  /** Takes a point now. Never rejects. */
  async take(): Promise<void> {
    try {
      const now = await this.#options.look();
      const before = this.#before;
      this.#before = now;
      if (before === undefined) return;
      const point = pointBetween(before, now);
      this.#points = [...this.#points, point].slice(-maxPoints);
      this.#options.onPoint(point);
    } catch (error) {
      this.#options.onFault(error);
    }
  }

  close(): void {
    clearInterval(this.#timer);
  }
}
