/**
 * Tries again what may pass: a 429 with increasing waits, a broken connection, a timeout or a 502, 503, 504 once.
 *
 * p-retry owns the loop and the backoff, `retry-policy.ts` decides. How long a 429 holds is the gate's to know: it
 * lets nothing up before. Where the gate is off, the wait that the upstream states is waited here.
 */
import pRetry from 'p-retry';
import { pause } from '../claim.ts';
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
      return await tryAgain(error, async () => satisfying(await next(request, trace)), request, trace);
    } finally {
      load.live--;
    }
  };

  /** @param first what the first attempt failed with: it counts as one of p-retry's */
  async function tryAgain(
    first: unknown,
    send: () => Promise<Answer>,
    { claim }: UpstreamRequest,
    trace: Trace,
  ): Promise<Answer> {
    let attempts = 0;
    let waitsSinceMs: number | undefined;
    let hasRetriedFailure = false;
    let isCounted = false;
    const endWait = (): void => {
      if (waitsSinceMs !== undefined) trace.waitedMs += performance.now() - waitsSinceMs;
      waitsSinceMs = undefined;
    };
    const endRetry = (): void => {
      if (isCounted) load.retrying--;
      isCounted = false;
    };
    try {
      return await pRetry(
        (number) => {
          attempts = number;
          endWait();
          if (number === 1) throw first;
          return send();
        },
        {
          retries: options.limit,
          minTimeout: options.baseMs,
          factor: 2,
          maxTimeout: options.capMs,
          randomize: true,
          signal: claim.signal,
          async shouldRetry({ error, retryDelay }) {
            endRetry();
            const failure = failureOf(error);
            if (failure === undefined) return false;
            const nowMs = performance.now();
            const statedMs = error instanceof RetryableResponse ? statedUntilMs(error.answer) : 0;
            const nextMs = Math.max(nowMs + retryDelay, statedMs);
            const { deadlineMs } = claim;
            if (!mayRetry({ failure, hasRetriedFailure, nextMs, deadlineMs, ...load })) return false;
            if (failure === 'failed') {
              hasRetriedFailure = true;
              isCounted = true;
              load.retrying++;
            }
            waitsSinceMs = nowMs;
            // What p-retry waits comes after it.
            const isForGate = options.isGated === true && failure === 'throttled';
            if (!isForGate) await pause(claim, nextMs - nowMs - retryDelay);
            return true;
          },
        },
      );
    } catch (error) {
      if (!(error instanceof RetryableResponse)) throw error;
      if (error.answer.status !== 429) return error.answer;
      const backoffMs = Math.min(options.baseMs * 2 ** (attempts - 1), options.capMs);
      throw rateLimited(Math.max(statedUntilMs(error.answer) - performance.now(), backoffMs));
    } finally {
      endWait();
      endRetry();
    }
  }
}

interface Load {
  /** Requests under way. */
  live: number;
  /** Those of them that are tried again after a failure that was no 429. */
  retrying: number;
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
