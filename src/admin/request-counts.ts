/**
 * Counts requests: one increment for each access line. Every cache hit passes here, so a cell is found by comparing the
 * members of the line, and nothing is allocated: no label, no key, no object.
 */

import type { AccessLine } from '../edge/access-log.ts';
import { isOwnRequestId } from '../edge/request-ids.ts';
import { Durations, type DurationsSnapshot, toTime } from '../exchange/durations.ts';

export interface RequestCount {
  /** Null for the unnamed workspace, and where the request was refused before its workspace was known. */
  readonly workspace: string | null;
  /** Null for a request that was refused before its operation was known. */
  readonly operation: string | null;
  /** Null for the combinations beyond the bound, which are counted as one. */
  readonly status: number | null;
  /** Null where the cache took no part. */
  readonly cache: string | null;
  readonly count: number;
}

export interface DurationCount extends DurationsSnapshot {
  readonly workspace: string | null;
  readonly operation: string | null;
  /** Whether the answer came from memory, without waiting for the upstream. */
  readonly hit: boolean;
}

export interface CallerCount {
  readonly caller: string;
  /** By the first digit of the status: index 2 holds the 2xx. */
  readonly classes: readonly number[];
  /** Requests that were refused because of this caller, by problem. */
  readonly refused: Readonly<Record<string, number>>;
  /** Requests that passed because the callers file does not enforce its rules, by the problem they were spared. */
  readonly spared: Readonly<Record<string, number>>;
  /** Time that its requests waited at the gate and between attempts, in ms. */
  readonly waitedMs: number;
}

/** A caller's own requests since midnight UTC. */
export interface CallerDay {
  readonly requests: number;
  /** Answered from memory, without waiting for the upstream. */
  readonly fromMemory: number;
  /** For which an attempt was sent upstream. */
  readonly sentUp: number;
  /** Refused because of the caller itself: not granted, or over its limit. */
  readonly refused: number;
}

/** The requests' part of `/status`; `beside` is for metrics and charts alone. */
export interface RequestSnapshot {
  /** Requests received. */
  readonly started: number;
  /** Requests that have their access line. */
  readonly finished: number;
  /** Of these, requests whose caller left before the reply. */
  readonly aborted: number;
  readonly inFlight: number;
  readonly counts: readonly RequestCount[];
  /** By problem code. */
  readonly problems: Readonly<Record<string, number>>;
  /** The last requests that got one, newest first. */
  readonly recentProblems: readonly RecentProblem[];
  readonly beside: {
    readonly durations: readonly DurationCount[];
    readonly callers: readonly CallerCount[];
    /** Refused before a request was complete, by the code of the HTTP parser. */
    readonly unparsed: Readonly<Record<string, number>>;
  };
}

/** A request that got a problem, for people: who, what, when, and where to look in the log. */
export interface RecentProblem {
  readonly at: string;
  readonly caller: string | null;
  /** Null for the unnamed workspace, and where none was known. */
  readonly workspace: string | null;
  readonly operation: string | null;
  readonly code: string;
  /** Null where the caller chose it: nothing that callers send is shown. */
  readonly requestId: string | null;
}

interface Cell {
  readonly status: number | undefined;
  readonly cache: string | undefined;
  readonly durations: Durations;
  readonly isFromMemory: boolean;
  count: number;
}

interface OperationCells {
  readonly workspace: string | undefined;
  readonly operation: string | undefined;
  readonly hits: Durations;
  readonly others: Durations;
  readonly cells: Cell[];
}

interface CallerCell {
  readonly classes: Float64Array;
  readonly refused: Map<string, number>;
  readonly spared: Map<string, number>;
  readonly waitedMs: Float64Array;
  /** Since the start: requests from memory, sent up, refused. */
  readonly sums: Float64Array;
  /** The same and all requests, as they were at midnight UTC. */
  atMidnight: CallerDay;
}

const emptyDay: CallerDay = { requests: 0, fromMemory: 0, sentUp: 0, refused: 0 };

/** So many callers are counted by name, the rest together. No caller of a file can have the name of the rest. */
export const maxCallers = 200;
export const otherCallers = '(other)';
/** An upstream may send any status: combinations of one operation beyond this many are counted as one. */
const maxCells = 100;
const maxCodes = 50;
const maxRecent = 20;

