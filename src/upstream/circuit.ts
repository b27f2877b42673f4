/**
 * When the upstream is down, says so at once instead of letting every request find out. `circuit-policy.ts` decides;
 * here are the clock, the requests that wait, and the refusals.
 *
 * Not a library's (read: cockatiel, opossum): none can count a failure for a caller, an operation or the whole, tell
 * a caller when to come back, or end the waiting of requests that stand in line behind it.
 */
import { DependentClaim } from '../claim.ts';
import { GatewayError, type ProblemCode, type ProxyErrorType } from '../errors.ts';
import type { Answer, UpstreamRequest } from '../exchange.ts';
import type { Layer } from '../layer.ts';
import type { Trace } from '../trace.ts';
import {
  type Attempted,
  after,
  type CircuitState,
  closedCircuit,
  holdsUp,
  type Origin,
  type Outcome,
  outcomeOfStatus,
  type Permit,
  permitFor,
  withTrial,
} from './circuit-policy.ts';

export interface CircuitChange {
  readonly to: 'open' | 'closed';
  /** The one operation that it is about; without it, the upstream as a whole. */
  readonly operation?: string;
  /** What the last failure was: a problem code, or a status of the upstream. */
  readonly lastFailure: ProblemCode | number | undefined;
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

export interface BreakCircuitOptions {
  /** Called once for each change. Must not throw. */
  readonly onChange?: (change: CircuitChange) => void;
}

type LastFailure = GatewayError | number | undefined;

/** A request between this layer and its answer. */
interface Pending {
  readonly origin: Origin;
  readonly claim: DependentClaim;
  readonly trace: Trace;
  /** Attempts on its trace when it came. While there are no more, it waits in a layer below. */
  readonly attemptsBefore: number;
  readonly isTrial: boolean;
}

/**
 * Throws the last failure's problem, with the time until the next trial, for a request that an open circuit holds
 * up, and for those that wait below when the circuit opens. Belongs between `retry` and `gate`.
 */
export function breakCircuit(options: BreakCircuitOptions = {}): Circuit {
  const whole = new Breaker(undefined, options);
  /** As many as there are operations. */
  const operations = new Map<string, Breaker>();
  const pending: Pending[] = [];

  const breakerOf = (operation: string): Breaker => {
    let breaker = operations.get(operation);
    if (breaker === undefined) {
      breaker = new Breaker(operation, options);
      operations.set(operation, breaker);
    }
    return breaker;
  };

  const layer: Layer<UpstreamRequest, Answer> = (next) => async (request, trace) => {
    const origin = { caller: request.claim.turn.name, operation: request.operation };
    const own = breakerOf(request.operation);
    const wholePermit = whole.permit(origin);
    const ownPermit = wholePermit === 'refuse' ? 'refuse' : own.permit(origin);
    if (ownPermit === 'refuse') throw (wholePermit === 'refuse' ? whole : own).refusal();
    if (wholePermit === 'trial') whole.begin(origin);
    if (ownPermit === 'trial') own.begin(origin);
    const claim = new DependentClaim(request.claim);
    const isTrial = wholePermit === 'trial' || ownPermit === 'trial';
    const one: Pending = { origin, claim, trace, attemptsBefore: trace.attempts, isTrial };
    pending.push(one);

    const ended = (outcome: Outcome, failure: LastFailure): void => {
      pending.splice(pending.indexOf(one), 1);
      claim.release();
      own.ended({ outcome, origin, permit: ownPermit }, failure);
      whole.ended({ outcome, origin, permit: wholePermit }, failure);
      if (whole.isOpen || own.isOpen) refuseWaiting(pending, [whole, own]);
    };
    try {
      const answer = await next({ ...request, claim }, trace);
      ended(outcomeOfStatus(answer.status), answer.status);
      return answer;
    } catch (error) {
      const failure = error instanceof GatewayError ? error : undefined;
      ended(outcomeOf(failure, trace.attempts > one.attemptsBefore), failure);
      throw error;
    }
  };

  return {
    layer,
    snapshot() {
      const own = [...operations].map(([operation, breaker]) => ({ operation, ...breaker.snapshot() }));
      const [soonest] = own.toSorted((one, other) => one.probeInMs - other.probeInMs);
      const isWhole = whole.isOpen || own.some(({ state }) => state === 'closed') || soonest === undefined;
      const { state, failuresInARow, probeInMs } = isWhole ? whole.snapshot() : soonest;
      return { state, failuresInARow, probeInMs, operations: own };
    },
  };
}

/** Ends the waiting of requests that open circuits hold up. A trial goes on. */
function refuseWaiting(pending: readonly Pending[], breakers: readonly Breaker[]): void {
  for (const { origin, claim, trace, attemptsBefore, isTrial } of [...pending]) {
    if (isTrial || trace.attempts > attemptsBefore) continue;
    const breaker = breakers.find((one) => one.holdsUp(origin));
    if (breaker !== undefined) claim.end(breaker.refusal());
  }
}

/** One circuit: of the whole upstream, or of one operation. */
class Breaker {
  readonly #operation: string | undefined;
  readonly #onChange: BreakCircuitOptions['onChange'];
  #state: CircuitState;
  #lastFailure: LastFailure;

