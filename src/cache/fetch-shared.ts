/**
 * One exchange on behalf of several gateways: an answer that another has stored, the outcome of the exchange that
 * another makes now, or an exchange of this gateway's own, whose outcome the others get.
 */
import type { Answer, UpstreamRequest } from '../exchange/exchange.ts';
import { andThen, type Eventually, type Layer } from '../exchange/layer.ts';
import { PartContext } from '../exchange/request-context.ts';
import type { Trace } from '../exchange/trace.ts';
import type { Variant } from './answer-store.ts';
import { withoutCallerIds } from './cache-key.ts';
import { judgeAnswer, judgeUse, type RequestDirectives } from './cache-rules.ts';
import type { FetchAnswer, FetchAnswerOptions, Storing } from './revalidate.ts';
import { choosePublication, type SharedExchange, type SharedLook, type SharedReads } from './shared-reads.ts';
import { type ExchangeOutcome, failedOutcome, type ResponseAdmission } from './store-response.ts';

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
) => Promise<ExchangeOutcome>;

export interface FetchSharedOptions {
  readonly shared: SharedReads;
  readonly fetchAnswer: FetchAnswer;
  readonly admission: Pick<ResponseAdmission, 'admit' | 'variantFor' | 'defaults'>;
  readonly countPurges: FetchAnswerOptions['countPurges'];
}

/** Asks the other gateways' store before the upstream, once for each flight; not while it is away. */
export function fetchShared(options: FetchSharedOptions): FetchFlight {
  return (request, trace, variant, storing, directives) =>
    options.shared.inUse
      ? new SharedFetch(options, request, trace, storing, directives).outcome(variant)
      : options.fetchAnswer(request, trace, variant, storing);
}

/** Right below the gate and the circuit: asks the request itself whether the attempt is still needed. */
export const askAtTurn: Layer<UpstreamRequest, Answer> = (next) => (request, trace) =>
  request.atTurn === undefined ? next(request, trace) : request.atTurn(() => next(request, trace));

/** Another gateway has made the exchange, or makes it: nothing is sent. */
class NotNeeded extends Error {
  override readonly name = 'NotNeeded';
}

class SharedFetch {
  readonly #options: FetchSharedOptions;
  readonly #request: UpstreamRequest;
  readonly #trace: Trace;
  readonly #storing: Storing;
  readonly #directives: RequestDirectives | undefined;
  readonly #purgesBefore: number;
  /** This gateway's turn to ask the upstream, while it has it. */
  #turn: SharedExchange | undefined;
  /** What another gateway has brought while this one waited for its turn at the gate. */
  #found: ExchangeOutcome | undefined;
  /** The gateway's exchange that went first. */
  #other: string | undefined;

  constructor(
    options: FetchSharedOptions,
    request: UpstreamRequest,
    trace: Trace,
    storing: Storing,
    directives: RequestDirectives | undefined,
  ) {
    this.#options = options;
    this.#request = request;
    this.#trace = trace;
    this.#storing = storing;
    this.#directives = directives;
    this.#purgesBefore = options.countPurges(request.operation);
  }

  /** Gives the turn back whatever happens: other gateways wait for it. */
  async outcome(variant: Variant | undefined): Promise<ExchangeOutcome> {
    try {
      return await this.#findOrAsk(variant);
    } finally {
      this.#giveBack();
    }
  }

