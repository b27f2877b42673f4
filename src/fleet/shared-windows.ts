/**
 * The windows of a told limit as they travel between gateways: of each its attempts, by how long ago they ended. Pure:
 * times come in.
 */
import { tuning } from '../gate/tuning.ts';
import type { Cell, ToldWindow } from '../gate/window-limits.ts';

export interface SharedWindows {
  /** Of each window, the shortest first: pairs of ms and count, the eldest first. */
  readonly ended: readonly (readonly (readonly [agoMs: number, count: number])[])[];
  /** Attempts that had not ended. */
  readonly inFlight: number;
}

/** What is known of all gateways together. */
export interface KnownWindows {
  readonly windows: SharedWindows;
  readonly atMs: number;
}

/** Windows from here on outlive the process. */
const longWindowMs = 3_600_000;
const mostWindows = 16;
const mostCells = 256;
/** No window is longer, and no limit higher. */
const most = 2 ** 32;

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

/**
 * Goes on from what was known of all, and what this gateway has sent since. Without the others it has its part of what was
 * left. @param isFollower its own attempts are among those in flight
 */
export function readWindows(
  windows: readonly ToldWindow[],
  { windows: { ended, inFlight }, atMs }: KnownWindows,
  part: number,
  isFollower: boolean,
): void {
  for (const [place, window] of windows.entries()) {
    const cells = [...(ended[place] ?? []), ...(isFollower ? [] : [[0, inFlight] as const])];
    const known = cells.map(([agoMs, count]) => cellOf(atMs - agoMs, count * part));
    const later = window.cells.filter(({ lastMs }) => lastMs > atMs);
    window.restore([...known.filter(({ count }) => count > 0), ...later], window.limit.most * part);
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
    const more = [...(ended[place] ?? []), [0, inFlight] as const];
    const added = more.map(([agoMs, count]) => cellOf(nowMs - agoMs, count)).filter(({ count }) => count > 0);
    const { windowMs, most } = window.limit;
    const cells = joinCells([...window.cells, ...added], windowMs / tuning.windowCells);
    window.restore(cells, Math.min(window.most + (held[place] ?? 0), most));
  }
}

/** No attempt that ends later joins it: what this gateway has sent since is told apart. */
function cellOf(lastMs: number, count: number): Cell {
  return { firstMs: Number.NEGATIVE_INFINITY, lastMs, count };
}

/** In the order of time, those that ended within so many ms as one. */
function joinCells(cells: readonly Cell[], withinMs: number): readonly Cell[] {
  const joined: Cell[] = [];
  let sinceMs = Number.NEGATIVE_INFINITY;
  for (const { lastMs, count } of cells.toSorted((one, other) => one.lastMs - other.lastMs)) {
    const joins = lastMs - sinceMs < withinMs;
    if (!joins) sinceMs = lastMs;
    joined.push(cellOf(lastMs, count + (joins ? (joined.pop()?.count ?? 0) : 0)));
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
  const isFigure = (one: unknown): boolean => typeof one === 'number' && one >= 0 && one <= most;
  const isCell = (cell: unknown): boolean => Array.isArray(cell) && cell.length === 2 && cell.every(isFigure);
  const isWindow = (one: unknown): boolean =>
    Array.isArray(one) && one.length <= mostCells && one.every(isCell);
  const isList = Array.isArray(ended) && ended.length <= mostWindows && ended.every(isWindow);
  return isList && isFigure(inFlight) ? (value as SharedWindows) : undefined;
}