const callerLeft = 499;
const dayMs = 86_400_000;
/** The cache's part, as the access line names it, in answers that came from memory. */
export const fromMemory: ReadonlySet<string | null | undefined> = new Set([
  'hit',
  'negative',
  'max-stale',
  'stale-while-revalidate',
]);

/** Its methods are properties, so that they can be handed on one by one. */
export class RequestCounts {
  #started = 0;
  #finished = 0;
  #aborted = 0;
  /** By workspace, then by operation: both come from the settings, so there are not many. */
  readonly #operations = new Map<string | undefined, Map<string | undefined, OperationCells>>();
  readonly #callers = new Map<string, CallerCell>();
  readonly #problems = new Map<string, number>();
  readonly #unparsed = new Map<string, number>();
  #recent: readonly RecentProblem[] = [];
  // Most lines are like the one before.
  #lastWorkspace: string | undefined = undefined;
  #lastOperation: string | undefined = undefined;
  #lastCell: Cell | undefined = undefined;
  #midnight: NodeJS.Timeout | undefined = undefined;

  readonly begin = (): void => {
    this.#started += 1;
  };

  readonly count = (line: AccessLine): void => {
    this.#finished += 1;
    let cell = this.#lastCell;
    if (
      cell === undefined ||
      cell.status !== line.status ||
      cell.cache !== line.cache ||
      this.#lastOperation !== line.operation ||
      this.#lastWorkspace !== line.workspace
    ) {
      cell = this.#cellOf(line);
      this.#lastCell = cell;
      this.#lastOperation = line.operation;
      this.#lastWorkspace = line.workspace;
    }
    cell.count += 1;
    cell.durations.observe(line.totalMs);
    if (line.status === callerLeft) this.#aborted += 1;
    const problem = line.reason === undefined ? undefined : problemOf(line);
    if (problem !== undefined) {
      increment(this.#problems, problem);
      this.#recent = withRecent(this.#recent, problem, line);
    }
    if (line.caller === undefined) return;
    const caller = this.#callerOf(line.caller);
    (caller.classes[Math.min(5, Math.trunc(line.status / 100))] as number) += 1;
    if (cell.isFromMemory) (caller.sums[0] as number) += 1;
    else if (line.attempts > 0) (caller.sums[1] as number) += 1;
    if (line.waitedMs > 0) (caller.waitedMs[0] as number) += line.waitedMs;
    if (line.would !== undefined) increment(caller.spared, line.would);
    if (problem?.startsWith('caller-') === true) {
      (caller.sums[2] as number) += 1;
      increment(caller.refused, problem);
    }
  };

  /** A caller's requests since midnight UTC; `undefined` where it is counted among the others. */
  readonly today = (caller: string): CallerDay | undefined => {
    const cell = this.#callers.get(caller);
    if (cell === undefined) return this.#callers.size < maxCallers ? emptyDay : undefined;
    const sums = sumsOf(cell);
    const { atMidnight } = cell;
    return {
      requests: sums.requests - atMidnight.requests,
      fromMemory: sums.fromMemory - atMidnight.fromMemory,
      sentUp: sums.sentUp - atMidnight.sentUp,
      refused: sums.refused - atMidnight.refused,
    };
  };

  /** The HTTP parser refused a request, or a limit refused a connection. */
  readonly refuse = (code: string): void => {
    const isCounted = this.#unparsed.has(code) || this.#unparsed.size < maxCodes;
    increment(this.#unparsed, isCounted ? code : 'other');
  };

  readonly snapshot = (): RequestSnapshot => ({
    started: this.#started,
    finished: this.#finished,
    aborted: this.#aborted,
    inFlight: this.#started - this.#finished,
    counts: this.#all().flatMap(({ workspace = null, operation = null, cells }) =>
      cells.map(({ status = null, cache = null, count }) => ({ workspace, operation, status, cache, count })),
    ),
    problems: Object.fromEntries(this.#problems),
    recentProblems: this.#recent,
    beside: {
      durations: this.#all().flatMap(({ workspace = null, operation = null, hits, others }) => [
        { workspace, operation, hit: true, ...hits.snapshot() },
        { workspace, operation, hit: false, ...others.snapshot() },
      ]),
      callers: [...this.#callers].map(([caller, { classes, refused, spared, waitedMs }]) => ({
        caller,
        classes: [...classes],
        refused: Object.fromEntries(refused),
        spared: Object.fromEntries(spared),
        waitedMs: waitedMs[0] as number,
      })),
      unparsed: Object.fromEntries(this.#unparsed),
    },
  });

  #all(): readonly OperationCells[] {
    return [...this.#operations.values()].flatMap((operations) => [...operations.values()]);
  }

  #operationOf({ workspace, operation }: AccessLine): OperationCells {
    const operations = this.#operations.get(workspace) ?? new Map<string | undefined, OperationCells>();
    this.#operations.set(workspace, operations);
    let cells = operations.get(operation);
    if (cells === undefined) {
      cells = { workspace, operation, hits: new Durations(), others: new Durations(), cells: [] };
      operations.set(operation, cells);
    }
    return cells;
  }

  #cellOf(line: AccessLine): Cell {
    const operation = this.#operationOf(line);
    const { cells } = operation;
    for (const cell of cells) if (cell.status === line.status && cell.cache === line.cache) return cell;
    const isOther = cells.length >= maxCells;
    const status = isOther ? undefined : line.status;
    const cache = isOther ? undefined : line.cache;
    let cell = isOther ? cells.find((one) => one.status === undefined) : undefined;
    if (cell === undefined) {
      const isFromMemory = !isOther && fromMemory.has(line.cache);
      const durations = isFromMemory ? operation.hits : operation.others;
      cell = { status, cache, durations, isFromMemory, count: 0 };
      cells.push(cell);
    }
    return cell;
  }

  #callerOf(name: string): CallerCell {
    let cell = this.#callers.get(name);
    const isOther = cell === undefined && this.#callers.size >= maxCallers;
    if (isOther) cell = this.#callers.get(otherCallers);
    if (cell === undefined) {
      cell = {
        classes: new Float64Array(6),
        refused: new Map(),
        spared: new Map(),
        waitedMs: new Float64Array(1),
        sums: new Float64Array(3),
        atMidnight: emptyDay,
      };
      this.#callers.set(isOther ? otherCallers : name, cell);
      this.#midnight ??= this.#atMidnight();
    }
    return cell;
  }

  /** By a timer, so that no request has to look at the date. */
  #atMidnight(): NodeJS.Timeout {
    const onMidnight = (): void => {
      for (const cell of this.#callers.values()) cell.atMidnight = sumsOf(cell);
      this.#midnight = this.#atMidnight();
    };
    return setTimeout(onMidnight, dayMs - (Date.now() % dayMs)).unref();
  }
}