  constructor(operation: string | undefined, { onChange }: BreakCircuitOptions) {
    this.#operation = operation;
    this.#onChange = onChange;
    this.#state = closedCircuit(operation === undefined ? 'whole' : 'operation');
  }

  get isOpen(): boolean {
    return this.#state.isOpen;
  }

  permit(origin: Origin): Permit {
    return this.isOpen ? permitFor(this.#state, origin, performance.now()) : 'pass';
  }

  holdsUp(origin: Origin): boolean {
    return (this.#operation ?? origin.operation) === origin.operation && holdsUp(this.#state, origin);
  }

  begin(origin: Origin): void {
    this.#state = withTrial(this.#state, origin);
  }

  ended(attempt: Attempted, failure: LastFailure): void {
    const wasOpen = this.isOpen;
    this.#state = after(this.#state, attempt, performance.now());
    if (attempt.outcome !== 'answered' && attempt.outcome !== 'unknown') this.#lastFailure = failure;
    if (this.isOpen === wasOpen) return;
    const lastFailure =
      this.#lastFailure instanceof GatewayError ? this.#lastFailure.code : this.#lastFailure;
    const about = this.#operation === undefined ? {} : { operation: this.#operation };
    this.#onChange?.({ to: this.isOpen ? 'open' : 'closed', ...about, lastFailure });
  }

  refusal(): GatewayError {
    return problemOf(this.#lastFailure, Math.max(this.snapshot().probeInMs, 1_000));
  }

  snapshot(): BreakerSnapshot {
    const { failures, trialAtMs } = this.#state;
    const probeInMs = this.isOpen ? Math.max(trialAtMs - performance.now(), 0) : 0;
    return { state: this.isOpen ? 'open' : 'closed', failuresInARow: failures, probeInMs };
  }
}

/** What says that there is no connection: not the read, but the upstream. */
const connectFailures: ReadonlySet<ProxyErrorType | undefined> = new Set([
  'dns_error',
  'dns_timeout',
  'connection_refused',
  'connection_timeout',
  'tls_certificate_error',
  'tls_protocol_error',
]);

/** @param wasSent whether an attempt went up: a deadline that ends in a line says nothing about the upstream */
function outcomeOf(failure: GatewayError | undefined, wasSent: boolean): Outcome {
  // With a wait in it, it is the gateway's own refusal.
  if (failure === undefined || failure.retryAfterMs !== undefined || !wasSent) return 'unknown';
  switch (failure.code) {
    case 'upstream-unreachable':
    case 'upstream-timeout':
      // No attempt was made: others had all connections in use.
      if (failure.proxyError === 'connection_limit_reached') return 'unknown';
      return connectFailures.has(failure.proxyError) ? 'unreachable' : 'unanswered';
    // A refused key, or an answer that may not pass, is an answer all the same.
    case 'upstream-key-rejected':
    case 'upstream-invalid-response':
      return 'answered';
    default:
      return 'unknown';
  }
}

function problemOf(failure: LastFailure, retryAfterMs: number): GatewayError {
  const reason = 'the circuit is open: the upstream has only failed lately';
  if (!(failure instanceof GatewayError)) {
    const receivedStatus = failure === undefined ? {} : { receivedStatus: failure };
    const proxyError = 'destination_unavailable';
    return new GatewayError('upstream-unreachable', { retryAfterMs, reason, proxyError, ...receivedStatus });
  }
  const { code, proxyError, cause } = failure;
  return new GatewayError(code, {
    ...{ retryAfterMs, reason },
    ...(proxyError !== undefined && { proxyError }),
    ...(cause !== undefined && { cause }),
  });
}
