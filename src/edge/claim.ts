/**
 * How long one caller waits, and that it may leave. Made for every forwarded request, armed (a signal, a timer, a
 * listener) only when something actually waits: a cache hit never pays for it.
 */
import { GatewayError } from '../errors.ts';
import type { Claim, Turn } from '../upstream/exchange.ts';
import type { InboundRequest } from './inbound.ts';

/** The caller closed its connection before it was answered. Nothing is sent; the log says 499. */
export class CallerLeft extends Error {
  override readonly name = 'CallerLeft';
  constructor() {
    super('the caller left before it was answered');
  }
}

class CallerClaim implements Claim {
  readonly deadlineMs: number;
  readonly turn: Turn;
  readonly #request: InboundRequest;
  readonly #armed: Set<CallerClaim>;
  #controller: AbortController | undefined;
  #timer: NodeJS.Timeout | undefined;
  #stopListening: (() => void) | undefined;

  constructor(request: InboundRequest, deadlineMs: number, turn: Turn, armed: Set<CallerClaim>) {
    this.#request = request;
    this.deadlineMs = deadlineMs;
    this.turn = turn;
    this.#armed = armed;
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      this.#armed.add(this);
      this.#stopListening = this.#request.onLeave(() => this.abandon(new CallerLeft()));
      this.#timer = setTimeout(
        () => this.abandon(new GatewayError('upstream-timeout', { reason: 'REQUEST_TIMEOUT ran out' })),
        this.deadlineMs - performance.now(),
      );
    }
    return this.#controller.signal;
  }

  /** One caller never changes its mind; only shared claims do. */
  onChange(): () => void {
    return () => {};
  }

  abandon(reason: Error): void {
    this.#controller?.abort(reason);
  }

  /** The request is answered: nothing is waited for any more. */
  release(): void {
    if (this.#controller === undefined) return;
    clearTimeout(this.#timer);
    this.#stopListening?.();
    this.#armed.delete(this);
  }
}

export type { CallerClaim };

export interface Claims {
  open(request: InboundRequest, deadlineMs: number, turn: Turn): CallerClaim;
  /** Ends all waiting, as when the time to stop has come. */
  abandonAll(reason: Error): void;
  /** How many wait at the moment. */
  readonly waiting: number;
}

export function createClaims(): Claims {
  const armed = new Set<CallerClaim>();
  return {
    open: (request, deadlineMs, turn) => new CallerClaim(request, deadlineMs, turn, armed),
    abandonAll(reason) {
      for (const claim of armed) claim.abandon(reason);
    },
    get waiting() {
      return armed.size;
    },
  };
}
