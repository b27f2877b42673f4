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
import type { Layer } from '../exchange/layer.ts';
import { type Flow, pause } from '../exchange/request-context.ts';
import type { Trace } from '../exchange/trace.ts';

export interface RetryOptions {
  /** Retries after the first attempt, at most. */
  readonly limit: number;
  /** The wait before the first retry, ms; it doubles with each further one, up to `capMs`. Up to twice as long by chance. */
  readonly baseMs: number;
  readonly capMs: number;
  /** A gate below holds back what is sent again after a 429. */
  readonly isGated?: boolean;
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

/** Carries an answer that is worth another attempt through p-retry, which retries on errors only. */
class RetryableResponse extends Error {
  readonly answer: Answer;

  constructor(answer: Answer) {
    super(`status ${answer.status}`);
    this.answer = answer;
  }
}

/**
 * Retries within the context's deadline, read live. When retries run out or cannot come in time, a 429 becomes
 * `upstream-rate-limited` at once; any other answer is handed back as it came, also where the circuit or the gate
 * refuses the next attempt; an error is thrown as it was. A context that ends ends every wait with its reason.
 */
export function retryFailures(options: RetryOptions): Layer<UpstreamRequest, Answer> {
  const budget = new RetryBudget();

  return (next) => {
    async function attempt(request: UpstreamRequest, trace: Trace): Promise<Answer> {
      const answer = await next(request, trace);
      if (retriedStatuses.includes(answer.status)) throw new RetryableResponse(answer);
      return answer;
    }

    return async (request, trace) => {
      budget.live++;
      try {
        // Nearly every read needs one attempt: p-retry, and the signal that it wants, are for those that need more.
        return await attempt(request, trace);
      } catch (error) {
        return await retryAfter(error, { request, trace, attempt, budget, options });
      } finally {
        budget.live--;
      }
    };
  };
}

interface Retrying {
  readonly request: UpstreamRequest;
  readonly trace: Trace;
  readonly attempt: (request: UpstreamRequest, trace: Trace) => Promise<Answer>;
  readonly budget: RetryBudget;
  readonly options: RetryOptions;
}

/** Goes on after a first attempt that failed, which is p-retry's first as well. */
async function retryAfter(first: unknown, { request, trace, budget, ...of }: Retrying): Promise<Answer> {
  const { limit, baseMs, capMs, isGated = false } = of.options;
  const { context } = request;
  let attempts = 1;
  let endedMs = performance.now();
  let giveBack: (() => void) | undefined;
  let previous: unknown;

  async function attempt(number: number): Promise<Answer> {
    if (number === 1) throw first;
    attempts = number;
    trace.waited('retry', endedMs);
    try {
      return await of.attempt(request, trace);
    } catch (error) {
      throw isRefusal(error) && previous instanceof RetryableResponse && !is429(previous) ? previous : error;
    } finally {
      endedMs = performance.now();
    }
  }

  async function shouldRetry({ error, retryDelay }: RetryContext): Promise<boolean> {
    previous = error;
    const nowMs = performance.now();
    const statedMs = error instanceof RetryableResponse ? statedUntilMs(error.answer) : 0;
    const nextMs = Math.max(nowMs + retryDelay, statedMs);
    if (attempts > limit || nextMs >= context.deadlineMs) return false;
    if (!is429(error)) {
      if (!isTransient(error) || giveBack !== undefined) return false;
      giveBack = budget.take(context.flows);
      if (giveBack === undefined) return false;
    } else if (isGated) return true;
    // p-retry waits its own delay after this.
    await pause(context, nextMs - nowMs - retryDelay);
    return true;
  }

  // p-retry has no delay for what consumes no retry.
  const shouldConsumeRetry = ({ error }: RetryContext): boolean => !(isGated && is429(error));
  const backoff = { retries: limit, minTimeout: baseMs, maxTimeout: capMs, randomize: true };
  try {
    const { signal } = context;
    return await pRetry(attempt, { ...backoff, signal, shouldConsumeRetry, shouldRetry });
  } catch (error) {
    if (context.ended !== undefined) trace.waited('retry', endedMs);
    return lastWord(error, Math.min(baseMs * 2 ** (attempts - 1), capMs));
  } finally {
    giveBack?.();
  }
}

function is429(error: unknown): boolean {
  return error instanceof RetryableResponse && error.answer.status === 429;
}

/** Whether the circuit or the gate did not let an attempt through: their errors alone say how long to wait. */
function isRefusal(error: unknown): boolean {
  return error instanceof GatewayError && error.retryAfterMs !== undefined;
}

/** Whether a failure is transient. After a refusal another attempt is of no use: the circuit and the gate know better. */
function isTransient(error: unknown): boolean {
  if (!(error instanceof GatewayError)) return error instanceof RetryableResponse;
  return !isRefusal(error) && (error.code === 'upstream-timeout' || error.code === 'upstream-unreachable');
}

/** What the caller gets of the last attempt. @throws what it failed with; `upstream-rate-limited` after a 429 */
function lastWord(error: unknown, backoffMs: number): Answer {
  if (!(error instanceof RetryableResponse)) throw error;
  const { answer } = error;
  if (answer.status !== 429) return answer;
  throw new GatewayError('upstream-rate-limited', {
    retryAfterMs: Math.max(statedUntilMs(answer) - performance.now(), backoffMs),
    receivedStatus: 429,
    reason: 'no further attempt fits before the deadline or within the limit of retries',
  });
}

/** The time before which the upstream asks not to be asked again, monotonic ms; 0 where it does not say. */
function statedUntilMs({ receivedMs, statedWaitMs }: Answer): number {
  return statedWaitMs === undefined ? 0 : receivedMs + statedWaitMs;
}
