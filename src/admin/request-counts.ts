/**
 * Counts requests: one increment for each access line. Every cache hit passes here, so a cell is found by comparing the
 * members of the line, and nothing is allocated: no label, no key, no object.
 */

import type { ProblemGroup } from '../browser/console/status.ts';
import type { AccessLine } from '../edge/access-log.ts';
import { isOwnRequestId } from '../edge/request-ids.ts';
import { isProblemCode, type ProblemCode } from '../errors.ts';
import { Durations, type DurationsSnapshot, toTime } from '../exchange/figures.ts';
import { type CallerCount, CallerCounts, type CallerDay } from './caller-counts.ts';

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

/** An upstream may send any status: combinations of one operation beyond this many are counted as one. */
const maxCells = 100;
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
  readonly #callers = new CallerCounts();
  readonly #problems = new Map<string, number>();
  /** By workspace. */
  readonly #problemSums = new Map<string | undefined, number>();
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
      increment(this.#problemSums, line.workspace);
      this.#groups.count(problem, line, Date.now());
      this.#recent = withRecent(this.#recent, problem, line);
    }
    this.#callers.count(line, cell.isFromMemory, problem);
  };

  readonly today = (caller: string): CallerDay | undefined => this.#callers.today(caller);

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
      callers: this.#callers.snapshot(),
      problems: [...this.#problemSums].map(([workspace = null, count]) => ({ workspace, count })),
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
  const oldest = groups.toSorted((one, other) => other.length - one.length)[0]?.at(-1);
  return all.filter((one) => one !== oldest);
}

function increment<Name>(counts: Map<Name, number>, name: Name): void {
  counts.set(name, (counts.get(name) ?? 0) + 1);
}

interface Group {
  readonly workspace: string | undefined;
  readonly code: string;
  readonly callers: Set<string>;
  readonly sinceMs: number;
  lastMs: number;
  count: number;
  requestId: string | undefined;
  cause: string | undefined;
}

/** After so long without one, the next begins a new group. */
const quietMs = 5 * 60_000;
const maxGroups = 100;
const maxCallers = 50;
const shownCallers = 5;

/** Problems of callers by code, for people: how many, since when, whose, and what the operator can do about them. */
class ProblemGroups {
  /** The one that was seen longest ago first. */
  readonly #groups = new Map<string, Group>();

  count(code: string, { workspace, caller, requestId, cause, reason }: AccessLine, nowMs: number): void {
    const key = `${code} ${workspace ?? ''}`;
    const known = this.#groups.get(key);
    const isOver = known === undefined || nowMs - known.lastMs > quietMs;
    const group: Group = isOver
      ? {
          ...{ workspace, code, callers: new Set(), sinceMs: nowMs, lastMs: nowMs, count: 0 },
          ...{ requestId: undefined, cause: undefined },
        }
      : known;
    group.count += 1;
    group.lastMs = nowMs;
    // No failure lies behind a turn that would come too late: its reason names the setting.
    const why = cause ?? (code === 'upstream-rate-limited' ? reason : undefined);
    group.cause = why && inAWord(why);
    if (isOwnRequestId(requestId)) group.requestId = requestId;
    if (caller !== undefined && group.callers.size < maxCallers) group.callers.add(caller);
    this.#groups.delete(key);
    this.#groups.set(key, group);
    const [oldest = key] = this.#groups.keys();
    if (this.#groups.size > maxGroups) this.#groups.delete(oldest);
  }

  /** The latest first. */
  snapshot(): readonly ProblemGroup[] {
    return [...this.#groups.values()].reverse().map((one) => ({
      workspace: one.workspace ?? null,
      code: one.code,
      count: one.count,
      callers: [...one.callers].slice(0, shownCallers),
      callerCount: one.callers.size,
      since: toTime(one.sinceMs),
      lastAt: toTime(one.lastMs),
      requestId: one.requestId ?? null,
      cause: one.cause ?? null,
      todo: todos[isProblemCode(one.code) ? one.code : 'internal-error'],
    }));
  }
}

/** The code of the system or of a library, or the setting, where one is named. */
function inAWord(cause: string): string {
  return /\b[A-Z][A-Z\d]*_?[A-Z\d_]{3,}\b/.exec(cause)?.[0] ?? cause.slice(0, 80);
}

const callersOwn = 'Tell the writer of that caller: its request is wrong, and the problem’s detail says how.';
const seeLog = 'Search the log for the request id: its line has the reason.';

/** For the operator; `errors.ts` has what the caller is told. */
const todos: Readonly<Record<ProblemCode, string>> = {
  'caller-unauthenticated':
    'See in the log who asks (address, reason), and give it a token that is in force.',
  'caller-forbidden':
    'Grant what the log names with "analytics-gateway token grant", if the caller may have it.',
  'origin-not-allowed': 'Add the page’s origin to CORS_ORIGINS, if it may use the gateway.',
  'caller-rate-limited': 'Nothing, if the limit is meant; else raise the caller’s limit in the callers file.',
  'host-not-allowed': 'Add the name that callers use to ALLOWED_HOSTS.',
  'invalid-request': callersOwn,
  'uri-too-long': callersOwn,
  'unknown-operation': 'Tell the caller which reads there are, or allow the read in UPSTREAM_READS.',
  'method-not-allowed': callersOwn,
  'upstream-rate-limited':
    'Give the caller that asks most a limit or a smaller weight, or raise CACHE_TTL; raise UPSTREAM_LIMIT where it tells less than the upstream allows, and REQUEST_TIMEOUT where callers can wait longer.',
  'upstream-key-rejected': 'Put a key that the upstream accepts into the secret store; it is used at once.',
  'upstream-key-missing': 'Make the secret store give the key; the gateway asks it again by itself.',
  'upstream-unreachable': 'Run "analytics-gateway check"; see network, DNS and the upstream’s own state.',
  'upstream-invalid-response': seeLog,
  'upstream-timeout': 'Tell those who run the upstream; where it is only slow, raise UPSTREAM_TIMEOUT.',
  'not-in-cache': 'Nothing: the caller asked for stored answers alone.',
  overloaded: 'Give the caller with most requests waiting a limit; see "Waiting" of the callers.',
  'shutting-down': 'Nothing: another gateway, or the next one here, answers.',
  'internal-error': 'Search the log for the request id, and report the fault with its line.',
};
