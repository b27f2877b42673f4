/**
 * Counts requests: one increment for each access line. Every cache hit passes here, so a cell is found by comparing the
 * members of the line, and nothing is allocated: no label, no key, no object.
 */

import type { AccessLine } from '../edge/access-log.ts';
import { isOwnRequestId } from '../edge/request-ids.ts';
import { Durations, type DurationsSnapshot, toTime } from '../exchange/durations.ts';
import { type ProblemGroup, ProblemGroups } from './problem-groups.ts';

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
  /** Null for the unnamed workspace, and where none was known. */
  readonly workspace: string | null;
  readonly caller: string;
  /** By the first digit of the status: index 2 holds the 2xx. */
  readonly classes: readonly number[];
  /** Requests that got no answer because of the caller itself or for want of a turn at the upstream, by problem. */
  readonly refused: Readonly<Record<string, number>>;
  /** Time that its requests waited at the gate and between attempts, in ms. */
  readonly waitedMs: number;
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
  /** The same by code, the latest first. */
  readonly problemGroups: readonly ProblemGroup[];
  readonly beside: {
    readonly durations: readonly DurationCount[];
    readonly callers: readonly CallerCount[];
    /** How many got a problem. */
    readonly problems: readonly { readonly workspace: string | null; readonly count: number }[];
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
  readonly waitedMs: Float64Array;
}

/** So many callers are counted by name, the rest together. No caller of a file can have the name of the rest. */
export const maxCallers = 200;
export const otherCallers = '(other)';
/** An upstream may send any status: combinations of one operation beyond this many are counted as one. */
const maxCells = 100;
/** One cell for each caller of each workspace. */
const maxCallerCells = 2_000;
const maxCodes = 50;
const maxRecent = 20;

const callerLeft = 499;
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
  /** By workspace, then by name. */
  readonly #callers = new Map<string | undefined, Map<string, CallerCell>>();
  readonly #callerNames = new Set<string>();
  #callerCells = 0;
  readonly #problems = new Map<string, number>();
  readonly #problemsOf = new Map<string | undefined, number>();
  readonly #groups = new ProblemGroups();
  readonly #unparsed = new Map<string, number>();
  #recent: readonly RecentProblem[] = [];
  // Most lines are like the one before.
  #lastWorkspace: string | undefined = undefined;
  #lastOperation: string | undefined = undefined;
  #lastCell: Cell | undefined = undefined;

  get finished(): number {
    return this.#finished;
  }

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
      increment(this.#problemsOf, line.workspace);
      this.#groups.count(problem, line, Date.now());
      this.#recent = withRecent(this.#recent, problem, line);
    }
    if (line.caller === undefined) return;
    const caller = this.#callerOf(line.workspace, line.caller);
    (caller.classes[Math.min(5, Math.trunc(line.status / 100))] as number) += 1;
    if (line.waitedMs > 0) (caller.waitedMs[0] as number) += line.waitedMs;
    if (problem !== undefined && isRefusal(problem)) increment(caller.refused, problem);
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
    problemGroups: this.#groups.snapshot(),
    beside: {
      durations: this.#all().flatMap(({ workspace = null, operation = null, hits, others }) => [
        { workspace, operation, hit: true, ...hits.snapshot() },
        { workspace, operation, hit: false, ...others.snapshot() },
      ]),
      callers: [...this.#callers].flatMap(([workspace = null, callers]) =>
        [...callers].map(([caller, { classes, refused, waitedMs }]) => ({
          workspace,
          caller,
          classes: [...classes],
          refused: Object.fromEntries(refused),
          waitedMs: waitedMs[0] as number,
        })),
      ),
      problems: [...this.#problemsOf].map(([workspace = null, count]) => ({ workspace, count })),
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
      const durations = !isOther && fromMemory.has(line.cache) ? operation.hits : operation.others;
      cell = { status, cache, durations, count: 0 };
      cells.push(cell);
    }
    return cell;
  }

  #callerOf(workspace: string | undefined, name: string): CallerCell {
    const callers = this.#callers.get(workspace) ?? new Map<string, CallerCell>();
    const known = callers.get(name);
    if (known !== undefined) return known;
    const isNamed = this.#callerNames.has(name) || this.#callerNames.size < maxCallers;
    const shown = isNamed && this.#callerCells < maxCallerCells ? name : otherCallers;
    const cell = callers.get(shown) ?? {
      classes: new Float64Array(6),
      refused: new Map(),
      waitedMs: new Float64Array(1),
    };
    if (shown === name) {
      this.#callerNames.add(name);
      this.#callerCells += 1;
    }
    callers.set(shown, cell);
    this.#callers.set(workspace, callers);
    return cell;
  }
}

/** Of each caller over all workspaces. */
export function sumByCaller(counts: readonly CallerCount[]): readonly CallerCount[] {
  return [...Map.groupBy(counts, ({ caller }) => caller)].map(([caller, own]) => {
    const classes = [0, 0, 0, 0, 0, 0];
    const refused: Record<string, number> = {};
    let waitedMs = 0;
    for (const one of own) {
      for (const [first, count] of one.classes.entries()) classes[first] = (classes[first] ?? 0) + count;
      for (const [code, count] of Object.entries(one.refused)) refused[code] = (refused[code] ?? 0) + count;
      waitedMs += one.waitedMs;
    }
    return { workspace: null, caller, classes, refused, waitedMs };
  });
}

/** Of the caller itself, or because too many wait for the upstream. */
function isRefusal(problem: string): boolean {
  return problem.startsWith('caller-') || problem === 'upstream-rate-limited' || problem === 'overloaded';
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

function increment<Name>(counts: Map<Name, number>, name: Name): void {
  counts.set(name, (counts.get(name) ?? 0) + 1);
}
