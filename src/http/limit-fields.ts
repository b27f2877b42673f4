/**
 * Whether the fields in which successes tell what is left of a limit can be believed, and what follows. No I/O, no clock:
 * times come in.
 *
 * They are believed where they behave: until the reset stands, what is left is less in each answer than it was when the
 * attempt was sent, and the reset moves only once it has come. Fields that lie (constant, per path, counting others' requests,
 * a reset that runs ahead of the clock) break that soon, and are forgotten until they have kept to it for longer. Where they
 * hold all attempts, nothing would ever contradict them: so one goes every now and then.
 */
import type { StatedLimit } from './stated-wait.ts';

/** A limit that was told: at most so many attempts in any window of this length. */
export interface AttemptLimit {
  readonly most: number;
  readonly windowMs: number;
  /** The length as it was told, for people. */
  readonly window: string;
}

/** So many answers in a row must behave first, and so many times more after each that did not. */
const trustedAfter = 5;
const warier = 16;
/** Resets are written in whole seconds, as is the `Date` that they are measured by. */
const roundingMs = 1_500;
/** Attempts at once are far fewer. */
const marksKept = 256;

interface Source {
  /** Answers in a row that behaved, and how many it takes. */
  behaved: number;
  needed: number;
  /** Of the window that stands. */
  sinceMs: number;
  /** The reset as it was stated first, and the latest since. */
  firstUntilMs: number;
  untilMs: number;
  least: number;
  /** When it was said last. */
  heardMs: number;
  /** How `least` fell, by the time of receipt. */
  marks: { readonly atMs: number; readonly least: number }[];
  /** The most that was left of a window: what a new one begins with. */
  most: number;
}

export class LimitFields {
  readonly #spread: number;
  readonly #maxHeldMs: number;
  /** By the fields' names, which are few. */
  readonly #sources = new Map<string, Source>();

  /**
   * @param spread this last part of a window goes no sooner than evenly until its reset, so that it is no one caller's
   * @param maxHeldMs what was said holds the next attempt no longer than this
   */
  constructor(spread: number, maxHeldMs: number) {
    this.#spread = spread;
    this.#maxHeldMs = maxHeldMs;
  }

  /**
   * What an answer says.
   *
   * @param sentMs when its attempt was sent
   * @returns the fields that were found out for the first time
   */
  heard(limits: readonly StatedLimit[], sentMs: number, nowMs: number): readonly string[] {
    return limits.flatMap((limit) => {
      const source = this.#sources.get(limit.name) ?? newSource();
      this.#sources.set(limit.name, source);
      if (behaves(source, limit, sentMs, nowMs)) return [];
      const needed = source.needed * warier;
      this.#sources.set(limit.name, { ...newSource(), needed });
      return source.needed === trustedAfter ? [limit.name] : [];
    });
  }

  /** When an attempt may go beside and behind so many others; not later than `nowMs` where one may go now. */
  turnMs(others: number, nowMs: number): number {
    let turnMs = nowMs;
    for (const source of this.#sources.values()) {
      if (source.behaved < source.needed) continue;
      const heldMs = this.#turnMs(source, others, nowMs);
      // Alone, so that its answer can be heard before the next one.
      const isNext = others === 0;
      turnMs = Math.max(turnMs, isNext ? Math.min(heldMs, source.heardMs + this.#maxHeldMs) : heldMs);
    }
    return turnMs;
  }

  #turnMs({ sinceMs, untilMs, least, most }: Source, others: number, nowMs: number): number {
    // Of a window that begins, nothing is known but what those before it held: the first answers tell.
    if (nowMs >= untilMs) return others < Math.max(most, 1) ? nowMs : nowMs + 1_000;
    if (others >= least) return untilMs;
    const spread = Math.floor(most * this.#spread);
    const further = Math.max(least - others - 1, 0) / spread;
    return spread === 0 ? nowMs : untilMs - further * (untilMs - sinceMs);
  }
}

function newSource(): Source {
  return {
    behaved: 0,
    needed: trustedAfter,
    sinceMs: 0,
    firstUntilMs: 0,
    untilMs: 0,
    least: 0,
    heardMs: 0,
    marks: [],
    most: 0,
  };
}

/** Takes up what was said. @returns whether it agrees with what was said before */
function behaves(
  source: Source,
  { remaining, resetMs }: StatedLimit,
  sentMs: number,
  nowMs: number,
): boolean {
  const untilMs = nowMs + resetMs;
  // Of a window that is over. What was sent in the one that stands contradicts it.
  if (untilMs < source.firstUntilMs - roundingMs) return sentMs < source.sinceMs;
  const isNew = untilMs > source.firstUntilMs + roundingMs;
  if (isNew && nowMs < source.firstUntilMs - roundingMs) return false;
  if (isNew) {
    Object.assign(source, { sinceMs: nowMs, firstUntilMs: untilMs, untilMs, least: remaining, marks: [] });
  } else {
    const before = source.marks.findLast(({ atMs }) => atMs <= sentMs);
    if (before !== undefined && remaining >= before.least) return false;
    if (before !== undefined) source.behaved += 1;
    source.least = Math.min(source.least, remaining);
    // Rounded down, it is never later than it says.
    source.untilMs = Math.max(source.untilMs, untilMs);
  }
  source.marks = [...source.marks.slice(1 - marksKept), { atMs: nowMs, least: source.least }];
  source.most = Math.max(source.most, remaining);
  source.heardMs = nowMs;
  return true;
}
