/** Serves a stored answer: a hit builds nothing but the facts for the trace. */

import type { Answer } from '../exchange/exchange.ts';
import type { CacheOutcome, Trace } from '../exchange/trace.ts';
import type { Variant } from './answer-store.ts';

/** The facts of a request that was forwarded and is served a stored answer all the same. */
export type Forward = Pick<CacheOutcome, 'forwarded' | 'forwardStatus' | 'collapsed'>;

/**
 * Returns the stored answer: the same object every time.
 *
 * @param nowMs monotonic
 * @param detail the token of `Cache-Status` that says why the answer was served, where it was not simply fresh
 */
export function serveStored(
  variant: Variant,
  trace: Trace,
  nowMs: number,
  detail: string | undefined,
  forward?: Forward,
): Answer {
  const { answer, policy } = variant;
  const token = detail ?? (policy.exactRequestOnly ? 'negative' : undefined);
  const ttlSeconds = Math.floor((policy.freshUntilMs - nowMs) / 1000);
  trace.cache =
    token === undefined && forward === undefined
      ? { hit: true, ttlSeconds }
      : {
          hit: forward === undefined,
          ...forward,
          // A number always: an answer that must be validated each time is never served from the store.
          ttlSeconds,
          ...(token === undefined ? undefined : { detail: token }),
        };
  variant.usedMs = nowMs;
  trace.ageSeconds = wholeSeconds(nowMs - policy.ageZeroMs);
  trace.generation = answer.generation;
  return answer;
}

export function wholeSeconds(ms: number): number {
  return Math.max(0, Math.floor(ms / 1000));
}
