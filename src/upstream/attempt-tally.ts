/**
 * Counts attempts where they are made, so that those of background refreshes, of key checks and of exchanges that
 * no request waits for any more are counted too: no request's trace knows all of them.
 */

import { GatewayError } from '../errors.ts';
import { Durations, type DurationsSnapshot, toSeconds } from '../exchange/figures.ts';
import { ProxyError } from '../exchange/proxy.ts';

/** What became of attempts: a status, a problem's code, `proxy-failed`, or `abandoned` where its request had gone. */
export interface AttemptOutcome {
  readonly operation: string;
  readonly outcome: string;
  readonly count: number;
  /** Time spent in them together. */
  readonly seconds: number;
}

/** The upstream's part of `/status`; `beside` is for metrics and charts alone. */
export interface AttemptSnapshot {
  /** All since the start, those in flight too. */
  readonly attempts: number;
  /** Attempts that an exchange needed after its first, for whatever reason. */
  readonly retries: number;
  readonly inFlight: number;
  readonly outcomes: readonly AttemptOutcome[];
  /** How often a field of a 429 or 5xx should have said how long to wait, and said nothing that can be read. */
  readonly unreadableWaits: readonly { readonly field: string; readonly count: number }[];
  readonly beside: {
    /** Attempts that no request waited for when they began: background refreshes. */
    readonly background: number;
    readonly durations: readonly (DurationsSnapshot & { readonly operation: string })[];
  };
}

export interface AttemptTally {
  /** @param attemptsBefore of the same exchange. @param isBackground no request waits for it */
  begun(attemptsBefore: number, isBackground: boolean): void;
  /** @param outcome the status of an answer that was handed up, or what was thrown instead */
  ended(operation: string, outcome: unknown, ms: number): void;
  /** @param fields the names of those that are known to state waits: few, whatever the upstream sends */
  unreadable(fields: readonly string[]): void;
  snapshot(): AttemptSnapshot;
}

interface Cell {
  readonly outcome: unknown;
  count: number;
  ms: number;
}

/** A strange upstream may give a thousand different statuses: those that come late are counted as one. */
const maxOutcomes = 32;
const others = 'other';

export function tallyAttempts(): AttemptTally {
  const operations = new Map<string, { readonly cells: Cell[]; readonly durations: Durations }>();
  const unreadableWaits = new Map<string, number>();
  let inFlight = 0;
  let ended = 0;
  let retries = 0;
  let background = 0;

  function tallyOf(operation: string): { cells: Cell[]; durations: Durations } {
    let tally = operations.get(operation);
    if (tally === undefined) {
      tally = { cells: [], durations: new Durations() };
      operations.set(operation, tally);
    }
    return tally;
  }

  function cellOf(cells: Cell[], outcome: unknown): Cell {
    const named = cells.length < maxOutcomes ? outcome : others;
    let cell = cells.find((one) => one.outcome === outcome) ?? cells.find((one) => one.outcome === named);
    if (cell === undefined) {
      cell = { outcome: named, count: 0, ms: 0 };
      cells.push(cell);
    }
    return cell;
  }

  return {
    begun(attemptsBefore, isBackground) {
      inFlight += 1;
      if (isBackground) background += 1;
      if (attemptsBefore > 0) retries += 1;
    },
    ended(operation, outcome, ms) {
      inFlight -= 1;
      ended += 1;
      const { cells, durations } = tallyOf(operation);
      durations.observe(ms);
      const cell = cellOf(cells, outcomeLabel(outcome));
      cell.count += 1;
      cell.ms += ms;
    },
    unreadable(fields) {
      for (const field of fields) unreadableWaits.set(field, (unreadableWaits.get(field) ?? 0) + 1);
    },
    snapshot: () => ({
      attempts: ended + inFlight,
      retries,
      inFlight,
      outcomes: [...operations].flatMap(([operation, { cells }]) =>
        cells.map(({ outcome, count, ms }) => ({
          operation,
          outcome: String(outcome),
          count,
          seconds: toSeconds(ms),
        })),
      ),
      unreadableWaits: [...unreadableWaits].map(([field, count]) => ({ field, count })),
      beside: {
        background,
        durations: [...operations].map(([operation, { durations }]) => ({
          operation,
          ...durations.snapshot(),
        })),
      },
    }),
  };
}

/** What became of an attempt: the status of its answer, or the name of what it ended with. */
export function outcomeLabel(outcome: unknown): number | string {
  if (typeof outcome === 'number') return outcome;
  if (!(outcome instanceof GatewayError)) return 'abandoned';
  return outcome.cause instanceof ProxyError ? 'proxy-failed' : outcome.code;
}
