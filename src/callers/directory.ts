/**
 * Recognises callers. The one place that decides who somebody is; what they may do stands on the `Caller`.
 *
 * A static token is recognised without a promise: its digest is looked up in a map. Whatever is wrong with a
 * credential, the work and the answer are the same; the log alone knows more.
 */
import { readFileSync } from 'node:fs';
import { GatewayError } from '../errors.ts';
import type { Eventually } from '../layer.ts';
import type { Credentials, Recognised } from './caller.ts';
import { CallersFileError } from './callers-file.ts';
import { readCallersFile } from './callers-file-policy.ts';
import { presentedCredential } from './credential-policy.ts';
import { limitFailures } from './failures.ts';
import { watchFile } from './file-watch.ts';
import { anonymousRoster, type EnrolledToken, makeRoster, type Roster } from './roster.ts';
import { describeUnknownToken, digestOf, tokenPrefix } from './token.ts';

/** What whoever runs the gateway should read in its log. */
export type DirectoryEvent =
  | { readonly kind: 'reloaded'; readonly callers: number }
  /** A new version of the file has problems; the version before it stays in force. */
  | { readonly kind: 'version-refused'; readonly problems: readonly string[] }
  /** The file can't be read; the version before stays in force. */
  | { readonly kind: 'file-unreadable'; readonly cause: unknown }
  | { readonly kind: 'file-readable-again' }
  /** A caller still uses a token that has a newer one beside it. At most once an hour for each token. */
  | { readonly kind: 'older-token-used'; readonly caller: string; readonly token: string };

export interface DirectoryOptions {
  /** CALLERS_FILE; left out, only an anonymous caller exists. */
  readonly file?: string | undefined;
  /** The public listener is loopback or a Unix socket. */
  readonly loopbackOnly: boolean;
  /** CALLER_FAILURES_PER_MINUTE; 0 for no limit. */
  readonly failuresPerMinute: number;
  /** The names that may be granted. */
  readonly operations: ReadonlySet<string>;
  onEvent(event: DirectoryEvent): void;
}

export interface DirectorySnapshot {
  readonly callers: readonly {
    readonly name: string;
    readonly operations: readonly string[] | 'every';
    readonly weight: number;
    /** The ways to be this caller, as `token`, `jwt`. */
    readonly by: readonly string[];
    readonly tokens: readonly { readonly token: string; readonly expires: string | undefined }[];
  }[];
  /** Wall clock, ms: when the version in force was read. */
  readonly loadedAt: number;
  /** What is wrong with the newest version of the file, where that was refused. */
  readonly problems: readonly string[];
}

export interface Directory {
  /**
   * Says who sent the request.
   * @throws GatewayError `caller-unauthenticated`, or `caller-rate-limited` after too many failures (a rejection
   * where a JWT had to be verified)
   */
  recognise(credentials: Credentials): Eventually<Recognised>;
  /** Somebody without a credential may be a caller: then the Host and Origin checks have to hold. */
  readonly admitsAnonymous: boolean;
  snapshot(): DirectorySnapshot;
  close(): void;
}

const remindEveryMs = 3_600_000;
const challenge = 'Bearer realm="analytics-gateway"';

