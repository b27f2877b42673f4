/**
 * The last 15 minutes, for the console's charts: a point every five seconds, kept by the gateway itself, so that a
 * fresh tab is not empty. The same look keeps the verdict's `since` true between requests.
 */
import { boundsSeconds, type DurationsSnapshot, toHundredths } from '../exchange/durations.ts';
import { fromMemory, type RequestCount } from './request-counts.ts';
import type { AdminSnapshot } from './snapshot.ts';

/** Rates are per second, times in seconds; null where nothing was measured. */
export interface HistoryPoint {
  /** Wall clock, ms: the end of the interval. */
  readonly at: number;
  readonly requests: number;
  readonly fromMemory: number;
  /** Requests that got a problem. */
  readonly problems: number;
  readonly attempts: number;
  /** The rate that the upstream accepts, as learned; of all workspaces together. */
  readonly pace: number | null;
  /** Requests that needed no attempt of their own. */
  readonly saved: number;
  readonly callerP50: number | null;
  readonly callerP99: number | null;
  readonly upstreamP50: number | null;
  readonly upstreamP99: number | null;
  readonly waiting: number;
}

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

/** The point of the interval between two snapshots. */
export function pointBetween(before: AdminSnapshot, now: AdminSnapshot): HistoryPoint {
  const atMs = Date.parse(now.at);
  const seconds = Math.max((atMs - Date.parse(before.at)) / 1_000, 1e-3);
  const rate = (count: (snapshot: AdminSnapshot) => number): number =>
    toHundredths(Math.max(0, count(now) - count(before)) / seconds);
  const callers = between(before.requests.beside.durations, now.requests.beside.durations);
  const upstream = between(upstreamTimes(before), upstreamTimes(now));
  return {
    at: atMs,
    requests: rate(({ requests }) => requests.finished),
    fromMemory: rate((snapshot) => counted(snapshot, ({ cache }) => fromMemory.has(cache))),
    problems: rate(({ requests }) => sum(Object.values(requests.problems))),
    attempts: rate(attemptsOf),
    pace: paceOf(now),
    saved: rate((snapshot) =>
      Math.max(0, counted(snapshot, ({ cache }) => cache !== null) - attemptsOf(snapshot)),
    ),
    callerP50: quantile(callers, 0.5),
    callerP99: quantile(callers, 0.99),
    upstreamP50: quantile(upstream, 0.5),
    upstreamP99: quantile(upstream, 0.99),
    waiting: now.requests.waiting,
  };
}

function attemptsOf({ workspaces }: AdminSnapshot): number {
  return sum(workspaces.map(({ upstream }) => upstream.attempts));
}

function upstreamTimes({ workspaces }: AdminSnapshot): readonly DurationsSnapshot[] {
  return workspaces.flatMap(({ upstream }) => upstream.beside.durations);
}

/** Of all workspaces whose pace is known. */
function paceOf({ workspaces }: AdminSnapshot): number | null {
  const known = workspaces.flatMap(({ gate }) => gate.attemptsPerSecond ?? []);
  return known.length === 0 ? null : toHundredths(sum(known));
}

function counted({ requests }: AdminSnapshot, isMeant: (one: RequestCount) => boolean): number {
  return sum(requests.counts.filter(isMeant).map(({ count }) => count));
}

/** How many took no longer than each bound, in the interval; the last is for those beyond all bounds. */
function between(before: readonly DurationsSnapshot[], now: readonly DurationsSnapshot[]): readonly number[] {
  const total = (all: readonly DurationsSnapshot[], index: number): number =>
    sum(all.map(({ cumulative, count }) => cumulative[index] ?? count));
  return Array.from(
    { length: boundsSeconds.length + 1 },
    (_, index) => total(now, index) - total(before, index),
  );
}

/** Linear within the bucket that it falls into, as Prometheus has it; null where there was nothing. */
function quantile(cumulative: readonly number[], share: number): number | null {
  const count = cumulative.at(-1) ?? 0;
  if (count <= 0) return null;
  const rank = share * count;
  const index = cumulative.findIndex((upTo) => upTo >= rank);
  const upper = boundsSeconds[index];
  if (upper === undefined) return boundsSeconds.at(-1) ?? null;
  const lower = index === 0 ? 0 : (boundsSeconds[index - 1] ?? 0);
  const below = index === 0 ? 0 : (cumulative[index - 1] ?? 0);
  const inBucket = (cumulative[index] ?? 0) - below;
  return Number((lower + ((upper - lower) * (rank - below)) / Math.max(inBucket, 1)).toPrecision(3));
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
