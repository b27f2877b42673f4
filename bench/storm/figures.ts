/** From what the callers saw and the upstream counted to the figures of the table. Pure. */
import type { CallerRecord } from './callers.ts';

export interface CallerFigures {
  readonly name: string;
  readonly answered: number;
  /** Share of what it asked for when nothing is in its way. */
  readonly demandMet: number;
  /** Share of the lesser of its demand and its max-min fair share of what the limit allows. */
  readonly shareMet: number;
  /** The same of what the upstream accepted in this run: closings that it asked for itself count against all gateways. */
  readonly acceptedShareMet: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly refused: number;
  /** Of these, how many were told so within a tenth of a second. */
  readonly refusedAtOnce: number;
  /** The slowest refusal, ms. */
  readonly slowestRefusalMs: number;
  readonly refusedAgain: number;
  readonly failed: number;
}

export interface Figures {
  /** What the upstream answered, as a share of what its limit and the demand made possible. */
  readonly goodput: number;
  /** 429s as a share of all attempts. */
  readonly wasted: number;
  readonly attempts: number;
  /** Jain's index of the callers' `shareMet`: 1 is fair, 1/n is one taking all. */
  readonly jain: number;
  readonly callers: readonly CallerFigures[];
}

const atOnceMs = 100;

/**
 * @param counts of the upstream
 * @param allowed attempts that the limit allowed in each second
 * @param roundTripMs one exchange on this side with no limit in its way, measured
 */
export function figuresOf(
  records: readonly CallerRecord[],
  counts: { answered: number; refused: number },
  allowed: readonly number[],
  roundTripMs: number,
): Figures {
  const perSecond = records.map((record) => demandPerSecond(record, roundTripMs));
  const weights = records.map(({ plan }) => plan.weight);
  /** Each caller's due, second by second, of this part of what the limit allows. */
  const entitledTo = (part: number): number[] => {
    const entitled = records.map(() => 0);
    for (const capacity of allowed) {
      maxMinShares(capacity * part, perSecond, weights).forEach((share, i) => {
        entitled[i] = (entitled[i] as number) + share;
      });
    }
    return entitled;
  };
  const entitled = entitledTo(1);
  const entitledOfAccepted = entitledTo(Math.min(counts.answered / sum(allowed), 1));
  const callers = records.map((record, i): CallerFigures => {
    const latencies = record.latenciesMs.toSorted((a, b) => a - b);
    return {
      name: record.plan.name,
      answered: latencies.length,
      demandMet: latencies.length / ((perSecond[i] as number) * allowed.length),
      shareMet: latencies.length / (entitled[i] as number),
      acceptedShareMet: latencies.length / (entitledOfAccepted[i] as number),
      p50Ms: quantile(latencies, 0.5),
      p99Ms: quantile(latencies, 0.99),
      refused: record.refusalsMs.length,
      refusedAtOnce: record.refusalsMs.filter((ms) => ms <= atOnceMs).length,
      slowestRefusalMs: Math.max(0, ...record.refusalsMs),
      refusedAgain: record.refusedAgain,
      failed: record.failed,
    };
  });
  const demand = sum(perSecond) * allowed.length;
  const met = callers.map(({ shareMet }) => shareMet);
  return {
    goodput: counts.answered / Math.min(sum(allowed), demand),
    wasted: counts.refused / Math.max(counts.answered + counts.refused, 1),
    attempts: counts.answered + counts.refused,
    jain: sum(met) ** 2 / (met.length * sum(met.map((value) => value ** 2))),
    callers,
  };
}

/**
 * What a caller would ask for unhindered: each of its loops thinks for as long as its timers really took and then
 * waits for one exchange that nothing is in the way of.
 */
function demandPerSecond({ plan, thoughtMs, thoughts }: CallerRecord, roundTripMs: number): number {
  const thinkMs = thoughts === 0 ? plan.thinkMs : thoughtMs / thoughts;
  return (plan.loops * 1000) / (thinkMs + roundTripMs);
}

/** Each caller gets what it asks for, up to one common level per weight that uses the capacity up. */
export function maxMinShares(
  capacity: number,
  demands: readonly number[],
  weights: readonly number[],
): number[] {
  const shares = demands.map(() => 0);
  const ascending = demands
    .map((demand, i) => ({ demand, weight: weights[i] ?? 1, i }))
    .sort((a, b) => a.demand / a.weight - b.demand / b.weight);
  let left = capacity;
  let weightLeft = sum(weights);
  for (const { demand, weight, i } of ascending) {
    const share = Math.min(demand, (left * weight) / weightLeft);
    shares[i] = share;
    left -= share;
    weightLeft -= weight;
  }
  return shares;
}

export function quantile(sorted: readonly number[], q: number): number {
  return sorted[Math.max(0, Math.ceil(sorted.length * q) - 1)] ?? Number.NaN;
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
