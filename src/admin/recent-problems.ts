/** The last requests that got a problem, for people: who, what, when, and where to look in the log. */
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
    this.#kept = [one, ...this.#kept.slice(0, mostKept - 1)];
  }

  /** Newest first. */
  list(): readonly RecentProblem[] {
    return this.#kept;
  }
}
