/**
 * Whether the upstream is down, and when to ask it again. Pure: no `this`, no I/O, no clock.
 *
 * Down means: nothing but failures for a while and several of them. A share of failures, however large, is not
 * down: one success starts the count anew.
 *
 * What fails may be one operation and not the upstream. So a plain 5xx (a 500, a 501), which only its application
 * can have sent, counts against its operation alone, each of which has a circuit of its own. What says that the
 * upstream is not there (no connection, no answer in time, a 502, 503 or 504) counts together, for all operations;
 * but one that has not failed since the last success need not wait for the time of the next probe: it is one.
 */

export interface CircuitOptions {
  /** So many failures in a row, */
  readonly openAfter: number;
  /** and no success for so long, ms, open the circuit. */
  readonly quietMs: number;
  /** The upstream is asked again after this long, ms; the interval doubles with each failed probe. */
  readonly firstProbeMs: number;
  readonly longestProbeMs: number;
}

export type CircuitState =
  | {
      readonly kind: 'closed';
      readonly failures: number;
      readonly firstFailureMs: number;
      /** The operations that have failed since the last success. */
      readonly failed: ReadonlySet<string>;
    }
  /** `probeFailures`: failed probes in a row. `isProbing`: one is under way. */
  | {
      readonly kind: 'open';
      readonly probeAtMs: number;
      readonly probeFailures: number;
      readonly isProbing: boolean;
      readonly failed: ReadonlySet<string>;
    };

/** What an attempt says. `silent`: nothing. */
export type Sign = 'alive' | 'failing' | 'silent';

/** The same for the upstream as a whole and for the operation. */
export interface Signs {
  readonly whole: Sign;
  readonly operation: Sign;
}

export const closed: CircuitState = { kind: 'closed', failures: 0, firstFailureMs: 0, failed: new Set() };

const alive: Signs = { whole: 'alive', operation: 'alive' };
const down: Signs = { whole: 'failing', operation: 'silent' };
const broken: Signs = { whole: 'alive', operation: 'failing' };
const nothing: Signs = { whole: 'silent', operation: 'silent' };
export const signs = { alive, down, nothing } as const;

/** What an answer says. A 429 is a sign of life. */
export function signsOfStatus(status: number): Signs {
  if (status < 500) return alive;
  return status >= 502 && status <= 504 ? down : broken;
}

/** Whether an attempt may go, and whether it is the probe. */
export function mayPass(state: CircuitState, operation: string, nowMs: number): 'pass' | 'probe' | 'refuse' {
  if (state.kind === 'closed') return 'pass';
  const isDue = nowMs >= state.probeAtMs || !state.failed.has(operation);
  return !state.isProbing && isDue ? 'probe' : 'refuse';
}

/** What an attempt that has ended makes of the state. */
export function after(
  state: CircuitState,
  { sign, operation, isProbe }: { sign: Sign; operation: string; isProbe: boolean },
  nowMs: number,
  options: CircuitOptions,
): CircuitState {
  if (state.kind === 'closed') {
    if (sign === 'silent') return state;
    if (sign === 'alive') return closed;
    const failures = state.failures + 1;
    const firstFailureMs = state.failures === 0 ? nowMs : state.firstFailureMs;
    const failed = withOne(state.failed, operation);
    if (failures < options.openAfter || nowMs - firstFailureMs < options.quietMs) {
      return { kind: 'closed', failures, firstFailureMs, failed };
    }
    return {
      kind: 'open',
      probeAtMs: nowMs + options.firstProbeMs,
      probeFailures: 0,
      isProbing: false,
      failed,
    };
  }
  // Sent before the circuit opened: late news.
  if (!isProbe) return state;
  if (sign === 'alive') return closed;
  if (sign === 'silent') return { ...state, isProbing: false };
  const probeFailures = state.probeFailures + 1;
  const waitMs = Math.min(options.firstProbeMs * 2 ** probeFailures, options.longestProbeMs);
  const failed = withOne(state.failed, operation);
  return { kind: 'open', probeAtMs: nowMs + waitMs, probeFailures, isProbing: false, failed };
}

function withOne(all: ReadonlySet<string>, one: string): ReadonlySet<string> {
  return all.has(one) ? all : new Set([...all, one]);
}
