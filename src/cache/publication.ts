/** What the outcome of an exchange means for other gateways. Pure: no `this`, no I/O, no clock. */
import { GatewayError, type ProblemCode } from '../errors.ts';
import type { UpstreamRequest } from '../exchange/exchange.ts';
import { isServerFailure } from './cache-rules.ts';
import type { Publication } from './shared-reads.ts';
import { hitForMissMs, type Outcome } from './store-response.ts';

/** Failures of the upstream itself. Others are about one gateway: its queue, its deadline, its key. */
const sharedFailures: ReadonlySet<ProblemCode> = new Set<ProblemCode>([
  'upstream-unreachable',
  'upstream-timeout',
  'upstream-invalid-response',
]);

/**
 * Decides as the cache does for requests that share an exchange in one gateway: an error or failure is shared where the
 * exchange carried nothing of one request alone, an answer where its policy allows it.
 *
 * @param request the one that was sent
 * @param mayStore false where every request that shared the exchange said `no-store` (RFC 9111 section 5.2.1.5)
 */
export function publicationOf(request: UpstreamRequest, outcome: Outcome, mayStore: boolean): Publication {
  const nothing = { kind: 'nothing' } as const;
  if (!mayStore) return nothing;
  if (outcome.kind === 'failed') {
    const { error, sent } = outcome;
    const isOfUpstream = error instanceof GatewayError && sharedFailures.has(error.code);
    // A context that has ended says nothing of the upstream.
    if (!sent || !isOfUpstream || request.callerIds !== undefined || request.context.ended !== undefined) {
      return nothing;
    }
    return { kind: 'outcome', outcome: { kind: 'failed', error }, replaces: false };
  }
  const { shared: answer, policy, stored, forwardStatus } = outcome;
  const isFailure = isServerFailure(outcome.answer.status);
  if (outcome.isDueToIds) return nothing;
  if (answer === undefined) return { kind: 'not shareable', forMs: hitForMissMs };
  const untilMs = Math.max(
    policy.freshUntilMs,
    policy.staleWhileRevalidateUntilMs,
    policy.staleIfErrorUntilMs,
  );
  if (stored && untilMs > policy.receivedMs) return { kind: 'stored', answer, forwardStatus, untilMs };
  // An error that is not stored, though it might be, has a fresh answer before it: that one stays.
  const isHeldBack = !stored && policy.storable && policy.exactRequestOnly;
  const replaces = !isFailure && !isHeldBack;
  return { kind: 'outcome', outcome: { kind: 'answered', answer, forwardStatus }, replaces };
}
