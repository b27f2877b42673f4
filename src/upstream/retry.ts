/**
 * Retries transient failures: a 429, and once a broken connection, a timeout, a 502, 503 or 504. All our requests are
 * reads. p-retry owns the loop and the backoff.
 *
 * A gate below holds back what is sent again after a 429, in its old place in line: then nothing is waited here.
 */
import pRetry, { type RetryContext } from 'p-retry';
import { GatewayError } from '../errors.ts';
import type { Answer, UpstreamRequest } from '../exchange/exchange.ts';
import { FairShare, type Holder } from '../exchange/fair-share.ts';
import type { Eventually, Layer } from '../exchange/layer.ts';
import { type Flow, pause, type RequestContext } from '../exchange/request-context.ts';
import type { Trace } from '../exchange/trace.ts';

export interface RetryOptions {
  /** Retries after the first attempt, at most. */
  readonly limit: number;
  /** The wait before the first retry, ms; it doubles with each further one, up to `capMs`. Up to twice as long by chance. */
  readonly baseMs: number;
  readonly capMs: number;
  /** A gate below holds back what is sent again after a 429. */
  readonly isGated: boolean;
}

/**
 * Retries of failures may make up this share of the live requests: failures of the upstream are not multiplied by ours.
 * The flows have equal shares of it, so that the reads of one which fail leave the others their retries.
 */
const budgetShare = 0.2;
/** So few are always allowed. */
const leastBudget = 3;

const retriedStatuses: readonly number[] = [429, 502, 503, 504];

/** The retries of one flow. */
class FlowRetries implements Holder {
  readonly name: string;
  held = 0;
  readonly own = 0;

  constructor(name: string) {
    this.name = name;
  }
}

/** Requests under way, and those of them that are tried again after a failure that was no 429. */
class RetryBudget {
  live = 0;
  readonly #flows = new Map<string, FlowRetries>();
  readonly #shares = new FairShare<FlowRetries>();

