/**
 * The deadline of a caller's request, and its end when the caller leaves. Made for every forwarded request; its timer
 * and listener are made only when a layer waits, so a cache hit costs neither.
 */

import { GatewayError } from '../errors.ts';
import {
  type ContextWatcher,
  type Flow,
  type RequestContext,
  WatchedContext,
} from '../exchange/request-context.ts';
import type { InboundRequest } from './inbound.ts';

/** The caller closed its connection before it was answered. Nothing is sent; the log says 499. */
export class CallerLeft extends Error {
  override readonly name = 'CallerLeft';
  constructor() {
    super('the caller left before it was answered');
  }
}

class CallerContext extends WatchedContext implements RequestContext {
  readonly deadlineMs: number;
  readonly flow: Flow;
  /** Not made for a cache hit. */
  #flows: readonly Flow[] | undefined;
  readonly #request: InboundRequest;
  readonly #armed: CallerContext[];
  /** Its index among the armed contexts; -1 while it is not armed. */
  #place = -1;
  #timer: NodeJS.Timeout | undefined;
  readonly #onAbort = (): void => this.end(new CallerLeft());

  constructor(request: InboundRequest, deadlineMs: number, flow: Flow, armed: CallerContext[]) {
    super();
    this.#request = request;
    this.deadlineMs = deadlineMs;
    this.flow = flow;
    this.#armed = armed;
  }

  get flows(): readonly Flow[] {
    this.#flows ??= [this.flow];
    return this.#flows;
  }

  override get signal(): AbortSignal {
    this.#arm();
    return super.signal;
  }

  override watch(watcher: ContextWatcher): void {
    this.#arm();
    super.watch(watcher);
  }

  /** The request is answered: removes timer and listener. */
  release(): void {
    if (this.#place === -1) return;
    clearTimeout(this.#timer);
    this.#request.offAbort(this.#onAbort);
    // The last context takes its place. A Set would be rebuilt every few requests, and V8 keeps the members of its
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

function expire(context: CallerContext): void {
  context.end(new GatewayError('upstream-timeout', { reason: 'REQUEST_TIMEOUT ran out' }));
}

export type { CallerContext };

export interface CallerContexts {
  open(request: InboundRequest, deadlineMs: number, flow: Flow): CallerContext;
  /** Ends all armed contexts: the gateway stops. */
  abandonAll(reason: Error): void;
  /** How many contexts are armed: requests that wait. */
  readonly waiting: number;
}

export function createContexts(): CallerContexts {
  const armed: CallerContext[] = [];
  return {
    open: (request, deadlineMs, flow) => new CallerContext(request, deadlineMs, flow, armed),
    abandonAll(reason) {
      for (const context of [...armed]) context.end(reason);
    },
    get waiting() {
      return armed.length;
    },
  };
}
