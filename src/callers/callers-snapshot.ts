/** The callers as the admin listener shows them: names, grants, when tokens end and were last used. */
import { toTime } from '../exchange/figures.ts';
import { writtenLimit } from './bucket.ts';
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
    /** Those to do something about; absent where there is none. */
    readonly ending?: EndingTokens;
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

/** Tokens that end within two weeks, or have ended with no successor. */
export interface EndingTokens {
  /** Each caller once, the first to end first. */
  readonly names: readonly string[];
  /** When the first of them ends. */
  readonly first: string;
}

/** When a token was last used. Nothing of its digest is shown. */
export interface TokenUse {
  /** Its place among the caller's tokens, as in `token list`: the oldest is 1. */
  readonly token: number;
  /** Null where it does not end. */
  readonly expires: string | null;
  /** The day, UTC; null where it was not used since the start. */
  readonly lastUsed: string | null;
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
  /** Of each token, the oldest first. */
  readonly lastUse: readonly TokenUse[];
  /** As `5000/1d`. */
  readonly limits: readonly string[];
  /** The claim by which people of a login have limits of their own. */
  readonly each: string | null;
  /** False: what its limits or grants would refuse passes. */
  readonly enforce: boolean;
}

/** @param most how many callers to describe: thousands take a while, and cache hits wait meanwhile */
export function snapshotCallers(
  { version, loadedAt, problems }: CallerStore,
  keySets: readonly KeySetSnapshot[],
  most?: number,
): CallersSnapshot {
  const { callers, entries, anonymous } = version.table;
  const expiries = listExpiries(version.table);
  const ending = endingSoon(expiries, Date.now());
  return {
    count: callers.length,
    loadedAt: toTime(loadedAt),
    problems,
    list: callers.slice(0, most).map((caller, index) => {
      const { tokens = [], jwt, fly, each = null } = entries[index] ?? {};
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
        lastUse: tokens.map(({ digest, expiresAt }, place) => ({
          token: place + 1,
          expires: Number.isFinite(expiresAt) ? toTime(expiresAt) : null,
          lastUsed: dayOf(version.table.tokens.get(digest)?.usedAt),
        })),
        limits: (caller.limits ?? []).map(writtenLimit),
        each,
        enforce: caller.enforce,
      };
    }),
    beside: {
      expiries,
      ...(ending.length > 0 && { ending: nameEnding(ending) }),
      logins: keySets.map((keys) => ({ ...keys, callers: callersTrusting(version.table.jwt, keys.address) })),
    },
  };
}

function dayOf(atMs = 0): string | null {
  return atMs === 0 ? null : toTime(atMs).slice(0, 10);
}

/** A token is told of this long before it ends, and this long after it has. */
const noticeMs = 14 * 86_400_000;

/** Those to do something about. What has ended and has a successor is done with; a caller's last is told of for a while. */
export function endingSoon(expiries: readonly TokenExpiry[], atMs: number): readonly TokenExpiry[] {
  return expiries.filter(({ expiresAt, isLast }) => {
    const leftMs = expiresAt - atMs;
    return leftMs <= noticeMs && (leftMs > 0 || (isLast && leftMs > -noticeMs));
  });
}

/** @param ending at least one */
export function nameEnding(ending: readonly TokenExpiry[]): EndingTokens {
  return {
    names: [...new Set(ending.map(({ caller }) => caller))],
    first: toTime(ending[0]?.expiresAt ?? 0),
  };
}

/** The names of the callers that trust the key set at an address. */
export function callersTrusting(rules: JwtRules, address: string): readonly string[] {
  return rules
    .filter(({ rule }) => rule.jwks === address)
    .map(({ authenticated }) => authenticated.caller.name);
}

/** A version of the file never changes, and a scrape must not sort thousands of tokens again. */
const knownExpiries = new WeakMap<CallerTable, readonly TokenExpiry[]>();

/** All tokens that end, the first to end first. */
export function listExpiries(table: CallerTable): readonly TokenExpiry[] {
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
