/**
 * When the upstream is down, says so at once instead of letting everybody find out.
 *
 * Its own and not a library's, for what the library would have to be talked out of (read: cockatiel, opossum):
 * the clock is the wall's, whoever comes during a probe waits for it instead of being answered, a probe that ends
 * in an error of another kind (an abort, our own overload) counts as a success, there is nothing to tell a caller
 * about when to come back, and neither can empty a queue that stands behind it. What remains to be written is
 * `circuit-policy.ts`, a hundred lines without a clock.
 */
import { GatewayError, type ProblemCode } from '../errors.ts';
import type { Answer, UpstreamRequest } from '../exchange.ts';
import { andThen, type Layer } from '../layer.ts';
import {
  after,
  type CircuitOptions,
  type CircuitState,
  closed,
  mayPass,
  type Sign,
  type Signs,
  signs,
  signsOfStatus,
} from './circuit-policy.ts';

export interface CircuitChange {
  readonly to: 'open' | 'closed';
  /** The one operation that it is about; without it, the upstream as a whole. */
  readonly operation?: string;
  /** What the last failure was: a problem code, or a status of the upstream. */
  readonly lastFailure: ProblemCode | number | undefined;
}

export interface BreakCircuitOptions extends Partial<CircuitOptions> {
  /** Called when the circuit of the whole upstream opens: whoever waits for a turn need not wait any longer. */
  readonly onOpen?: (failure: () => GatewayError) => void;
  /** Called once for each change. Must not throw. */
  readonly onChange?: (change: CircuitChange) => void;
}

/** One circuit as it is now. */
export interface BreakerSnapshot {
  readonly state: 'closed' | 'open';
  readonly failuresInARow: number;
  /** When the upstream is asked again, in ms from now; 0 when closed or due. */
  readonly probeInMs: number;
}

/** Of the upstream as a whole; it is open as well where each operation that was asked is. */
export interface CircuitSnapshot extends BreakerSnapshot {
  /** The operations' own circuits, of all that were asked. */
  readonly operations: readonly (BreakerSnapshot & { readonly operation: string })[];
}

export interface Circuit {
  readonly layer: Layer<UpstreamRequest, Answer>;
  snapshot(): CircuitSnapshot;
}

type LastFailure = GatewayError | number;

/** One circuit: of the upstream, or of one operation. */
interface Breaker {
  readonly state: CircuitState;
  /** Whether an attempt may go. A probe is under way from then on, if `take` is called. */
  passage(operation: string): 'pass' | 'probe' | 'refuse';
  take(): void;
  refusal(): GatewayError;
  ended(sign: Sign, failure: LastFailure | undefined, operation: string, isProbe: boolean): void;
}

function trackFailures(rules: CircuitOptions, onChange: (change: CircuitChange) => void): Breaker {
  let state: CircuitState = closed;
  let lastFailure: LastFailure | undefined;
  return {
    get state() {
      return state;
    },
    passage: (operation) => (state.kind === 'closed' ? 'pass' : mayPass(state, operation, performance.now())),
    take() {
      if (state.kind === 'open') state = { ...state, isProbing: true };
    },
    refusal() {
      const probeInMs = state.kind === 'open' ? state.probeAtMs - performance.now() : 0;
      return problemOf(lastFailure, Math.max(probeInMs, 1000));
    },
    ended(sign, failure, operation, isProbe) {
      if (sign === 'failing') lastFailure = failure;
      const before = state.kind;
      state = after(state, { sign, operation, isProbe }, performance.now(), rules);
      if (before === state.kind) return;
      const shown = typeof lastFailure === 'number' ? lastFailure : lastFailure?.code;
      onChange({ to: state.kind, lastFailure: shown });
    },
  };
}

/**
 * Opens after ten failures in a row without a success for a second; asks again with one request after 1 s, 2 s and
 * so on up to 30 s; closes when that is answered. While it is open it throws the last failure's problem with the
 * time of the next probe. An operation that is answered by plain 5xx only has a circuit of its own and leaves the
 * others alone. Belongs between `retry` and `gate`.
 */
export function breakCircuit(options: BreakCircuitOptions = {}): Circuit {
  const rules: CircuitOptions = {
    openAfter: options.openAfter ?? 10,
    quietMs: options.quietMs ?? 1000,
    firstProbeMs: options.firstProbeMs ?? 1000,
    longestProbeMs: options.longestProbeMs ?? 30_000,
  };
  const whole = trackFailures(rules, (change) => {
    options.onChange?.(change);
    if (change.to === 'open') options.onOpen?.(whole.refusal);
  });
  /** As many as there are operations. */
  const operations = new Map<string, Breaker>();

  const breakerOf = (operation: string): Breaker => {
    let breaker = operations.get(operation);
    if (breaker === undefined) {
      breaker = trackFailures(rules, (change) => options.onChange?.({ ...change, operation }));
      operations.set(operation, breaker);
    }
    return breaker;
  };

  const layer: Layer<UpstreamRequest, Answer> = (next) => (request, trace) => {
    const { operation } = request;
    const own = breakerOf(operation);
    const passage = whole.passage(operation);
    if (passage === 'refuse') throw whole.refusal();
    const ownPassage = own.passage(operation);
    if (ownPassage === 'refuse') throw own.refusal();
    const isProbe = passage === 'probe';
    const isOwnProbe = ownPassage === 'probe';
    if (isProbe) whole.take();
    if (isOwnProbe) own.take();
    const ended = (said: Signs, failure: LastFailure | undefined): void => {
      own.ended(said.operation, failure, operation, isOwnProbe);
      whole.ended(said.whole, failure, operation, isProbe);
    };
    const onFailure = (error: unknown): never => {
      ended(signsOfError(error), error instanceof GatewayError ? error : undefined);
      throw error;
    };
    try {
      return andThen(
        next(request, trace),
        (answer) => {
          ended(signsOfStatus(answer.status), answer.status);
          return answer;
        },
        onFailure,
      );
    } catch (error) {
      return onFailure(error);
    }
  };

  const shown = ({ state }: Breaker, nowMs: number): BreakerSnapshot => ({
    state: state.kind,
    failuresInARow: state.kind === 'closed' ? state.failures : rules.openAfter + state.probeFailures,
    probeInMs: state.kind === 'open' ? Math.max(state.probeAtMs - nowMs, 0) : 0,
  });

  return {
    layer,
    snapshot() {
      const nowMs = performance.now();
      const own = [...operations.values()];
      const isWhole = whole.state.kind === 'open' || own.some(({ state }) => state.kind === 'closed');
      return {
        ...shown(isWhole ? whole : (soonest(own) ?? whole), nowMs),
        operations: [...operations].map(([operation, breaker]) => ({ operation, ...shown(breaker, nowMs) })),
      };
    },
  };
}

/** Of circuits that are open, the one whose probe comes first. */
function soonest(breakers: readonly Breaker[]): Breaker | undefined {
  const probeAtMs = ({ state }: Breaker): number => (state.kind === 'open' ? state.probeAtMs : 0);
  return breakers.toSorted((one, other) => probeAtMs(one) - probeAtMs(other))[0];
}

function signsOfError(error: unknown): Signs {
  if (!(error instanceof GatewayError)) return signs.nothing;
  // With a wait in it, it is our own word and not news from the upstream.
  if (error.retryAfterMs !== undefined) return signs.nothing;
  if (error.code === 'upstream-unreachable' || error.code === 'upstream-timeout') return signs.down;
  // A refused key or an answer that may not pass was an answer all the same.
  return error.code === 'upstream-key-rejected' || error.code === 'upstream-invalid-response'
    ? signs.alive
    : signs.nothing;
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
