/** Handing out what is stored: a hit builds nothing but the facts for the trace. */
import type { Trace } from '../trace.ts';
import type { Variant } from './answer-store.ts';
import type { Answer } from './exchange.ts';

/** Hands out a stored answer: the same object every time. */
export function handOut(
  variant: Variant,
  trace: Trace,
  nowMs: number,
  detail: string | undefined,
  forwardStatus?: number,
): Answer {
  const { answer, policy } = variant;
  const more = detail ?? (policy.wholeRequest ? 'negative' : undefined);
  const ttlSeconds = Math.floor((policy.freshUntilMs - nowMs) / 1000);
  trace.cache =
    more === undefined && forwardStatus === undefined
      ? { hit: true, ttlSeconds }
      : {
          hit: true,
          // What must be validated each time has no lifetime to tell of.
          ...(policy.freshUntilMs === -Infinity ? undefined : { ttlSeconds }),
          ...(more === undefined ? undefined : { detail: more }),
          ...(forwardStatus === undefined ? undefined : { forwardStatus }),
        };
  trace.ageSeconds = wholeSeconds(nowMs - policy.bornMs);
  trace.generation = answer.generation;
  return answer;
}

export function wholeSeconds(ms: number): number {
  return Math.max(0, Math.floor(ms / 1000));
}
