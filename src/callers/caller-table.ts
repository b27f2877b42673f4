/** One version of the callers file, prepared for authentication: everything a request needs is made here, once. */
import { type Authenticated, type Caller, makeCaller } from './caller.ts';
import type { CallerEntry, FlyRule, JwtRule } from './callers-file.ts';
import type { CredentialFields } from './credential.ts';
import type { FlyRules } from './fly.ts';
import type { JwtRules } from './jwt.ts';

export interface CallerToken {
  readonly digest: string;
  /** Wall clock, ms; `Infinity` where it does not expire. */
  readonly expiresAt: number;
  readonly authenticated: Authenticated;
  /** The caller has a newer token. */
  readonly isOlder: boolean;
}

export interface CallerTable {
  readonly callers: readonly Caller[];
  readonly entries: readonly CallerEntry[];
  /** By digest. */
  readonly tokens: ReadonlyMap<string, CallerToken>;
  /** In file order: the first that matches is the caller. */
  readonly jwt: JwtRules;
  readonly fly: FlyRules;
  readonly anonymous: Authenticated | undefined;
  readonly fields: CredentialFields;
}

/**
 * The table of a gateway without callers file: one anonymous caller, who may do every operation.
 *
 * @param workspaces all that the gateway has
 */
export function anonymousTable(workspaces: readonly string[]): CallerTable {
  const caller = makeCaller({ name: 'anonymous', operations: 'every', workspaces });
  return {
    callers: [caller],
    entries: [],
    tokens: new Map(),
    jwt: [],
    fly: [],
    anonymous: { caller, by: 'anonymous' },
    fields: { assertions: [], fly: false },
  };
}

export function makeCallerTable(entries: readonly CallerEntry[]): CallerTable {
  const callers: Caller[] = [];
  const tokens = new Map<string, CallerToken>();
  const jwt: { rule: JwtRule; authenticated: Authenticated }[] = [];
  const fly: { rule: FlyRule; authenticated: Authenticated }[] = [];
  let anonymous: Authenticated | undefined;
  for (const entry of entries) {
    const caller = makeCaller({ ...entry, operations: new Set(entry.operations) });
    callers.push(caller);
    for (const token of tokensOf(entry, caller)) tokens.set(token.digest, token);
    if (entry.jwt !== undefined) jwt.push({ rule: entry.jwt, authenticated: { caller, by: 'jwt' } });
    if (entry.fly !== undefined) fly.push({ rule: entry.fly, authenticated: { caller, by: 'fly' } });
    if (entry.anonymous) anonymous = { caller, by: 'anonymous' };
  }
  const headers = new Set(jwt.map(({ rule }) => rule.header));
  headers.delete('authorization');
  return {
    callers,
    entries,
    tokens,
    jwt,
    fly,
    anonymous,
    fields: { assertions: [...headers], fly: fly.length > 0 },
  };
}

function tokensOf(entry: CallerEntry, caller: Caller): CallerToken[] {
  return entry.tokens.map(({ digest, expiresAt }, index) => {
    const isOlder = index < entry.tokens.length - 1;
    const note = isOlder ? { note: `an older token (${digest.slice(0, 8)}) is still used` } : {};
    return { digest, expiresAt, isOlder, authenticated: { caller, by: 'token', ...note } };
  });
}
