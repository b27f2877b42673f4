/**
 * The last 15 minutes, for the console's charts: a point every five seconds, kept by the gateway itself, so that a
 * fresh tab is not empty. The same look keeps the verdict's `since` true between requests.
 */
import { boundsSeconds, type DurationsSnapshot, toHundredths } from '../exchange/figures.ts';
import { type CallerCount, sumByCaller } from './caller-counts.ts';
import { type Health, type HealthReason, judgeHealth, type Verdict } from './health.ts';
import { fromMemory, type RequestCount } from './request-counts.ts';
import { type AdminSnapshot, snapshotOfOne } from './snapshot.ts';

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
  /** Requests that were answered (below 400) without an attempt of their own. What fails saves nothing. */
  readonly saved: number;
  readonly callerP50: number | null;
  readonly callerP99: number | null;
  readonly upstreamP50: number | null;
  readonly upstreamP99: number | null;
  readonly waiting: number;
}

const intervalMs = 5_000;
const maxPoints = (15 * 60_000) / intervalMs;
/** Workspaces whose own points are kept: the first ones of the settings. */
const maxWorkspaces = 50;
/** What callers did lately is counted over a minute. */
const recentLooks = 60_000 / intervalMs;

/** What a caller did in the last minute, or since the start. */
export interface RecentRequests {
  readonly seconds: number;
  readonly requests: number;
  readonly refused: number;
}

export interface HistoryOptions {
  look(): Promise<AdminSnapshot>;
  /** Called with each new point. @param workspace the one that it is of; `undefined` for all together */
  onPoint(point: HistoryPoint, workspace: string | undefined): void;
  /** A look failed. */
  onFault(error: unknown): void;
}

export class History {
  readonly #options: HistoryOptions;
  readonly #timer: NodeJS.Timeout;
  #before: AdminSnapshot | undefined;
  /** Oldest first. Of single workspaces where there are several, and by `undefined` of all together. */
  readonly #points = new Map<string | undefined, readonly HistoryPoint[]>();
  #looks: readonly { readonly atMs: number; readonly callers: readonly CallerCount[] }[] = [];

  constructor(options: HistoryOptions) {
    this.#options = options;
    this.#timer = setInterval(() => void this.take(), intervalMs);
    this.#timer.unref();
    void this.take();
  }

  /** Oldest first. @param workspace of this one alone */
  points(workspace?: string): readonly HistoryPoint[] {
    const isOnly = (this.#before?.workspaces.length ?? 1) === 1;
    return this.#points.get(isOnly ? undefined : workspace) ?? [];
  }

  /** What the callers of a snapshot did in the last minute, by name. */
  recentOf({ at, requests }: AdminSnapshot): (caller: string) => RecentRequests {
    const atMs = Date.parse(at);
    const [first] = this.#looks;
    const isMeant = new Set(requests.beside.callers.map(({ workspace }) => workspace));
    const before = sumByCaller(first?.callers.filter(({ workspace }) => isMeant.has(workspace)) ?? []);
    const earlier = new Map(before.map((one) => [one.caller, one]));
    const now = new Map(sumByCaller(requests.beside.callers).map((one) => [one.caller, one]));
    const seconds = first === undefined ? 0 : Math.max((atMs - first.atMs) / 1_000, 0);
    return (caller) => {
      const more = (count: (one: CallerCount) => number): number => {
        const [last, old] = [now.get(caller), earlier.get(caller)];
        return (last === undefined ? 0 : count(last)) - (old === undefined ? 0 : count(old));
      };
      return {
        seconds,
        requests: more(({ classes }) => sum(classes)),
        refused: more(({ refused }) => sum(Object.values(refused))),
      };
    };
  }

  /** Takes a point now. Never rejects. */
  async take(): Promise<void> {
    try {
      const now = await this.#options.look();
      const before = this.#before;
      this.#before = now;
      const look = { atMs: Date.parse(now.at), callers: now.requests.beside.callers };
      this.#looks = [...this.#looks, look].slice(-1 - recentLooks);
      if (before === undefined) return;
      this.#add(pointBetween(before, now), undefined);
      if (now.workspaces.length === 1) return;
      for (const { workspace } of now.workspaces.slice(0, maxWorkspaces)) {
        const name = workspace ?? '';
        this.#add(pointBetween(snapshotOfOne(before, name), snapshotOfOne(now, name)), name);
      }
    } catch (error) {
      this.#options.onFault(error);
    }
  }

  #add(point: HistoryPoint, workspace: string | undefined): void {
    this.#points.set(workspace, [...(this.#points.get(workspace) ?? []), point].slice(-maxPoints));
    this.#options.onPoint(point, workspace);
  }

