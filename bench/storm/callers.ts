/** The callers of the storm: loops that ask, wait for the answer, think, and ask again. */
import { setTimeout as sleep } from 'node:timers/promises';

export interface CallerPlan {
  readonly name: string;
  readonly loops: number;
  readonly thinkMs: number;
  /** Its part of the turns, as against the others'. */
  readonly weight: number;
  /** Its own limit at the gateway; none where left out. */
  readonly limit?: { readonly perSecond: number; readonly burst: number };
}

/** How one request ended, as its caller sees it. */
export type Ending =
  | { readonly kind: 'answered' }
  /** Turned away; `retryAfterMs` is what it was told. */
  | { readonly kind: 'refused'; readonly retryAfterMs: number }
  | { readonly kind: 'failed' };

/** The gate's state from a moment (`Date.now()`) on, and the rate that it knows. */
export interface GateMoment {
  readonly atMs: number;
  readonly to: string;
  readonly perSecond: number | undefined;
}

/** One side of the comparison: how a caller's request gets to the upstream. */
export interface Side {
  readonly name: string;
  ask(caller: string): Promise<Ending>;
  /** Ends it; a line on how it went, where there is something to say. */
  close(): Promise<string | undefined>;
  /** What its gate has done, once it is closed. */
  gate?(): readonly GateMoment[];
}

export type StartSide = (
  upstream: URL,
  key: string,
  deadlineMs: number,
  plans: readonly CallerPlan[],
) => Promise<Side>;

export interface CallerRecord {
  readonly plan: CallerPlan;
  /** From asking to the answer, ms. */
  readonly latenciesMs: number[];
  /** How long its pauses to think really were, added up, ms: timers are late, on a busy machine more so. */
  thoughtMs: number;
  thoughts: number;
  /** From asking to being turned away, ms. */
  readonly refusalsMs: number[];
  failed: number;
  /** Turned away, came back as told, and turned away again. */
  refusedAgain: number;
}

/** Runs all loops until `untilMs` (`performance.now()`); answers that come later do not count. */
export async function runCallers(
  side: Side,
  plans: readonly CallerPlan[],
  untilMs: number,
): Promise<CallerRecord[]> {
  const records = plans.map((plan): CallerRecord => {
    return {
      plan,
      latenciesMs: [],
      thoughtMs: 0,
      thoughts: 0,
      refusalsMs: [],
      failed: 0,
      refusedAgain: 0,
    };
  });
  const loop = async (record: CallerRecord): Promise<void> => {
    let wasRefused = false;
    while (performance.now() < untilMs) {
      const fromMs = performance.now();
      const ending = await side.ask(record.plan.name);
      const nowMs = performance.now();
      if (nowMs > untilMs) return;
      if (ending.kind === 'answered') {
        record.latenciesMs.push(nowMs - fromMs);
        wasRefused = false;
        if (record.plan.thinkMs === 0) continue;
        await sleep(record.plan.thinkMs);
        record.thoughtMs += performance.now() - nowMs;
        record.thoughts++;
      } else if (ending.kind === 'refused') {
        record.refusalsMs.push(nowMs - fromMs);
        if (wasRefused) record.refusedAgain++;
        wasRefused = true;
        await sleep(Math.min(ending.retryAfterMs, untilMs - nowMs));
      } else {
        record.failed++;
        wasRefused = false;
        await sleep(Math.max(record.plan.thinkMs, 100));
      }
    }
  };
  const loops = records.flatMap((record) => Array.from({ length: record.plan.loops }, () => loop(record)));
  // The last answers may take as long as a deadline; they don't count, so the benchmark does not wait for them.
  await Promise.race([Promise.all(loops), sleep(untilMs - performance.now() + 50)]);
  return records;
}
