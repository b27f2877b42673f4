/** Requests, claims and answers for the tests of the outbound layers. */
import { Trace } from '../../src/trace.ts';
import type {
  Answer,
  Claim,
  HeaderFields,
  SignedRequest,
  Turn,
  UpstreamRequest,
} from '../../src/upstream/exchange.ts';
import { fixedClaim, plainRead } from '../../src/upstream/plain-read.ts';

/** A claim whose deadline and turn can be changed, as the cache does when someone joins a flight. */
export interface LiveClaim extends Claim {
  change(change: { deadlineMs?: number; turn?: Partial<Turn> }): void;
  abort(reason: unknown): void;
  /** How many listen for changes. */
  readonly listeners: number;
}

export function claimFor(turn: Partial<Turn> = {}, patienceMs = 25_000): LiveClaim {
  const controller = new AbortController();
  const listeners = new Set<() => void>();
  let current: Turn = { name: 'someone', weight: 1, background: false, ...turn };
  let deadlineMs = performance.now() + patienceMs;
  return {
    signal: controller.signal,
    get deadlineMs() {
      return deadlineMs;
    },
    get turn() {
      return current;
    },
    get listeners() {
      return listeners.size;
    },
    onChange(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    change(change) {
      deadlineMs = change.deadlineMs ?? deadlineMs;
      current = { ...current, ...change.turn };
      for (const listener of listeners) listener();
    },
    abort(reason) {
      controller.abort(reason);
    },
  };
}

export function requestWith(claim: Claim): UpstreamRequest {
  return plainRead('list-accounts', '/analytics/accounts/', claim);
}

/** Somebody who waits until told otherwise. */
export function patientClaim(signal = new AbortController().signal, withinMs = 60_000): Claim {
  return fixedClaim(signal, performance.now() + withinMs, { name: 'tester', weight: 1, background: false });
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
