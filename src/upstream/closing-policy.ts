/** For how long a refusal closes the gate. Pure: no I/O, no clock, times come in. */

export interface ClosingOptions {
  /** The longest one refusal may hold everybody, ms. */
  readonly maxClosedMs: number;
  /** How long the gate closes at first where neither the upstream nor experience says, and at most, ms. */
  readonly baseMs: number;
  readonly capMs: number;
  /** 0 to 1, for the jitter. */
  readonly random: () => number;
}

/** A refusal, as far as closing goes. */
export interface Refused {
  /** What the upstream asks for; undefined where it doesn't say. */
  readonly waitMs: number | undefined;
  readonly sentMs: number;
  readonly isProbe: boolean;
  /** The gate is closed already. */
  readonly isClosed: boolean;
  /** The learned rate, turns per ms; undefined while there is none to go by. */
  readonly perMs: number | undefined;
}

export interface Closings {
  /** Nothing goes up before. Moves only forward. */
  readonly reopensMs: number;
  /** What the upstream itself has asked for, however long; in the past once it has accepted an attempt. */
  readonly statedUntilMs: number;
  /** Whether the gate is to close, or stay closed, because of this refusal. */
  refused(refused: Refused, nowMs: number): boolean;
  /** A probe was answered. */
  reopened(): void;
}

/** Reopening comes later by up to this share of the time closed, and by no more than a second. */
const jitterShare = 0.05;
const mostJitterMs = 1000;
/** With a known rate, a refusal that says nothing closes the gate for this many turns. */
const briefTurns = 4;

export function reckonClosings(options: ClosingOptions): Closings {
  let reopensMs = 0;
  let statedUntilMs = 0;
  let closedAtMs = Number.NEGATIVE_INFINITY;
  /** Refused probes in a row. */
  let failedProbes = 0;
  /** 0 to 1, drawn once for each closing. */
  let jitter = 0;

  const briefMs = (perMs: number | undefined): number =>
    perMs === undefined ? options.baseMs : Math.min(briefTurns / perMs, options.baseMs);

  return {
    get reopensMs() {
      return reopensMs;
    },
    get statedUntilMs() {
      return statedUntilMs;
    },

    refused({ waitMs, sentMs, isProbe, isClosed, perMs }, nowMs) {
      const isStated = waitMs !== undefined && waitMs > 0;
      // Sent before the gate closed last: what it tells is known already.
      if (!isStated && (isClosed || sentMs < closedAtMs)) return false;
      failedProbes = isProbe ? failedProbes + 1 : 0;
      const wantedMs = isStated ? waitMs : Math.min(briefMs(perMs) * 2 ** failedProbes, options.capMs);
      if (isStated) statedUntilMs = Math.max(statedUntilMs, nowMs + waitMs);
      const closedMs = Math.min(wantedMs, options.maxClosedMs);
      if (!isClosed) {
        jitter = options.random();
        closedAtMs = nowMs;
      }
      // Forward only, and jitter only later: never earlier than asked.
      const jitterMs = jitter * Math.min(closedMs * jitterShare, mostJitterMs);
      reopensMs = Math.max(reopensMs, nowMs + closedMs + jitterMs);
      return true;
    },

    reopened() {
      failedProbes = 0;
      // It has taken back its word.
      statedUntilMs = 0;
    },
  };
}
