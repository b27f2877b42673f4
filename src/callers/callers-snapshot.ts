/** The callers as the admin listener shows them: names, grants, and when tokens end; nothing of a token. */
import { toTime } from '../exchange/durations.ts';
import type { CallerStore, CallerTable } from './caller-store.ts';
import type { JwtRules } from './jwt.ts';
import type { KeySetSnapshot } from './key-set.ts';

/** The callers' part of `/status`, but for their requests; `beside` is for verdict and metrics alone. */
export interface CallersSnapshot {
  /** How many callers there are; as many of them as were asked for are in the list. */
  readonly count: number;
  /** When the version in force was read. */
  readonly loadedAt: string;
  /** What is wrong with the newest version of the file, where that was refused. */
  readonly problems: readonly string[];
  readonly list: readonly CallerSnapshot[];
  readonly beside: {
    /** The tokens that end, the first to end first. */
    readonly expiries: readonly TokenExpiry[];
    /** The keys of company logins. */
    readonly logins: readonly LoginKeys[];
  };
}

/** The key set of a company login, and the callers that it makes. */
export interface LoginKeys extends KeySetSnapshot {
  readonly callers: readonly string[];
}

export interface TokenExpiry {
  readonly caller: string;
  /** Wall clock, ms. */
  readonly expiresAt: number;
  /** No other token of the caller ends later. */
  readonly isLast: boolean;
}

export interface CallerSnapshot {
  readonly name: string;
  readonly operations: readonly string[] | 'every';
  /** Null for the unnamed one. */
  readonly workspaces: readonly (string | null)[];
  readonly weight: number;
  /** The ways to be this caller, as `token`, `jwt`. */
  readonly by: readonly string[];
  /** How many it has. */
  readonly tokens: number;
  /** When the first of them ends. */
  readonly nextExpiry: string | null;
}

/** @param most how many callers to describe: thousands take a while, and cache hits wait meanwhile */
export function snapshotCallers(
  { version, loadedAt, problems }: CallerStore,
  keySets: readonly KeySetSnapshot[],
  most?: number,
): CallersSnapshot {
  const { callers, entries, anonymous } = version.table;
  return {
    count: callers.length,
    loadedAt: toTime(loadedAt),
    problems,
    list: callers.slice(0, most).map((caller, index) => {
      const { tokens = [], jwt, fly } = entries[index] ?? {};
      const first = Math.min(...tokens.map(({ expiresAt }) => expiresAt));
      const by = [
        ...(tokens.length > 0 ? ['token'] : []),
        ...(jwt === undefined ? [] : ['jwt']),
        ...(fly === undefined ? [] : ['fly']),
        ...(anonymous?.caller === caller ? ['anonymous'] : []),
      ];
      return {
        name: caller.name,
        operations: caller.operations === 'every' ? 'every' : [...caller.operations],
        workspaces: [...caller.workspaces].map((name) => name || null),
        weight: caller.weight,
        by,
        tokens: tokens.length,
        nextExpiry: Number.isFinite(first) ? toTime(first) : null,
      };
    }),
    beside: {
      expiries: expiriesOf(version.table),
      logins: keySets.map((keys) => ({ ...keys, callers: callersOf(version.table.jwt, keys.address) })),
    },
  };
}

/** The names of the callers that trust the key set at an address. */
export function callersOf(rules: JwtRules, address: string): readonly string[] {
  return rules
    .filter(({ rule }) => rule.jwks === address)
    .map(({ authenticated }) => authenticated.caller.name);
}

/** A version of the file never changes, and a scrape must not sort thousands of tokens again. */
const knownExpiries = new WeakMap<CallerTable, readonly TokenExpiry[]>();

function expiriesOf(table: CallerTable): readonly TokenExpiry[] {
  const known = knownExpiries.get(table);
  if (known !== undefined) return known;
  const expiries = table.entries
    .flatMap(({ name: caller, tokens }) => {
      const latest = Math.max(...tokens.map(({ expiresAt }) => expiresAt));
      return tokens.map(({ expiresAt }) => ({ caller, expiresAt, isLast: expiresAt === latest }));
    })
    .filter(({ expiresAt }) => Number.isFinite(expiresAt))
    .toSorted((one, other) => one.expiresAt - other.expiresAt);
  knownExpiries.set(table, expiries);
  return expiries;
}