  /** Takes a retry of one of the flows that wait; `undefined` where none has any. @returns how to give it back */
  take(flows: readonly Flow[]): (() => void) | undefined {
    const most = Math.max(leastBudget, Math.floor(this.live * budgetShare));
    const all = flows.map(({ name }) => this.#flows.get(name) ?? new FlowRetries(name));
    const own = all.find((one) => this.#shares.mayHold(one, one.held + 1, most));
    if (own === undefined) return undefined;
    own.held++;
    this.#flows.set(own.name, own);
    this.#shares.join(own);
    return () => {
      if (--own.held > 0) return;
      this.#flows.delete(own.name);
      this.#shares.leave(own);
    };
  }
}

/**
 * Retries within the context's deadline, read live. When retries run out or cannot come in time, a 429 becomes
 * `upstream-rate-limited` at once; any other answer is handed back as it came, also where the circuit or the gate
 * refuses the next attempt; an error is thrown as it was. A context that ends ends every wait with its reason.
 */
export function retryFailures(options: RetryOptions): Layer<UpstreamRequest, Answer> {
  const budget = new RetryBudget();

  return (next) => async (request, trace) => {
    budget.live++;
    try {
      return mayStand(await next(request, trace));
    } catch (error) {
      // Hardly any read gets here, and p-retry's signal and options are a tenth of what one costs that does not.
      return await new Retries(options, budget, request.context, trace).after(error, () =>
        next(request, trace),
      );
    } finally {
      budget.live--;
    }
  };
}

/** @throws RetryableResponse an answer that is worth another attempt: p-retry retries on errors alone */
function mayStand(answer: Answer): Answer {
  if (retriedStatuses.includes(answer.status)) throw new RetryableResponse(answer);
  return answer;
}

/** What follows the first attempt of a request. p-retry makes it, and asks after each failure whether there is to be more. */
class Retries {
  readonly #options: RetryOptions;
  readonly #budget: RetryBudget;
  readonly #context: RequestContext;
  readonly #trace: Trace;
  #made = 1;
  /** When the last attempt ended. */
  #endedMs = performance.now();
  /** What the last one failed with. */
  #failure: unknown;
  /** Gives the budget's retry back, once one was taken: there is one for each request. */
  #giveBack: (() => void) | undefined;

  constructor(options: RetryOptions, budget: RetryBudget, context: RequestContext, trace: Trace) {
    this.#options = options;
    this.#budget = budget;
    this.#context = context;
    this.#trace = trace;
  }

  /** @param first what the first attempt failed with */
  async after(first: unknown, send: () => Eventually<Answer>): Promise<Answer> {
    const { limit: retries, baseMs: minTimeout, capMs: maxTimeout } = this.#options;
    const { signal } = this.#context;
    try {
      return await pRetry((number) => (number === 1 ? Promise.reject(first) : this.#make(number, send)), {
        ...{ retries, minTimeout, maxTimeout, randomize: true, signal },
        shouldRetry: (failed) => this.#shouldRetry(failed),
        // p-retry has no delay for what consumes no retry.
        shouldConsumeRetry: ({ error }) => !this.#isHeldBelow(error),
      });
    } catch (error) {
      return this.#lastWord(error);
    } finally {
      this.#giveBack?.();
    }
  }

  async #make(number: number, send: () => Eventually<Answer>): Promise<Answer> {
    this.#trace.waited('retry', this.#endedMs);
    this.#made = number;
    try {
      return mayStand(await send());
    } catch (error) {
      const before = this.#failure;
      throw isRefusal(error) && before instanceof RetryableResponse && !is429(before) ? before : error;
    } finally {
      this.#endedMs = performance.now();
    }
  }

  async #shouldRetry({ error, retryDelay }: RetryContext): Promise<boolean> {
    this.#failure = error;
    if (!isTransient(error)) return false;
    const waitMs = Math.max(retryDelay, statedWaitMs(error));
    if (!this.#isAllowed(error, waitMs)) return false;
    // p-retry waits its own delay after this.
    if (!this.#isHeldBelow(error)) await pause(this.#context, waitMs - retryDelay);
    return true;
  }

  /** By the limit of retries, the deadline, and for what is no 429 the budget. */
  #isAllowed(error: Error, waitMs: number): boolean {
    if (this.#made > this.#options.limit) return false;
    if (performance.now() + waitMs >= this.#context.deadlineMs) return false;
    if (is429(error)) return true;
    if (this.#giveBack !== undefined) return false;
    this.#giveBack = this.#budget.take(this.#context.flows);
    return this.#giveBack !== undefined;
  }

  /** Whether the gate holds the next attempt back. */
  #isHeldBelow(error: Error): boolean {
    return this.#options.isGated && is429(error);
  }

  /** What the caller gets where there is no further attempt. @throws what the last one failed with */
  #lastWord(error: unknown): Answer {
    if (this.#context.ended !== undefined) this.#trace.waited('retry', this.#endedMs);
    if (!(error instanceof RetryableResponse)) throw error;
    if (!is429(error)) return error.answer;
    const { baseMs, capMs } = this.#options;
    throw new GatewayError('upstream-rate-limited', {
      retryAfterMs: Math.max(statedWaitMs(error), Math.min(baseMs * 2 ** (this.#made - 1), capMs)),
      receivedStatus: 429,
      reason: 'no further attempt fits before the deadline or within the limit of retries',
    });
  }
}

/** An answer that is worth another attempt. */
class RetryableResponse extends Error {
  readonly answer: Answer;

  constructor(answer: Answer) {
    super(`status ${answer.status}`);
    this.answer = answer;
  }
}

function is429(error: unknown): boolean {
  return error instanceof RetryableResponse && error.answer.status === 429;
}

/** Whether the circuit or the gate did not let an attempt through: their errors alone say how long to wait. */
function isRefusal(error: unknown): boolean {
  return error instanceof GatewayError && error.retryAfterMs !== undefined;
}

/** Whether another attempt may end better. After a refusal it may not: the circuit and the gate know better. */
function isTransient(error: unknown): boolean {
  if (!(error instanceof GatewayError)) return error instanceof RetryableResponse;
  return !isRefusal(error) && (error.code === 'upstream-timeout' || error.code === 'upstream-unreachable');
}

/** How long from now the upstream wants to be left alone; not above 0 where it said nothing. */
function statedWaitMs(error: unknown): number {
  return error instanceof RetryableResponse ? statedUntilMs(error.answer) - performance.now() : 0;
}

/** The time before which the upstream asks not to be asked again, monotonic ms; 0 where it does not say. */
function statedUntilMs({ receivedMs, statedWaitMs }: Answer): number {
  return statedWaitMs === undefined ? 0 : receivedMs + statedWaitMs;
}
