/**
 * The deadline of a caller's request, and its end when the caller leaves. Made for every forwarded request; its timer
 * and listener are made only when a layer waits, so a cache hit costs neither.
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
  /** Its index among the armed claims; -1 while it is not armed. */
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

  /** The request is answered: removes timer and listener. */
  release(): void {
    if (this.#place === -1) return;
    clearTimeout(this.#timer);
    this.#request.offAbort(this.#onAbort);
    // The last claim takes its place. A Set would be rebuilt every few requests, and V8 keeps the members of its
    // former tables until the next full collection.
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
    // Node warns of a negative delay.
    this.#timer = setTimeout(expire, Math.max(0, this.deadlineMs - performance.now()), this);
  }
}

function expire(claim: CallerClaim): void {
  claim.abandon(new GatewayError('upstream-timeout', { reason: 'REQUEST_TIMEOUT ran out' }));
}

export type { CallerClaim };

export interface Claims {
  open(request: InboundRequest, deadlineMs: number, turn: Turn): CallerClaim;
  /** Ends all armed claims: the gateway stops. */
  abandonAll(reason: Error): void;
  /** How many claims are armed: requests that wait. */
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
