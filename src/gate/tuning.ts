/** The tuned numbers of the gate, each with what it trades. */
export const tuning = {
  /** Least rate guessed at the first 429, per second; more where the first burst was larger. Higher: less lost at a fast upstream, more 429s at a slow one. */
  guessPerSecond: 25,
  /** A guess doubles in this time while requests wait. Shorter: learned sooner, and measured less closely. */
  guessDoublingMs: 1000,
  /** The burst is what was accepted in this long before the first 429. Longer: more of a slow burst is seen. */
  historyMs: 2000,
  /** A guess, or a pace that explores, grows no longer than this. Longer: a limit that has gone up thousandfold is found at once. */
  longestRiseMs: 10_000,
  /** Share of the burst that the pacer uses. More: a cooldown costs less; less: a rate too high shows later. */
  usedBurst: 0.5,
  /** Exploring begins this share above the known rate. More: quicker, but more 429s in flight when it ends. */
  exploreExcess: 0.07,
  /** The excess doubles in this time. Shorter: a raised limit is found sooner; more 429s. */
  exploreDoublingMs: 500,
  /** Interval until the first time of exploring after a new rate. Shorter: a raised limit is found sooner; more 429s. */
  firstExploreIntervalMs: 5000,
  /** The interval grows by this factor with each time that finds the same rate, */
  exploreBackoff: 1.25,
  /** to this at most. Longer, like more growth: fewer 429s; a raised limit is found later. */
  longestExploreIntervalMs: 240_000,
  /** But the interval is at least this many times the cooldown before it. More: less time closed; a raised limit is found later. */
  exploreCosts: 15,
  /** Pace grows by this factor between two marks of the history. Smaller: closer measurement, more marks. */
  markGrowth: 1.1,
  /** A measurement counts where its bounds are within this factor. More: fewer 429s until one counts; coarser. */
  usefulRange: 2,
  /** The burst is known to one token and this share. More: fewer false measurements, more halvings. */
  burstError: 0.08,
  /** A rate that differs by less is the same rate. More: exploring stays rare; a slow drift is followed later. */
  sameRate: 0.1,
  /** A 429 without a stated wait closes so long once a rate is known. Shorter: less lost; answers in flight blur more. */
  briefClosedMs: 80,
  /** Reopening comes later by up to this share. More: several gateways collide less; each waits longer. */
  jitter: 0.05,
  /** Without a 429 for so long and nothing waiting, the limit is forgotten. Longer: a known limit is kept. */
  quietMs: 60_000,
  /** Places of a told window that come back together: one in so many. More: a little less is lost; more to keep and to share. */
  windowCells: 100,
  /** This share of a told window is not for background refreshes. More: callers' reads last longer, stored answers get older. */
  keptFromRefreshes: 0.1,
  /** This share of a told window is for callers that use less than the average. More: these are served longer; bursts are shorter. */
  keptForLight: 0.25,
  /** No caller is told to come back sooner. */
  leastRetryAfterMs: 1000,
  /** A request is told so long before its deadline, so that the word arrives. */
  lastWordMs: 25,
} as const;
