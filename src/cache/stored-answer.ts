/** Handing out what is stored: a hit builds nothing but the facts for the trace. */

import type { Answer } from '../exchange.ts';
import type { CacheFacts, Trace } from '../trace.ts';
import type { Variant } from './answer-store.ts';

/** What is told of a request that went forward and got a stored answer all the same. */
export type Forward = Pick<CacheFacts, 'forwarded' | 'forwardStatus' | 'collapsed'>;

/** Hands out a stored answer: the same object every time. */
export function handOut(
  variant: Variant,
  trace: Trace,
  nowMs: number,
  detail: string | undefined,
  forward?: Forward,
): Answer {
  const { answer, policy } = variant;
  const more = detail ?? (policy.wholeRequest ? 'negative' : undefined);
  const ttlSeconds = Math.floor((policy.freshUntilMs - nowMs) / 1000);
  trace.cache =
    more === undefined && forward === undefined
      ? { hit: true, ttlSeconds }
      : {
          hit: forward === undefined,
          ...forward,
          // What must be validated each time has no lifetime to tell of.
          ...(policy.freshUntilMs === -Infinity ? undefined : { ttlSeconds }),
          ...(more === undefined ? undefined : { detail: more }),
        };
  variant.usedMs = nowMs;
  trace.ageSeconds = wholeSeconds(nowMs - policy.bornMs);
  trace.generation = answer.generation;
  return answer;
}

export function wholeSeconds(ms: number): number {
  return Math.max(0, Math.floor(ms / 1000));
}
