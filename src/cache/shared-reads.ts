/**
 * What several gateways share of reads, as the cache sees it: a second level of answers behind its own memory, and one
 * exchange at a time for each read. The cache knows no store; where there is none, or it is away, it goes on alone.
 * Pure: no `this`, no I/O, no clock.
 */
import { GatewayError, type ProblemCode } from '../errors.ts';
import type { Answer, UpstreamRequest } from '../exchange/exchange.ts';
import type { Eventually } from '../exchange/layer.ts';
import type { RequestContext } from '../exchange/request-context.ts';
import { isServerFailure } from './cache-rules.ts';
import { type ExchangeOutcome, hitForMissMs } from './store-response.ts';

export interface SharedReads {
  /** False while the store is away: the cache then asks it for nothing. */
  readonly inUse: boolean;
  /**
   * One round trip: what the store has for the very same request, and whether this gateway may ask the upstream now.
   * `undefined`: the store is away. Never rejects.
   */
  look(request: UpstreamRequest, options: LookOptions): Eventually<SharedLook | undefined>;
  /** Waits until that exchange of another gateway seems to have ended, briefly in any case, or until the context ends. */
  wait(exchangeId: string, context: RequestContext): Eventually<void>;
  /** Calls back for each exchange of the read that ends, until the function that it returns is called. */
  watch(request: UpstreamRequest, onEnded: (exchangeId: string) => void): () => void;
  /** Makes all gateways forget their answers, or one operation's, and what the store has of them. */
  purge(operation: string | undefined): void;
  /** Calls back when another gateway has purged. */
  onPurge(listener: (operation: string | undefined) => void): void;
}

export interface LookOptions {
  /** A stored answer will do: no turn is taken where there is one. */
  readonly mayFind: boolean;
  /** The exchange of another gateway that this read has waited for. */
  readonly awaited: string | undefined;
  /** Takes the turn to ask the upstream where no gateway has it. */
  readonly mayTake: boolean;
}

export interface SharedLook {
  /** What is stored, of any age. `not shareable`: requests for this read are not coalesced. */
  readonly stored: Answer | 'not shareable' | undefined;
  /** What the awaited exchange brought, where it may be shared. */
  readonly outcome: SharedOutcome | undefined;
  /** This gateway's turn to ask the upstream. */
  readonly exchange: SharedExchange | undefined;
  /** The exchange of another gateway that is under way. */
  readonly other: string | undefined;
}

export type SharedOutcome =
  | { readonly kind: 'answered'; readonly answer: Answer; readonly forwardStatus: number | undefined }
  | { readonly kind: 'failed'; readonly error: GatewayError };

/** An exchange that other gateways wait for. One of the two is called, once, and ends the turn; neither is waited for. */
export interface SharedExchange {
  publish(publication: Publication): void;
  /** There is nothing to share: others may ask. */
  release(): void;
}

/** What an exchange means for other gateways. */
export type Publication =
  /** Stored until `untilMs` (monotonic), and the outcome for those that wait. */
  | {
      readonly kind: 'stored';
      readonly answer: Answer;
      readonly forwardStatus: number | undefined;
      readonly untilMs: number;
    }
  /** The outcome for those that wait, and for no later request. `replaces`: what is stored is no longer true. */
  | { readonly kind: 'outcome'; readonly outcome: SharedOutcome; readonly replaces: boolean }
  /** The answer is for one request alone: requests for this read are not coalesced for that long. */
  | { readonly kind: 'not shareable'; readonly forMs: number }
  | { readonly kind: 'nothing' };

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
export function choosePublication(
  request: UpstreamRequest,
  outcome: ExchangeOutcome,
  mayStore: boolean,
): Publication {
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