/** Opens the directory of callers. @throws CallersFileError with every problem of the file */
export function openDirectory(options: DirectoryOptions): Directory {
  const { file, onEvent } = options;
  if (file === undefined && !options.loopbackOnly) {
    throw new CallersFileError([
      'without a callers file, the gateway may listen only on loopback or a Unix socket',
    ]);
  }
  const failures = limitFailures(options.failuresPerMinute);
  let text = '';
  let roster: Roster;
  let problems: readonly string[] = [];
  let loadedAt = Date.now();
  let reminders = new Map<string, number>();

  if (file === undefined) {
    roster = anonymousRoster();
  } else {
    try {
      text = readFileSync(file, 'utf8');
    } catch (cause) {
      const code = cause instanceof Error && 'code' in cause ? String(cause.code) : 'unknown error';
      throw new CallersFileError([`the callers file can't be read (${code})`]);
    }
    const reading = readCallersFile(text, options);
    if (reading.problems.length > 0) throw new CallersFileError(reading.problems);
    roster = makeRoster(reading.entries);
  }

  function adopt(newText: string, isSecondLook: boolean): boolean {
    const reading = readCallersFile(newText, options);
    if (reading.problems.length > 0) {
      if (isSecondLook) {
        problems = reading.problems;
        onEvent({ kind: 'version-refused', problems });
      }
      return false;
    }
    roster = makeRoster(reading.entries);
    problems = [];
    loadedAt = Date.now();
    reminders = new Map();
    onEvent({ kind: 'reloaded', callers: roster.callers.length });
    return true;
  }

  function onTrouble(cause: unknown): void {
    onEvent(cause === undefined ? { kind: 'file-readable-again' } : { kind: 'file-unreadable', cause });
  }

  const stopWatching = file === undefined ? () => {} : watchFile({ file, text, onText: adopt, onTrouble });

  /** The same answer for every credential that fails; why is for the log. */
  function refuse(credentials: Credentials, reason: string, wasPresented: boolean): never {
    const retryAfterMs = failures.count(credentials.remoteAddress);
    if (retryAfterMs > 0) {
      throw new GatewayError('caller-rate-limited', {
        reason: `too many failed authentications from this address; this one: ${reason}`,
        detail: 'Too many requests from this address had no valid credential.',
        retryAfterMs,
      });
    }
    throw new GatewayError('caller-unauthenticated', {
      reason,
      // RFC 6750 section 3.1: an error code only where something was presented.
      headers: { 'www-authenticate': wasPresented ? `${challenge}, error="invalid_token"` : challenge },
    });
  }

  function remind(token: EnrolledToken, now: number): void {
    const last = reminders.get(token.digest);
    if (last !== undefined && now - last < remindEveryMs && now >= last) return;
    reminders.set(token.digest, now);
    onEvent({
      kind: 'older-token-used',
      caller: token.recognised.caller.name,
      token: token.digest.slice(0, 8),
    });
  }

  function recogniseToken(credentials: Credentials, value: string): Recognised {
    const token = roster.tokens.get(digestOf(value));
    const now = Date.now();
    if (token === undefined) return refuse(credentials, describeUnknownToken(value), true);
    if (now >= token.expiresAt) {
      const { caller } = token.recognised;
      return refuse(credentials, `an expired token (${token.digest.slice(0, 8)}) of ${caller.name}`, true);
    }
    if (token.isOlder) remind(token, now);
    return token.recognised;
  }

  return {
    recognise(credentials) {
      if (file === undefined && roster.anonymous !== undefined) return roster.anonymous;
      const presented = presentedCredential(credentials.rawHeaders, roster.fields);
      switch (presented.kind) {
        case 'token':
          return recogniseToken(credentials, presented.value);
        case 'none':
          if (roster.anonymous !== undefined) return roster.anonymous;
          return refuse(
            credentials,
            credentials.target.includes(tokenPrefix)
              ? 'a token in the URL, where it never counts'
              : 'no credential',
            false,
          );
        case 'malformed':
          return refuse(credentials, presented.reason, true);
        default:
          return refuse(credentials, 'a credential of a kind that is not recognised', true);
      }
    },
    get admitsAnonymous() {
      return roster.anonymous !== undefined;
    },
    snapshot: () => ({
      callers: roster.callers.map((caller, index) => {
        const entry = roster.entries[index];
        const by = (['jwt', 'fly'] as const).filter((way) => entry?.[way] !== undefined) as string[];
        if ((entry?.tokens.length ?? 0) > 0) by.unshift('token');
        if (roster.anonymous?.caller === caller) by.push('anonymous');
        return {
          name: caller.name,
          operations: caller.operations === 'every' ? 'every' : [...caller.operations],
          weight: caller.weight,
          by,
          tokens: (entry?.tokens ?? []).map(({ digest, expiresAt }) => ({
            token: digest.slice(0, 8),
            expires: Number.isFinite(expiresAt) ? new Date(expiresAt).toISOString() : undefined,
          })),
        };
      }),
      loadedAt,
      problems,
    }),
    close: stopWatching,
  };
}
