/**
 * Counts requests: one increment for each access line, because each line is what is counted. It stands on the way of
 * every cache hit, so it looks cells up by comparing what the line has and makes nothing: no label, no key, no object.
 */
import type { AccessLine } from '../edge/access-log.ts';
import { Durations, type DurationsSnapshot } from './durations.ts';

export interface RequestCount {
  /** `undefined` for what was refused before it meant an operation. */
  readonly operation: string | undefined;
  /** `undefined` for those beyond what is told apart. */
  readonly status: number | undefined;
  /** `undefined` where the cache took no part. */
  readonly cache: string | undefined;
  readonly count: number;
}

export interface DurationCount extends DurationsSnapshot {
  readonly operation: string | undefined;
  /** Whether the answer was in memory, so that nobody had to wait for the upstream. */
  readonly hit: boolean;
}

export interface CallerCount {
  readonly caller: string;
  /** By the first digit of the status: index 2 holds the 2xx. */
  readonly classes: readonly number[];
  /** What the gateway refused this caller, by problem. */
  readonly refused: ReadonlyMap<string, number>;
  /** Time its requests have waited for turns and between attempts, in ms. */
  readonly waitedMs: number;
}

export interface RequestSnapshot {
  /** Requests that have come. */
  readonly started: number;
  /** Requests that have their line. */
  readonly finished: number;
  /** Of these, those that had left before they were answered. */
  readonly aborted: number;
  readonly requests: readonly RequestCount[];
  readonly durations: readonly DurationCount[];
  /** By problem code. */
  readonly problems: ReadonlyMap<string, number>;
  readonly callers: readonly CallerCount[];
  /** What was refused before there was a request, by the parser's code. */
  readonly unparsed: ReadonlyMap<string, number>;
}

export interface RequestCounts {
  begin(): void;
  count(line: AccessLine): void;
  /** The parser, or a limit on connections, refused something. */
  refuse(code: string): void;
  snapshot(): RequestSnapshot;
}

interface Cell {
  readonly status: number | undefined;
  readonly cache: string | undefined;
  readonly durations: Durations;
  count: number;
}

interface OperationCells {
  readonly hits: Durations;
  readonly others: Durations;
  readonly cells: Cell[];
}

interface CallerCell {
  readonly classes: Float64Array;
  readonly refused: Map<string, number>;
  readonly waitedMs: Float64Array;
}

/** Callers counted by name: the first of so many; the rest are one. No caller of a file can have that one's name. */
export const maxCallers = 200;
export const otherCallers = '(other)';
/** A strange upstream may give any status: combinations of one operation beyond this many are counted as one. */
const maxCells = 100;
const maxCodes = 50;

const callerLeft = 499;
const fromMemory = new Set<string | undefined>(['hit', 'negative', 'max-stale', 'stale-while-revalidate']);

export function countRequests(): RequestCounts {
  let started = 0;
  let finished = 0;
  let aborted = 0;
  const operations = new Map<string | undefined, OperationCells>();
  const callers = new Map<string, CallerCell>();
  const problems = new Map<string, number>();
  const unparsed = new Map<string, number>();
  // Most lines are like the one before.
  let lastOperation: string | undefined;
  let lastCell: Cell | undefined;

  function cellOf(line: AccessLine): Cell {
    let operation = operations.get(line.operation);
    if (operation === undefined) {
      operation = { hits: new Durations(), others: new Durations(), cells: [] };
      operations.set(line.operation, operation);
    }
    const { cells } = operation;
    for (const cell of cells) if (cell.status === line.status && cell.cache === line.cache) return cell;
    const isOther = cells.length >= maxCells;
    const status = isOther ? undefined : line.status;
    const cache = isOther ? undefined : line.cache;
    let cell = isOther ? cells.find((one) => one.status === undefined) : undefined;
    if (cell === undefined) {
      const durations = !isOther && fromMemory.has(line.cache) ? operation.hits : operation.others;
      cell = { status, cache, durations, count: 0 };
      cells.push(cell);
    }
    return cell;
  }

  function callerOf(name: string): CallerCell {
    let cell = callers.get(name);
    if (cell === undefined && callers.size >= maxCallers) cell = callers.get(otherCallers);
    if (cell === undefined) {
      cell = { classes: new Float64Array(6), refused: new Map(), waitedMs: new Float64Array(1) };
      callers.set(callers.size >= maxCallers ? otherCallers : name, cell);
    }
    return cell;
  }

  /** A fault of ours has no code on its line; its caller got this one. */
  function problemOf({ problem, status, reason }: AccessLine): string | undefined {
    return problem ?? (reason !== undefined && status === 500 ? 'internal-error' : undefined);
  }

  return {
    begin() {
      started += 1;
    },
    count(line) {
      finished += 1;
      let cell = lastCell;
      if (
        cell === undefined ||
        cell.status !== line.status ||
        cell.cache !== line.cache ||
        lastOperation !== line.operation
      ) {
        cell = cellOf(line);
        lastCell = cell;
        lastOperation = line.operation;
      }
      cell.count += 1;
      cell.durations.observe(line.totalMs);
      if (line.status === callerLeft) aborted += 1;
      const problem = line.reason === undefined ? undefined : problemOf(line);
      if (problem !== undefined) increment(problems, problem);
      if (line.caller === undefined) return;
      const caller = callerOf(line.caller);
      (caller.classes[Math.min(5, Math.trunc(line.status / 100))] as number) += 1;
      if (line.waitedMs > 0) (caller.waitedMs[0] as number) += line.waitedMs;
      if (problem?.startsWith('caller-') === true) increment(caller.refused, problem);
    },
    refuse(code) {
      increment(unparsed, unparsed.has(code) || unparsed.size < maxCodes ? code : 'other');
    },
    snapshot: () => ({
      started,
      finished,
      aborted,
      requests: [...operations].flatMap(([operation, { cells }]) =>
        cells.map(({ status, cache, count }) => ({ operation, status, cache, count })),
      ),
      durations: [...operations].flatMap(([operation, { hits, others }]) => [
        { operation, hit: true, ...hits.snapshot() },
        { operation, hit: false, ...others.snapshot() },
      ]),
      problems: new Map(problems),
      callers: [...callers].map(([caller, { classes, refused, waitedMs }]) => ({
        caller,
        classes: [...classes],
        refused: new Map(refused),
        waitedMs: waitedMs[0] as number,
      })),
      unparsed: new Map(unparsed),
    }),
  };
}

function increment(counts: Map<string, number>, name: string): void {
  counts.set(name, (counts.get(name) ?? 0) + 1);
}
