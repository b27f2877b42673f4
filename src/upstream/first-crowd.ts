/**
 * For how long the first crowd went on arriving at the upstream: in that time its rate gave some of what it
 * accepted. No clock: times come in as arguments.
 *
 * The ways there are slow at first (connections, cold code) and the answers' are not, so it is reckoned backwards
 * from the answers: the quickest of them shows how long before an answer its attempt arrives.
 */

export interface FirstCrowd {
  readonly spanMs: number;
  /** @param isLate it was under way when one sent after it was refused */
  accepted(sentMs: number, nowMs: number, isLate: boolean): void;
  refused(sentMs: number, nowMs: number): void;
}

/** Of a crowd that goes on for longer, only the end is looked at. */
export const longestCrowdMs = 1000;

export function watchCrowd(): FirstCrowd {
  let firstAnswerMs = Number.POSITIVE_INFINITY;
  let lastAnswerMs = Number.NEGATIVE_INFINITY;
  let lastRefusalMs = Number.NEGATIVE_INFINITY;
  let quickestAnswerMs = Number.POSITIVE_INFINITY;
  let quickestRefusalMs = Number.POSITIVE_INFINITY;
  return {
    get spanMs() {
      // None of it was accepted: there is nothing to reckon with, and nothing that the rate gave.
      if (firstAnswerMs === Number.POSITIVE_INFINITY) return 0;
      const lastArrivalMs = Math.max(
        lastAnswerMs - quickestAnswerMs,
        lastRefusalMs - Math.min(quickestRefusalMs, quickestAnswerMs),
      );
      const firstArrivalMs = firstAnswerMs - quickestAnswerMs;
      return Math.min(Math.max(lastArrivalMs - firstArrivalMs, 0), longestCrowdMs);
    },
    accepted(sentMs, nowMs, isLate) {
      firstAnswerMs = Math.min(firstAnswerMs, nowMs);
      if (isLate) lastAnswerMs = Math.max(lastAnswerMs, nowMs);
      quickestAnswerMs = Math.min(quickestAnswerMs, nowMs - sentMs);
    },
    refused(sentMs, nowMs) {
      lastRefusalMs = Math.max(lastRefusalMs, nowMs);
      quickestRefusalMs = Math.min(quickestRefusalMs, nowMs - sentMs);
    },
  };
}
