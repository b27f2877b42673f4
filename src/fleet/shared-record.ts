/**
 * The gate's record as it travels between gateways: plain numbers, whose times are counted from the moment of writing.
 * Pure: times come in.
 */
import { type GateRecord, type GateState, learnRate, openRecord, settleDown } from '../gate/pacer.ts';
import { tuning } from '../gate/tuning.ts';
import type { Cell, ToldWindow } from '../gate/window-limits.ts';

/** Gateways of other versions read these names: `probe` is what a record calls exploring. */
const amounts = ['perMs', 'crowd', 'crowdMs', 'unstatedMs', 'probeIntervalMs'] as const;
const spans = ['closedForMs', 'statedForMs', 'probeInMs'] as const;

export type SharedRecord = Readonly<Record<(typeof amounts)[number] | (typeof spans)[number], number>> & {
  readonly state: GateState;
  readonly isMeasured: boolean;
  readonly level: number;
  /** When the level was as it says; below zero in the past. */
  readonly levelInMs: number;
  /** Of a told limit, what all gateways have used; left out where none is told. */
  readonly windows?: SharedWindows | undefined;
};

/** @param sent attempts so far: what the 429s of a cooldown tell is told at once */
export function writeRecord(record: GateRecord, sent: number, nowMs: number): SharedRecord {
  const plain = record.state === 'closed' ? learnRate(record, sent) : settleDown(record, nowMs);
  return {
    ...pick(amounts, (name) => (name === 'probeIntervalMs' ? plain.exploreIntervalMs : plain[name])),
    state: record.state,
    isMeasured: plain.isMeasured,
    level: plain.level,
    levelInMs: plain.levelMs - nowMs,
    closedForMs: Math.max(plain.closedUntilMs - nowMs, 0),
    statedForMs: Math.max(plain.statedUntilMs - nowMs, 0),
    probeInMs: Math.max(plain.exploreMs - nowMs, 0),
  };
}

/**
 * The record as one's own. A new stretch of the measurement begins with it, for what the writer has sent is not known.
 *
 * @param sent attempts so far
 * @param writtenMs when it was written
 */
export function readRecord(shared: SharedRecord, sent: number, writtenMs: number, nowMs: number): GateRecord {
  if (shared.state === 'open') return openRecord;
  const { closedForMs, statedForMs, probeInMs, probeIntervalMs, levelInMs, windows: _, ...same } = shared;
  return {
    ...openRecord,
    ...same,
    levelMs: writtenMs + levelInMs,
    closedUntilMs: writtenMs + closedForMs,
    statedUntilMs: statedForMs > 0 ? writtenMs + statedForMs : 0,
    exploreMs: writtenMs + probeInMs,
    exploreIntervalMs: probeIntervalMs,
    emptyMs: nowMs,
    closedMs: nowMs,
    marks: [{ atMs: nowMs, sent }],
  };
}

/** What one of several gateways may use while each works by itself. */
export function scaleRecord(record: GateRecord, share: number): GateRecord {
  const { perMs, crowd, level } = record;
  return { ...record, perMs: perMs * share, crowd: Math.max(crowd * share, 1), level: level * share };
}

/** The record of all, closed for as long as this gateway was told to wait. */
export function withCooldown(record: GateRecord, own: GateRecord, nowMs: number): GateRecord {
  const isClosed = record.state === 'paced' && own.closedUntilMs > nowMs;
  return {
    ...record,
    state: isClosed ? 'closed' : record.state,
    closedUntilMs: Math.max(record.closedUntilMs, own.closedUntilMs),
    statedUntilMs: Math.max(record.statedUntilMs, own.statedUntilMs),
  };
}

/** So long without a 429 that nothing may be limited any more. */
export function isStale({ closedForMs, statedForMs }: SharedRecord, ageMs: number): boolean {
  return !(ageMs <= Math.max(closedForMs, statedForMs) + tuning.quietMs);
}

/** Longer than any gate is closed, any wait is stated and any window lasts, and more than any limit allows; no sum of such times is lost to rounding. */
export const longestMs = 2 ** 32;
/** Faster than any upstream. */
const mostPerMs = 1e6;

/** Nothing that was read from the store is trusted. */
export function parseRecord(value: unknown): SharedRecord | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const given = value as Record<string, unknown>;
  const { state, level, levelInMs, perMs } = given;
  if (state !== 'open' && state !== 'closed' && state !== 'half-open' && state !== 'paced') return undefined;
  if (![...amounts, ...spans].every((name) => isWithin(given[name], 0, longestMs))) return undefined;
  if (![level, levelInMs].every((one) => isWithin(one, -longestMs, longestMs))) return undefined;
  if (!isWithin(perMs, state === 'open' ? 0 : 1e-9, mostPerMs)) return undefined;
  const windows = parseWindows(given['windows']);
  const rest = {
    state,
    isMeasured: given['isMeasured'] === true,
    level,
    levelInMs,
    ...(windows && { windows }),
  } as SharedRecord;
  return { ...pick([...amounts, ...spans], (name) => given[name] as number), ...rest };
}

export function isWithin(value: unknown, least: number, most: number): value is number {
  return typeof value === 'number' && value >= least && value <= most;
}

