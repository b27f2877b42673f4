/** What the console reads of `/status` and of the points of `/events`; `docs/metrics.md` lists all members. */

export interface Key {
  readonly loaded: boolean;
  readonly source: string;
  readonly fingerprint: string | null;
  readonly generation: number | null;
  readonly ageSeconds: number | null;
  readonly lastAcceptedAt: string | null;
  readonly lastRejectedAt: string | null;
  readonly rejected: boolean;
  readonly fallenBack: boolean;
  /** A new value of the store that is not used yet. */
  readonly newKey: { readonly standing: string } | null;
  readonly reloadFailures: number;
  readonly reloadFailure: string | null;
}

export interface Gate {
  readonly state: string;
  readonly closedForSeconds: number | null;
  readonly attemptsPerSecond: number | null;
  readonly waiting: number;
  readonly refusals: number;
  /** The limits that were told. */
  readonly limits: readonly {
    readonly window: string;
    readonly limit: number;
    readonly used: number;
    readonly remaining: number;
    readonly resetsInSeconds: number;
  }[];
  readonly callers: readonly {
    readonly name: string;
    readonly waiting: number;
    readonly oldestWaitSeconds: number | null;
    readonly refreshes: number;
  }[];
}

export interface Circuit {
  readonly state: string;
  readonly probeInSeconds: number | null;
  readonly failuresInARow: number;
  readonly operations: readonly { readonly operation: string; readonly state: string }[];
}

export interface Upstream {
  readonly attempts: number;
  readonly retries: number;
  readonly inFlight: number;
}

export interface Cache {
  readonly entries: number;
  readonly bytes: number;
  readonly maxBytes: number;
  readonly evictions: number;
}

export interface Workspace {
  readonly workspace: string | null;
  readonly key: Key;
  readonly gate: Gate;
  readonly circuit: Circuit;
  readonly upstream: Upstream;
  readonly cache: Cache;
}

/** Of several workspaces each has its own parts, in `workspaces`; of one they stand beside the rest. */
type Parts = Omit<Workspace, 'workspace'> | Record<Exclude<keyof Workspace, 'workspace'>, null>;

export interface Reason {
  readonly since: string;
  readonly cause: string | null;
  readonly detail: string;
  readonly todo: string;
}

export interface Counted {
  readonly workspace: string | null;
  readonly operation: string | null;
  readonly status: number | null;
  readonly cache: string | null;
  readonly count: number;
}

export interface Store {
  readonly address: string;
  readonly kind: string;
  readonly nodes: readonly string[];
  readonly inUse: boolean;
  readonly reason: string | null;
  readonly latencySeconds: number | null;
  readonly calls: number;
  readonly failures: number;
  readonly reads: { readonly found: number; readonly joined: number };
  readonly gate: { readonly role: string; readonly leader: string | null };
  readonly gateways: readonly {
    readonly id: string;
    readonly isThis: boolean;
    readonly host: string;
    readonly version: string;
    readonly startedAt: string;
    readonly figures: {
      readonly requests: number;
      readonly attempts: number;
      readonly waiting: number;
    } | null;
  }[];
}

/** Problems of one code, of one workspace. */
export interface ProblemGroup {
  /** Null for the unnamed workspace, and where none was known. */
  readonly workspace: string | null;
  readonly code: string;
  readonly count: number;
  /** The first few of the callers that got it, and how many they are; those beyond 50 are not counted. */
  readonly callers: readonly string[];
  readonly callerCount: number;
  readonly since: string;
  readonly lastAt: string;
  /** Of the last one that the gateway has numbered itself: nothing that callers send is shown. */
  readonly requestId: string | null;
  /** What lay behind the last one, as ECONNREFUSED, or the setting that decided. */
  readonly cause: string | null;
  /** What to do about it, in one sentence. */
  readonly todo: string;
}

export type Status = Parts & {
  readonly version: string;
  readonly at: string;
  readonly uptimeSeconds: number;
  readonly health: 'ok' | 'degraded' | 'failing';
  readonly since: string;
  readonly reasons: readonly Reason[];
  readonly requests: {
    readonly inFlight: number;
    readonly counts: readonly Counted[];
    readonly problemGroups: readonly ProblemGroup[];
  };
  readonly workspaces: readonly Workspace[];
  readonly callers: {
    readonly count: number;
    readonly problems: readonly string[];
    readonly list: readonly {
      readonly name: string;
      readonly operations: 'every' | readonly string[];
      readonly enforce: boolean;
      readonly by: readonly string[];
      readonly requests: number | null;
      readonly nextExpiry: string | null;
      /** Days. */
      readonly lastUse: readonly { readonly lastUsed: string | null }[];
      readonly recent: { readonly seconds: number; readonly requests: number; readonly refused: number };
    }[];
  };
  readonly sharedStore: Store | null;
  readonly process: { readonly residentBytes: number };
  readonly operations: readonly string[];
  readonly purgeNeeds: 'nothing' | 'token' | 'setting';
};

/** One look of the history, by the names of what is drawn; `at` in ms. */
export type Point = Readonly<Record<string, number | null>> & { readonly at: number };
