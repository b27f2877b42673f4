/**
 * Tries again what may pass: a 429 with increasing waits, a broken connection, a timeout or a 502, 503, 504 once.
 *
 * p-retry owns the loop and the backoff, `retry-policy.ts` decides. How long a 429 holds is the gate's to know: it
 * lets nothing up before. Where the gate is off, the wait that the upstream states is waited here.
 */
import pRetry, { type RetryContext } from 'p-retry';
import { type Claim, pause } from '../claim.ts';
import { GatewayError } from '../errors.ts';
import type { Answer, UpstreamRequest } from '../exchange.ts';
import type { Layer } from '../layer.ts';
import type { Trace } from '../trace.ts';
import { type Failure, failureOfError, failureOfStatus, mayRetry, statedUntilMs } from './retry-policy.ts';

export interface RetryOptions {
  /** Retries after the first attempt, at most. */
  readonly limit: number;
  /** The wait before the first retry, ms; it doubles with each further one, up to `capMs`. Up to twice as long by chance. */
  readonly baseMs: number;
  readonly capMs: number;
  /** A gate below holds back what is sent again after a 429. */
  readonly isGated?: boolean;
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
 * Retries within the claim's deadline, read live. When retries run out or cannot come in time, a 429 becomes
 * `upstream-rate-limited` at once; any other answer is handed back as it came and an error is thrown as it was. A
 * claim that ends ends every wait with its reason.
 */
export function retryFailures(options: RetryOptions): Layer<UpstreamRequest, Answer> {
  const load: Load = { live: 0, retrying: 0 };
  return (next) => async (request, trace) => {
    load.live++;
    try {
      return satisfying(await next(request, trace));
    } catch (error) {
      // What needs no retry, as nearly all, never meets the loop and its promises.
      if (failureOf(error) === undefined) throw error;
      const retries = new Retries(options, load, request.claim, trace);
      return await retries.run(error, async () => satisfying(await next(request, trace)));
    } finally {
      load.live--;
    }
  };
}

interface Load {
  /** Requests under way. */
  live: number;
  /** Those of them that are tried again after a failure that was no 429. */
  retrying: number;
}

/** The retries of one request. */
class Retries {
  readonly #options: RetryOptions;
  readonly #load: Load;
  readonly #claim: Claim;
  readonly #trace: Trace;
  #attempts = 0;
  #waitsSinceMs: number | undefined;
  #hasRetriedFailure = false;
  #isCounted = false;

  constructor(options: RetryOptions, load: Load, claim: Claim, trace: Trace) {
    this.#options = options;
    this.#load = load;
    this.#claim = claim;
    this.#trace = trace;
  }

  /** @param first what the first attempt failed with: it counts as one of p-retry's */
  async run(first: unknown, send: () => Promise<Answer>): Promise<Answer> {
    const { limit, baseMs, capMs } = this.#options;
    const attempt = async (number: number): Promise<Answer> => {
      this.#attempts = number;
      this.#endWait();
      if (number === 1) throw first;
      return await send();
    };
    try {
      return await pRetry(attempt, {
        ...{ retries: limit, minTimeout: baseMs, factor: 2, maxTimeout: capMs, randomize: true },
        signal: this.#claim.signal,
        shouldRetry: (context) => this.#shouldRetry(context),
      });
    } catch (error) {
      if (!(error instanceof RetryableResponse)) throw error;
      if (error.answer.status !== 429) return error.answer;
      const backoffMs = Math.min(baseMs * 2 ** (this.#attempts - 1), capMs);
      throw rateLimited(Math.max(statedUntilMs(error.answer) - performance.now(), backoffMs));
    } finally {
      this.#endWait();
      this.#endRetry();
    }
  }

  async #shouldRetry({ error, retryDelay }: RetryContext): Promise<boolean> {
    this.#endRetry();
    const failure = failureOf(error);
    if (failure === undefined) return false;
    const nowMs = performance.now();
    const statedMs = error instanceof RetryableResponse ? statedUntilMs(error.answer) : 0;
    const nextMs = Math.max(nowMs + retryDelay, statedMs);
    const facts = { failure, hasRetriedFailure: this.#hasRetriedFailure, nextMs, ...this.#load };
    if (!mayRetry({ ...facts, deadlineMs: this.#claim.deadlineMs })) return false;
    if (failure === 'failed') {
      this.#hasRetriedFailure = true;
      this.#isCounted = true;
      this.#load.retrying++;
    }
    this.#waitsSinceMs = nowMs;
    const isForGate = this.#options.isGated === true && failure === 'throttled';
    // p-retry waits its own delay after this.
    if (!isForGate) await pause(this.#claim, nextMs - nowMs - retryDelay);
    return true;
  }

  #endWait(): void {
    if (this.#waitsSinceMs !== undefined) this.#trace.waitedMs += performance.now() - this.#waitsSinceMs;
    this.#waitsSinceMs = undefined;
  }

  #endRetry(): void {
    if (this.#isCounted) this.#load.retrying--;
    this.#isCounted = false;
  }
}

/** @throws RetryableResponse for an answer that is worth another attempt */
function satisfying(answer: Answer): Answer {
  if (failureOfStatus(answer.status) !== undefined) throw new RetryableResponse(answer);
  return answer;
}

function failureOf(error: unknown): Failure | undefined {
  return error instanceof RetryableResponse ? failureOfStatus(error.answer.status) : failureOfError(error);
}

function rateLimited(retryAfterMs: number): GatewayError {
  return new GatewayError('upstream-rate-limited', {
    retryAfterMs,
    receivedStatus: 429,
    reason: 'no further attempt fits before the deadline or within the limit of retries',
  });
}
