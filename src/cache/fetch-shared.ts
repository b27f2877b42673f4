/**
 * One exchange on behalf of several gateways: an answer that another has stored, the outcome of the exchange that
 * another makes now, or an exchange of this gateway's own, whose outcome the others get.
 */
import type { Answer, UpstreamRequest } from '../exchange.ts';
import type { Trace } from '../trace.ts';
import type { Variant } from './answer-store.ts';
import { withoutCallerIds } from './cache-key.ts';
import { policyOf, type RequestDirectives, useOf } from './cache-policy.ts';
import { publicationOf } from './publication-policy.ts';
import type { FetchAnswer, FetchAnswerOptions, Storing } from './revalidate.ts';
import type { SharedExchange, SharedLook, SharedReads } from './shared-reads.ts';
import { failedOutcome, type Outcome, type ResponseAdmission } from './store-response.ts';

/**
 * Makes the exchange of a flight. A failure is an outcome; it rejects only with a fault.
 *
 * @param variant the stored answer to revalidate
 * @param directives of the request that started the flight
 */
export type FetchFlight = (
  request: UpstreamRequest,
  trace: Trace,
  variant: Variant | undefined,
  storing: Storing,
  directives: RequestDirectives | undefined,
) => Promise<Outcome>;

export interface FetchSharedOptions {
  readonly shared: SharedReads;
  readonly fetchAnswer: FetchAnswer;
  readonly admission: Pick<ResponseAdmission, 'admit' | 'variantFor' | 'defaults'>;
  readonly purgesOf: FetchAnswerOptions['purgesOf'];
}

/** Asks the other gateways' store before the upstream, once for each flight; not while it is away. */
export function fetchShared(options: FetchSharedOptions): FetchFlight {
  return (request, trace, variant, storing, directives) =>
    options.shared.inUse
      ? new SharedFetch(options, request, trace, storing).outcome(variant, directives)
      : options.fetchAnswer(request, trace, variant, storing);
}

class SharedFetch {
  readonly #options: FetchSharedOptions;
  readonly #request: UpstreamRequest;
  readonly #trace: Trace;
  readonly #storing: Storing;
  readonly #purgesBefore: number;
  /** This gateway's turn to ask the upstream, while it has it. */
  #turn: SharedExchange | undefined;

  constructor(options: FetchSharedOptions, request: UpstreamRequest, trace: Trace, storing: Storing) {
    this.#options = options;
    this.#request = request;
    this.#trace = trace;
    this.#storing = storing;
    this.#purgesBefore = options.purgesOf(request.operation);
  }

  /** Gives the turn back whatever happens: other gateways wait for it. */
  async outcome(variant: Variant | undefined, directives: RequestDirectives | undefined): Promise<Outcome> {
    try {
      return await this.#findOrAsk(variant, directives);
    } finally {
      this.#turn?.release();
    }
  }

  async #findOrAsk(
    variant: Variant | undefined,
    directives: RequestDirectives | undefined,
  ): Promise<Outcome> {
    const { shared } = this.#options;
    const { context } = this.#request;
    let mayFind = variant === undefined && directives === undefined;
    let awaited: string | undefined;
    for (;;) {
      const look = await shared.look(this.#request, { mayFind, awaited });
      this.#turn = look?.exchange;
      if (context.ended !== undefined) return failedOutcome(this.#request, context.ended, false);
      if (look === undefined || look.stored === 'not shareable') return this.#ask(variant);
      const { stored } = look;
      const found = this.#outcomeOfOther(look) ?? this.#stored(stored, directives);
      if (found !== undefined) return found;
      // A store that has nothing, gives no turn and names no gateway that has it: this gateway asks as one that is alone.
      const isSilent = !mayFind && awaited === undefined && look.other === undefined;
      if (this.#turn !== undefined || isSilent) return this.#ask(this.#newer(stored, variant));
      mayFind = false;
      awaited = look.other;
      if (awaited !== undefined) await shared.wait(awaited, context);
    }
  }

  /** The outcome of the exchange that was awaited: this read has joined it. */
  #outcomeOfOther({ outcome }: SharedLook): Outcome | undefined {
    if (outcome === undefined) return undefined;
    if (outcome.kind === 'failed') return failedOutcome(withoutCallerIds(this.#request), outcome.error, true);
    return via('gateway', this.#admit(outcome.answer, outcome.forwardStatus));
  }

  /** A stored answer that is fresh, by what the request says as well. */
  #stored(stored: Answer | undefined, directives: RequestDirectives | undefined): Outcome | undefined {
    if (stored === undefined) return undefined;
    const policy = policyOf(stored, this.#options.admission.defaults);
    if (!policy.storable || useOf(policy, directives, performance.now()) !== 'fresh') return undefined;
    return via('store', this.#admit(stored, undefined));
  }

  /** The answer to revalidate: what another gateway stored is stored here as well where it is newer. */
  #newer(stored: Answer | undefined, own: Variant | undefined): Variant | undefined {
    if (stored?.status !== 200) return own;
    if (own !== undefined && own.policy.receivedMs >= stored.receivedMs) return own;
    this.#admit(stored, undefined);
    return this.#options.admission.variantFor(this.#request) ?? own;
  }

  #admit(answer: Answer, forwardStatus: number | undefined): Outcome {
    const { admission, purgesOf } = this.#options;
    const isPurged = purgesOf(this.#request.operation) !== this.#purgesBefore;
    const mayStore = this.#storing.mayStore && !isPurged;
    // It was not fetched with the ids of this request.
    return admission.admit(withoutCallerIds(this.#request), answer, forwardStatus, mayStore);
  }

  async #ask(variant: Variant | undefined): Promise<Outcome> {
    const outcome = await this.#options.fetchAnswer(this.#request, this.#trace, variant, this.#storing);
    const publication = publicationOf(this.#request, outcome, this.#storing.mayStore);
    const turn = this.#turn;
    this.#turn = undefined;
    turn?.publish(publication);
    return outcome;
  }
}

function via(origin: 'store' | 'gateway', outcome: Outcome): Outcome {
  return outcome.kind === 'answered' ? { ...outcome, via: origin } : outcome;
}
