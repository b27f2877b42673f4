/** Problems of callers by code, for people: how many, since when, whose, and what the operator can do about them. */
import type { AccessLine } from '../edge/access-log.ts';
import { isOwnRequestId } from '../edge/request-ids.ts';
import { isProblemCode, type ProblemCode } from '../errors.ts';
import { toTime } from '../exchange/durations.ts';

export interface ProblemGroup {
  /** Null for the unnamed workspace, and where none was known. */
  readonly workspace: string | null;
  readonly code: string;
  readonly count: number;
  /** The first few of the callers that got it, and how many they are; those beyond 50 are not counted. */
  readonly callers: readonly string[];
  readonly callerCount: number;
  readonly since: string;
  readonly lastAt: string;
  /** Of the last one that the gateway has numbered itself: nothing that callers send is shown. */
  readonly requestId: string | null;
  /** What lay behind the last one, as ECONNREFUSED, or the setting that decided. */
  readonly cause: string | null;
  /** What to do about it, in one sentence. */
  readonly todo: string;
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

export class ProblemGroups {
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
    const [eldest = key] = this.#groups.keys();
    if (this.#groups.size > maxGroups) this.#groups.delete(eldest);
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
