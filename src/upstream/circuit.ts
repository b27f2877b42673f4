/**
 * When the upstream is down, says so at once instead of letting everybody find out.
 *
 * Its own and not a library's, for what the library would have to be talked out of (read: cockatiel, opossum):
 * the clock is the wall's, whoever comes during a probe waits for it instead of being answered, a probe that ends
 * in an error of another kind (an abort, our own overload) counts as a success, there is nothing to tell a caller
 * about when to come back, and neither can empty a queue that stands behind it. What remains to be written is
 * `circuit-policy.ts`, fifty lines without a clock.
 */
import { GatewayError, type ProblemCode } from '../errors.ts';
import { andThen, type Layer } from '../layer.ts';
import {
  after,
  type CircuitOptions,
  type CircuitState,
  closed,
  mayPass,
  type Sign,
} from './circuit-policy.ts';
import type { Answer, UpstreamRequest } from './exchange.ts';

export interface CircuitChange {
  readonly to: 'open' | 'closed';
  /** What the last failure was: a problem code, or a status of the upstream. */
  readonly lastFailure: ProblemCode | number | undefined;
}

export interface BreakCircuitOptions extends Partial<CircuitOptions> {
  /** Called when the circuit opens: whoever waits for a turn need not wait any longer. */
  readonly onOpen?: (failure: () => GatewayError) => void;
  /** Called once for each change. Must not throw. */
  readonly onChange?: (change: CircuitChange) => void;
}

export interface CircuitSnapshot {
  readonly state: 'closed' | 'open';
  readonly failuresInARow: number;
  /** When the upstream is asked again, in ms from now; 0 when closed or due. */
  readonly probeInMs: number;
}

export interface Circuit {
  readonly layer: Layer<UpstreamRequest, Answer>;
  snapshot(): CircuitSnapshot;
}

type LastFailure = GatewayError | number;

/**
 * Opens after ten failures in a row without a success for a second; asks again with one request after 1 s, 2 s and
 * so on up to 30 s; closes on any answer that is no 5xx. While it is open it throws the last failure's problem with
 * the time of the next probe. Belongs between `retry` and `gate`.
 */
export function breakCircuit(options: BreakCircuitOptions = {}): Circuit {
  const rules: CircuitOptions = {
    openAfter: options.openAfter ?? 10,
    quietMs: options.quietMs ?? 1000,
    firstProbeMs: options.firstProbeMs ?? 1000,
    longestProbeMs: options.longestProbeMs ?? 30_000,
  };
  let state: CircuitState = closed;
  let lastFailure: LastFailure | undefined;

  const refusal = (): GatewayError => {
    const probeInMs = state.kind === 'open' ? state.probeAtMs - performance.now() : 0;
    return problemOf(lastFailure, Math.max(probeInMs, 1000));
  };

  const ended = (sign: Sign, failure: LastFailure | undefined, isProbe: boolean): void => {
    if (failure !== undefined) lastFailure = failure;
    const before = state;
    state = after(state, sign, isProbe, performance.now(), rules);
    if (before.kind === state.kind) return;
    const shown = typeof lastFailure === 'number' ? lastFailure : lastFailure?.code;
    options.onChange?.({ to: state.kind, lastFailure: shown });
    if (state.kind === 'open') options.onOpen?.(refusal);
  };

  const layer: Layer<UpstreamRequest, Answer> = (next) => (request, trace) => {
    const passage = mayPass(state, performance.now());
    if (passage === 'refuse') throw refusal();
    const isProbe = passage === 'probe';
    if (isProbe && state.kind === 'open') state = { ...state, isProbing: true };
    const onFailure = (error: unknown): never => {
      const sign = signOfError(error);
      ended(sign, sign === 'failing' ? (error as GatewayError) : undefined, isProbe);
      throw error;
    };
    try {
      return andThen(
        next(request, trace),
        (answer) => {
          const isFailing = answer.status >= 500;
          ended(isFailing ? 'failing' : 'alive', isFailing ? answer.status : undefined, isProbe);
          return answer;
        },
        onFailure,
      );
    } catch (error) {
      return onFailure(error);
    }
  };

  return {
    layer,
    snapshot: () => ({
      state: state.kind,
      failuresInARow: state.kind === 'closed' ? state.failures : rules.openAfter + state.probeFailures,
      probeInMs: state.kind === 'open' ? Math.max(state.probeAtMs - performance.now(), 0) : 0,
    }),
  };
}

function signOfError(error: unknown): Sign {
  if (!(error instanceof GatewayError)) return 'silent';
  // With a wait in it, it is our own word and not news from the upstream.
  if (error.retryAfterMs !== undefined) return 'silent';
  if (error.code === 'upstream-unreachable' || error.code === 'upstream-timeout') return 'failing';
  // A refused key or an answer that may not pass was an answer all the same.
  return error.code === 'upstream-key-rejected' || error.code === 'upstream-invalid-response'
    ? 'alive'
    : 'silent';
}

function problemOf(failure: LastFailure | undefined, retryAfterMs: number): GatewayError {
  const reason = 'the circuit is open: the upstream has only failed lately';
  if (failure instanceof GatewayError) {
    const { code, proxyError, cause } = failure;
    return new GatewayError(code, {
      retryAfterMs,
      reason,
      ...(proxyError !== undefined && { proxyError }),
      ...(cause !== undefined && { cause }),
    });
  }
  return new GatewayError('upstream-unreachable', {
    retryAfterMs,
    reason,
    proxyError: 'destination_unavailable',
    ...(failure !== undefined && { receivedStatus: failure }),
  });
}