  async #findOrAsk(variant: Variant | undefined): Promise<ExchangeOutcome> {
    const { shared } = this.#options;
    const { context } = this.#request;
    let mayFind = variant === undefined && this.#directives === undefined;
    let awaited: string | undefined;
    for (;;) {
      const look = await shared.look(this.#request, { mayFind, awaited, mayTake: true });
      this.#turn = look?.exchange;
      if (context.ended !== undefined) return failedOutcome(this.#request, context.ended, false);
      if (look === undefined || look.stored === 'not shareable') return this.#askAlone(variant);
      const { stored } = look;
      const found = this.#foundIn(look);
      if (found !== undefined) return found;
      let { other } = look;
      // A store that has nothing, gives no turn and names no gateway that has it: this gateway asks as one that is alone.
      const isSilent = !mayFind && awaited === undefined && other === undefined;
      if (this.#turn === undefined && isSilent) return this.#askAlone(this.#newer(stored, variant));
      if (this.#turn !== undefined) {
        const outcome = await this.#askInTurn(this.#newer(stored, variant));
        if (outcome !== undefined) return outcome;
        other = this.#other;
      }
      mayFind = false;
      awaited = other;
      if (awaited !== undefined) await shared.wait(awaited, context);
    }
  }

  #foundIn(look: SharedLook): ExchangeOutcome | undefined {
    const stored = look.stored === 'not shareable' ? undefined : look.stored;
    return this.#outcomeOfOther(look) ?? this.#stored(stored);
  }

  /** The outcome of the exchange that was awaited: this read has joined it. */
  #outcomeOfOther({ outcome }: SharedLook): ExchangeOutcome | undefined {
    if (outcome === undefined) return undefined;
    if (outcome.kind === 'failed') return failedOutcome(withoutCallerIds(this.#request), outcome.error, true);
    return via('gateway', this.#admit(outcome.answer, outcome.forwardStatus));
  }

  /** A stored answer that is fresh, by what the request says as well. */
  #stored(stored: Answer | undefined): ExchangeOutcome | undefined {
    if (stored === undefined) return undefined;
    const policy = judgeAnswer(stored, this.#options.admission.defaults);
    if (!policy.storable || judgeUse(policy, this.#directives, performance.now()) !== 'fresh')
      return undefined;
    return via('store', this.#admit(stored, undefined));
  }

  /** The answer to revalidate: what another gateway stored is stored here as well where it is newer. */
  #newer(stored: Answer | undefined, own: Variant | undefined): Variant | undefined {
    if (stored?.status !== 200) return own;
    if (own !== undefined && own.policy.receivedMs >= stored.receivedMs) return own;
    this.#admit(stored, undefined);
    return this.#options.admission.variantFor(this.#request) ?? own;
  }

  #admit(answer: Answer, forwardStatus: number | undefined): ExchangeOutcome {
    const { admission, countPurges } = this.#options;
    const isPurged = countPurges(this.#request.operation) !== this.#purgesBefore;
    const mayStore = this.#storing.mayStore && !isPurged;
    // It was not fetched with the ids of this request.
    return admission.admit(withoutCallerIds(this.#request), answer, forwardStatus, mayStore);
  }

  /** The store is away, or answers fit one request each. */
  async #askAlone(variant: Variant | undefined): Promise<ExchangeOutcome> {
    return this.#publish(await this.#options.fetchAnswer(this.#request, this.#trace, variant, this.#storing));
  }

  #publish(outcome: ExchangeOutcome): ExchangeOutcome {
    const turn = this.#turn;
    this.#turn = undefined;
    turn?.publish(choosePublication(this.#request, outcome, this.#storing.mayStore));
    return outcome;
  }

  /**
   * Asks the upstream for all gateways. No gateway has the read's turn while it waits at its gate: each that wants the
   * read waits there in the names of its own callers, and the first one whose turn comes makes the exchange.
   *
   * @returns `undefined` where another gateway has gone first
   */
  async #askInTurn(variant: Variant | undefined): Promise<ExchangeOutcome | undefined> {
    const { shared, fetchAnswer } = this.#options;
    const context = new PartContext(this.#request.context);
    let isSent = false;
    const atTurn: UpstreamRequest['atTurn'] = (send) => {
      isSent = true;
      return this.#turn === undefined ? this.#takeTurn().then(() => this.#send(send)) : this.#send(send);
    };
    this.#other = undefined;
    const asked = fetchAnswer({ ...this.#request, context, atTurn }, this.#trace, variant, this.#storing);
    // Every layer below goes on at once up to the one that waits: the gate, or a circuit that refuses.
    if (!isSent) this.#giveBack();
    const unwatch = shared.watch(this.#request, (exchangeId) => {
      // Where what it finds is a fault, this gateway's own turn comes all the same.
      if (this.#turn === undefined) this.#lookWhileWaiting(exchangeId, context).catch(() => undefined);
    });
    const outcome = await asked.finally(unwatch);
    context.end(new NotNeeded());
    if (this.#found !== undefined) return this.#found;
    if (outcome.kind === 'failed' && outcome.error instanceof NotNeeded) return undefined;
    return this.#publish(outcome);
  }

  /** After a 429 the next turn may be another gateway's. */
  #send(send: () => Eventually<Answer>): Eventually<Answer> {
    return andThen(send(), (answer) => {
      if (answer.status === 429) this.#giveBack();
      return answer;
    });
  }

  /** Its turn at the gate has come. @throws NotNeeded where another gateway has the answer, or goes for it now */
  async #takeTurn(): Promise<void> {
    const look = await this.#options.shared.look(this.#request, {
      mayFind: false,
      awaited: undefined,
      mayTake: true,
    });
    this.#turn = look?.exchange;
    if (look?.stored === 'not shareable') return;
    this.#other = look?.other;
    this.#found ??= look && this.#foundIn(look);
    if (this.#found !== undefined || this.#other !== undefined) throw new NotNeeded();
  }

  async #lookWhileWaiting(awaited: string, context: PartContext): Promise<void> {
    const look = await this.#options.shared.look(this.#request, { mayFind: true, awaited, mayTake: false });
    if (look === undefined || this.#turn !== undefined || context.ended !== undefined) return;
    this.#found ??= this.#foundIn(look);
    if (this.#found !== undefined) context.end(new NotNeeded());
  }

  #giveBack(): void {
    this.#turn?.release();
    this.#turn = undefined;
  }
}

function via(origin: 'store' | 'gateway', outcome: ExchangeOutcome): ExchangeOutcome {
  return outcome.kind === 'answered' ? { ...outcome, via: origin } : outcome;
}