  close(): void {
    clearInterval(this.#timer);
  }
}

/** The point of the interval between two snapshots. */
export function pointBetween(before: AdminSnapshot, now: AdminSnapshot): HistoryPoint {
  const atMs = Date.parse(now.at);
  const seconds = Math.max((atMs - Date.parse(before.at)) / 1_000, 1e-3);
  const rate = (total: (snapshot: AdminSnapshot) => number): number =>
    toHundredths(Math.max(0, total(now) - total(before)) / seconds);
  const callers = between(before.requests.beside.durations, now.requests.beside.durations);
  const upstream = between(upstreamTimes(before), upstreamTimes(now));
  return {
    at: atMs,
    requests: rate((snapshot) => count(snapshot, () => true)),
    fromMemory: rate((snapshot) => count(snapshot, ({ cache }) => fromMemory.has(cache))),
    problems: rate(({ requests }) => sum(requests.beside.problems.map((one) => one.count))),
    attempts: rate(attemptsOf),
    pace: paceOf(now),
    saved: rate((snapshot) => count(snapshot, isAnswered) - attemptsOf(snapshot)),
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

/** From the cache or the upstream, and no failure. */
function isAnswered({ cache, status }: RequestCount): boolean {
  return cache !== null && status !== null && status < 400;
}

function count({ requests }: AdminSnapshot, isMeant: (one: RequestCount) => boolean): number {
  return sum(requests.counts.filter(isMeant).map((one) => one.count));
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

export interface DatedVerdict extends Verdict {
  /** Each with the time when it was first seen. */
  readonly reasons: readonly (HealthReason & { readonly since: string })[];
  /** When `health` was first seen to be what it is. */
  readonly since: string;
}

/** Remembers since when the verdict on the gateway, and on each workspace, is what it is. */
export class HealthWatch {
  #health: Health = 'ok';
  #since: string | undefined;
  #reasons: DatedVerdict['reasons'] = [];
  /** Of each workspace where there are several, by its name. */
  readonly #each = new Map<string, HealthWatch>();

  /** Judges a snapshot of all workspaces, or of one of them. Snapshots come in the order of their times. */
  readonly judge = (snapshot: AdminSnapshot): DatedVerdict => {
    const { workspaces } = snapshot;
    if (workspaces.length > 1)
      for (const { workspace } of workspaces) this.judgeOne(snapshot, workspace ?? '');
    const verdict = judgeHealth(snapshot);
    this.#since ??= snapshot.startedAt;
    if (verdict.health !== this.#health) {
      this.#health = verdict.health;
      this.#since = snapshot.at;
    }
    this.#reasons = verdict.reasons.map((one) => {
      const before = this.#reasons.find(
        ({ code, workspace }) => code === one.code && workspace === one.workspace,
      );
      return { ...one, since: before?.since ?? snapshot.at };
    });
    return { ...verdict, reasons: this.#reasons, since: this.#since };
  };

  /** Judges one of several workspaces. */
  judgeOne(snapshot: AdminSnapshot, name: string): DatedVerdict {
    const watch = this.#each.get(name) ?? new HealthWatch();
    this.#each.set(name, watch);
    return watch.judge(snapshotOfOne(snapshot, name));
  }
}
