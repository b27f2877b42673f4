/** Every tuned number of the gate, with what it trades. */
export const tuning = {
  /** Rate guessed at the first 429, per second. Higher: less lost at a fast upstream, more 429s at a slow one. */
  guessPerSecond: 25,
  /** A guess doubles in this time while requests wait. Shorter: learned sooner, and measured less closely. */
  guessDoublingMs: 1000,
  /** Burst and rate are read from this long before the first 429. Longer: a steady rate is told from a burst. */
  historyMs: 2000,
  /** Share of the burst that the pacer uses. More: a closing costs less; less: a rate too high shows later. */
  usedBurst: 0.5,
  /** A probe begins this share above the known rate. More: quicker, but more 429s in flight when it ends. */
  probeExcess: 0.1,
  /** The excess of a probe doubles in this time. Shorter: a raised limit is found sooner; more 429s. */
  probeDoublingMs: 500,
  /** First interval between probes; doubles with each confirmation. Shorter: follows the limit; more 429s. */
  probeIntervalMs: 5000,
  probeBackoff: 1.25,
  longestProbeIntervalMs: 240_000,
  /** The interval is at least this many times the stated wait. More: less time closed; a raised limit is found later. */
  probeCosts: 10,
  /** Pace grows by this factor between two marks of the history. Smaller: closer measurement, more marks. */
  markGrowth: 1.1,
  /** A measurement counts where its bounds are within this factor. More: fewer 429s until one counts; coarser. */
  usefulRange: 2,
  /** The burst is known to one token and this share. More: fewer false measurements, more halvings. */
  burstError: 0.05,
  /** A rate that differs by less is the same rate. More: probes stay rare; a slow drift is followed later. */
  sameRate: 0.1,
  /**
   * A 429 that states no wait closes for so long once a rate is known. Shorter: less lost; attempts that are still in
   * flight blur the next measurement, and trial requests are refused more often.
   */
  briefClosedMs: 80,
  /** Reopening comes later by up to this share. More: several gateways collide less; each waits longer. */
  jitter: 0.05,
  /** Without a 429 for so long and nothing waiting, the limit is forgotten. Longer: a known limit is kept. */
  quietMs: 60_000,
  /** A queued request is turned away when its turn is later than its patience by this factor. */
  patienceSlack: 1.1,
  /** No caller is told to come back sooner. */
  leastRetryAfterMs: 1000,
  /** A request is told so long before its deadline, so that the word arrives. */
  lastWordMs: 25,
} as const;
