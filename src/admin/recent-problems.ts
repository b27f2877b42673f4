/**
 * The last requests that got a problem, for people: who, what, when, and where to look in the log. The caller with most of
 * them makes room for the next, so that one caller's problems do not hide those of all others.
 */
import type { AccessLine } from '../edge/access-log.ts';
import { isOwnRequestId } from '../edge/request-id.ts';

export interface RecentProblem {
  /** Wall clock, ms. */
  readonly at: number;
  readonly caller: string | undefined;
  /** `undefined` for the unnamed workspace, and where none was known. */
  readonly workspace: string | undefined;
  readonly operation: string | undefined;
  readonly code: string;
  /** `undefined` where the caller chose it: nothing that callers send is shown. */
  readonly requestId: string | undefined;
}

const mostKept = 20;

export class RecentProblems {
  #kept: readonly RecentProblem[] = [];

  add(code: string, { caller, workspace, operation, requestId }: AccessLine): void {
    const own = isOwnRequestId(requestId) ? requestId : undefined;
    const one = { at: Date.now(), caller, workspace, operation, code, requestId: own };
    const kept = [one, ...this.#kept];
    const eldest = kept.length > mostKept ? eldestOfMost(kept) : undefined;
    this.#kept = kept.filter((each) => each !== eldest);
  }

  /** Newest first. */
  list(): readonly RecentProblem[] {
    return this.#kept;
  }
}

/** The eldest of the caller that has most; of all that are not known to be a caller's together, where these are most. */
function eldestOfMost(kept: readonly RecentProblem[]): RecentProblem | undefined {
  const groups = [...Map.groupBy(kept, ({ caller }) => caller).values()];
  return groups.toSorted((one, other) => other.length - one.length)[0]?.at(-1);
}
