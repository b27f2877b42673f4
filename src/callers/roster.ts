/** One version of the callers file, prepared for recognition: everything a request needs is made here, once. */
import { type Caller, makeCaller, type Recognised } from './caller.ts';
import type { CallerEntry, FlyRule, JwtRule } from './callers-file.ts';
import type { CredentialFields } from './credential-policy.ts';

export interface EnrolledToken {
  readonly digest: string;
  /** Wall clock, ms; `Infinity` where it does not expire. */
  readonly expiresAt: number;
  readonly recognised: Recognised;
  /** The caller has a newer token. */
  readonly isOlder: boolean;
}

export interface Roster {
  readonly callers: readonly Caller[];
  readonly entries: readonly CallerEntry[];
  readonly tokens: ReadonlyMap<string, EnrolledToken>;
  /** In file order: the first that matches is the caller. */
  readonly jwt: readonly { readonly rule: JwtRule; readonly recognised: Recognised }[];
  readonly fly: readonly { readonly rule: FlyRule; readonly recognised: Recognised }[];
  readonly anonymous: Recognised | undefined;
  readonly fields: CredentialFields;
}

/** The roster of a gateway without callers file: one anonymous caller, who may do every operation. */
export function anonymousRoster(): Roster {
  const caller = makeCaller({ name: 'anonymous', operations: 'every' });
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

export function makeRoster(entries: readonly CallerEntry[]): Roster {
  const callers: Caller[] = [];
  const tokens = new Map<string, EnrolledToken>();
  const jwt: { rule: JwtRule; recognised: Recognised }[] = [];
  const fly: { rule: FlyRule; recognised: Recognised }[] = [];
  let anonymous: Recognised | undefined;
  for (const entry of entries) {
    const caller = makeCaller({ ...entry, operations: new Set(entry.operations) });
    callers.push(caller);
    for (const [index, { digest, expiresAt }] of entry.tokens.entries()) {
      const isOlder = index < entry.tokens.length - 1;
      const recognised: Recognised = {
        caller,
        by: 'token',
        ...(isOlder ? { note: `an older token (${digest.slice(0, 8)}) is still used` } : {}),
      };
      tokens.set(digest, { digest, expiresAt, recognised, isOlder });
    }
    if (entry.jwt !== undefined) jwt.push({ rule: entry.jwt, recognised: { caller, by: 'jwt' } });
    if (entry.fly !== undefined) fly.push({ rule: entry.fly, recognised: { caller, by: 'fly' } });
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
