/** The caller of a request, as every layer behind its authentication sees it. */
import { personSeparator } from '../exchange/request-context.ts';

export interface CallerLimit {
  /** Requests that come back each second; on average, of a limit with windows. */
  readonly perSecond: number;
  /** Requests that may come at once. */
  readonly burst: number;
  /** All of them come back when a window begins. Windows begin at multiples of this, UTC: one of a day at midnight. */
  readonly windowMs?: number;
}

export interface Caller {
  readonly name: string;
  /** The operations granted by name; `every` only for the anonymous caller of a gateway without callers file. */
  readonly operations: ReadonlySet<string> | 'every';
  /** The workspaces granted by name; the unnamed one has the empty name. */
  readonly workspaces: ReadonlySet<string>;
  /** The workspace of a request that names none; `undefined` where none is granted that could be meant. */
  readonly usualWorkspace: string | undefined;
  /** Share of the upstream's limit relative to the other callers'. */
  readonly weight: number;
  /** All of them hold at once. Absent where there is none. */
  readonly limits?: readonly CallerLimit[];
  /** False: what its limits or grants would refuse passes, is logged and counted. */
  readonly enforce: boolean;
  /** What the outbound layers know of the caller, prepared once. Its name is that of the caller or of one person. */
  readonly flow: { readonly name: string; readonly weight: number; readonly background: false };
}

export interface Authenticated {
  readonly caller: Caller;
  readonly by: 'token' | 'jwt' | 'fly' | 'anonymous';
  /** For the log: the `sub` of a JWT, its first 200 characters. */
  readonly subject?: string;
  /** When the credential ends, wall clock, ms. Absent where it does not. */
  readonly expiresAt?: number;
  /** For the log, as that an older token is still in use. */
  readonly note?: string;
}

/** What the edge read from the raw request. The target is never searched for a credential that would count. */
export interface Credentials {
  /** Names and values in turn, as received: Node merges repeated lines elsewhere, and that hides attacks. */
  readonly rawHeaders: readonly string[];
  /** The other end of the connection; `undefined` on a Unix socket. */
  readonly remoteAddress: string | undefined;
  /** Whom a failure counts for: its address may be told by TRUSTED_PROXIES, and nothing is granted by it. */
  readonly peer: string | undefined;
  readonly target: string;
}

export interface CallerFields {
  readonly name: string;
  readonly operations: ReadonlySet<string> | 'every';
  /** The unnamed one where left out. */
  readonly workspaces?: readonly string[];
  readonly weight?: number;
  readonly limits?: readonly CallerLimit[];
  readonly enforce?: boolean;
}

/** The name of the workspace that has none. */
export const unnamedWorkspace = '';

/** The only workspace that is granted, else the unnamed one. */
function usualOf(granted: readonly string[]): string | undefined {
  if (granted.length === 1) return granted[0];
  return granted.includes(unnamedWorkspace) ? unnamedWorkspace : undefined;
}

/** Makes a caller with its turn, once, so that a request allocates nothing for it. */
export function makeCaller({
  name,
  operations,
  workspaces = [unnamedWorkspace],
  weight = 1,
  limits = [],
  enforce = true,
}: CallerFields): Caller {
  return {
    name,
    operations,
    workspaces: new Set(workspaces),
    usualWorkspace: usualOf(workspaces),
    weight,
    ...(limits.length === 0 ? {} : { limits }),
    enforce,
    flow: { name, weight, background: false },
  };
}

/**
 * One of the people that an entry matches, with limits and a turn of their own.
 *
 * @param digest of what tells people apart: names of flows are shown, and are nothing personal
 */
export function makePerson(caller: Caller, digest: string): Caller {
  return { ...caller, flow: { ...caller.flow, name: `${caller.name}${personSeparator}${digest}` } };
}

/** Whether this is one of the people of an entry. */
export function isPerson({ name, flow }: Caller): boolean {
  return flow.name !== name;
}

/**
 * The workspaces of a caller that is granted none by name.
 *
 * @param all that the gateway has
 * @returns the unnamed one, or the only one there is; `undefined` where neither exists
 */
export function usualWorkspaces(all: readonly string[]): readonly string[] | undefined {
  const usual = usualOf(all);
  return usual === undefined ? undefined : [usual];
}

/** Whether this operation was granted to the caller. */
export function isGranted(caller: Caller, operation: string): boolean {
  return caller.operations === 'every' || caller.operations.has(operation);
}

/** What the log says about callers, their file and the keys of their issuers. */
export type CallersEvent =
  | { readonly kind: 'reloaded'; readonly callers: number }
  /** A new version of the file has problems; the version before it stays in force. */
  | { readonly kind: 'version-refused'; readonly problems: readonly string[] }
  /** The file can't be read; the version before stays in force. */
  | { readonly kind: 'file-unreadable'; readonly reason: string; readonly cause: unknown }
  | { readonly kind: 'file-readable-again' }
  /** A caller still uses a token that has a newer one beside it. At most once an hour for each token. */
  | { readonly kind: 'older-token-used'; readonly caller: string; readonly token: string }
  /** Tokens end within two weeks, or have ended with no successor. Once a day. */
  | { readonly kind: 'tokens-ending'; readonly names: readonly string[]; readonly first: string }
  /** The keys of an issuer can't be fetched: the last ones, where there were any, serve for a day. Reported once. */
  | {
      readonly kind: 'keys-unavailable';
      readonly address: string;
      readonly hasKeys: boolean;
      readonly cause: unknown;
    }
  | { readonly kind: 'keys-available-again'; readonly address: string };
