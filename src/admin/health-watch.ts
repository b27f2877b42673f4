/** Remembers since when the verdict on the gateway, and on each workspace, is what it is. */
import { type Health, judgeHealth, type Verdict } from './health.ts';
import { type AdminSnapshot, snapshotOfOne } from './sources.ts';

export interface DatedVerdict extends Verdict {
  /** Wall clock, ms: when `health` was first seen to be what it is. */
  readonly since: number;
}

export class HealthWatch {
  #health: Health = 'ok';
  #since: number | undefined;
  /** Of each workspace where there are several, by its name. */
  readonly #each = new Map<string, HealthWatch>();

  /** Judges a snapshot of all workspaces, or of one of them. Snapshots come in the order of their times. */
  readonly judge = (snapshot: AdminSnapshot): DatedVerdict => {
    const { workspaces } = snapshot;
    if (workspaces.length > 1) {
      for (const { name } of workspaces) this.#watchOf(name).judge(snapshotOfOne(snapshot, name));
    }
    const verdict = judgeHealth(snapshot);
    this.#since ??= snapshot.startedAt;
    if (verdict.health !== this.#health) {
      this.#health = verdict.health;
      this.#since = snapshot.at;
    }
    return { ...verdict, since: this.#since };
  };

  /** Judges one of several workspaces. */
  judgeOne(snapshot: AdminSnapshot, name: string): DatedVerdict {
    return this.#watchOf(name).judge(snapshotOfOne(snapshot, name));
  }

  #watchOf(name: string): HealthWatch {
    const watch = this.#each.get(name) ?? new HealthWatch();
    this.#each.set(name, watch);
    return watch;
  }
}