function sumsOf({ classes, sums: [fromMemory = 0, sentUp = 0, refused = 0] }: CallerCell): CallerDay {
  return { requests: classes.reduce((sum, count) => sum + count, 0), fromMemory, sentUp, refused };
}

/** The line of an unexpected fault has no code. Its caller got this one. */
function problemOf({ problem, status, reason }: AccessLine): string | undefined {
  return problem ?? (reason !== undefined && status === 500 ? 'internal-error' : undefined);
}

/** The caller with most of them makes room for the next, so that its problems do not hide those of all others. */
function withRecent(
  recent: readonly RecentProblem[],
  code: string,
  line: AccessLine,
): readonly RecentProblem[] {
  const { caller = null, workspace = null, operation = null, requestId } = line;
  const own = isOwnRequestId(requestId) ? requestId : null;
  const all = [{ at: toTime(Date.now()), caller, workspace, operation, code, requestId: own }, ...recent];
  if (all.length <= maxRecent) return all;
  // Those that are not known to be a caller's are counted as one caller's.
  const groups = [...Map.groupBy(all, (one) => one.caller).values()];
  const eldest = groups.toSorted((one, other) => other.length - one.length)[0]?.at(-1);
  return all.filter((one) => one !== eldest);
}

function increment(counts: Map<string, number>, name: string): void {
  counts.set(name, (counts.get(name) ?? 0) + 1);
}
