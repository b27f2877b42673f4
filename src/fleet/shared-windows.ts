/**
 * The windows of a told limit as they travel between gateways: of each its attempts, by how long ago they ended. Pure:
 * times come in.
 */
import type { ToldWindow } from '../gate/window-limits.ts';

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

/** What becomes of it: another gateway decides, or this one for all, or this one for its share alone. */
export type WindowUse = 'follow' | 'lead' | 'alone';

/** Windows from here on outlive the process. */
const longWindowMs = 3_600_000;
const mostWindows = 16;
const mostCells = 256;
/** No window is longer, and no limit higher. */
const most = 2 ** 32;

/** `undefined` where no limit is told. */
export function writeWindows(
  windows: readonly ToldWindow[],
  inFlight: number,
  nowMs: number,
): SharedWindows | undefined {
  if (windows.length === 0) return undefined;
  const ended = windows.map(({ cells }) =>
    cells.map(({ lastMs, count }) => [Math.max(nowMs - lastMs, 0), count] as const),
  );
  return { ended, inFlight };
}

/** Goes on from what was known of all, and what this gateway has sent since. @param share this gateway's, of one */
export function readWindows(
  windows: readonly ToldWindow[],
  { windows: { ended, inFlight }, atMs }: KnownWindows,
  use: WindowUse,
  share: number,
): void {
  const part = use === 'alone' ? share : 1;
  // A follower's own are among those in flight. What the others have sent by themselves is not known: as much as this one.
  const [flying, times] = [use === 'follow' ? 0 : inFlight, use === 'lead' ? 1 / share : 1];
  for (const [place, window] of windows.entries()) {
    const known = [...(ended[place] ?? []), [0, flying] as const].map(([agoMs, count]) => {
      const lastMs = atMs - agoMs;
      return { firstMs: lastMs, lastMs, count: count * part };
    });
    const later = window.cells.filter(({ lastMs }) => lastMs > atMs);
    const cells = [...known, ...later.map((cell) => ({ ...cell, count: cell.count * times }))];
    window.restore(
      cells.filter(({ count }) => count > 0),
      part,
    );
  }
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
