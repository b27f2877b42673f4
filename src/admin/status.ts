/** `/status`: the snapshot with the verdict on it, for people and scripts. */
import type { Status } from '../browser/console/status.ts';
import { maxCallers } from './caller-counts.ts';
import { type Health, type HealthReason, judgeHealth, type Verdict } from './health.ts';
import type { RecentRequests } from './history.ts';
import { type AdminSnapshot, snapshotOfOne } from './snapshot.ts';

/** What a purge asks for: nothing, the token of ADMIN_TOKEN_FROM, or that this setting is set at all. */
export type PurgeNeeds = 'nothing' | 'token' | 'setting';

export interface DatedVerdict extends Verdict {
  /** Each with the time when it was first seen. */
  readonly reasons: readonly (HealthReason & { readonly since: string })[];
  /** When `health` was first seen to be what it is. */
  readonly since: string;
}

/** Remembers since when the verdict on the gateway, and on each workspace, is what it is. */
export class HealthWatch {
  #health: Health = 'ok';
  #since: string | undefined;
  #reasons: DatedVerdict['reasons'] = [];
  /** Of each workspace where there are several, by its name. */
  readonly #each = new Map<string, HealthWatch>();

  /** Judges a snapshot of all workspaces, or of one of them. Snapshots come in the order of their times. */
  readonly judge = (snapshot: AdminSnapshot): DatedVerdict => {
    const { workspaces } = snapshot;
    if (workspaces.length > 1)
      for (const { workspace } of workspaces) this.judgeOne(snapshot, workspace ?? '');
    const verdict = judgeHealth(snapshot);
    this.#since ??= snapshot.startedAt;
    if (verdict.health !== this.#health) {
      this.#health = verdict.health;
      this.#since = snapshot.at;
    }
    this.#reasons = verdict.reasons.map((one) => {
      const before = this.#reasons.find(
        ({ code, workspace }) => code === one.code && workspace === one.workspace,
      );
      return { ...one, since: before?.since ?? snapshot.at };
    });
    return { ...verdict, reasons: this.#reasons, since: this.#since };
  };

  /** Judges one of several workspaces. */
  judgeOne(snapshot: AdminSnapshot, name: string): DatedVerdict {
    const watch = this.#each.get(name) ?? new HealthWatch();
    this.#each.set(name, watch);
    return watch.judge(snapshotOfOne(snapshot, name));
  }
}

/**
 * The document of `/status` as JSON, in one line. Its names are a contract, and every member is always there: one that
 * does not apply is null. Of several workspaces each has its own parts, in `workspaces`; of one they stand beside the rest.
 */
export function statusText(
  snapshot: AdminSnapshot,
  verdict: DatedVerdict,
  recentOf: (caller: string) => RecentRequests,
  purgeNeeds: PurgeNeeds,
): string {
  const { version, node, at, startedAt, uptimeSeconds, ready, notReady, ...parts } = snapshot;
  const { health, since, reasons } = verdict;
  const workspaces = snapshot.workspaces.map(({ gate, ...one }) => ({
    ...one,
    gate: { ...gate, callers: gate.callers.slice(0, maxCallers) },
  }));
  const none = {
    workspace: null,
    key: null,
    upstream: null,
    gate: null,
    circuit: null,
    cache: null,
    links: null,
  };
  const [only = none] = workspaces.length === 1 ? workspaces : [];
  const document = {
    version,
    node,
    at,
    startedAt,
    uptimeSeconds,
    health,
    since,
    reasons,
    ready,
    notReady,
    ...only,
    ...parts,
    callers: {
      ...parts.callers,
      list: parts.callers.list.map((one) => ({ ...one, recent: recentOf(one.name) })),
    },
    workspaces: only === none ? workspaces : [],
    purgeNeeds,
  };
  // The console's own view of the document is checked here.
  return JSON.stringify(document satisfies Status, (name, value) => (name === 'beside' ? undefined : value));
}
