/**
 * Tries again what may pass: a 429 with increasing waits, a broken connection or a 502, 503 or 504 once.
 *
 * p-retry owns the loop. The waits are ours, taken in its `onFailedAttempt` with its own delay at 0: p-retry
 * knows no `Retry-After`, caps after the jitter, and cuts its last wait to the time left, which is earlier than
 * the upstream asked for.
 */
import pRetry from 'p-retry';
import type { Claim, ClaimWatcher } from '../claim.ts';
import { GatewayError } from '../errors.ts';
import type { Answer, UpstreamRequest } from '../exchange.ts';
import { andThen, type Eventually, type Layer } from '../layer.ts';
import type { Trace } from '../trace.ts';
import { statedWaitMs } from './retry-after-policy.ts';
import { mayRetry } from './retry-budget-policy.ts';
import { backoffMs, type Failure, failureOfStatus, retriesFor } from './retry-policy.ts';

export interface RetryOptions {
  /** Retries after the first attempt, at most. */
  readonly limit: number;
  /** The wait before the first retry, ms; it doubles with each further one, up to `capMs`. */
  readonly baseMs: number;
  readonly capMs: number;
  /** 0 to 1, for the jitter. Default `Math.random`. */
  readonly random?: () => number;
}

/** Carries an answer that is worth another attempt through p-retry, which retries on errors only. */
class Unsatisfied extends Error {
  readonly answer: Answer;
  readonly failure: Failure;

  constructor(answer: Answer, failure: Failure) {
    super(`status ${answer.status}`);
    this.answer = answer;
    this.failure = failure;
  }
}

/**
 * Retries within the claim's deadline, read live. What cannot be waited for is told at once.
 *
 * When retries run out, a 429 becomes `upstream-rate-limited`; any other answer is handed back as it came and an
 * error is thrown as it was. An aborted claim ends every wait with its reason.
 */
export function retryFailures(options: RetryOptions): Layer<UpstreamRequest, Answer> {
  const random = options.random ?? Math.random;
  let live = 0;
  let retrying = 0;

  return (next) => {
    /** Goes on after a first attempt that failed; it counts as one of p-retry's. */
    async function goOn(first: unknown, request: UpstreamRequest, trace: Trace): Promise<Answer> {
      const { claim } = request;
      /** Retries so far, by what they were for. */
      const retries: Record<Failure, number> = { refused: 0, broken: 0, late: 0 };
      let isRetrying = false;

      /** Waits until the next attempt makes sense; throws where none does. */
      const waitForNext = async (error: Error): Promise<void> => {
        const failure = failureOf(error);
        const wasRetrying = isRetrying;
        if (isRetrying) {
          retrying--;
          isRetrying = false;
        }
        if (failure === undefined) throw error;
        const answer = error instanceof Unsatisfied ? error.answer : undefined;
        const statedMs = answer && statedWaitMs(answer.headers, answer.receivedAt);
        const waitMs = backoffMs(retries[failure] + 1, statedMs, options, random());
        // From receipt, not from now: what has passed since counts.
        const untilMs = (answer?.receivedMs ?? performance.now()) + waitMs;
        if (failure === 'refused') {
          // All count together: p-retry would hand back the 429 itself after its last one.
          const isSpent = retries.refused + retries.broken + retries.late >= options.limit;
          if (isSpent || untilMs >= claim.deadlineMs) {
            throw rateLimited(untilMs - performance.now());
          }
        } else {
          const isSpent = wasRetrying || retries.broken + retries.late >= retriesFor(failure, options.limit);
          if (isSpent || untilMs >= claim.deadlineMs || !mayRetry(retrying, live)) throw error;
          retrying++;
          isRetrying = true;
        }
        retries[failure]++;
        // Not in the gate's line: what was refused waits its own backoff, as the specification asks. No more wait
        // here than were in flight when the gate closed, and the line takes them back in the order they arrived in.
        await sleepUntil(untilMs, claim, trace);
      };

      try {
        const attempt = async (number: number): Promise<Answer> => {
          if (number === 1) throw first;
          return satisfied(await next(request, trace), claim);
        };
        return await pRetry(attempt, {
          retries: options.limit,
          minTimeout: 0,
          signal: claim.signal,
          // p-retry never retries a `TypeError`; whatever ours are, they are faults and end here as well.
          onFailedAttempt: ({ error }) => waitForNext(error),
        });
      } catch (error) {
        if (error instanceof Unsatisfied) return error.answer;
        throw error;
      } finally {
        if (isRetrying) retrying--;
      }
    }

    /** What only needs one attempt, as nearly all do, never meets the loop and its promises. */
    return (request, trace) => {
      live++;
      const onFailure = (error: unknown): Promise<Answer> =>
        goOn(error, request, trace).finally(() => {
          live--;
        });
      let answer: Eventually<Answer>;
      try {
        answer = next(request, trace);
      } catch (error) {
        return onFailure(error);
      }
      return andThen(
        answer,
        (received) => {
          try {
            satisfied(received, request.claim);
          } catch (error) {
            return onFailure(error);
          }
          live--;
          return received;
        },
        onFailure,
      );
    };
  };
}

/** An answer that needs no further attempt. @throws Unsatisfied for one that does, the reason of an ended claim */
function satisfied(answer: Answer, claim: Claim): Answer {
  const failure = failureOfStatus(answer.status);
  if (failure !== undefined) throw new Unsatisfied(answer, failure);
  if (claim.ended !== undefined) throw claim.ended;
  return answer;
}

function failureOf(error: Error): Failure | undefined {
  if (error instanceof Unsatisfied) return error.failure;
  if (!(error instanceof GatewayError)) return undefined;
  // With a wait in it, it comes from the circuit: the upstream is known to be down.
  if (error.retryAfterMs !== undefined) return undefined;
  if (error.code === 'upstream-timeout') return 'late';
  return error.code === 'upstream-unreachable' ? 'broken' : undefined;
}

function rateLimited(retryAfterMs: number): GatewayError {
  return new GatewayError('upstream-rate-limited', {
    retryAfterMs: Math.max(retryAfterMs, 0),
    receivedStatus: 429,
    reason: 'no further attempt fits before the deadline or within the limit of retries',
  });
}

/** Rejects with the claim's reason as soon as it ends. */
function sleepUntil(untilMs: number, claim: Claim, trace: Trace): Promise<void> {
  const fromMs = performance.now();
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const watcher: ClaimWatcher = {
    onEnd(reason) {
      clearTimeout(timer);
      trace.waitedMs += performance.now() - fromMs;
      reject(reason);
    },
  };
  const timer = setTimeout(
    () => {
      claim.unwatch(watcher);
      trace.waitedMs += performance.now() - fromMs;
      resolve();
    },
    Math.max(0, Math.ceil(untilMs - fromMs)),
  );
  if (claim.ended === undefined) claim.watch(watcher);
  else watcher.onEnd(claim.ended);
  return promise;
}
