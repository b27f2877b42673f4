/** An upstream with a hidden limit: a token bucket or fixed windows, with strays and noise. */
import type { StatedLimit } from '../../src/http/stated-wait.ts';

export interface SimulatedLimit {
  readonly seconds: number;
  /** Attempts per second that the upstream allows, by the second of the run. */
  readonly limit: (second: number) => number;
  readonly burst: number;
  /** The upstream is no bucket: it allows `limit` times this in each window of so many seconds. */
  readonly windowSeconds?: number;
  /** Instead: at most so many attempts in any window of these lengths, refused ones aside. `limit` counts for nothing. */
  readonly anyWindows?: readonly { readonly most: number; readonly windowMs: number }[];
  /** Others use the same key: so many attempts a second, of `anyWindows`. */
  readonly othersPerSecond?: number;
  /** With a window, every 429 states the rest of it, in whole seconds. */
  readonly statesWindow?: boolean;
  /** With a window, every success tells what is left of it, truly or not. */
  readonly fields?: 'true' | 'constant' | 'per path' | 'of others' | 'reset runs ahead';
  /** What every 429 states, ms. */
  readonly retryAfterMs?: number | undefined;
  /** One attempt in so many seconds is answered with 429 whatever the rate. */
  readonly straySeconds?: number;
  /** This share of the attempts is answered with 429 whatever the rate. */
  readonly noise?: number;
}

export class SimulatedUpstream {
  /** Attempts that it could have accepted so far. */
  possible: number;
  /** A time that it has stated: what is sent before is early. */
  statedUntilMs = 0;
  readonly #limit: SimulatedLimit;
  readonly #random: () => number;
  #tokens: number;
  #filledMs = 0;
  #windowEndMs = 0;
  #nextStrayMs: number;
  /** When each attempt was accepted that a window of `anyWindows` still holds, the oldest first. */
  readonly #accepted: { readonly most: number; readonly windowMs: number; readonly timesMs: number[] }[];
  #otherMs: number;

  constructor(limit: SimulatedLimit, random: () => number) {
    this.#limit = limit;
    this.#random = random;
    this.#tokens = limit.windowSeconds === undefined ? limit.burst : 0;
    const { anyWindows, seconds, othersPerSecond = 0 } = limit;
    const inAll = anyWindows?.map(({ most, windowMs }) => most * Math.ceil((seconds * 1000) / windowMs));
    this.possible = inAll === undefined ? this.#tokens : Math.min(...inAll) - othersPerSecond * seconds;
    this.#accepted = (anyWindows ?? []).map((one) => ({ ...one, timesMs: [] }));
    this.#otherMs = othersPerSecond === 0 ? Number.POSITIVE_INFINITY : 500 / othersPerSecond;
    this.#nextStrayMs = (limit.straySeconds ?? Number.POSITIVE_INFINITY) * 1000;
  }

  /** Whether one attempt is accepted that arrives now. */
  accepts(nowMs: number): boolean {
    this.fill(nowMs);
    if (nowMs >= this.#nextStrayMs) {
      this.#nextStrayMs += (this.#limit.straySeconds as number) * 1000;
      return false;
    }
    if (this.#limit.noise !== undefined && this.#random() < this.#limit.noise) return false;
    if (this.#accepted.length > 0) {
      for (; this.#otherMs <= nowMs; this.#otherMs += 1000 / (this.#limit.othersPerSecond as number))
        this.#fits(this.#otherMs);
      return this.#fits(nowMs);
    }
    if (this.#tokens < 1) return false;
    this.#tokens -= 1;
    return true;
  }

  /** Takes a place in each of `anyWindows`, where each has one. */
  #fits(nowMs: number): boolean {
    for (const { timesMs, windowMs } of this.#accepted)
      while ((timesMs[0] ?? nowMs) <= nowMs - windowMs) timesMs.shift();
    if (this.#accepted.some(({ timesMs, most }) => timesMs.length >= most)) return false;
    for (const { timesMs } of this.#accepted) timesMs.push(nowMs);
    return true;
  }

  /** The wait that a 429 states now, ms. */
  statedMs(nowMs: number): number | undefined {
    const { windowSeconds, statesWindow, retryAfterMs } = this.#limit;
    const [whole] = this.#accepted.filter(({ timesMs, most }) => timesMs.length >= most);
    if (whole !== undefined && statesWindow)
      return Math.ceil(((whole.timesMs[0] as number) + whole.windowMs - nowMs) / 1000) * 1000;
    if (windowSeconds === undefined) return retryAfterMs;
    return statesWindow ? Math.ceil((this.#windowEndMs - nowMs) / 1000) * 1000 : undefined;
  }

  /** What a success says now of what is left. */
  statedLimits(nowMs: number): readonly StatedLimit[] {
    const { fields, limit, windowSeconds = 0 } = this.#limit;
    if (fields === undefined) return [];
    const remaining = {
      true: this.#tokens,
      constant: limit(0) * windowSeconds,
      'per path': Math.ceil(this.#tokens / 3) + 5 * Math.floor(this.#random() * 3),
      'of others': Math.floor(this.#random() * 3),
      'reset runs ahead': this.#tokens,
    }[fields];
    const restMs = Math.ceil((this.#windowEndMs - nowMs) / 1000) * 1000;
    return [
      { name: 'fields', remaining, resetMs: fields === 'reset runs ahead' ? windowSeconds * 1000 : restMs },
    ];
  }

  fill(nowMs: number): void {
    const { limit, burst, seconds, windowSeconds } = this.#limit;
    const endMs = seconds * 1000;
    if (this.#accepted.length > 0) return;
    if (windowSeconds !== undefined) {
      if (nowMs < this.#windowEndMs) return;
      const windowMs = windowSeconds * 1000;
      this.#windowEndMs += (Math.floor((nowMs - this.#windowEndMs) / windowMs) + 1) * windowMs;
      this.#tokens = limit(0) * windowSeconds;
      this.possible = this.#tokens * (Math.min(this.#windowEndMs, endMs) / windowMs);
      return;
    }
    while (this.#filledMs < nowMs) {
      const second = Math.floor(this.#filledMs / 1000);
      const until = Math.min(nowMs, (second + 1) * 1000);
      const gain = ((until - this.#filledMs) * limit(second)) / 1000;
      this.#tokens = Math.min(burst, this.#tokens + gain);
      if (this.#filledMs < endMs) this.possible += gain;
      this.#filledMs = until;
    }
  }
}
