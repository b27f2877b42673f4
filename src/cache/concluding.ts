/** What a request that could not be answered from the store makes of the outcome of its exchange. */
import { GatewayError } from '../errors.ts';
import type { Answer, UpstreamRequest } from '../exchange.ts';
import type { CacheFacts, Trace } from '../trace.ts';
import { isTrouble, isTroubleCode, type Wish } from './cache-policy.ts';
import type { Keeping, Outcome } from './keeping.ts';
import { type Forward, handOut, wholeSeconds } from './stored-answer.ts';

export type Forwarded = NonNullable<CacheFacts['forwarded']>;

/** A request that is not answered from the store, and why. */
export interface Miss {
  readonly request: UpstreamRequest;
  readonly trace: Trace;
  readonly wish: Wish | undefined;
  readonly forwarded: Forwarded;
  /** It shared another's exchange, or tried to and could not. */
  readonly collapsed: boolean | undefined;
}

/** Writes on the trace how the answer came about. Throws what the exchange failed with, unless a stale one stands in. */
export function concludeMisses(keeping: Pick<Keeping, 'staleFor'>): (outcome: Outcome, miss: Miss) => Answer {
  return (outcome, { request, trace, forwarded, collapsed }) => {
    const answered = outcome.kind === 'answered';
    const standIn = troubleOf(outcome) ? keeping.staleFor(request) : undefined;
    if (standIn !== undefined) {
      const forward: Forward = { forwarded, ...(collapsed === undefined ? undefined : { collapsed }) };
      const status = answered ? outcome.answer.status : statusBehind(outcome.error);
      const told = status === undefined ? forward : { ...forward, forwardStatus: status };
      // A hit is what was not forwarded (RFC 9211 section 2.1): here, where nothing was sent.
      const isForwarded = answered || outcome.sent;
      return handOut(standIn, trace, performance.now(), 'stale-if-error', isForwarded ? told : undefined);
    }
    const stored = answered && outcome.stored;
    const forwardStatus = answered ? outcome.forwardStatus : undefined;
    trace.cache = {
      hit: false,
      forwarded,
      ...(collapsed === undefined ? undefined : { collapsed }),
      ...(stored ? { stored } : undefined),
      ...(forwardStatus === undefined ? undefined : { forwardStatus }),
    };
    if (!answered) throw outcome.error;
    const { answer, policy } = outcome;
    trace.generation = answer.generation;
    // A recipient that trusts no Date learns the age of an answer that comes from another cache (RFC 9111 section 5.1).
    const ageSeconds = wholeSeconds(performance.now() - policy.bornMs);
    if (ageSeconds > 0) trace.ageSeconds = ageSeconds;
    return answer;
  };
}

function troubleOf(outcome: Outcome): boolean {
  if (outcome.kind === 'answered') return isTrouble(outcome.answer.status);
  return outcome.error instanceof GatewayError && isTroubleCode(outcome.error.code);
}

function statusBehind(error: unknown): number | undefined {
  return error instanceof GatewayError ? error.receivedStatus : undefined;
}
