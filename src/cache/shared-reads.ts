/**
 * What several gateways share of reads, as the cache sees it: a second level of answers behind its own memory, and one
 * exchange at a time for each read. The cache knows no store; where there is none, or it is away, it goes on alone.
 */
import type { GatewayError } from '../errors.ts';
import type { Answer, UpstreamRequest } from '../exchange/exchange.ts';
import type { RequestContext } from '../exchange/request-context.ts';

export interface SharedReads {
  /** False while the store is away: the cache then asks it for nothing. */
  readonly inUse: boolean;
  /**
   * One round trip: what the store has for the very same request, and whether this gateway may ask the upstream now.
   * `undefined`: the store is away. Never rejects.
   */
  look(request: UpstreamRequest, options: LookOptions): Promise<SharedLook | undefined>;
  /** Waits until that exchange of another gateway seems to have ended, briefly in any case, or until the context ends. */
  wait(exchangeId: string, context: RequestContext): Promise<void>;
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
