/**
 * Tries again what may pass: a 429 with increasing waits, a broken connection, a timeout or a 502, 503, 504 once.
 *
 * p-retry owns the loop and the backoff, `retry-policy.ts` decides. How long a 429 holds is the gate's to know: it
 * lets nothing up before. Where the gate is off, the wait that the upstream states is waited here.
 */
import pRetry, { type RetryContext } from 'p-retry';
import { GatewayError } from '../errors.ts';
import type { Answer, UpstreamRequest } from '../exchange.ts';
import type { Layer } from '../layer.ts';
import { pause, type RequestContext } from '../request-context.ts';
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

interface Load {
  /** Requests under way. */
  live: number;
  /** Those of them that were tried again after a failure that was no 429. */
  retrying: number;
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
 * `upstream-rate-limited` at once; any other answer is handed back as it came and an error is thrown as it was. A
 * context that ends ends every wait with its reason.
 */
export function retryFailures(options: RetryOptions): Layer<UpstreamRequest, Answer> {
  const load: Load = { live: 0, retrying: 0 };
  return (next) => async (request, trace) => {
    const send = async (): Promise<Answer> => {
      const answer = await next(request, trace);
      if (failureOfStatus(answer.status) !== undefined) throw new RetryableResponse(answer);
      return answer;
    };
    load.live++;
    try {
      return await send();
    } catch (error) {
      // What needs no retry, as nearly all, never meets the loop and its promises.
      if (failureOf(error) === undefined) throw error;
      return await retried(error, send, options, load, request.context, trace);
    } finally {
      load.live--;
    }
  };
}

/** @param first what the first attempt failed with: it counts as one of p-retry's */
async function retried(
  first: unknown,
  send: () => Promise<Answer>,
  { limit, baseMs, capMs, isGated = false }: RetryOptions,
  load: Load,
  context: RequestContext,
  trace: Trace,
): Promise<Answer> {
  let attempts = 0;
  let endedMs = performance.now();
  let hasRetriedFailure = false;

  async function attempt(number: number): Promise<Answer> {
    attempts = number;
    if (number === 1) throw first;
    trace.waited('retry', endedMs);
    return await send().finally(() => {
      endedMs = performance.now();
    });
  }

  async function shouldRetry({ error, retryDelay }: RetryContext): Promise<boolean> {
    const failure = failureOf(error);
    if (failure === undefined) return false;
    const nowMs = performance.now();
    const statedMs = error instanceof RetryableResponse ? statedUntilMs(error.answer) : 0;
    const nextMs = Math.max(nowMs + retryDelay, statedMs);
    const { deadlineMs } = context;
    if (!mayRetry({ failure, hasRetriedFailure, nextMs, deadlineMs, ...load })) return false;
    if (failure === 'failed') {
      hasRetriedFailure = true;
      load.retrying++;
    }
    // p-retry waits its own delay after this.
    if (!isGated || failure === 'failed') await pause(context, nextMs - nowMs - retryDelay);
    return true;
  }

  try {
    const backoff = { minTimeout: baseMs, factor: 2, maxTimeout: capMs, randomize: true };
    return await pRetry(attempt, { retries: limit, ...backoff, signal: context.signal, shouldRetry });
  } catch (error) {
    return lastWord(error, Math.min(baseMs * 2 ** (attempts - 1), capMs));
  } finally {
    trace.waited('retry', endedMs);
    if (hasRetriedFailure) load.retrying--;
  }
}

function failureOf(error: unknown): Failure | undefined {
  return error instanceof RetryableResponse ? failureOfStatus(error.answer.status) : failureOfError(error);
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
