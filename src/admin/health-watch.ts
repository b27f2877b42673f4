/** Remembers since when the verdict on the gateway is what it is. */
import { type Health, judgeHealth, type Verdict } from './health-policy.ts';
import type { AdminSnapshot } from './sources.ts';

export interface DatedVerdict extends Verdict {
  /** Wall clock, ms: when `health` was first seen to be what it is. */
  readonly since: number;
}

export class HealthWatch {
  #health: Health = 'ok';
  #since: number | undefined;

  /** Judges a snapshot. Snapshots come in the order of their times. */
  readonly judge = (snapshot: AdminSnapshot): DatedVerdict => {
    const verdict = judgeHealth(snapshot);
    this.#since ??= snapshot.startedAt;
    if (verdict.health !== this.#health) {
      this.#health = verdict.health;
      this.#since = snapshot.at;
    }
    return { ...verdict, since: this.#since };
  };
}
