/** Requests, claims and answers for the tests of the outbound layers. */

import { type Claim, type ClaimWatcher, FixedClaim, type Turn, WatchedClaim } from '../../src/claim.ts';
import type { Answer, HeaderFields, SignedRequest, UpstreamRequest } from '../../src/exchange.ts';
import { Trace } from '../../src/trace.ts';
import { plainRead } from '../../src/upstream/plain-read.ts';

/** A claim whose deadline and turn can be changed, as the cache does when someone joins a flight. */
export class LiveClaim extends WatchedClaim implements Claim {
  deadlineMs: number;
  turn: Turn;
  /** How many watch it. */
  watchers = 0;

  constructor(turn: Turn, deadlineMs: number) {
    super();
    this.turn = turn;
    this.deadlineMs = deadlineMs;
  }

  override watch(watcher: ClaimWatcher): void {
    this.watchers += 1;
    super.watch(watcher);
  }

  override unwatch(watcher: ClaimWatcher): void {
    this.watchers -= 1;
    super.unwatch(watcher);
  }

  change(change: { deadlineMs?: number; turn?: Partial<Turn> }): void {
    this.deadlineMs = change.deadlineMs ?? this.deadlineMs;
    this.turn = { ...this.turn, ...change.turn };
    this.changed();
  }

  abort(reason: Error): void {
    this.end(reason);
  }
}

export function claimFor(turn: Partial<Turn> = {}, patienceMs = 25_000): LiveClaim {
  return new LiveClaim(
    { name: 'someone', weight: 1, background: false, ...turn },
    performance.now() + patienceMs,
  );
}

export function requestWith(claim: Claim): UpstreamRequest {
  return plainRead('list-accounts', '/analytics/accounts/', claim);
}

/** A claim that waits until it is ended. */
export function patientClaim(signal?: AbortSignal, withinMs = 60_000): Claim {
  const claim = new FixedClaim(performance.now() + withinMs, {
    name: 'tester',
    weight: 1,
    background: false,
  });
  if (signal?.aborted) claim.end(signal.reason);
  else signal?.addEventListener('abort', () => claim.end(signal.reason), { once: true });
  return claim;
}

/** A read of the accounts with this key. */
export function signedRequest(key: string, overrides: Partial<SignedRequest> = {}): SignedRequest {
  return { ...requestWith(patientClaim()), key, generation: 1, ...overrides };
}

export function newTrace(): Trace {
  return new Trace(performance.now());
}

export function answerOf(status: number, headers: HeaderFields = {}): Answer {
  const nowMs = performance.now();
  return {
    status,
    headers,
    body: Buffer.alloc(0),
    sentMs: nowMs,
    receivedMs: nowMs,
    receivedAt: Date.now(),
    generation: 1,
  };
}
