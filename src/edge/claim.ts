/**
 * How long one caller waits, and that it may leave. Made for every forwarded request, armed (a timer, a listener)
 * only when something actually waits: a cache hit never pays for it.
 */
import { type Claim, type ClaimWatcher, type Turn, WatchedClaim } from '../claim.ts';
import { GatewayError } from '../errors.ts';
import type { InboundRequest } from './inbound.ts';

/** The caller closed its connection before it was answered. Nothing is sent; the log says 499. */
export class CallerLeft extends Error {
  override readonly name = 'CallerLeft';
  constructor() {
    super('the caller left before it was answered');
  }
}

class CallerClaim extends WatchedClaim implements Claim {
  readonly deadlineMs: number;
  readonly turn: Turn;
  readonly #request: InboundRequest;
  readonly #armed: CallerClaim[];
  /** Where it stands among the armed ones; -1 while nothing waits. */
  #place = -1;
  #timer: NodeJS.Timeout | undefined;
  readonly #onAbort = (): void => this.abandon(new CallerLeft());

  constructor(request: InboundRequest, deadlineMs: number, turn: Turn, armed: CallerClaim[]) {
    super();
    this.#request = request;
    this.deadlineMs = deadlineMs;
    this.turn = turn;
    this.#armed = armed;
  }

  override get signal(): AbortSignal {
    this.#arm();
    return super.signal;
  }

  override watch(watcher: ClaimWatcher): void {
    this.#arm();
    super.watch(watcher);
  }

  abandon(reason: Error): void {
    this.end(reason);
  }

  /** The request is answered: nothing is waited for any more. */
  release(): void {
    if (this.#place === -1) return;
    clearTimeout(this.#timer);
    this.#request.offAbort(this.#onAbort);
    // The last one takes its place: a set would be made anew every few requests, and its former selves keep what
    // they held alive until the next full collection.
    const last = this.#armed.pop();
    if (last !== undefined && last !== this) {
      this.#armed[this.#place] = last;
      last.#place = this.#place;
    }
    this.#place = -1;
  }

  #arm(): void {
    if (this.#place !== -1) return;
    this.#place = this.#armed.push(this) - 1;
    this.#request.onAbort(this.#onAbort);
    this.#timer = setTimeout(expire, this.deadlineMs - performance.now(), this);
  }
}

function expire(claim: CallerClaim): void {
  claim.abandon(new GatewayError('upstream-timeout', { reason: 'REQUEST_TIMEOUT ran out' }));
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
  const armed: CallerClaim[] = [];
  return {
    open: (request, deadlineMs, turn) => new CallerClaim(request, deadlineMs, turn, armed),
    abandonAll(reason) {
      for (const claim of [...armed]) claim.abandon(reason);
    },
    get waiting() {
      return armed.length;
    },
  };
}
