/**
 * How many turns the others take while one caller waits, told from those they have taken lately: who has nothing
 * waiting just now may be thinking, and come back. Virtual times and counts of turns come in.
 */

export interface OthersTurns {
  /** This caller has taken a turn of its own, in order, and has so many more waiting. */
  took(turns: number, time: number, waiting: number): void;
  /**
   * Their turns in a unit of virtual time, in which this caller takes as many as it weighs; undefined while there is
   * too little to tell by.
   */
  perTime(turns: number, time: number, waiting: number): number | undefined;
}

/** What is to come while a whole line is served, is told from at least this share of it, and so many turns. */
const leastShare = 1 / 4;
const leastTurns = 8;
/** Beyond so many times the line, it is forgotten by half. */
const longestShare = 2;

/**
 * @param weight of the caller
 * @param turns there have been, when this caller came
 * @param time the virtual time then
 */
export function watchOthers(weight: number, turns: number, time: number): OthersTurns {
  let sinceTime = time;
  /** All turns but these are others', since then. */
  let notTheirs = turns;
  return {
    took(turns, time, waiting) {
      notTheirs++;
      const elapsed = time - sinceTime;
      if (elapsed * weight < longestShare * Math.max(waiting, leastTurns)) return;
      sinceTime += elapsed / 2;
      notTheirs = turns - (turns - notTheirs) / 2;
    },
    perTime(turns, time, waiting) {
      const elapsed = time - sinceTime;
      if (elapsed * weight < Math.max(waiting * leastShare, leastTurns)) return undefined;
      return (turns - notTheirs) / elapsed;
    },
  };
}