function pick<N extends string>(names: readonly N[], of: (name: N) => number): Record<N, number> {
  return Object.fromEntries(names.map((name) => [name, of(name)])) as Record<N, number>;
}

export interface SharedWindows {
  /** Of each window, the shortest first: pairs of ms and count, the oldest first. */
  readonly ended: readonly (readonly (readonly [agoMs: number, count: number])[])[];
  /** Attempts that had not ended. */
  readonly inFlight: number;
  /** From a leader: how many attempts of its term these count, and what was known of the terms before when it began. */
  readonly upTo?: TermCount | undefined;
  readonly from?: TermCount | undefined;
}

export type TermCount = readonly [term: number, attempts: number];

/** What is known of all gateways together. */
export interface KnownWindows {
  readonly windows: SharedWindows;
  readonly atMs: number;
}

/** Windows from here on outlive the process. */
const longWindowMs = 3_600_000;
const mostWindows = 16;
const mostCells = 256;

/** What has ended since, and what has not. `undefined` where no limit is told. */
export function writeWindows(
  windows: readonly ToldWindow[],
  inFlight: number,
  nowMs: number,
  sinceMs = Number.NEGATIVE_INFINITY,
): SharedWindows | undefined {
  if (windows.length === 0) return undefined;
  const ended = windows.map(({ cells }) =>
    cells
      .filter(({ lastMs }) => lastMs > sinceMs)
      .map(({ lastMs, count }) => [Math.max(nowMs - lastMs, 0), count] as const),
  );
  return { ended, inFlight };
}

/** Goes on from what was known of all, and what this gateway has sent since. @param part this gateway's, of one */
export function readWindows(
  windows: readonly ToldWindow[],
  { windows: { ended, inFlight }, atMs }: KnownWindows,
  part: number,
): void {
  for (const [place, window] of windows.entries()) {
    const all = [...(ended[place] ?? []), [0, inFlight] as const];
    const known = cellsOf(all, atMs, part);
    const later = window.cells.filter(({ lastMs }) => lastMs > atMs);
    window.restore([...known, ...later], window.limit.most * part);
  }
}

/** Adds what a gateway has sent by itself, and takes back the places that were held for it. */
export function addWindows(
  windows: readonly ToldWindow[],
  { ended, inFlight }: SharedWindows,
  held: readonly number[],
  nowMs: number,
): void {
  for (const [place, window] of windows.entries()) {
    const added = cellsOf([...(ended[place] ?? []), [0, inFlight]], nowMs, 1);
    const { windowMs, most } = window.limit;
    const cells = joinCells([...window.cells, ...added], windowMs / tuning.windowCells);
    window.restore(cells, Math.min(window.most + (held[place] ?? 0), most));
  }
}

/** No attempt that ends later joins them: what this gateway has sent since is told apart. */
function cellsOf(ended: readonly (readonly [number, number])[], atMs: number, part: number): Cell[] {
  return ended
    .filter(([, count]) => count > 0)
    .map(([agoMs, count]) => ({
      firstMs: Number.NEGATIVE_INFINITY,
      lastMs: atMs - agoMs,
      count: count * part,
    }));
}

/** In the order of time, those that ended within so many ms as one. */
function joinCells(cells: readonly Cell[], withinMs: number): readonly Cell[] {
  const joined: Cell[] = [];
  let sinceMs = Number.NEGATIVE_INFINITY;
  for (const { lastMs, count } of cells.toSorted((one, other) => one.lastMs - other.lastMs)) {
    const isNear = lastMs - sinceMs < withinMs;
    if (!isNear) sinceMs = lastMs;
    const before = isNear ? (joined.pop()?.count ?? 0) : 0;
    joined.push({ firstMs: Number.NEGATIVE_INFINITY, lastMs, count: count + before });
  }
  return joined;
}

/** How long the record of these windows is worth keeping, ms; 0 where none is long. */
export function keptForMs(windows: readonly ToldWindow[]): number {
  const longest = Math.max(0, ...windows.map(({ limit }) => limit.windowMs));
  return longest >= longWindowMs ? longest : 0;
}

/** Nothing that was read from the store is trusted. */
export function parseWindows(value: unknown): SharedWindows | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const { ended, inFlight } = value as Record<string, unknown>;
  const isFigure = (one: unknown): boolean => isWithin(one, 0, longestMs);
  const isCell = (cell: unknown): boolean => Array.isArray(cell) && cell.length === 2 && cell.every(isFigure);
  const isWindow = (one: unknown): boolean =>
    Array.isArray(one) && one.length <= mostCells && one.every(isCell);
  const isList = Array.isArray(ended) && ended.length <= mostWindows && ended.every(isWindow);
  if (!isList || !isFigure(inFlight)) return undefined;
  const { upTo, from } = value as Record<string, unknown>;
  const isTermCount = (one: unknown): boolean =>
    Array.isArray(one) && one.every((count) => isWithin(count, 0, Number.MAX_SAFE_INTEGER));
  return [upTo, from].every((one) => one === undefined || isTermCount(one))
    ? (value as SharedWindows)
    : undefined;
}
