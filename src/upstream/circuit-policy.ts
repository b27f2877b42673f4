/**
 * Whether the upstream is down, and when to ask it again. Pure: no `this`, no I/O, no clock.
 *
 * Down means: nothing but failures for a while and several of them. A share of failures, however large, is not
 * down: one success starts the count anew.
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
  | { readonly kind: 'closed'; readonly failures: number; readonly firstFailureMs: number }
  /** `probeFailures`: failed probes in a row. `isProbing`: one is under way. */
  | {
      readonly kind: 'open';
      readonly probeAtMs: number;
      readonly probeFailures: number;
      readonly isProbing: boolean;
    };

/** `alive`: any answer that is no 5xx, a 429 too. `silent`: it says nothing about the upstream. */
export type Sign = 'alive' | 'failing' | 'silent';

export const closed: CircuitState = { kind: 'closed', failures: 0, firstFailureMs: 0 };

/** Whether an attempt may go, and whether it is the probe. */
export function mayPass(state: CircuitState, nowMs: number): 'pass' | 'probe' | 'refuse' {
  if (state.kind === 'closed') return 'pass';
  return !state.isProbing && nowMs >= state.probeAtMs ? 'probe' : 'refuse';
}

/** What an attempt that has ended makes of the state. */
export function after(
  state: CircuitState,
  sign: Sign,
  isProbe: boolean,
  nowMs: number,
  options: CircuitOptions,
): CircuitState {
  if (state.kind === 'closed') {
    if (sign === 'silent') return state;
    if (sign === 'alive') return closed;
    const failures = state.failures + 1;
    const firstFailureMs = state.failures === 0 ? nowMs : state.firstFailureMs;
    if (failures < options.openAfter || nowMs - firstFailureMs < options.quietMs) {
      return { kind: 'closed', failures, firstFailureMs };
    }
    return { kind: 'open', probeAtMs: nowMs + options.firstProbeMs, probeFailures: 0, isProbing: false };
  }
  // Sent before the circuit opened: late news.
  if (!isProbe) return state;
  if (sign === 'alive') return closed;
  if (sign === 'silent') return { ...state, isProbing: false };
  const probeFailures = state.probeFailures + 1;
  const waitMs = Math.min(options.firstProbeMs * 2 ** probeFailures, options.longestProbeMs);
  return { kind: 'open', probeAtMs: nowMs + waitMs, probeFailures, isProbing: false };
}
