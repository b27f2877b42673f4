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
import { fieldValue, splitUnquoted, trimBlanks } from '../http/fields.ts';
import type { InboundRequest } from './inbound.ts';

/**
 * The time is up that the caller itself was willing to wait, which says nothing of the upstream: like the leaving of a
 * caller it counts for no circuit and is no other caller's failure. `forward` makes a problem of it.
 */
export class PreferredWaitOver extends Error {
  override readonly name = 'PreferredWaitOver';
  constructor() {
    super('the wait that the caller prefers is over');
  }
}

const waitPreference = /^wait[\t ]*=[\t ]*(?:"(\d{1,9})"|(\d{1,9}))[\t ]*(?:;|$)/i;

/**
 * How long a caller prefers to wait (`Prefer: wait`, RFC 7240 section 4.3), in seconds; `undefined` where it does not say so.
 *
 * @param prefer the field's value, repeated lines joined by a comma
 */
export function preferredWaitSeconds(prefer: string): number | undefined {
  // Of a repeated preference the first one counts (section 2).
  const preference = splitUnquoted(prefer, ',')
    ?.map(trimBlanks)
    .find((one) => /^wait(?![^\t =;])/i.test(one));
  const found = preference === undefined ? null : waitPreference.exec(preference);
  return found === null ? undefined : Number(found[1] ?? found[2]);
}

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
  /** The deadline is the caller's own wish, and before REQUEST_TIMEOUT. */
  readonly isPreferred: boolean;
  /** Its index among the armed contexts; -1 while it is not armed. */
  #place = -1;
  #timer: NodeJS.Timeout | undefined;
  readonly #onAbort = (): void => this.end(new CallerLeft());

  constructor(
    request: InboundRequest,
    deadlineMs: number,
    isPreferred: boolean,
    flow: Flow,
    armed: CallerContext[],
  ) {
    super();
    this.isPreferred = isPreferred;
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
  context.end(
    context.isPreferred
      ? new PreferredWaitOver()
      : new GatewayError('upstream-timeout', { reason: 'REQUEST_TIMEOUT ran out' }),
  );
}

export type { CallerContext };

export interface CallerContextsOptions {
  /** One caller's request, waiting and retries included. */
  readonly timeoutMs: number;
}

/** The contexts of the requests that are forwarded. */
export class CallerContexts {
  readonly #timeoutMs: number;
  readonly #armed: CallerContext[] = [];

  constructor({ timeoutMs }: CallerContextsOptions) {
    this.#timeoutMs = timeoutMs;
  }

  /** @param startedMs when the request arrived */
  open(request: InboundRequest, startedMs: number, flow: Flow): CallerContext {
    const { prefer } = request.headers;
    let timeoutMs = this.#timeoutMs;
    let isPreferred = false;
    if (prefer !== undefined) {
      const seconds = preferredWaitSeconds(fieldValue(prefer) ?? '');
      if (seconds !== undefined && seconds * 1_000 < timeoutMs) {
        timeoutMs = seconds * 1_000;
        isPreferred = true;
        request.setHeader('preference-applied', `wait=${seconds}`);
      }
    }
    return new CallerContext(request, startedMs + timeoutMs, isPreferred, flow, this.#armed);
  }

  /** Ends all armed contexts: the gateway stops. */
  abandonAll(reason: Error): void {
    for (const context of [...this.#armed]) context.end(reason);
  }

  /** How many contexts are armed: requests that wait. */
  get waiting(): number {
    return this.#armed.length;
  }
}
