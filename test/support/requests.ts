/** Requests, contexts and answers for the tests of the outbound layers. */

import {
  type Answer,
  plainRead,
  type SignedRequest,
  type UpstreamRequest,
} from '../../src/exchange/exchange.ts';
import {
  type ContextWatcher,
  FixedContext,
  type Flow,
  type RequestContext,
  WatchedContext,
} from '../../src/exchange/request-context.ts';
import { Trace } from '../../src/exchange/trace.ts';
import type { HeaderFields } from '../../src/http/fields.ts';
import { statedWait } from '../../src/http/stated-wait.ts';

/** A context whose deadline and flow can be changed, as the cache does when someone joins a flight. */
export class LiveContext extends WatchedContext implements RequestContext {
  deadlineMs: number;
  flows: readonly Flow[];
  /** How many watch it. */
  watchers = 0;

  constructor(flow: Flow, deadlineMs: number) {
    super();
    this.flows = [flow];
    this.deadlineMs = deadlineMs;
  }

  get flow(): Flow {
    return this.flows[0] as Flow;
  }

  override watch(watcher: ContextWatcher): void {
    this.watchers += 1;
    super.watch(watcher);
  }

  override unwatch(watcher: ContextWatcher): void {
    this.watchers -= 1;
    super.unwatch(watcher);
  }

  change(change: { deadlineMs?: number; flow?: Partial<Flow> }): void {
    this.deadlineMs = change.deadlineMs ?? this.deadlineMs;
    this.flows = [{ ...this.flow, ...change.flow }, ...this.flows.slice(1)];
    this.changed();
  }

  /** Another one waits as well. */
  join(flow: Partial<Flow>): void {
    this.flows = [...this.flows, { name: 'another', weight: 1, background: false, ...flow }];
    this.changed();
  }
}

export function contextFor(flow: Partial<Flow> = {}, patienceMs = 25_000): LiveContext {
  return new LiveContext(
    { name: 'someone', weight: 1, background: false, ...flow },
    performance.now() + patienceMs,
  );
}

export function requestWith(context: RequestContext): UpstreamRequest {
  return plainRead('list-accounts', '/analytics/accounts/', context);
}

/** A context that waits until it is ended. */
export function patientContext(signal?: AbortSignal, withinMs = 60_000): RequestContext {
  const context = new FixedContext(performance.now() + withinMs, {
    name: 'tester',
    weight: 1,
    background: false,
  });
  if (signal?.aborted) context.end(signal.reason);
  else signal?.addEventListener('abort', () => context.end(signal.reason), { once: true });
  return context;
}

/** A read of the accounts with this key. */
export function signedRequest(key: string, overrides: Partial<SignedRequest> = {}): SignedRequest {
  return { ...requestWith(patientContext()), key, generation: 1, ...overrides };
}

export function newTrace(): Trace {
  return new Trace(performance.now());
}

export function answerOf(status: number, headers: HeaderFields = {}): Answer {
  const nowMs = performance.now();
  const receivedAt = Date.now();
  return {
    status,
    headers,
    body: Buffer.alloc(0),
    sentMs: nowMs,
    receivedMs: nowMs,
    receivedAt,
    generation: 1,
    statedWaitMs: statedWait({ status, headers, receivedAt }).waitMs,
  };
}
