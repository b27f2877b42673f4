/** The caller of a request, as every layer behind its authentication sees it. */

export interface CallerLimit {
  /** Requests that come back each second. */
  readonly perSecond: number;
  /** Requests that may come at once. */
  readonly burst: number;
}

export interface Caller {
  readonly name: string;
  /** The operations granted by name; `every` only for the anonymous caller of a gateway without callers file. */
  readonly operations: ReadonlySet<string> | 'every';
  /** Share of the upstream's limit relative to the other callers'. */
  readonly weight: number;
  readonly limit?: CallerLimit;
  /** What the outbound layers know of the caller, prepared once. */
  readonly flow: { readonly name: string; readonly weight: number; readonly background: false };
}

export interface Authenticated {
  readonly caller: Caller;
  readonly by: 'token' | 'jwt' | 'fly' | 'anonymous';
  /** For the log: the `sub` of a JWT, its first 200 characters. */
  readonly subject?: string;
  /** For the log, as that an older token is still in use. */
  readonly note?: string;
}

/** What the edge read from the raw request. The target is never searched for a credential that would count. */
export interface Credentials {
  /** Names and values in turn, as received: Node merges repeated lines elsewhere, and that hides attacks. */
  readonly rawHeaders: readonly string[];
  /** The peer's address; `undefined` on a Unix socket. */
  readonly remoteAddress: string | undefined;
  readonly target: string;
}

export interface CallerFields {
  readonly name: string;
  readonly operations: ReadonlySet<string> | 'every';
  readonly weight?: number;
  readonly limit?: CallerLimit | undefined;
}

/** Makes a caller with its turn, once, so that a request allocates nothing for it. */
export function makeCaller({ name, operations, weight = 1, limit }: CallerFields): Caller {
  return {
    name,
    operations,
    weight,
    ...(limit === undefined ? {} : { limit }),
    flow: { name, weight, background: false },
  };
}

/** Whether this operation was granted to the caller. */
export function isGranted(caller: Caller, operation: string): boolean {
  return caller.operations === 'every' || caller.operations.has(operation);
}
